"""Tests of a complete reconciliation of a service for whose pods the nodes have capacity, or not (docs/placement.md)."""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed.objects import Deps, Node, Observed, Taint
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from tests.support import parts
from tests.support.effects import effects
from tests.support.parts import change_deps
from tests.support.scheduler import Scheduler
from tests.support.shapes import Shape
from tests.support.simulator import START, World

SHAPE = Shape(size=2, engines=2, decoders=2)
"""Eight pods of a GPU each, and a router."""
HOLDS = {"models.ome.io/clusterbasemodel.tiny": "Ready"}
ROOM = (("nvidia.com/gpu", 1), ("pods", 110))
ASKED = {"nodeSelector": {"gpu": "H300"}}


def nodes(number: int, first: int = 0, **facts: Any) -> dict[str, Node]:
    """Return nodes with one GPU each that hold the model."""
    plain: dict[str, Any] = {"version": 1, "labels": {**HOLDS, "gpu": "H100"}, "ready": True, "gpus": 1, "room": ROOM}
    return {f"n{at}": Node(**{**plain, "name": f"n{at}", **facts}) for at in range(first, first + number)}


def deps(shape: Shape = SHAPE, found: dict[str, Node] | None = None, **more: Any) -> Deps:
    """Return the objects that the service refers to, with these nodes."""
    return replace(shape.deps(), nodes=nodes(8) if found is None else found, **more)


def serving(shape: Shape = SHAPE, found: dict[str, Node] | None = None) -> World:
    """Return a service that serves on its nodes."""
    world = World(shape.service(), deps(shape, found), 3)
    Scheduler(world)
    world.settle()
    return world


def moved(world: World, **engine: Any) -> None:
    """Edit the decoders so that they request other nodes."""
    written = SHAPE.service().spec.model_dump(by_alias=True, exclude_none=True)
    written["decoder"] |= engine or ASKED
    world.edit(parts.service(written))


def said(plan: Plan, type_: str) -> tuple[str, str, str]:
    """Return the status, the reason and the message of a condition."""
    return next(
        (item["status"], item["reason"], item["message"]) for item in plan.status["conditions"] if item["type"] == type_
    )


SENTENCE = "decode needs 4 nodes with gpu=H300: no node has this label"


def test_old_slice_stays_unchanged_if_the_edit_fits_on_no_nodes() -> None:
    """For an edit whose pods fit on no nodes, the old slice stays as it is. The first reconciliation reports the reason with
    an Event, and the status states which revision has been waiting since when.
    """
    world = serving()
    pods = world.living_pods()
    moved(world)
    plan = world.sync()
    status, reason, message = said(plan, "RolledOut")
    revision = plan.status["revision"].rpartition("→")[2]
    assert (status, reason) == ("False", "DoesNotFit")
    assert message == f"revision {revision} does not fit on the nodes, and the serving revision stays: {SENTENCE}"
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "DoesNotFit")]
    assert plan.urgent and plan.nodes and not plan.delete and not plan.patch and not plan.check
    assert plan.status["components"]["decoder"]["rolloutHold"]["gate"] == "DoesNotFit"
    assert said(plan, "Ready")[0] == said(plan, "DecoderReady")[0] == "True"
    world.settle()
    assert world.living_pods() == pods


def test_rollout_continues_when_a_suitable_node_appears() -> None:
    world = serving()
    moved(world)
    world.settle()
    world.edit(deps=deps(found={**nodes(8), **nodes(4, 8, labels={**HOLDS, "gpu": "H300"})}))
    world.settle()
    assert world.condition("RolledOut")["status"] == "True"
    assert not world.sync().nodes
    assert {pod.node for pod in world.pods.values() if pod.labels[keys.COMPONENT] == keys.DECODER} == {
        "n8",
        "n9",
        "n10",
        "n11",
    }


@pytest.mark.parametrize("how", ["annotation", "no nodes are read", "no node is known"])
def test_rollout_is_not_blocked_if_capacity_is_unknown_or_ignored(how: str) -> None:
    world = serving()
    world.room = lambda _: pytest.fail("nobody has to look")
    moved(world)
    if how == "annotation":
        world.edit(replace(world.service, annotations={keys.IGNORE_FIT: "true"}))
    elif how == "no nodes are read":
        world.edit(deps=change_deps(deps(), sees_cluster=False))
        assert "could not check whether nodes have capacity for revision" in said(world.sync(), "Advice")[2]
    else:
        world.edit(deps=deps(found={}))
    old = world.service.status["revision"]
    world.run(60)
    assert {pod.labels[keys.REVISION] for pod in world.pods.values()} == {old, world.service.status["revision"][-8:]}
    assert ("could not check whether nodes have capacity for revision" in str(world.service.status)) == (
        how == "no nodes are read"
    )


def test_new_service_reports_missing_capacity_and_creates_its_pods() -> None:
    world = World(SHAPE.service(), deps(found=nodes(7)), 3)
    world.healthy = lambda pod: pod.labels[keys.COMPONENT] == keys.ROUTER
    plan = world.sync()
    for component in ("EngineReady", "DecoderReady"):
        assert said(plan, component) == ("False", "DoesNotFit", "prefill and decode need 8 nodes: there are 7 nodes")
    assert said(plan, "Ready")[1] == "DoesNotFit"
    assert [event.reason for event in plan.events] == ["DoesNotFit", "DoesNotFit"] and plan.urgent
    assert len([item for item in plan.apply if item.kind == "StatefulSet"]) == 8
    world.run(20)
    assert len(world.pods) == 9
    world.edit(deps=deps())
    assert said(world.sync(), "EngineReady")[1] == "Progressing"


