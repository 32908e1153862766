"""Tests that a serving slice is removed for a slice on other nodes only if those nodes have capacity (docs/placement.md)."""

from dataclasses import replace

import pytest

from ome_operator import keys
from ome_operator.core.placement import making_room
from ome_operator.core.placement.fit import Needs
from tests.support import parts
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.core.placement.test_capacity_check import ASKED, HOLDS, ROOM, SHAPE, deps, moved, nodes, said, serving

OTHER = nodes(4, 8, labels={**HOLDS, "gpu": "H300"})
"""The nodes to which the decoders are moved."""
TAKEN = "decode needs 4 nodes with 1 free GPU: 1 is free, 3 are held by others"


def with_other_nodes(shape: Shape = SHAPE) -> World:
    """Return a service that serves on its nodes, in a cluster with further nodes."""
    world = serving(shape)
    world.edit(deps=deps(shape, found={**nodes(8), **OTHER}))
    world.settle()
    return world


def test_old_slice_stays_if_the_new_nodes_are_in_use() -> None:
    world = with_other_nodes()
    pods, asked = world.living_pods(), list[Needs]()
    world.room = lambda needs: asked.append(needs) or TAKEN  # type: ignore[func-returns-value]
    moved(world)
    plan = world.sync()
    assert said(plan, "RolledOut")[:2] == ("False", "Checking") and plan.check and not plan.look, "checked last"
    world.settle()
    assert [(need.title, need.pods) for need in asked[-1]] == [("prefill", 2), ("prefill", 2), ("decode", 2), ("decode", 2)]
    assert world.living_pods() == pods
    plan = world.sync()
    status, reason, message = said(plan, "RolledOut")
    revision = plan.status["revision"].rpartition("→")[2]
    assert (status, reason) == ("False", "WaitingForRoom")
    assert message == (
        f"revision {revision} waits, and the serving revision stays: {TAKEN}; to roll out the revision anyway, "
        "annotate the service: "
        "ome.io/ignore-fit=true"
    )
    assert plan.nodes and not plan.delete and not plan.patch
    assert said(plan, "Ready")[0] == said(plan, "DecoderReady")[0] == "True"


@pytest.mark.parametrize("how", ["room", "annotation"])
def test_old_slice_is_removed_after_capacity_appears_or_check_is_disabled(how: str) -> None:
    world = with_other_nodes()
    world.room = lambda _: TAKEN
    moved(world)
    world.settle()
    if how == "room":
        world.room, world.checks = lambda _: "", {}
    else:
        world.edit(replace(world.service, annotations={keys.IGNORE_FIT: "true"}))
    world.settle()
    assert world.condition("RolledOut")["status"] == "True"
    decoders = {pod.node for pod in world.pods.values() if pod.labels[keys.COMPONENT] == keys.DECODER}
    assert decoders == OTHER.keys()


def test_capacity_is_not_checked_if_pods_stay_on_their_nodes() -> None:
    """A revision whose pods stay on the nodes of the old slice needs no check of free capacity. A revision with another
    image uses the capacity that the old slice releases.
    """
    world = with_other_nodes()
    world.room = lambda _: pytest.fail("nobody has to look")
    world.edit(deps=deps(replace(SHAPE, image="b"), found={**nodes(8), **OTHER}))
    world.settle()
    assert world.condition("RolledOut")["status"] == "True"


def test_capacity_is_checked_if_new_pods_request_more_of_their_nodes() -> None:
    """If new pods request more of their node than the old ones, the free capacity is checked. The new pods request more CPU
    here, which other pods may use.
    """
    wide = {name: node._replace(room=(*ROOM, ("cpu", 64_000))) for name, node in nodes(8).items()}
    world = serving(found=wide)
    world.room = lambda _: "prefill needs 4 nodes with 48 free cpu: 0 are free, 4 are held by others"
    written = SHAPE.service().spec.model_dump(by_alias=True, exclude_none=True)
    written["decoder"] |= {"runner": {"name": "engine", "resources": {"requests": {"cpu": "48"}}}}
    world.edit(parts.service(written))
    pods = world.living_pods()
    world.settle()
    assert world.condition("RolledOut")["reason"] == "WaitingForRoom" and world.living_pods() == pods


