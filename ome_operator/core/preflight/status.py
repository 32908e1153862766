"""Summarize the results of the checks over all pods of a service: a condition, and a few lines for each group."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed.objects import Pod
from ome_operator.core.preflight.results import OWN, CheckResult, PreflightFinding
from ome_operator.core.reasons import PREFLIGHT, Reason
from ome_operator.core.status.conditions import Condition

ABSENT = "absent"
"""Name of the check that reports a missing rank. Its findings are ignored once the group serves."""
LINES = 8
"""Maximum number of lines about a group in the status."""


class GroupChecked(NamedTuple):
    """The findings of the checks in a group."""

    title: str
    """Name of the group in messages, such as "prefill group 0"."""
    lines: tuple[str, ...]
    held: bool


def findings_of_groups(pods: Collection[Pod]) -> dict[str, GroupChecked]:
    """Return a mapping from the name of a group's leader pod to the findings about the group. Groups without findings are
    left out, unless a check prevents their engine from starting.
    """
    if all(pod.preflight is None for pod in pods):
        return {}
    both = any(pod.component == keys.DECODER for pod in pods)
    groups: dict[tuple[str, str, int], list[Pod]] = {}
    for pod in pods:
        if pod.component != keys.ROUTER and not pod.deleting:
            groups.setdefault((pod.component, pod.revision, pod.group), []).append(pod)
    out = {}
    for (component, revision, number), members in sorted(groups.items()):
        lines = tuple(_lines(members))
        held = any(pod.preflight is not None and pod.preflight.held for pod in members)
        if lines or held:
            name = names.leader_pod(names.object_prefix(members[0].service, component, revision), number)
            out[name] = GroupChecked(f"{names.role_title(component, both)} group {number}", lines, held)
    return out


def merge_findings(said: Mapping[int, CheckResult | None]) -> list[PreflightFinding]:
    """Return the findings about a group without duplicates: several ranks may report the same finding. `said` maps ranks to
    their results. In the returned findings, `rank` is never `OWN`.
    """
    out: dict[tuple[int, str, str], PreflightFinding] = {}
    for number, checked in sorted(said.items()):
        for found in checked.findings if checked is not None else ():
            rank = number if found.rank == OWN else found.rank
            out.setdefault((rank, found.check, found.said), found._replace(rank=rank))
    return [out[key] for key in sorted(out)]


def line(preflight_finding: PreflightFinding, node: str) -> str:
    """Return a line of text about a finding: its rank, the node of the rank (`node`, "" if unknown), the cause and the
    fix.
    """
    where = f"rank {preflight_finding.rank}" + (f" on node {node}" if node else "")
    return f"{where}: {preflight_finding._replace(rank=OWN).sentence}"


def _lines(members: list[Pod]) -> list[str]:
    """Return the lines about the findings of a group, at most `LINES`. `members` are the pods of the group."""
    nodes = {pod.rank: pod.node for pod in members}
    serves = any(pod.rank == 0 and pod.ready for pod in members)
    found = [
        each
        for each in merge_findings({pod.rank: pod.preflight for pod in members})
        if not (serves and each.check == ABSENT)
    ]
    out = [line(each, nodes.get(each.rank, "")) for each in found]
    more = len(out) - LINES
    return out if more <= 0 else [*out[: LINES - 1], f"and {more + 1} more findings"]


def condition(found: Mapping[str, GroupChecked]) -> Condition | None:
    """Return the condition Preflight with the status False, or None if no group has findings. `found` is the result of
    `findings_of_groups`.
    """
    if not found:
        return None
    held = any(group.held for group in found.values())
    groups = sorted(found.values(), key=lambda group: not group.held)
    message = "; ".join(f"{group.title}{' waits' if group.held else ''}, {', '.join(group.lines)}" for group in groups)
    return Condition(PREFLIGHT, False, Reason.PREFLIGHT_FAILED if held else Reason.PREFLIGHT_FINDINGS, message)


def add_findings(groups: Iterable[Mapping[str, Any]], found: Mapping[str, GroupChecked]) -> tuple[dict[str, Any], ...]:
    """Return `groups`, the entries of `status.groups`, each with the findings of its group if it has any. `found` is the
    result of `findings_of_groups`.
    """
    return tuple(
        {**group, "preflight": list(found[group["name"]].lines)} if group["name"] in found else dict(group)
        for group in groups
    )
