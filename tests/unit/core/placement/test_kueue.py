"""Tests of a service whose pods wait in a queue of Kueue: which pods it deletes to release quota, and when they are created
again.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed.admission import GangAdmission
from ome_operator.core.observed.objects import Node
from ome_operator.core.placement import kueue, timing
from ome_operator.core.placement.attempts import Record
from ome_operator.core.placement.claims import Claim
from tests.support import parts
from tests.support.live import LivePod
from tests.support.parts import change_deps
from tests.support.placing import LABELS as WEIGHTS
from tests.support.placing import ROOM, TIMEOUT, role
from tests.support.simulator import START, World

LONG = TIMEOUT * timing.IN_QUEUE
QUEUE = {keys.KUEUE_LABEL: "gpus"}


def world(**spec: Any) -> World:
    """Return a service with one group of two nodes for prefill and for decode. No object of it exists yet."""
    both = {"engine": {"labels": QUEUE}, "decoder": {"labels": QUEUE}, **spec}
    nodes = {f"n{at}": Node(f"n{at}", 1, WEIGHTS, True, 1, room=ROOM) for at in range(8)}
    deps = parts.deps(parts.model(), parts.simple(2, decoder=True))
    made = World(parts.service(**both), change_deps(deps, nodes=nodes, gang_timeout=TIMEOUT), 1)
    made.healthy = lambda pod: bool(pod.node)
    return made


def admit(world: World, wanted: Callable[[LivePod], bool]) -> None:
    """Let Kueue admit, and the scheduler bind, the pods for which `wanted` is true. Other pods get no node."""
    for number, pod in enumerate(world.pods.values()):
        pod.node = f"n{number}" if wanted(pod) else ""


def engines(world: World) -> list[LivePod]:
    return [pod for pod in world.pods.values() if role(pod) != keys.ROUTER]


def begun(**spec: Any) -> World:
    """Return the service after all of its pods were created. None of its engine pods is admitted."""
    made = world(**spec)
    made.healthy = lambda _: False
    while len(engines(made)) < 4:
        made.run(1)
    admit(made, lambda pod: role(pod) == keys.ROUTER)
    made.run(2)
    return made


def later(world: World, seconds: float) -> None:
    world.now += timedelta(seconds=seconds)
    for _ in range(5):  # the pods of deleted objects end
        world.run(1)


def test_admitted_prefill_without_decode_is_released_and_created_again() -> None:
    made = begun()
    admit(made, lambda pod: role(pod) != keys.DECODER)
    made.run(1)
    later(made, LONG - 120)
    assert len(engines(made)) == 4, "pods that Kueue preempts for the service may need time to end"
    later(made, 121)
    assert engines(made) == [] and made.service.status["placement"]["waiting"] == {"engine": 1, "decoder": 1}
    said = made.condition("EngineReady")
    assert said["reason"] == "WaitingForRoom" and "Kueue admitted only some of the pods" in said["message"]
    plan = made.sync()
    assert plan.requeue_after is not None and 0 < plan.requeue_after <= 60 + timing.QUEUE_JITTER
    later(made, 60 + timing.QUEUE_JITTER)
    assert len(engines(made)) == 4 and made.service.status["placement"]["trying"]


def test_leaders_that_kueue_admitted_without_their_workers_are_released() -> None:
    """An earlier version of the operator stored the revision, so Kueue admits its pods one by one and not as a group. If it
    has admitted the leaders but not their workers, the operator deletes the leaders.
    """
    made = begun()
    admit(made, lambda pod: pod.rank == 0)
    made.run(1)
    later(made, LONG + 1)
    assert engines(made) == []


def test_fully_gated_pods_keep_their_place_in_the_queue() -> None:
    """Pods stay in the queue if Kueue has admitted none of them. They take no node from other services, even if these wait
    for the same nodes.
    """
    made = begun()
    before = {pod.uid for pod in engines(made)}
    needs = world(engine={}, decoder={})
    needs.run(2)
    claim = needs.sync().claim
    assert claim is not None
    made.turn = GangAdmission(rivals=(Claim("b/b", claim.needs, trying=False),))
    for _ in range(8):
        later(made, 1200)
        assert {pod.uid for pod in engines(made)} == before
    assert made.condition("EngineReady")["reason"] != "WaitingForRoom"


def test_new_service_in_a_queue_does_not_wait_for_contending_services() -> None:
    other = world(engine={}, decoder={})
    other.run(2)
    claim = other.sync().claim
    assert claim is not None
    made = world()
    made.turn = GangAdmission(rivals=(Claim("b/b", claim.needs, trying=False, since=START.timestamp()),))
    made.run(4)
    assert len(engines(made)) == 4


def test_queued_service_claims_no_nodes() -> None:
    """A service in a queue claims no nodes, because the quota of the queue decides when it starts. With a claim, it would
    keep others from nodes that it may never get.
    """
    made = begun()
    assert made.sync().claim is None
    admit(made, lambda pod: role(pod) != keys.DECODER)
    made.run(1)
    later(made, LONG + 1)
    assert made.sync().claim is None
    later(made, 200)
    admit(made, lambda _: True)
    made.healthy = lambda _: True
    made.settle()
    assert made.sync().claim is None and "placement" not in made.service.status


def test_pods_of_a_service_that_has_served_are_never_released() -> None:
    made = begun()
    made.healthy = lambda _: True
    admit(made, lambda _: True)
    made.settle()
    assert made.condition("Ready")["status"] == "True"
    admit(made, lambda pod: (role(pod), pod.rank) != (keys.DECODER, 1))
    lost = next(pod for pod in engines(made) if not pod.node)
    made.healthy = lambda pod: pod.name != lost.name
    for _ in range(5):
        later(made, 600)
        assert len(engines(made)) >= 3
        admit(made, lambda pod: (role(pod), pod.rank) != (keys.DECODER, 1))
    assert {role(pod) for pod in engines(made)} == {keys.ENGINE, keys.DECODER}


def test_pods_of_another_scheduler_are_not_released() -> None:
    made = begun(engine={"labels": QUEUE, "schedulerName": "volcano"})
    admit(made, lambda pod: role(pod) != keys.DECODER)
    for _ in range(3):
        later(made, 1200)
        admit(made, lambda pod: role(pod) != keys.DECODER)
    assert len(engines(made)) == 4 and "placement" not in made.service.status


def test_frozen_service_is_not_created_again_and_not_requeued_rapidly() -> None:
    made = begun()
    admit(made, lambda pod: role(pod) != keys.DECODER)
    made.run(1)
    later(made, LONG + 1)
    made.service = replace(made.service, annotations={keys.FREEZE: "a reason"})
    later(made, 3600)
    assert engines(made) == []
    again = made.sync().requeue_after
    assert again is None or again >= 1


@pytest.mark.parametrize(("tries", "least"), [(0, 60), (1, 60), (2, 120), (3, 300), (9, 300)])
def test_retry_delays_grow_to_five_minutes_and_differ_between_services(tries: int, least: float) -> None:
    record = Record({"engine": 1}, START.isoformat(), tries=tries, trying=False)
    found = {kueue.seconds_until_creation(record, f"team/{name}", START) for name in "abcdefgh"}
    assert len(found) == 8 and all(least <= each <= least + timing.QUEUE_JITTER for each in found)
    assert kueue.may_create_again(record, "team/a", START) is None
    assert kueue.may_create_again(record, "team/a", START + timedelta(seconds=least + timing.QUEUE_JITTER)) is True
