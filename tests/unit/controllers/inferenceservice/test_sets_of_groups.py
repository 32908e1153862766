"""Tests of the order of the StatefulSets of a group: the leader's is created before the workers'. Tests that a guard is
read once if many groups share it.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.controllers.inferenceservice import executor, guards
from ome_operator.controllers.inferenceservice.execution import Execution
from ome_operator.core.reconcile.plan import Apply, Delete, Guard, NodeLost, Plan
from ome_operator.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, ServerError
from ome_operator.settings import Settings
from tests.support.fake_api import Call, FakeApi
from tests.unit.controllers import makers

ALONE = Guard("ome.io/inferenceservice=svc,ome.io/revision!=r1")
LABELS = {keys.SERVICE: "svc", keys.COMPONENT: "engine", keys.REVISION: "r"}
POD = {"kind": "Pod", "metadata": {"name": "svc-engine-r-0-0", "namespace": "ns", "uid": "p", "labels": LABELS}}
COPY = {"kind": "Pod", "metadata": {**POD["metadata"], "name": "svc-engine-r-0-0-debug"}}  # type: ignore[dict-item]
GROUPS = (0, 1, 2)


def stateful_set(name: str, **metadata: Any) -> dict[str, Any]:
    """Return a StatefulSet of the service."""
    about = {"name": name, "namespace": "ns", "labels": {keys.SERVICE: "svc"}, "annotations": {keys.HASH: "h"}}
    about |= {"ownerReferences": [makers.OWNER], **metadata}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": about, "spec": {"replicas": 1}}


def stored(name: str, **metadata: Any) -> dict[str, Any]:
    """Return a StatefulSet with this name as the API server stores it."""
    return stateful_set(name, uid=f"uid-{name}", resourceVersion="3", **metadata)


def pairs(groups: Iterable[int] = GROUPS, guard: Guard | None = None) -> tuple[Apply, ...]:
    """Return both StatefulSets of these groups, workers first, because the order within a plan must not matter."""
    out = []
    for number in groups:
        out.append(Apply(stateful_set(f"e-{number}-w"), "", guard, after=("StatefulSet", f"e-{number}")))
        out.append(Apply(stateful_set(f"e-{number}"), "", guard))
    return tuple(out)


def answers(refused: dict[str, KubeError] | None = None, **more: Any) -> FakeApi:
    """Return an API server that stores StatefulSets, except for those that it refuses."""

    def apply(call: Call) -> Any:
        return (refused or {}).get(call.name) or stored(call.name)

    return FakeApi({"apply": apply, **more})


async def applied(api: FakeApi, plan: Plan, *seen: dict[str, Any]) -> tuple[list[str], Execution]:
    """Carry out the plan with these known objects, and return the names of the applied objects in order."""
    execution = makers.execution()
    await makers.executor(api, makers.cluster(*seen)).execute_effects(plan, execution)
    return [call.name for call in api.calls if call.verb == "apply"], execution


async def test_worker_statefulset_is_created_after_its_leader() -> None:
    names, _ = await applied(answers(), Plan(apply=pairs()))
    assert sorted(names[:3]) == ["e-0", "e-1", "e-2"] and sorted(names[3:]) == ["e-0-w", "e-1-w", "e-2-w"]


@pytest.mark.parametrize("error", [Invalid("no", 422), Forbidden("no", 403), ServerError("no", 500)])
@pytest.mark.parametrize("group", GROUPS)
async def test_no_workers_are_created_if_the_leader_is_refused(group: int, error: KubeError) -> None:
    """If the StatefulSet of a group's leader cannot be created, the StatefulSet of its workers is not created either. The
    workers would hold accelerators and wait for a leader that does not exist.
    """
    names, execution = await applied(answers({f"e-{group}": error}), Plan(apply=pairs()))
    assert sorted(names) == sorted({*(f"e-{one}" for one in GROUPS), *(f"e-{one}-w" for one in GROUPS if one != group)})
    assert ("StatefulSet", f"e-{group}") in execution.memory.refused
    assert ("StatefulSet", f"e-{group}-w") not in execution.memory.refused
    assert execution.result.requeue_after, "the next pass applies the leader and the workers"


async def test_exceeded_quota_limits_the_number_of_creation_attempts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If a quota is exceeded, the operator tries to create only a few of the refused StatefulSets, and not the StatefulSets
    of every group. A service may have 1,000 groups; here the quota permits four StatefulSets.
    """
    there: list[str] = []

    def apply(call: Call) -> Any:
        if len(there) == 4:
            return Forbidden(f'statefulsets.apps "{call.name}" is forbidden: exceeded quota: q', 403)
        there.append(call.name)
        return stored(call.name)

    api, now = FakeApi({"apply": apply}), 0.0
    execution, handler = makers.execution(clock=lambda: now), makers.cluster()
    await makers.executor(api, handler).execute_effects(Plan(apply=pairs(range(1000))), execution)
    assert len(api.calls) <= 4 + executor.AT_ONCE
    assert len(execution.memory.refused) == 1000 and execution.result.status_changed, "996 leaders, and workers of 4"
    assert len([each for each in caplog.messages if "exceeded quota" in each]) <= executor.AT_ONCE
    left, later = Plan(apply=pairs(range(4, 1000))), makers.execution(execution.memory, lambda: now)
    api.calls.clear()
    await makers.executor(api, handler).execute_effects(left, later)
    assert api.kinds("apply") == [], "until the delay is over"
    now, gone = 3600.0, there.pop()
    await makers.executor(api, handler).execute_effects(left, later := makers.execution(execution.memory, lambda: now))
    assert len(there) == 4 and gone not in there and later.result.has_written, (
        "after the delay, an object that fits is created"
    )
    assert len(api.calls) <= 4 + executor.AT_ONCE