@pytest.mark.parametrize("strategy", ["surge", "blueGreen"])
def test_capacity_is_not_checked_if_the_old_slice_stays_until_the_new_serves(strategy: str) -> None:
    """With strategies in which the old slice stays until the new one serves, the new pods are created without a check of
    free capacity, so that autoscalers and preemption see them.
    """
    shape = replace(SHAPE, strategy=strategy)
    world = with_other_nodes(shape)
    world.room = lambda _: TAKEN
    written = shape.service().spec.model_dump(by_alias=True, exclude_none=True)
    written["decoder"] |= ASKED
    world.edit(parts.service(written))
    world.run(30)
    assert any(pod.labels[keys.REVISION] == world.service.status["revision"][-8:] for pod in world.pods.values())


def test_capacity_is_not_checked_while_the_service_waits_for_its_wave() -> None:
    """While a service waits for its wave, its free capacity is not checked. A result is valid for seconds only, so the check
    is made when the service may begin.
    """
    world = with_other_nodes()
    world.room = lambda _: pytest.fail("it is not its turn")
    world.may_roll = False
    world.edit(deps=deps(replace(SHAPE, image="b"), found={**nodes(8), **OTHER}))
    world.settle()
    assert world.condition("RolledOut")["reason"] == "WaitingForTurn"


def test_service_waits_for_its_wave_again_when_capacity_appears() -> None:
    """While a service waits for capacity, other services may begin with the shared edit; when there is capacity, it waits
    for its wave again. The reason in its status does not change with every reconciliation.
    """
    world = with_other_nodes()
    world.room = lambda _: TAKEN
    moved(world)
    world.edit(deps=deps(replace(SHAPE, image="b"), found={**nodes(8), **OTHER}))
    world.settle()
    world.may_roll = False
    for room, reason in ((TAKEN, "WaitingForRoom"), ("", "WaitingForTurn")):
        world.room, world.checks = lambda _, said=room: said, _asked_anew(world)
        plan = world.settle()
        assert world.condition("RolledOut")["reason"] == reason and plan.rolls == (reason == "WaitingForTurn")
    world.may_roll = True
    world.settle()
    assert world.condition("RolledOut")["status"] == "True"


def waiting_for_capacity() -> World:
    """Return a service whose next revision waits for capacity, while another service may roll out the shared edit."""
    world = with_other_nodes()
    world.room = lambda _: TAKEN
    moved(world)
    world.edit(deps=deps(replace(SHAPE, image="b"), found={**nodes(8), **OTHER}))
    world.settle()
    world.may_roll = False
    return world


def test_a_service_that_never_ran_has_not_waited_for_capacity() -> None:
    assert not making_room.waited_for_capacity({})
    assert not making_room.waited_for_capacity({"conditions": [], "components": {"engine": {"ready": "0/2"}, "decoder": {}}})
    assert not making_room.waited_for_capacity(with_other_nodes().service.status)


def test_a_status_of_an_earlier_version_is_read_by_its_hold() -> None:
    """A status that version 0.1.0 or an earlier one has stored is read correctly: it has the field `rolloutHold`, with the
    gate and the target, in every component and not only once.
    """
    hold = {"gate": "WaitingForRoom", "reason": "waits", "target": "tiny-1", "since": "2026-11-25T00:00:00+00:00"}
    stored = {"components": {"engine": {"ready": "4/4"}, "decoder": {"ready": "4/4", "rolloutHold": hold}}}
    assert making_room.waited_for_capacity(stored)
    assert not making_room.waited_for_capacity({"components": {"decoder": {"rolloutHold": {**hold, "gate": "DoesNotFit"}}}})


def test_stored_hold_and_not_the_condition_shows_a_wait_for_capacity() -> None:
    """Whether a service waits for capacity is read from its stored hold. If another problem replaces the reason of the
    condition RolledOut, the service still waits for capacity, and not for its wave.
    """
    world = waiting_for_capacity()
    others = [each for each in world.service.status["conditions"] if each["type"] != "RolledOut"]
    world.service = replace(world.service, status={**world.service.status, "conditions": others})
    assert said(world.sync(), "RolledOut")[1] == "WaitingForRoom"
    kept = {name: {**each, "rolloutHold": None} for name, each in world.service.status["components"].items()}
    world.service = replace(world.service, status={**world.service.status, "components": kept})
    assert said(world.sync(), "RolledOut")[1] == "WaitingForTurn"


def test_dry_run_is_repeated_after_operator_restart_while_waiting_for_capacity() -> None:
    """After a restart of the operator, a service that waited for capacity repeats the dry run first, because its result is
    lost. The gate is Checking for one reconciliation, and the service is admitted to its wave again. It does not keep this
    admission while nodes have no capacity.
    """
    world = waiting_for_capacity()
    world.restart()
    plan = world.settle()
    assert said(plan, "RolledOut")[1] == "WaitingForTurn" and plan.rolls
    world.may_roll = True
    plan = world.settle()
    assert said(plan, "RolledOut")[1] == "WaitingForRoom" and not plan.rolls


