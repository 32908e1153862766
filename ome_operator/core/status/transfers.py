"""Build the condition TransfersWork, which reports pairs of a prefill and a decode leader between which transfers of KV
caches fail.
"""

from collections.abc import Iterable

from ome_operator import names
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.transfers import FailingPair
from ome_operator.core.reasons import TRANSFERS_WORK, Reason
from ome_operator.core.status.conditions import Condition

SHOWN = 4
"""Maximum number of pairs in the message."""


def transfers_condition(reports: Iterable[tuple[FailingPair, ...]], pods: Iterable[Pod]) -> Condition | None:
    """Return the condition TransfersWork; None if no router's registry reports that transfers between two of these pods
    fail.

    If several registries report the same pair, the report with the most failed probes is shown.
    """
    leaders = {names.public_digest(pod.uid): pod for pod in pods if pod.rank == 0}
    found: dict[tuple[str, str], FailingPair] = {}
    for pair in sorted((pair for report in reports for pair in report), key=lambda pair: pair.failed):
        if pair.prefill in leaders and pair.decode in leaders:
            found[pair.prefill, pair.decode] = pair
    if not found:
        return None
    several = len({leaders[mark].revision for ends in found for mark in ends}) > 1

    def title(role: str, mark: str) -> str:
        pod = leaders[mark]
        return f"{role}-{pod.group}" + (f" of revision {pod.revision}" if several else "")

    def sentence(pair: FailingPair) -> str:
        ends = {"prefill": title("prefill", pair.prefill), "decode": title("decode", pair.decode)}
        partners = ("prefill", "decode", pair.prefill_works_with), ("decode", "prefill", pair.decode_works_with)
        works = [f"{ends[role]} works with {title(other, mark)}" for role, other, mark in partners if mark in leaders]
        probes = f"{ends['prefill']} -> {ends['decode']}: {pair.failed} of {pair.probes} probes failed"
        return "; ".join((probes, *works))

    messages = sorted(map(sentence, found.values()))
    more = f". {len(messages) - SHOWN} more pairs fail" if len(messages) > SHOWN else ""
    return Condition(TRANSFERS_WORK, False, Reason.TRANSFERS_FAIL, ". ".join(messages[:SHOWN]) + more)
