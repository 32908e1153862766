"""Tests of which service waits for which wave, given the reports of services."""

import sys
from collections.abc import Callable
from datetime import timedelta
from types import FrameType

import pytest

from ome_operator.core.observed.objects import Epoch, Ref
from ome_operator.core.reconcile.plan import EditStand, EditState
from ome_operator.core.waves.terms import WaveTerms
from tests.support.fleet import RUNTIME, START, Fleet, service

MODEL = Ref("BaseModel", "team", "m")


def edited(size: int, terms: WaveTerms | None = None) -> Fleet:
    fleet = Fleet(size, terms)
    fleet.hear_all()
    return fleet


def test_edit_reaches_two_hundred_services_in_four_waves() -> None:
    fleet = edited(200)
    assert len(fleet.begun) == 1
    for begun, ends in ((1, 10), (9, 50), (40, 200)):
        assert len(fleet.begun) == begun
        fleet.become_whole(*list(fleet.begun))
        assert not fleet.begun, "the wave is in its bake time"
        assert fleet.told()["state"] == "Baking" and fleet.again == 300
        fleet.wait(seconds=299)
        assert not fleet.begun
        fleet.wait(seconds=1)
        assert fleet.told()["size"] == ends
    assert len(fleet.begun) == 150
    fleet.become_whole(*list(fleet.begun))
    assert fleet.told() == {
        "generation": 1, "state": "Complete", "wave": 4, "waves": 4, "size": 200, "services": 200, "done": 200, "rolling": 0,
        "waiting": 0, "failed": 0,
    }  # fmt: skip
    assert fleet.again is None


def test_failed_service_stops_the_edit_until_it_recovers() -> None:
    fleet = edited(20)
    (first,) = fleet.begun
    fleet.failed.add(first)
    fleet.hear(first)
    fleet.wait(hours=5)
    assert fleet.begun == {first}
    assert (fleet.told()["state"], fleet.told()["failedServices"]) == (
        "Stopped",
        [{"namespace": "team", "name": first.name}],
    )
    fleet.become_whole(first)
    fleet.wait(minutes=5)
    assert fleet.told()["state"] == "Rolling" and fleet.begun


def test_failed_service_is_retried_at_once_and_a_new_edit_starts_again() -> None:
    fleet = edited(20)
    (first,) = fleet.begun
    fleet.failed.add(first)
    fleet.begun.clear()  # the service was rolled back
    fleet.registry.report(first, {RUNTIME: EditStand(fleet.epoch, EditState.FAILED)}, asks=True, begun=False)
    assert fleet.registry.awaited_wave(first, {RUNTIME: fleet.epoch}) == ""
    fleet.edit()
    fleet.hear_all()
    assert len(fleet.begun) == 1


def test_deleted_failed_service_stops_no_other() -> None:
    fleet = edited(20)
    (first,) = fleet.begun
    fleet.failed.add(first)
    fleet.hear(first)
    fleet.begun.discard(first)
    fleet.registry.forget(first)
    assert fleet.work() and fleet.told()["services"] == 19


def test_no_service_begins_before_all_were_reconciled_after_an_edit() -> None:
    """After an edit of a runtime, no service begins before all services of the runtime have been reconciled. The size of a
    wave is a share of all services, and reports about the previous generation prove nothing.
    """
    fleet = edited(200)
    for _ in range(3):
        fleet.become_whole(*list(fleet.begun))
        fleet.wait(minutes=5)
    fleet.become_whole(*list(fleet.begun))
    fleet.edit()
    for name in fleet.services[:-1]:
        fleet.hear(name)
        assert not fleet.called and not fleet.begun
        assert fleet.told() == {"kept": True}, "the status is unchanged until all services have reported"
    fleet.hear(fleet.services[-1])
    assert len(fleet.work()) == 1


def test_no_service_begins_before_all_were_reconciled_after_a_restart() -> None:
    fleet = edited(200)
    for _ in range(2):
        fleet.become_whole(*list(fleet.begun))
        fleet.wait(minutes=5)
    on_their_way = set(fleet.begun)
    assert len(on_their_way) == 40
    fleet.restart()
    fleet.wait(minutes=20)
    for name in reversed(fleet.services):
        fleet.hear(name)
        assert fleet.begun == on_their_way
    fleet.work()
    assert fleet.begun == on_their_way, "the third wave has 50 services"
    assert (fleet.told()["wave"], fleet.told()["done"], fleet.told()["rolling"]) == (3, 10, 40)


def test_bake_time_continues_after_a_restart() -> None:
    fleet = edited(200)
    fleet.become_whole(*list(fleet.begun))
    fleet.wait(minutes=4)
    fleet.restart()
    fleet.hear_all()
    assert not fleet.begun and fleet.told()["bakesUntil"] == "2026-01-01T00:05:00Z" and fleet.again == 60
    fleet.wait(minutes=1)
    assert len(fleet.begun) == 9