def test_status_of_a_frozen_service_that_waits_for_capacity_is_stable() -> None:
    """The status of a frozen service that waits for capacity does not change any more: `settle` fails otherwise. After the
    thaw, the rollout continues.
    """
    world = waiting_for_capacity()
    pods = world.living_pods()
    world.edit(replace(world.service, annotations={keys.FREEZE: "drill"}))
    plan = world.settle()
    assert said(plan, "RolledOut")[1] == "Frozen" and not making_room.waited_for_capacity(plan.status)
    assert plan.status["components"]["decoder"]["rolloutHold"]["gate"] == "Frozen" and world.living_pods() == pods
    world.edit(replace(world.service, annotations={}))
    world.may_roll = True
    plan = world.settle()
    assert (
        said(plan, "RolledOut")[1] == "WaitingForRoom"
        and making_room.waited_for_capacity(plan.status)
        and world.living_pods() == pods
    )
    world.room, world.checks = lambda _: "", _asked_anew(world)
    world.settle()
    assert world.condition("RolledOut")["status"] == "True"


@pytest.mark.parametrize("begun", [True, False], ids=["with a new group", "with none yet"])
def test_started_groups_continue_if_nodes_disappear_during_a_rollout(begun: bool) -> None:
    """The nodes for a rollout disappear in its middle. Groups that have been started continue. If nothing of the new slice
    exists yet, the removed groups of the old slice are created again.
    """
    shape = replace(SHAPE, size=1, engines=4, decoders=4)
    world = with_other_nodes(shape)
    before = world.living_pods()
    _decoders_elsewhere(world, shape)
    while not (_new(world) if begun else len(world.living_pods()) < len(before)):
        world.run(1)
    world.room, world.checks = lambda _: TAKEN, _asked_anew(world)
    world.settle()
    assert world.condition("RolledOut")["reason"] == ("Complete" if begun else "WaitingForRoom")
    assert len(world.living_pods()) == 9 and bool(_new(world)) == begun


@pytest.mark.parametrize("strategy", ["", "recreate"])
def test_rollout_completes_although_capacity_results_expire_quickly(strategy: str) -> None:
    """A rollout completes although a result about free capacity is valid for a shorter time than the removal of a group
    takes: a leader needs 15 s without new requests before it is stopped, and a router may need longer.
    """
    shape = replace(SHAPE, size=1, engines=4, decoders=4, strategy=strategy)
    world = with_other_nodes(shape)
    _decoders_elsewhere(world, shape)
    for _ in range(100):
        world.carry_out(world.sync())
        world.run(1)
        world.checks = _asked_anew(world)
    assert world.condition("RolledOut")["status"] == "True" and len(_new(world)) == 4


def test_capacity_is_still_checked_if_an_old_pod_ends_by_chance() -> None:
    shape = replace(SHAPE, size=1, engines=4, decoders=4, strategy="recreate")
    world = with_other_nodes(shape)
    world.room = lambda _: TAKEN
    world.lose(next(name for name in world.living_pods(keys.DECODER)))
    pods = world.living_pods()
    _decoders_elsewhere(world, shape)
    world.settle()
    assert world.condition("RolledOut")["reason"] == "WaitingForRoom"
    assert pods.items() <= world.living_pods().items()


def _asked_anew(world: World) -> dict[str, str]:
    """Return the facts without the results of checks of free capacity, which are valid for seconds only."""
    return {key: why for key, why in world.checks.items() if ".room." not in key}


def _decoders_elsewhere(world: World, shape: Shape) -> None:
    """Edit the decoders so that they request other nodes."""
    written = shape.service().spec.model_dump(by_alias=True, exclude_none=True)
    written["decoder"] |= ASKED
    world.edit(parts.service(written))


def _new(world: World) -> list[str]:
    """Return the names of the pods of the new revision on the nodes to which the service moves."""
    newest = world.service.status["revision"][-8:]
    return [name for name, pod in world.pods.items() if pod.node in OTHER and pod.labels[keys.REVISION] == newest]


def test_old_slice_without_requests_is_removed_without_a_capacity_check() -> None:
    """An old slice that serves no requests is removed without a check of free capacity. The edit may repair a service that
    never became ready.
    """
    world = with_other_nodes()
    world.healthy = lambda _: False
    for pod in world.pods.values():
        pod.ready = False
    world.room = lambda _: pytest.fail("there is nothing to keep")
    moved(world)
    world.run(30)
    assert world.condition("RolledOut")["reason"] != "WaitingForRoom"
