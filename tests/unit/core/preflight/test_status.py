"""Tests of the message about preflight findings: the rank, the node, the cause and the remedy."""

from typing import Any

from ome_operator.core.observed.objects import Pod
from ome_operator.core.preflight.results import OWN, CheckResult, PreflightFinding
from ome_operator.core.preflight.status import LINES, add_findings, condition, findings_of_groups
from tests.unit.core.rollout.makers import pod

SHM = PreflightFinding("shm", OWN, "/dev/shm has 16 MiB", "mount more")
ABOUT_1 = SHM._replace(rank=1)
LATE = PreflightFinding("absent", 2, "rank 2 did not come", "look at its pod")


def rank(number: int, *found: PreflightFinding, held: bool = False, ready: bool = False, **more: Any) -> Pod:
    """Return a rank of decode group 4."""
    said = CheckResult(found, held) if found or held else None
    return pod(f"p{number}", number, 4, "decoder", ready=ready, **more)._replace(preflight=said, node=f"n{number}")


def test_ranks_without_findings_give_no_condition() -> None:
    assert findings_of_groups([rank(0), rank(1)]) == {} and condition({}) is None


def test_each_finding_once_with_rank_and_node() -> None:
    """A finding about one rank that several ranks report appears once in the message, with the rank and its node."""
    found = findings_of_groups([rank(0, ABOUT_1), rank(1, SHM), rank(2, ABOUT_1)])
    ((name, group),) = found.items()
    assert group.lines == ("rank 1 on node n1: shm: /dev/shm has 16 MiB (mount more)",) and not group.held
    told = condition(found)
    assert told is not None and (told.type, told.status, told.reason) == ("Preflight", False, "PreflightFindings")
    assert told.message == f"decode group 4, {group.lines[0]}"
    status = add_findings([{"name": name}, {"name": "other"}], found)
    assert status == ({"name": name, "preflight": list(group.lines)}, {"name": "other"})


def test_findings_of_a_held_group_come_first() -> None:
    other = pod("q", 0, 0, "engine", ready=False)._replace(preflight=CheckResult((SHM,), False), node="m")
    told = condition(findings_of_groups([other, rank(0, ABOUT_1, held=True)]))
    assert told is not None and told.reason == "PreflightFailed"
    assert (
        told.message.startswith("decode group 4 waits, rank 1: shm") and "prefill group 0, rank 0 on node m" in told.message
    )


def test_late_rank_is_not_reported_after_its_group_serves() -> None:
    waits = findings_of_groups([rank(0, LATE), rank(1, LATE), rank(2)])
    assert [group.lines for group in waits.values()] == [
        ("rank 2 on node n2: absent: rank 2 did not come (look at its pod)",)
    ]
    assert findings_of_groups([rank(0, LATE, ready=True), rank(1, LATE), rank(2)]) == {}
    assert findings_of_groups([rank(0, LATE, SHM, ready=True)]).popitem()[1].lines == (
        "rank 0 on node n0: shm: /dev/shm has 16 MiB (mount more)",
    )


def test_finding_lines_are_limited_and_terminating_pods_ignored() -> None:
    many = [SHM._replace(said=str(number)) for number in range(LINES + 5)]
    ((_, group),) = findings_of_groups([rank(0, *many)]).items()
    assert len(group.lines) == LINES and group.lines[-1] == "and 6 more findings"
    assert findings_of_groups([rank(0, SHM, deleting=True)]) == {}
