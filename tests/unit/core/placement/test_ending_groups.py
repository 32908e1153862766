"""Tests that a group which is removed finishes its requests although other groups of the service wait for nodes."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ome_operator import keys
from ome_operator.core.observed.admission import NO_ADMISSION
from tests.support.moving import Fleet, Movable, serving


def scaled(fleet: Fleet) -> None:
    """Reduce the decode groups from two to one."""
    fleet.shape = replace(fleet.shape, decoders=1)
    fleet.world.edit(fleet.shape.service(), fleet.world.deps)


def asked_now(fleet: Fleet) -> None:
    """Ask that decode group 1 leaves its node without a replacement."""
    fleet.change(min(fleet.nodes_of(keys.DECODER, 1)), move=f"{fleet.world.now.isoformat()} now")


def timed_out(fleet: Fleet) -> None:
    """Taint a node of decode group 1 until it leaves without a replacement, because there is no node for one."""
    fleet.taint(min(fleet.nodes_of(keys.DECODER, 1)))


@pytest.mark.parametrize("removed", [scaled, asked_now, timed_out])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("router", [True, False])
def test_a_leader_and_its_workers_end_in_order_while_another_group_waits_for_nodes(
    removed: Callable[[Fleet], None], size: int, router: bool
) -> None:
    """Prefill group 2 waits for nodes and has no pods. Meanwhile a decode group that serves is removed: its leader has its
    whole grace period, and its workers stay until the leader is gone. (The simulated cluster checks the order.)
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
