"""Formats the results of `ome preflight`. The report contains the rank, node, cause and remedy of each finding, and the
ranks without a result.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.observed import from_api
from ome_operator.core.preflight import results
from ome_operator.core.preflight.on_demand import RankKey, Trial
from ome_operator.core.preflight.results import CheckResult
from ome_operator.core.preflight.status import ABSENT, line, merge_findings
from ome_operator.describe.text import numbers
from ome_operator.names import role_title
from ome_operator.util.visible import make_visible
from ome_operator.util.wording import count


class RankCheck(NamedTuple):
    """The preflight check of one rank, and its state."""

    service: str
    """The service of the rank, as `namespace/name`."""
    role: str
    """The role of the rank: prefill, decode or engine."""
    group: int
    rank: int
    node: str
    """Name of the node on which the check runs; "" while the check has no node."""
    result: CheckResult | None
    """Result of the check; None until the check has ended."""
    runs: bool
    """Whether the check is running."""
    over: bool
    """Whether no further result of the check will come."""
    why: str
    """A text about why the check has not started, or about how it went; "" if there is nothing to report."""


class RankFinding(NamedTuple):
    """A problem that a check found on a rank."""

    service: str
    role: str
    group: int
    rank: int
    node: str
    check: str
    cause: str
    fix: str


class RankWithoutResult(NamedTuple):
    """A rank whose check has no result."""

    service: str
    role: str
    group: int
    rank: int
    node: str
    why: str


class PreflightReport(NamedTuple):
    """The results of `ome preflight`."""

    seconds: float
    ranks: int
    looked: int
    """Number of ranks whose check has ended."""
    nodes: tuple[str, ...]
    """Names of the nodes on which checks have ended."""
    findings: tuple[RankFinding, ...]
    missed: tuple[RankWithoutResult, ...]


def rank(trial: Trial, place: RankKey, body: Mapping[str, Any] | None) -> RankCheck:
    """Return the check of a rank and its state. `body` is the check pod of the rank; None if this pod no longer exists."""
    service, role = f"{trial.namespace}/{trial.service}", role_title(place.component, trial.is_disaggregated)
    if body is None:
        return RankCheck(service, role, place.group, place.rank, "", None, runs=False, over=True, why="its pod was removed")
    status, pod = body.get("status") or {}, from_api.pod(body)
    box = trial.pods[place]["spec"]["containers"][0]["name"]
    checked = results.parse_only_container(status, box)
    runs = checked is None and results.has_begun(status, box) and not pod.over
    why = f"{pod.reason}: {pod.message}" if pod.message else pod.reason
    if checked is not None or runs:
        why = "" if checked is not None else "the check did not end in time"
    over = checked is not None or pod.over or pod.deleting
    return RankCheck(service, role, place.group, place.rank, pod.node, checked, runs, over, why)


def report(ranks: Iterable[RankCheck], seconds: float) -> PreflightReport:
    """Combine the checks of all ranks into a report. `seconds` is the duration of the checks. If the check of a rank
    has no result, the report lists the rank as not checked, and leaves out the finding of other ranks that it is absent.
    """
    groups: dict[tuple[str, str, int], dict[int, RankCheck]] = {}
    for each in ranks:
        groups.setdefault((each.service, each.role, each.group), {})[each.rank] = each
    findings, missed = [], []
    for (service, role, group), members in groups.items():
        away = {number for number, each in members.items() if each.result is None}
        for found in merge_findings({number: each.result for number, each in members.items()}):
            if found.check == ABSENT and found.rank in away:
                continue
            node = members[found.rank].node if found.rank in members else ""
            fix = found.fix.replace(results.LOG, "its log (use --logs)")
            findings.append(RankFinding(service, role, group, found.rank, node, found.check, found.said, fix))
        missed += [
            RankWithoutResult(service, role, group, number, members[number].node, members[number].why)
            for number in sorted(away)
        ]
    every = [each for members in groups.values() for each in members.values()]
    looked = [each for each in every if each.result is not None]
    nodes = tuple(sorted({each.node for each in looked if each.node}))
    return PreflightReport(round(seconds, 1), len(every), len(looked), nodes, tuple(findings), tuple(missed))


def report_lines(preflight_report: PreflightReport) -> list[str]:
    """Return the lines of the report for people."""
    every: list[RankFinding | RankWithoutResult] = [*preflight_report.findings, *preflight_report.missed]
    services = {each.service for each in every}
    several = {(each.service, each.role) for each in every if each.group}

    def where(each: RankFinding | RankWithoutResult) -> str:
        group = f"{each.role} group {each.group}" if (each.service, each.role) in several else each.role
        return f"{each.service}: {group}" if len(services) > 1 else group

    out = [
        f"{where(each)}, {line(results.PreflightFinding(each.check, each.rank, each.cause, each.fix), each.node)}"
        for each in preflight_report.findings
    ]
    alike: dict[tuple[str, str, str], list[RankWithoutResult]] = {}
    for missed in preflight_report.missed:
        alike.setdefault((where(missed), missed.node, missed.why), []).append(missed)
    for (group, node, why), members in alike.items():
        several_ranks = len(members) > 1
        whom = f"{group}, rank{'s' if several_ranks else ''} {numbers(each.rank for each in members)}"
        how = f"on node {node} {'were' if several_ranks else 'was'} not checked"
        how = how if node else f"{'have' if several_ranks else 'has'} no node"
        out.append(f"{whom} {how}: {why or 'no reason is known'}")
    return [make_visible(each) for each in [*out, summary(preflight_report)]]


def summary(preflight_report: PreflightReport) -> str:
    """Return a sentence with the number of ranks that were checked, and the number of findings."""
    if not preflight_report.looked:
        return f"none of {count(preflight_report.ranks, 'rank')} was checked in {preflight_report.seconds:g} s"
    ranks = (
        count(preflight_report.ranks, "rank")
        if preflight_report.looked == preflight_report.ranks
        else f"{preflight_report.looked} of {count(preflight_report.ranks, 'rank')}"
    )
    found = count(len(preflight_report.findings), "finding") if preflight_report.findings else "nothing found"
    return f"{ranks} on {count(len(preflight_report.nodes), 'node')}: {found} in {preflight_report.seconds:g} s"


def progress(ranks: Sequence[RankCheck]) -> str:
    """Return a sentence about the ranks that have not started; "" if all ranks have started."""
    waits = [each for each in ranks if not (each.runs or each.over)]
    if not waits:
        return ""
    why = next((each.why for each in waits if not each.node), waits[0].why)
    placed = sum(bool(each.node) for each in ranks)
    message = f"{len(ranks) - len(waits)} of {count(len(ranks), 'rank')} run, {placed} placed"
    return make_visible(f"{message}: {why}" if why else message)


def occupied(why: str) -> bool:
    """Return whether other pods may be the reason why a pod gets no node. `why` is the scheduler's message."""
    return any(part in why for part in _OCCUPIED)


_OCCUPIED = ("Insufficient ", "free ports", "anti-affinity")
"""Parts of the scheduler's messages about nodes that could take a pod only if other pods ended."""


def in_place(service: str, namespace: str, stored: bool) -> str:
    """Return what a user can do if the check cannot run now, because pods of the service occupy the nodes. An annotation
    lets the check run on these nodes before each engine starts. `stored` states whether the service exists on the cluster.
    """
    mode = f"{keys.PREFLIGHT}: Warn"
    held = (
        f"Other pods use the nodes. To check the nodes before each engine at its next start, set the annotation {mode} of "
        "the service."
    )
    if not stored:
        return f"{held} Add it to the metadata of the service, then apply the file."
    command = f"kubectl annotate isvc {service} -n {namespace} --overwrite {keys.PREFLIGHT}=Warn"
    return (
        f"{held} The following command sets the annotation, which creates a new revision and replaces the groups: {command}"
    )
