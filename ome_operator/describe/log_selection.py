"""Selects the pods whose logs are shown, and defines the label of each pod, such as `decode/0/1`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ome_operator import keys, quantity
from ome_operator.core.observed.objects import Pod
from ome_operator.describe.text import numbers
from ome_operator.names import role_title


@dataclass(frozen=True)
class PodChoice:
    """The user's choice of pods. A field that is None does not restrict the choice."""

    role: str | None = None
    """The chosen role: prefill, decode, engine, decoder or router."""
    group: int | None = None
    rank: int | None = None

    def selects(self, pod: Pod, role: str) -> bool:
        """Return whether the user chose this pod, which has the role `role`."""
        engine = pod.component != keys.ROUTER
        return (
            self.role in (None, role, pod.component)
            and (self.group is None or (engine and self.group == pod.group))
            and (self.rank is None or (engine and self.rank == pod.rank))
        )


def pod_labels(pods: Iterable[Pod], choice: PodChoice) -> dict[str, str]:
    """Return the label of each chosen pod, by name of the pod and in sorted order. A label is `role/group/rank`; it
    contains the revision if there are pods of several revisions.
    """
    every = list(pods)
    both = any(pod.component == keys.DECODER for pod in every)
    several = len({pod.revision for pod in every}) > 1
    found: list[tuple[str, int, int, str, str]] = []
    for pod in every:
        role = role_title(pod.component, both)
        if not choice.selects(pod, role):
            continue
        place = pod.name.rpartition("-")[2] if pod.component == keys.ROUTER else f"{pod.group}/{pod.rank}"
        behind = f"@{pod.revision}" if several else ""
        found.append((_ORDER.get(pod.component, ""), pod.group, pod.rank, pod.name, f"{role}/{place}{behind}"))
    return {name: label for _, _, _, name, label in sorted(found)}


_ORDER = {keys.ENGINE: "a", keys.DECODER: "b", keys.ROUTER: "c"}


def explain_no_pods(pods: Iterable[Pod], choice: PodChoice) -> str:
    """Return a text that states why no pod was chosen, and what the user could choose."""
    every = list(pods)
    both = any(pod.component == keys.DECODER for pod in every)
    roles: dict[str, list[Pod]] = {}
    for pod in every:
        roles.setdefault(role_title(pod.component, both), []).append(pod)
    if not roles:
        return "it has no pods"
    groups = (
        f"{role} (groups {numbers({pod.group for pod in mine})}, ranks {numbers({pod.rank for pod in mine})})"
        if mine[0].component != keys.ROUTER
        else role
        for role, mine in roles.items()
    )
    return f"no pod matches these options; the service has {', '.join(groups)}"


def parse_seconds(text: str) -> int | None:
    """Return the number of seconds in a duration such as `90`, `30s`, `5m` or `1h30m`; None if the text is invalid."""
    if not re.fullmatch(r"([0-9]{1,9}[hms])+|[0-9]{1,9}", text):
        return None
    return int(quantity.seconds(text if text[-1] in "hms" else f"{text}s"))


def sort_key(when: str) -> tuple[str, str]:
    """Return a sort key for a time: its RFC 3339 text up to the seconds, and the fraction of the second; ("", "") for
    another text. Times from different nodes can be compared only if the nodes write them in UTC.
    """
    match = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?", when)
    return (match[1], (match[2] or "").ljust(9, "0")) if match else ("", "")
