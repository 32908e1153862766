"""A complete service whose pods get few nodes or none. Its reconciliations run `sync`, while its competitors exist only as
claims on nodes.
"""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ome_operator import keys
from ome_operator.core.observed.admission import GangAdmission
from ome_operator.core.placement.claims import Claim
from ome_operator.core.placement.demand import Demand
from ome_operator.core.placement.need import Need
from ome_operator.core.placement.timing import RECHECK
from tests.support.parts import change_deps
from tests.support.placing import TIMEOUT, Race, ready_world, role
from tests.support.shapes import Shape
from tests.support.simulator import World


def alone(nodes: int, placed: int, size: int = 2) -> World:
    """Return a service of which this number of pods are on nodes, and which has no competitor."""
    shape = Shape(size=size, engines=1, decoders=1, router=False)
    world = World(
        shape.service(), change_deps(shape.deps(), nodes=Race({"a": shape}, nodes, 1).nodes, gang_timeout=TIMEOUT), 1
    )
    world.healthy = lambda _: False
    world.run(5)
    assert len(world.living_pods()) == 2 * size
    put(world, placed)
    return world


def put(world: World, placed: int) -> None:
    """Bind this number of pods to nodes."""
    for number, pod in enumerate(world.pods.values()):
        pod.node = f"n{number}" if number < placed else ""


def later(world: World, seconds: float) -> None:
    """Let time pass, with a reconciliation every few seconds."""
    until = world.now + timedelta(seconds=seconds)
    while world.now < until:
        world.now += timedelta(seconds=5)
        world.run(1)


WAITS = Claim("ns/w", (Need(("engine",), "engine", Demand(requests=(("nvidia.com/gpu", 1),)), 9),), trying=False)


@pytest.mark.parametrize("rival", [None, WAITS, WAITS._replace(trying=True, serves=True), WAITS._replace(trying=True)])
def test_unplaced_pods_are_deleted_only_if_another_service_waits(rival: Claim | None) -> None:
    """Pods without nodes are deleted only if a competitor waits for the same nodes, or serves and releases nodes. Otherwise
    these pods would take some of the nodes that become free.
    """
    world = alone(4, 0)
    before = world.living_pods()
    later(world, 3600)
    assert world.living_pods() == before
    world.turn = GangAdmission(rivals=(rival,) if rival else ())
    world.run(10)
    makes_way = rival is not None and (rival.serves or not rival.trying)
    assert world.living_pods() == ({} if makes_way else before)


@pytest.mark.parametrize("placed", [0, 3])
def test_frozen_service_does_not_block_admission_of_others(placed: int) -> None:
    """A frozen service cannot release its nodes, so waiting services are admitted without regard to it."""
    world = alone(4, placed)
    claim = world.sync().claim
    assert claim is not None and claim.trying
    world.edit(replace(world.service, annotations={keys.FREEZE: "me"}))
    before = world.living_pods()
    later(world, 600)
    assert world.sync().claim is None and world.living_pods() == before
    world.edit(replace(world.service, annotations={}))
    assert world.sync().claim is not None


def test_attempt_timeout_starts_with_the_first_node_after_an_hour() -> None:
    world = alone(4, 0)
    later(world, 3600)
    before = world.living_pods()
    put(world, 1)
    later(world, 50)
    assert world.living_pods() == before
    put(world, 4)
    later(world, 3600)
    assert world.living_pods() == before


@pytest.mark.parametrize(
    ("timeout", "looks"), [(5.0, [5.0, RECHECK]), (45.0, [RECHECK, 15.0, RECHECK]), (60.0, [RECHECK, RECHECK, RECHECK])]
)
def test_waiting_service_requeues_when_its_competitors_must_yield(timeout: float, looks: list[float]) -> None:
    world = alone(4, 3)
    later(world, 120)
    assert not world.living_pods(), "the service has released its nodes"
    world.edit(deps=change_deps(world.deps, gang_timeout=timeout))
    world.now = datetime.fromisoformat(world.service.status["placement"]["since"])
    found: list[float | None] = []
    for _ in looks:
        found.append(world.sync().requeue_after)
        world.now += timedelta(seconds=found[-1] or 0)
    assert found == looks


def test_released_gang_deletes_leaders_and_workers_without_waiting() -> None:
    """When a gang releases its nodes, all StatefulSets and the leaders are deleted in one reconciliation. The workers are
    deleted in the next one, even if leaders are still terminating. A worker that is deleted while its StatefulSet exists
    would be created again.
    """
    world = alone(4, 3)
    world.now += timedelta(seconds=61)
    plan = world.sync()
    ranks = {pod.name: keys.WORKER_INDEX in pod.labels for pod in world.pods.values()}
    leaders = {name for name, leads in ranks.items() if leads}
    stored = {key for key in world.children if key[0] == "StatefulSet"}
    assert len(stored) == 4 and len(leaders) == 2
    assert {(one.kind, one.name) for one in plan.delete} == stored | {("Pod", name) for name in leaders}
    assert not any(one.guard for one in plan.delete)
    world.carry_out(plan)
    assert leaders <= world.pods.keys()
    assert {one.name for one in world.sync().delete} == ranks.keys() - leaders