def test_service_of_a_deleted_namespace_delays_no_other() -> None:
    fleet = Fleet(20)
    for name in fleet.services[1:]:
        fleet.hear(name)
    assert not fleet.called
    fleet.registry.forget(fleet.services[0])
    assert len(fleet.called) == 1


def test_admitted_service_that_cannot_begin_passes_its_place_on() -> None:
    """If the service that may begin next cannot begin, its place is given to another service. For example, its user has
    paused its rollout, or no node has its model.
    """
    fleet = Fleet(20)
    for name in fleet.services:
        fleet.hear(name)
    (first,) = fleet.called
    fleet.called.clear()
    fleet.registry.report(first, {RUNTIME: EditStand(fleet.epoch, EditState.PENDING)}, asks=False, begun=False)
    (second,) = fleet.called
    assert second != first and fleet.told()["waiting"] == 19
    fleet.hear(second)
    fleet.hear(first)
    assert fleet.begun == {second}, "it is last in the order now"


def test_incomplete_service_keeps_its_place_and_delays_the_next_wave() -> None:
    fleet = edited(20)
    (first,) = fleet.begun
    fleet.become_whole(first)
    fleet.registry.report(first, {RUNTIME: EditStand(fleet.epoch, EditState.DONE, None)}, asks=False, begun=False)
    fleet.wait(hours=1)
    assert not fleet.begun and (fleet.told()["state"], fleet.told()["rolling"]) == ("Rolling", 1)
    fleet.become_whole(first)
    fleet.wait(minutes=5)
    assert fleet.begun


@pytest.mark.parametrize(
    ("state", "narrow", "begin", "counted"),
    [(EditState.IDLE, False, 1, 20), (EditState.EQUAL, True, 1, 20), (EditState.EQUAL, False, 20, 120)],
)
def test_services_not_changed_by_the_edit_count_as_proof_only_if_they_use_it(
    state: EditState, narrow: bool, begin: int, counted: int
) -> None:
    """An edit of a runtime was reverted before it reached some services. These services are complete with the reverted
    runtime, and count as the first waves, so all other services may begin. They do not count if the edit does not change
    them, or if the edit concerns only the accelerators of the other services.
    """
    fleet = Fleet(20)
    others = [service(number) for number in range(100, 200)]
    fleet.registry.expect(others)
    for name in fleet.services:
        waits = EditStand(fleet.epoch, EditState.PENDING, narrow=narrow)
        fleet.registry.report(name, {RUNTIME: waits}, asks=True, begun=False)
    for name in others:
        assert not fleet.called
        since = START - timedelta(hours=1) if state == EditState.EQUAL else None
        fleet.registry.report(name, {RUNTIME: EditStand(fleet.epoch, state, since)}, asks=False, begun=False)
    assert len(fleet.called) == begin
    assert (fleet.told()["services"], fleet.told()["rolling"]) == (counted, begin)


def test_new_service_counts_for_an_edit_after_its_bake_time() -> None:
    fleet = edited(20)
    new = EditStand(fleet.epoch, EditState.EQUAL, fleet.now)
    fleet.registry.report(service(99), {RUNTIME: new}, asks=False, begun=False)
    fleet.wait(minutes=4)
    assert len(fleet.begun) == 1 and not fleet.called
    fleet.wait(minutes=1)
    assert len(fleet.begun) == 1, "the new service is the first of two in its wave"
    assert (fleet.told()["wave"], fleet.told()["size"], fleet.told()["services"]) == (2, 2, 21)


def test_scaling_services_cause_no_write_of_the_runtime_status() -> None:
    """The runtime's status is not written while services scale, although such a service is complete at one moment and
    incomplete at the next.
    """
    fleet = edited(1)
    fleet.become_whole(*list(fleet.begun))
    fleet.changed.clear()
    for state, since in ((EditState.EQUAL, START), (EditState.IDLE, None), (EditState.EQUAL, START)):
        fleet.registry.report(service(99), {RUNTIME: EditStand(fleet.epoch, state, since)}, asks=False, begun=False)
    assert not fleet.changed and fleet.told()["services"] == 1


def test_service_with_two_edits_waits_for_the_first_and_counts_in_both() -> None:
    fleet = Fleet(0)
    other = Epoch("m", 7)

    def hear(name: Ref) -> str:
        pending = {RUNTIME: fleet.epoch, MODEL: other}
        said = fleet.registry.awaited_wave(name, pending)
        stands = {ref: EditStand(epoch, EditState.PENDING) for ref, epoch in pending.items()}
        fleet.registry.report(name, stands, asks=True, begun=not said)
        return said

    names = [service(number) for number in range(5)]
    fleet.registry.expect(names)
    assert all("wave" in hear(name) for name in names)
    (first,) = fleet.called
    assert hear(first) == ""
    found, _ = fleet.registry.rollout_status(MODEL, None)
    assert found is not None and (found["rolling"], found["waiting"]) == (1, 4)
    assert len(fleet.called) == 1