def test_capacity_is_not_checked_again_for_placed_pods() -> None:
    world = serving()
    world.edit(deps=deps(found=nodes(1, 50)))
    plan = world.sync()
    assert not plan.nodes and said(plan, "Ready")[0] == "True" and effects(plan) == ()


def test_missing_model_nodes_are_reported_only_by_model_ready() -> None:
    """If too few nodes hold the model, the condition ModelReady reports this, and no second message about capacity repeats
    it.
    """
    world = World(SHAPE.service(), deps(found=nodes(8, labels={"gpu": "H100"}), holders={}), 3)
    plan = world.sync()
    assert said(plan, "ModelReady")[1] == "WaitingForNodes" and "DoesNotFit" not in str(plan.status)


def test_a_rollout_stops_half_way_when_its_nodes_vanish() -> None:
    """A rollout stops in the middle when the nodes for its new groups disappear. New groups stay, no further group of the
    old slice is removed, and the rollout continues when the nodes are back.
    """
    shape = replace(SHAPE, size=1, engines=4, decoders=4)
    world = serving(shape)
    world.edit(deps=deps(replace(shape, image="b")))
    target = ""
    while not target:
        world.run(1)
        target = next((pod.labels[keys.REVISION] for pod in world.pods.values() if _new(world, pod.labels)), "")
    gone = deps(replace(shape, image="b"), found=nodes(8, taints=(Taint("broken", "", "NoExecute"),)))
    world.edit(deps=gone)
    before = _sets(world, target)
    for _ in range(60):
        world.run(1)
    assert _sets(world, target) == before and 0 < len(before) < 8
    assert world.condition("RolledOut")["reason"] == "DoesNotFit"
    assert "/4 new, revision" in world.condition("RolledOut")["message"]
    world.edit(deps=deps(replace(shape, image="b")))
    world.settle()
    assert world.condition("RolledOut")["status"] == "True"


def _new(world: World, labels: dict[str, str]) -> bool:
    """Return whether a pod belongs to the new revision."""
    return "→" in world.service.status["revision"] and world.service.status["revision"].endswith(labels[keys.REVISION])


def _sets(world: World, target: str) -> set[str]:
    """Return the names of the StatefulSets of the old slice."""
    found = (item for item in world.children.values() if item.key[0] == "StatefulSet")
    return {item.key[1] for item in found if item.labels[keys.REVISION] != target}


def test_only_groups_that_have_nodes_must_fit_for_an_edit() -> None:
    """Only as many groups of an edit have to fit as have nodes now. Half of the groups of this service have had no nodes for
    weeks.
    """
    shape = replace(SHAPE, size=1, engines=2, decoders=2)
    world = serving(shape, nodes(8))
    for pod in world.pods.values():
        if pod.group == 1:
            pod.node, pod.ready = "", False
    world.edit(deps=deps(replace(shape, image="b"), found=nodes(2)))
    assert said(world.sync(), "RolledOut")[1] != "DoesNotFit"
    world.edit(deps=deps(replace(shape, image="b"), found=nodes(1)))
    assert said(world.sync(), "RolledOut")[1] == "DoesNotFit"


def test_briefly_not_ready_node_does_not_restore_the_old_slice() -> None:
    """A node that becomes NotReady for a moment does not bring an old slice back. Before anything was removed, a missing
    node keeps the rollout from starting. Afterwards, only a lasting shortage brings the old slice back.
    """
    down = nodes(8, ready=False, alive=False)
    world = serving()
    world.edit(deps=deps(replace(SHAPE, image="b"), found=down))
    assert said(world.sync(), "RolledOut")[1] == "DoesNotFit"
    world.edit(deps=deps(replace(SHAPE, image="b")))
    for _ in range(40):
        world.run(1)
        if any(pod.deleting and pod.node for pod in world.pods.values()):
            break
    dying = next(pod for pod in world.pods.values() if pod.deleting and pod.node)
    flapping = {**down, dying.node: nodes(8)[dying.node]}
    plan = sync(world.service, deps(replace(SHAPE, image="b"), found=flapping), world.observed(), world.now)
    assert said(plan, "RolledOut")[1] == "RollingOut"


def test_frozen_service_also_reports_missing_capacity() -> None:
    world = serving()
    moved(world)
    world.edit(replace(world.service, annotations={keys.FREEZE: "me"}))
    plan = world.sync()
    status, reason, message = said(plan, "RolledOut")
    assert (status, reason) == ("False", "Frozen") and message.endswith(SENTENCE)
    assert effects(plan) == () and plan.nodes


def test_shipped_kimi_sample_fits_on_sixteen_nodes() -> None:
    """The shipped sample of Kimi K2 fits on 16 nodes: it needs 4 nodes with 8 GPUs for prefill and 12 for decode."""
    assert "DoesNotFit" not in str(_kimi(16, 8).status)
    assert said(_kimi(16, 4), "DecoderReady")[2] == (
        "decode needs 12 nodes with 8 nvidia.com/gpu: no node has as much; the maximum is 4"
    )
    assert said(_kimi(15, 8), "Ready")[2].startswith("prefill and decode need 16 nodes")


def _kimi(number: int, gpus: int) -> Plan:
    """Return the plan of the first pass, on this number of nodes that hold the model."""
    service, found = parts.kimi()
    room = (("cpu", 192_000), ("memory", 2 * 2**40), ("nvidia.com/gpu", gpus), ("pods", 110), ("rdma/hca", 8))
    held = {"models.ome.io/clusterbasemodel.kimi-k2-instruct": "Ready"}
    on = {f"n{at}": Node(f"n{at}", 1, held, True, gpus, room=room) for at in range(number)}
    return sync(service, replace(found, nodes=on), Observed(), START)