async def most_at_once(groups: int) -> int:
    """Return the largest number of requests at the same time while a service with this number of groups is created."""
    busy, most = 0, 0

    async def apply(call: Call) -> Any:
        nonlocal busy, most
        busy, most = busy + 1, max(most, busy + 1)
        await asyncio.sleep(0)
        busy -= 1
        return stored(call.name)

    names, _ = await applied(FakeApi({"apply": apply}), Plan(apply=pairs(range(groups))))
    assert len(names) == 2 * groups
    return most


async def test_service_with_a_thousand_groups_uses_a_limited_number_of_connections() -> None:
    assert await most_at_once(100) == executor.AT_ONCE < Settings().connections


async def test_leaders_are_created_in_parallel_with_at_most_half_of_the_connections() -> None:
    """The leaders of sixteen groups are created at the same time, but this takes at most half of the connections."""
    assert await most_at_once(16) == executor.FEW == Settings().connections / 2
    assert await most_at_once(17) == executor.AT_ONCE


async def test_group_name_taken_by_another_owner_gets_no_workers() -> None:
    other = stored("e-1", ownerReferences=[{**makers.OWNER, "name": "another", "uid": "x"}])
    names, execution = await applied(answers({"e-1": Conflict("exists", 409)}, get=other), Plan(apply=pairs()))
    assert "e-1-w" not in names and {"e-0-w", "e-2-w"} <= {*names}
    assert execution.memory.refused["StatefulSet", "e-1"].refusal.reason == "NameTaken"


LEADERS: dict[str, tuple[dict[str, Any], bool]] = {
    "ours": (stored("e-0"), True),
    "ours, on its way out": (stored("e-0", deletionTimestamp="2026-01-01T00:00:00Z"), False),
    "a former service's of this name": (stored("e-0", ownerReferences=[{**makers.OWNER, "uid": "former"}]), False),
    "nobody's": (stored("e-0", ownerReferences=[]), False),
    "another group's": (stored("e-1"), False),
    "an object of another kind": ({**stored("e-0"), "kind": "Deployment"}, False),
}


@pytest.mark.parametrize("case", LEADERS)
async def test_deleted_workers_are_recreated_beside_their_existing_leader(case: str) -> None:
    """If only the StatefulSet of a group's workers was deleted, it is created again beside the existing leader. The plan
    does not contain the leader's StatefulSet.
    """
    seen, comes = LEADERS[case]
    names, _ = await applied(answers(), Plan(apply=pairs([0])[:1]), seen)
    assert names == ["e-0-w"] * comes