def test_waiting_message_names_the_wave_of_the_service() -> None:
    fleet = edited(200)
    waves = [fleet.said[name].partition(" of ")[0] for name in fleet.services if fleet.said[name]]
    assert [waves.count(f"the service waits for wave {number}") for number in (2, 3, 4)] == [9, 40, 150]
    assert fleet.said[fleet.services[-1]] == (
        "the service waits for wave 4 of 4 of ClusterServingRuntime rt, whose status.rollout shows the progress"
    )


def test_service_is_enqueued_only_when_it_may_begin() -> None:
    """Of a thousand services that wait, each is enqueued when it may begin, and never before."""
    fleet = edited(1000)
    called = 1
    while fleet.told()["state"] != "Complete":
        for name in list(fleet.begun):
            fleet.begun.discard(name)
            fleet.whole[name] = fleet.now
            fleet.hear(name)
            called += len(fleet.called)
            fleet.work()
        fleet.now += timedelta(minutes=5)
        fleet.told()
        called += len(fleet.called)
        fleet.work()
    assert called == 1000


def steps(work: Callable[[], object]) -> int:
    """Return the number of Python instructions that a call executes. A loop over all services would increase it."""
    found = 0

    def count(frame: FrameType, event: str, argument: object) -> Callable[..., object]:
        nonlocal found
        frame.f_trace_opcodes = True
        found += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return found


@pytest.mark.parametrize("what", ["waits", "whole", "again", "baked"])
def test_cost_of_a_report_does_not_depend_on_the_number_of_services(what: str) -> None:
    cost = {}
    for size in (20, 1000):
        fleet = edited(size)
        (first,) = fleet.begun
        last = fleet.services[-1]
        if what == "baked":
            fleet.terms = fleet.terms._replace(waves=("1", "2"))
            fleet.become_whole(first)
            fleet.now += timedelta(minutes=5)
            cost[size] = steps(fleet.told)
        elif what == "whole":
            cost[size] = steps(lambda: fleet.become_whole(first))  # noqa: B023
        else:
            if what == "again":
                fleet.edit()
                fleet.hear_all()
            cost[size] = steps(lambda: fleet.hear(last))  # noqa: B023
    assert cost[20] and cost[1000] <= 1.05 * cost[20], cost


def test_deleted_services_leave_nothing_in_memory() -> None:
    fleet = edited(50)
    for name in fleet.services:
        fleet.registry.forget(name)
    assert not fleet.registry._objects and not fleet.registry._seen and fleet.told() == {}


def test_wave_status_names_delaying_services_and_next_wave_skips_lacking_ones() -> None:
    """The status of a wave names the services that delay it. If a service lacks something of its own, such as a volume claim
    that was deleted, the next wave begins without it after half an hour, provided that all others of its wave are complete.
    The first wave is always waited for.
    """
    fleet = edited(10, WaveTerms(bake=0.0))
    for _ in range(2):
        fleet.become_whole(*list(fleet.begun))
    (stuck,) = fleet.begun
    name = {"namespace": stuck.namespace, "name": stuck.name}
    assert fleet.told()["wave"] == 3 and fleet.told()["holdingServices"] == [name]
    fleet.lacks[stuck] = fleet.now
    fleet.hear(stuck)
    fleet.wait(minutes=29)
    assert fleet.begun == {stuck} and fleet.again == 60
    fleet.wait(minutes=1)
    assert len(fleet.begun) == 8 and fleet.told()["holdingServices"][0] == name
    fleet.become_whole(*(fleet.begun - {stuck}))
    assert (fleet.told()["done"], fleet.told()["rolling"], fleet.told()["state"]) == (9, 1, "Rolling")
    fleet.lacks.clear()
    fleet.become_whole(stuck)
    assert fleet.told()["state"] == "Complete" and "holdingServices" not in fleet.told()


def test_first_service_is_awaited_and_a_failure_stops_the_others() -> None:
    fleet = edited(10, WaveTerms(bake=0.0))
    (first,) = fleet.begun
    fleet.lacks[first] = fleet.now
    fleet.hear(first)
    fleet.wait(hours=3)
    assert fleet.begun == {first}
    fleet.lacks.clear()
    for _ in range(2):
        fleet.become_whole(*list(fleet.begun))
    (third,) = fleet.begun
    fleet.failed.add(third)  # its new container started and failed
    fleet.hear(third)
    fleet.wait(hours=3)
    assert fleet.begun == {third} and fleet.told()["state"] == "Stopped"
