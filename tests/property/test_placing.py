"""Complete services compete for nodes. Their reconciliations run `sync`, the controllers admit them, and a scheduler binds
pods one by one.
"""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core.observed.admission import GangAdmission
from ome_operator.core.placement.claims import Claim
from ome_operator.core.placement.demand import Demand
from ome_operator.core.placement.need import Need
from tests.support import parts
from tests.support.parts import change_deps
from tests.support.placing import TIMEOUT, Race, role
from tests.support.shapes import Shape
from tests.support.simulator import World


@settings(max_examples=8)
@given(st.integers(1, 2), st.integers(0, 10_000), st.booleans())
@example(1, 2137, False)  # decode became ready alone and was deleted, then prefill became ready alone
def test_two_services_are_placed_completely_one_after_the_other(size: int, seed: int, router: bool) -> None:
    """Two services each need more than half of the nodes. The second reports what it waits for, and is placed completely
    after the first is gone.
    """
    shape = Shape(size=size, engines=1, decoders=1, router=router)
    race = Race({"a": shape, "b": shape}, 3 * size, seed)
    while not race.ready_services() and race.seconds < 600:
        race.step()
    (first,) = race.ready_services()
    second = "ab".replace(first, "")
    for _ in range(100):  # longer than a service may hold an incomplete gang
        race.step()
    assert race.ready_services() == {first}
    assert race.worlds[second].service.status["placement"]["first"]
    race.delete(first)
    while second not in race.ready_services() and race.seconds < 2000:
        race.step()
    assert second in race.ready_services()


def test_waiting_service_reports_holders_of_the_nodes() -> None:
    shape = Shape(size=2, engines=1, decoders=1, router=False)
    race = Race({"a": shape, "b": shape}, 6, 1)
    said: set[str] = set()
    while race.seconds < 300:
        race.step()
        said |= {world.condition("EngineReady").get("message", "") for world in race.worlds.values()}
    (first,) = race.ready_services()
    told = f"prefill waits for 4 nodes with 1 free GPU: 2 are free, 4 are held by {first}/"
    assert any(text.startswith(told) for text in said)


@pytest.mark.parametrize("freeze", ["", keys.FREEZE])
def test_waiting_service_creates_no_pods_and_freeze_keeps_its_record(freeze: str) -> None:
    shape = Shape(size=2, engines=1, decoders=1, router=False)
    world = World(shape.service(), change_deps(shape.deps(), nodes=Race({"a": shape}, 4, 1).nodes, gang_timeout=TIMEOUT), 1)
    world.healthy = lambda _: False
    world.run(5)
    assert len(world.living_pods()) == 4 and world.service.status["placement"]["trying"]
    for number, pod in enumerate(world.pods.values()):
        pod.node = f"n{number}" if number < 3 else ""
    if freeze:
        world.edit(replace(world.service, annotations={freeze: "me"}))
        before = world.service.status["placement"]
    world.now += timedelta(seconds=61)
    world.run(10)
    if freeze:
        assert len(world.living_pods()) == 4 and world.service.status["placement"] == before
        return
    assert world.living_pods() == {} and world.service.status["placement"]["waiting"] == {"engine": 1, "decoder": 1}
    assert world.condition("Ready")["reason"] == "WaitingForRoom"


def test_disabled_gangs_change_nothing() -> None:
    shape = Shape(size=2, engines=1, decoders=1)
    world = World(shape.service(), replace(shape.deps(), nodes=Race({"a": shape}, 3, 1).nodes), 1)
    world.run(20)
    assert "placement" not in world.service.status and world.sync().claim is None


def test_nodes_released_by_a_rollout_are_reserved_for_it() -> None:
    """During a rollout, the nodes of an old group that is being removed are reserved for the new group of the same service.
    Other services that wait for as many nodes do not get them.
    """
    shape = Shape(size=2, engines=1, decoders=1, router=False)
    race = Race({"a": shape}, 4, 1)
    world = race.worlds["a"]
    while not race.ready_services() and race.seconds < 300:
        race.step()
    assert race.ready_services() == {"a"} and world.sync().claim is None
    for pod in world.pods.values():
        pod.deleting |= role(pod) == "engine"
    claim = world.sync().claim
    assert claim is not None and claim.trying and claim.serves and sum(need.pods for need in claim.needs) == 2


def test_new_service_with_higher_priority_creates_its_pods_immediately() -> None:
    """A new service with a higher PriorityClass than the waiting services creates its pods at once, because the scheduler
    preempts only for pods that exist. A new service with the same PriorityClass as the waiting services waits.
    """
    shape = Shape(size=2, engines=1, decoders=1, router=False)

    def first(mine: str, *rivals: Claim) -> bool:
        world = Race({"a": shape}, 3, 1).worlds["a"]
        part = {"minReplicas": 1, "priorityClassName": mine}
        world.service = parts.service(engine=part, decoder=part)
        world.turn = GangAdmission(rivals=rivals)
        claim = world.sync().claim
        assert claim is not None and claim.priority_class == mine
        return claim.trying

    need = Need(("engine",), "engine", Demand(requests=(("nvidia.com/gpu", 1),)), 3)
    waits = Claim("ns/w", (need,), trying=False, priority=10, priority_class="low")
    assert not first("", waits)
    assert first("high", waits)
    assert not first("low", waits)
    tries = waits._replace(key="ns/x", trying=True)
    assert first("low", waits._replace(priority=5, priority_class="worse"), tries), "it is better than all that wait"
    assert first("", waits._replace(needs=(need._replace(pods=4),))), "a service that can never fit delays none"
