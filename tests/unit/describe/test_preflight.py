"""Tests of the output of `ome preflight` about its pods: rank, node, cause and remedy, and the nodes on which the check
could not run.
"""

import json
from typing import Any

from ome_operator import keys
from ome_operator.core.preflight.on_demand import RankKey, Trial, trial
from ome_operator.describe.outcome import compute_outcome
from ome_operator.describe.preflight import RankCheck, in_place, progress, rank, report, report_lines
from tests.support import parts

DOWN = {"check": "links", "rank": 1, "said": "port 1 of mlx5_2 is DOWN (Disabled), not ACTIVE", "fix": "look at its cable"}
ABSENT = {"check": "absent", "rank": 1, "said": "rank 1 did not connect within 33 s", "fix": "look at its pod"}
FULL = "0/24 nodes are available: 20 Insufficient nvidia.com/gpu. preemption: 0/24 nodes are available."


def made(size: int = 2, decoder: bool = True, name: str = "svc", groups: int = 1) -> Trial:
    service = parts.service(engine={}, **({"decoder": {}} if decoder else {}), name=name)
    roles = compute_outcome(service, parts.deps(parts.model(), parts.simple(size=size, decoder=decoder))).workloads
    return trial(name, "team", roles, dict.fromkeys(roles, groups), "abcd1234", 180)


TRIAL = made()
RUNS = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
FIRST, SECOND = RankKey("engine", 0, 0), RankKey("engine", 0, 1)


def pod(
    place: RankKey, node: str = "", state: dict[str, Any] | None = None, of: Trial = TRIAL, **status: Any
) -> dict[str, Any]:
    body = of.pods[place]
    boxes = [{"name": keys.RUNNER, "state": state}] if state is not None else []
    spec = {**body["spec"], **({"nodeName": node} if node else {})}
    return {**body, "spec": spec, "status": {"phase": "Pending", "containerStatuses": boxes, **status}}


def unplaced(place: RankKey, of: Trial = TRIAL) -> dict[str, Any]:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": FULL}
    return pod(place, of=of, conditions=[said])


def done(place: RankKey, node: str, *findings: Any, of: Trial = TRIAL, **more: Any) -> dict[str, Any]:
    message = json.dumps({"preflight": 1, "rank": place.rank, "findings": findings, "more": 0})
    state = {"terminated": {"exitCode": 0, "message": message}}
    return pod(place, node, state, of, **{"phase": "Succeeded", **more})


def ranks(*bodies: tuple[RankKey, dict[str, Any] | None], of: Trial = TRIAL) -> list[RankCheck]:
    return [rank(of, place, body) for place, body in bodies]


def test_preflight_report_without_findings() -> None:
    every = ranks(*((place, done(place, f"gpu-{place.rank}")) for place in TRIAL.pods))
    seen = report(every, 8.249)
    assert report_lines(seen) == ["4 ranks on 2 nodes: nothing found in 8.2 s"] and (seen.findings, seen.missed) == ((), ())
    assert all(each.over for each in every) and progress(every) == ""


def test_finding_has_rank_node_cause_and_remedy_and_is_printed_once() -> None:
    seen = report(ranks((FIRST, done(FIRST, "gpu-6", DOWN)), (SECOND, done(SECOND, "gpu-7", DOWN))), 12)
    assert report_lines(seen) == [
        "prefill, rank 1 on node gpu-7: links: port 1 of mlx5_2 is DOWN (Disabled), not ACTIVE (look at its cable)",
        "2 ranks on 2 nodes: 1 finding in 12 s",
    ]
    (found,) = seen.findings
    assert (found.service, found.role, found.rank, found.node, found.check) == ("team/svc", "prefill", 1, "gpu-7", "links")


def test_rank_without_a_node_is_reported_with_the_scheduler_message() -> None:
    seen = report(ranks((FIRST, done(FIRST, "gpu-6", ABSENT)), (SECOND, unplaced(SECOND))), 200)
    assert report_lines(seen) == [
        "prefill, rank 1 has no node: Unschedulable: 0/24 nodes are available: 20 Insufficient nvidia.com/gpu.",
        "1 of 2 ranks on 1 node: nothing found in 200 s",
    ]
    assert seen.findings == () and [each.rank for each in seen.missed] == [1]


