"""Tests that a group which is removed finishes its requests although other groups of the service wait for nodes."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import pytest

from ome_operator import keys
from ome_operator.api.component import Lifecycle
from ome_operator.core.observed.admission import NO_ADMISSION
from tests.support.live import LivePod
from tests.support.moving import Fleet, Movable, serving


def scaled(fleet: Fleet) -> None:
    """Reduce the decode groups from two to one."""
    fleet.shape = replace(fleet.shape, decoders=1)
    fleet.world.edit(fleet.shape.service(), fleet.world.deps)


def asked_now(fleet: Fleet) -> None:
    """Ask that decode group 1 leaves its node without a replacement."""
    fleet.change(min(fleet.nodes_of(keys.DECODER, 1)), move=f"{fleet.world.now.isoformat()} now")


def timed_out(fleet: Fleet) -> None:
    """Taint a node of decode group 1, and wait until the group leaves without a replacement, because no node is free for a
    replacement.
    """
    fleet.taint(min(fleet.nodes_of(keys.DECODER, 1)))


@pytest.mark.parametrize("removed", [scaled, asked_now, timed_out])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("router", [True, False])
def test_leader_ends_before_its_workers_while_another_group_waits_for_nodes(
    removed: Callable[[Fleet], None], size: int, router: bool
) -> None:
    """Prefill group 2 waits for nodes and has no pods. During this wait, a decode group that serves is removed. Its leader
    has the whole grace period, and the workers stay until the leader is gone. (The simulated cluster checks the order.)
    """
    shape = Movable(size, 2, 2, router, moves=(("timeout", "20s"), ("withoutReplacement", "Go")))
    fleet = serving(shape, spare=size - 1, seed=size)
    fleet.shape = replace(shape, engines=3)
    fleet.world.edit(fleet.shape.service(), fleet.world.deps)
    fleet.until("begun", lambda: fleet.world.service.status.get("placement"))
    fleet.world.turn = NO_ADMISSION
    fleet.until("waits", lambda: fleet.world.service.status["placement"].get("waiting"), passes=40)
    removed(fleet)
    decoders = (pod for pod in fleet.world.pods.values() if pod.labels[keys.COMPONENT] == keys.DECODER)
    leader = next(pod for pod in decoders if (pod.group, pod.rank) == (1, 0))
    graces = set[int]()

    def gone() -> bool:
        graces.update(pod.grace for pod in fleet.world.pods.values() if pod.uid == leader.uid)
        return all(pod.uid != leader.uid for pod in fleet.world.pods.values())

    fleet.until("gone", gone, passes=120)
    assert graces == {leader.grace}
    fleet.run(10)


def frozen(fleet: Fleet, text: str) -> None:
    """Freeze the service with this text, or end the freeze if `text` is ""."""
    fleet.world.service = replace(fleet.world.service, annotations={keys.FREEZE: text} if text else {})


def lost_for_good(fleet: Fleet, group: int) -> tuple[LivePod, set[str]]:
    """Delete the worker of a prefill group, for which there is no node any more. Return the leader of the group, and the
    UIDs of the group's StatefulSets.
    """
    pods = [pod for pod in fleet.world.pods.values() if pod.labels[keys.COMPONENT] == keys.ENGINE and pod.group == group]
    leader, worker = sorted(pods, key=lambda pod: pod.rank)
    for name in fleet.world.deps.nodes:
        fleet.change(name, ready=False)
    fleet.world.lose(worker.name)
    return leader, {leader.workload_uid, worker.workload_uid}


def existing_sets(fleet: Fleet) -> set[str]:
    """Return the UIDs of the StatefulSets."""
    return {child.uid for child in fleet.world.children.values() if child.key[0] == "StatefulSet"}


@pytest.mark.parametrize("hold", ["", "look"])
@pytest.mark.parametrize("recycles", [True, False])
def test_a_further_group_that_becomes_ready_during_a_freeze_counts_as_served(hold: str, recycles: bool) -> None:
    """The second prefill group becomes ready during a freeze, and then loses its worker, and no node is free for a new
    worker. The freeze makes no difference: the group is not released like a group that has never served. If nothing is
    recycled, its leader keeps serving.
    """
    fleet = serving(Movable(2, 1, 1, router=True), spare=2)
    fleet.shape = replace(fleet.shape, engines=2)
    service = fleet.shape.service()
    if not recycles:
        assert service.spec.engine is not None
        engine = service.spec.engine.model_copy(update={"lifecycle": Lifecycle(restartPolicy="None")})
        service = replace(service, spec=service.spec.model_copy(update={"engine": engine}))
    fleet.world.edit(service, fleet.world.deps)
    fleet.until("begun", lambda: fleet.world.service.status.get("placement"))
    frozen(fleet, hold)
    fleet.until("ready", lambda: fleet.serving(keys.ENGINE) == 2)
    fleet.run()
    leader, sets = lost_for_good(fleet, 1)
    fleet.run(20)
    frozen(fleet, "")
    fleet.run(30)
    assert sets <= existing_sets(fleet)
    assert recycles or (fleet.world.living_pods()[leader.name] == leader.uid and leader.ready and not leader.draining)


@pytest.mark.parametrize("hold", ["", "look"])
def test_a_service_that_first_serves_during_a_freeze_counts_as_served(hold: str) -> None:
    """A new service becomes ready during a freeze. Then a prefill group loses its worker, and no node is free for a new
    worker. The freeze makes no difference: no group is released like a group of a service that has never served.
    """
    fleet = Fleet(shape := Movable(2, 1, 1, router=True), spare=0, seed=1)
    fleet.until("created", lambda: len(fleet.world.living_pods(keys.ENGINE)) == shape.size)
    assert fleet.world.service.status["placement"]["anew"]
    frozen(fleet, hold)
    fleet.until("ready", lambda: all(map(fleet.serving, (keys.ENGINE, keys.DECODER))))
    fleet.run()
    lost_for_good(fleet, 0)
    sets = existing_sets(fleet)
    fleet.run(20)
    frozen(fleet, "")
    fleet.run(30)
    assert sets == existing_sets(fleet)


@pytest.mark.parametrize("hold", ["", "look"])
def test_group_with_only_a_ready_leader_never_counts_as_served(hold: str) -> None:
    """The leader of the second prefill group becomes ready although its worker finds no node, as a leader without a probe
    does, and the worker is created again after that. Neither the readiness nor its time proves that the group has served:
    the group releases the node of its leader, whether the service was frozen meanwhile or not.
    """
    fleet = serving(Movable(2, 1, 1, router=False), spare=1)
    placed = fleet.world.healthy
    fleet.world.healthy = lambda pod: placed(pod) or bool(pod.node and pod.rank == 0)
    fleet.shape = replace(fleet.shape, engines=2)
    fleet.world.edit(fleet.shape.service(), fleet.world.deps)
    fleet.until("begun", lambda: fleet.world.service.status.get("placement"))
    frozen(fleet, hold)

    def group() -> list[LivePod]:
        """Return the pods of the group, the leader first."""
        pods = (pod for pod in fleet.world.pods.values() if pod.labels[keys.COMPONENT] == keys.ENGINE and pod.group == 1)
        return sorted(pods, key=lambda pod: pod.rank)

    fleet.until("leader ready", lambda: [bool(pod.ready) for pod in group()] == [True, False])
    leader, worker = group()
    assert leader.node and not worker.node
    fleet.world.lose(worker.name)
    fleet.run(3)
    frozen(fleet, "")
    plans = (fleet.world.sync() for _ in iter(fleet.run, 1))
    plan = next(plan for plan in islice(plans, 30) if plan.delete)
    assert {one.name for one in plan.delete if one.kind == "StatefulSet"} == {leader.workload, worker.workload}