@pytest.mark.parametrize("leads", [True, False])
def test_failed_deletions_of_a_gang_are_repeated_in_the_next_reconciliation(leads: bool) -> None:
    """The StatefulSets of leaders or of workers could not be deleted in the first reconciliation. Pods that they would
    create again are deleted only after them.
    """
    world = alone(4, 3)
    world.now += timedelta(seconds=61)
    plan = world.sync()
    sets = {key[1]: keys.WORKER_INDEX in child.labels for key, child in world.children.items() if key[0] == "StatefulSet"}
    stay = {name for name, leader in sets.items() if leader is leads}
    world.carry_out(replace(plan, delete=tuple(one for one in plan.delete if one.name not in stay)))
    then = world.sync().delete
    assert {one.name for one in then if one.kind == "StatefulSet"} == stay
    workers = {pod.name for pod in world.pods.values() if keys.WORKER_INDEX not in pod.labels}
    assert {one.name for one in then if one.kind == "Pod"} & workers == (workers if leads else set())
    world.run(10)
    assert world.pods == {} and world.service.status["placement"]["waiting"]


def test_grace_period_of_garbage_collected_workers_is_shortened() -> None:
    """The garbage collector deletes a worker with the pod's own grace period, for which the worker would hold an unused
    node. The operator shortens this period.
    """
    world = alone(4, 3)
    world.now += timedelta(seconds=61)
    world.carry_out(world.sync())
    for pod in world.pods.values():
        pod.deleting = True
    workers = {pod.name for pod in world.pods.values() if keys.WORKER_INDEX not in pod.labels}
    assert {(one.name, one.grace) for one in world.sync().delete} == {(name, 1) for name in workers}


@pytest.mark.parametrize("ranks", [0, 1])
def test_additional_group_is_released_alone_and_only_if_it_holds_a_node(ranks: int) -> None:
    """An autoscaler has requested a further group, whose ranks get no node or a single one. Only this group is released, and
    only if it holds a node. The existing groups stay on their nodes, whether they have served or not.
    """
    shape = Shape(size=2, engines=2, decoders=1, router=False)
    world = World(shape.service(), change_deps(shape.deps(), nodes=Race({"a": shape}, 6, 1).nodes, gang_timeout=TIMEOUT), 1)
    world.healthy = lambda _: False
    world.run(5)
    further = [pod for pod in world.pods.values() if role(pod) == "engine" and pod.group == 1]
    for number, pod in enumerate(world.pods.values()):
        pod.node = "" if pod in further[ranks:] else f"n{number}"
    before = world.living_pods().keys()
    later(world, 600)
    gone = {pod.name for pod in further} if ranks else set()
    assert world.living_pods().keys() == before - gone


@pytest.mark.parametrize("beside", [(), (WAITS,)])
def test_upgrade_releases_no_nodes_of_a_serving_service(beside: tuple[Claim, ...]) -> None:
    """An upgrade to a version that enables gangs by default releases no node of a service that serves. Running services have
    no record of a placement, and one of them has just lost a rank.
    """
    world = ready_world(Shape(size=2, engines=2, decoders=1, router=False))
    assert "placement" not in world.service.status
    lost = next(pod for pod in world.pods.values() if role(pod) == "decoder")
    lost.node, lost.ready = "", False
    world.healthy = lambda pod: pod is not lost
    before = world.living_pods().keys() - {lost.name}
    world.turn = GangAdmission(rivals=beside)
    world.edit(deps=change_deps(world.deps, gang_timeout=TIMEOUT))
    later(world, 3600)
    assert before <= world.living_pods().keys()


def test_waiting_service_gets_its_pods_when_gangs_are_disabled() -> None:
    world = alone(4, 3)
    later(world, 70)
    assert world.living_pods() == {} and world.service.status["placement"]
    world.edit(deps=change_deps(world.deps, gang_timeout=0.0))
    world.run(5)
    assert len(world.living_pods()) == 4 and not world.service.status.get("placement")


def test_quota_message_is_kept_while_the_service_waits() -> None:
    """The status of a service that waits because of a quota keeps the message of the quota, although the StatefulSets whose
    pods could not be created no longer exist.
    """
    world = alone(4, 2)
    key = next(key for key in world.children if key[0] == "StatefulSet")
    plain = world.observed
    world.observed = lambda: replace(plain(), failures={key: "exceeded quota: gpus"})  # type: ignore[method-assign]
    later(world, 70)
    assert world.living_pods() == {}
    said = world.condition("EngineReady")["message"]
    assert said.endswith("; at the last attempt, pods could not be created: exceeded quota: gpus")