def test_rank_that_ran_but_did_not_connect_is_a_finding() -> None:
    seen = report(ranks((FIRST, done(FIRST, "gpu-6", ABSENT)), (SECOND, done(SECOND, "gpu-7"))), 50)
    assert [each.check for each in seen.findings] == ["absent"]


def test_ranks_waiting_for_the_same_reason_are_grouped() -> None:
    of = made(size=4, decoder=False, groups=2)
    pull = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "engine:1"'}}
    bodies = [(place, unplaced(place, of) if place.rank else pod(place, "n", pull, of)) for place in of.pods]
    told = report_lines(report(ranks(*bodies, of=of), 180))
    slow = 'ImagePullBackOff: container ome-container: Back-off pulling image "engine:1"'
    full = "Unschedulable: 0/24 nodes are available: 20 Insufficient nvidia.com/gpu."
    assert told == [
        f"engine group 0, rank 0 on node n was not checked: {slow}",
        f"engine group 0, ranks 1–3 have no node: {full}",
        f"engine group 1, rank 0 on node n was not checked: {slow}",
        f"engine group 1, ranks 1–3 have no node: {full}",
        "none of 8 ranks was checked in 180 s",
    ]


def test_service_is_named_if_there_are_several() -> None:
    other = made(decoder=False, name="other")
    bodies = [rank(other, place, done(place, "n", DOWN, of=other)) for place in other.pods]
    told = report_lines(report([*bodies, *ranks((SECOND, unplaced(SECOND)))], 9))
    assert told[0].startswith("team/other: engine, rank 1 on node n: links:")
    assert told[1].startswith("team/svc: prefill, rank 1 has no node:")


def test_check_state_of_a_rank_is_derived_from_its_pod() -> None:
    cases: list[tuple[dict[str, Any] | None, bool, bool, str]] = [
        (None, False, True, "its pod was removed"),
        (unplaced(FIRST), False, False, "Unschedulable: 0/24 nodes are available: 20 Insufficient nvidia.com/gpu."),
        (pod(FIRST, "n", {"waiting": {"reason": "ContainerCreating"}}), False, False, "ContainerCreating: waiting for"),
        (pod(FIRST, "n", RUNS, phase="Running"), True, False, "the check did not end in time"),
        (done(FIRST, "n", phase="Running"), False, True, ""),
        (pod(FIRST, "n", phase="Failed", reason="Evicted", message="low on memory"), False, True, "Evicted: low on memory"),
        (pod(FIRST, "n", RUNS, phase="Failed", reason="DeadlineExceeded"), False, True, "DeadlineExceeded"),
    ]
    for body, runs, over, why in cases:
        found = rank(TRIAL, FIRST, body)
        assert (found.runs, found.over) == (runs, over) and found.why.startswith(why), body
    gone = unplaced(FIRST)
    gone["metadata"] = {**gone["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert rank(TRIAL, FIRST, gone).over, "the pod is being removed"


def test_pod_that_ended_without_a_message_is_not_reported_as_healthy() -> None:
    seen = report(ranks((FIRST, pod(FIRST, "n", phase="Failed", reason="NodeShutdown"))), 3)
    assert seen.findings == () and [each.why for each in seen.missed] == ["NodeShutdown"] and seen.looked == 0


def test_preflight_progress_counts_running_ranks() -> None:
    waits = ranks((FIRST, pod(FIRST, "n", RUNS, phase="Running")), (SECOND, unplaced(SECOND)))
    assert progress(waits).startswith("1 of 2 ranks run, 1 placed: Unschedulable: 0/24 nodes")


def test_control_characters_in_findings_are_not_printed() -> None:
    hostile = {**DOWN, "said": "x\x1b[2Jy\nforged", "rank": "1"}
    (told, _) = report_lines(report(ranks((FIRST, done(FIRST, "n\x1b[31m", hostile))), 1))
    assert "\x1b" not in told and "\n" not in told


def test_log_of_a_deleted_pod_is_not_recommended() -> None:
    body = done(FIRST, "n")
    body["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = "garbage"
    (found,) = report(ranks((FIRST, body)), 1).findings
    assert found.fix == "see its log (use --logs)"


def test_remedy_for_held_groups_depends_on_the_stored_service() -> None:
    command = "kubectl annotate isvc svc -n team --overwrite ome.io/preflight=Warn"
    assert command in in_place("svc", "team", stored=True)
    assert "kubectl" not in in_place("svc", "team", stored=False)