async def test_update_of_a_leader_does_not_delay_its_workers() -> None:
    change = (Apply(stateful_set("e-0"), "uid-e-0"), *pairs([0])[:1])
    names, _ = await applied(answers(), Plan(apply=change), stored("e-0"))
    assert names == ["e-0", "e-0-w"]


async def test_shared_guard_is_read_once_for_simultaneous_writes() -> None:
    """A guard, which is a live read before a write, is read once for all writes that share it and happen together. Before
    the leaders of a slice with a hundred groups are created, the pods of the old slice are listed once, and once more before
    the workers are.
    """
    api = answers(list_objects=[])
    names, _ = await applied(api, Plan(apply=pairs(guard=ALONE)))
    assert len(names) == 6
    assert [call.selector for call in api.calls if call.verb == "list_objects"] == [ALONE.selector] * 2


async def test_active_guard_prevents_all_writes() -> None:
    api = answers(list_objects=[POD])
    names, execution = await applied(api, Plan(apply=pairs(guard=ALONE)))
    assert names == [] and api.kinds("list_objects") == ["Pod"]
    assert execution.result.requeue_after == 1.0


async def test_debug_copy_of_a_pod_does_not_activate_a_guard() -> None:
    """A copy of a pod for debugging does not activate a guard. `kubectl debug --copy-to` with `--keep-labels` gives the
    copy the labels of a pod of the service.
    """
    names, execution = await applied(answers(list_objects=[COPY]), Plan(apply=pairs(guard=ALONE)))
    assert len(names) == 6 and not execution.result.requeue_after


@pytest.mark.parametrize(
    ("found", "limits", "stands"),
    [([], [1], False), ([POD, COPY], [1], True), ([COPY, POD], [1, 0], True), ([COPY, COPY], [1, 0], False)],
)
async def test_guard_lists_all_pods_only_if_the_first_is_a_debug_copy(
    found: list[dict[str, Any]], limits: list[int], stands: bool
) -> None:
    """A guard reads only the first pod that matches. It lists all pods only if this first pod is a copy for debugging.
    While an old slice ends, the guard is read every second, and a slice may have hundreds of pods.
    """
    api = answers(list_objects=found)
    assert await guards.guard_applies(api, "ns", ALONE) is stands
    assert [call.limit for call in api.calls] == limits


async def test_guard_is_read_again_before_later_writes() -> None:
    """A guard is read again before later writes: pods may appear after the leaders were created, so it is read again before
    the workers are.
    """
    lists = iter([[], [POD]])
    api = answers(list_objects=lambda _: next(lists))
    names, _ = await applied(api, Plan(apply=pairs(guard=ALONE)))
    assert sorted(names) == ["e-0", "e-1", "e-2"]


async def test_different_guards_are_read_separately() -> None:
    guards = [
        Guard("group=0"),
        Guard("group=1"),
        Guard("group=1"),
        Guard("group=1", name="p"),
        NodeLost("n1"),
        NodeLost("n1"),
    ]
    deletes = tuple(Delete("Pod", f"p{number}", f"u{number}", guard=guard) for number, guard in enumerate(guards))
    api = FakeApi({"list_objects": lambda call: [POD] if call.selector == "group=1" else [], "delete": {}})
    await makers.executor(api, makers.cluster()).execute_effects(Plan(delete=deletes), makers.execution())
    assert sorted(api.kinds("list_objects")) == ["Node", "Pod", "Pod", "Pod"]
    assert sorted(call.name for call in api.calls if call.verb == "delete") == ["p0", "p4", "p5"]


@pytest.mark.parametrize("error", [ServerError("not now", 500), NotFound("gone", 404)])
async def test_unreadable_guard_prevents_its_writes(error: KubeError) -> None:
    """If a guard cannot be read, none of the writes that depend on it is carried out. Other writes are."""
    api = answers(list_objects=error)
    others = (Apply(stateful_set("free"), ""),)
    names, execution = await applied(api, Plan(apply=(*pairs(guard=ALONE), *others)))
    assert names == ["free"]
    assert execution.result.error is error
