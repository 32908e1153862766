"""Tests of status writes that only change counts: each service waits for its interval, and all services share a rate."""

from collections import Counter
from typing import Any

import pytest

from ome_operator.controllers.inferenceservice.count_pace import CountPace, only_numbers
from ome_operator.controllers.inferenceservice.memory import ServiceMemory

INTERVAL, RATE = 10.0, 10.0


def written(services: int, seconds: int) -> dict[int, list[float]]:
    """Return when each service writes its status if the counts of all services change continuously and each service retries
    when it was told to.
    """
    pace, memories = CountPace(INTERVAL, RATE), [ServiceMemory() for _ in range(services)]
    found: dict[int, list[float]] = {number: [] for number in range(services)}
    due = dict.fromkeys(range(services), 0.0)
    while (now := min(due.values())) < seconds:
        number = min(due, key=lambda each: due[each])
        wait = pace.seconds_until_write(memories[number], now, numbers=True)
        if wait <= 0:
            found[number].append(now)
            memories[number].status_at, memories[number].status_turn = now, None
            wait = pace.seconds_until_write(memories[number], now, numbers=True)
        due[number] = max(now + wait, now + 1e-9)
    return found


def test_single_service_writes_counts_once_per_interval() -> None:
    assert [round(at, 6) for at in written(1, 35)[0]] == [0.0, 10.0, 20.0, 30.0]


@pytest.mark.parametrize("services", [100, 500])
def test_many_services_share_the_write_rate_fully_without_exceeding_it(services: int) -> None:
    found = written(services, 60)
    by_second = Counter(int(at + 1e-6) for times in found.values() for at in times)
    assert max(by_second.values()) <= RATE + 1
    assert sum(by_second.values()) >= 0.95 * RATE * 60
    assert all(abs(len(times) - 60 * RATE / services) <= 1 for times in found.values()), "each service writes"


def test_status_changes_beyond_counts_wait_only_for_their_own_interval() -> None:
    pace, fresh = CountPace(INTERVAL, RATE), ServiceMemory(status_at=99.0)
    for _ in range(1000):
        pace.seconds_until_write(ServiceMemory(), 100.0, numbers=True)
    assert pace.seconds_until_write(fresh, 100.0, numbers=False) == 9.0
    assert pace.seconds_until_write(ServiceMemory(), 100.0, numbers=False) <= 0
    assert pace.seconds_until_write(ServiceMemory(), 100.0, numbers=True) == pytest.approx(100.0)


def test_alternating_counts_take_only_one_write_slot() -> None:
    """A service whose counts change back and forth takes only one slot for its next status write. A write for another reason
    does not take a second slot either, because slots would be assigned faster than they are used.
    """
    pace, flapping = CountPace(INTERVAL, RATE), ServiceMemory()
    pace.seconds_until_write(ServiceMemory(), 100.0, numbers=True)
    waits = [pace.seconds_until_write(flapping, 100.0, numbers=True) for _ in range(50)]
    assert set(waits) == {waits[0]} and 0 < waits[0] <= 0.11
    assert pace.seconds_until_write(ServiceMemory(), 100.0, numbers=True) <= 0.21


def test_service_gets_a_new_write_slot_after_an_outage() -> None:
    """After an outage of the API server, a service gets a new slot for its status write. By then, the slots of all services
    have passed, so without new slots all would write at once.
    """
    pace, memories = CountPace(INTERVAL, RATE), [ServiceMemory() for _ in range(100)]
    for memory in memories:
        pace.seconds_until_write(memory, 100.0, numbers=True)
    assert sum(pace.seconds_until_write(memory, 200.0, numbers=True) <= 0 for memory in memories) == 1


def status(message: str, **more: Any) -> dict[str, Any]:
    return {"conditions": [{"type": "ModelReady", "status": "True", "message": message}], **more}


@pytest.mark.parametrize(
    ("after", "same"),
    [
        (status("on 31 nodes", groups=[{"phase": "Ready"}]), True),
        (status("on 31 nodes", groups=[{"phase": "Failed"}]), False),
        (status("on all nodes", groups=[{"phase": "Ready"}]), False),
        (status("on 30 nodes", groups=[{"phase": "Ready"}], progress={"since": "now"}), False),
        (status("on 31 nodes", groups=({"phase": "Ready"},)), True),
        (status("on 31 nodes", groups=[{"phase": "Ready"}], traffic={"requestsPerSecond": 2}), True),
    ],
)
def test_changes_of_only_numbers_in_a_status_are_recognized(after: dict[str, Any], same: bool) -> None:
    assert only_numbers(status("on 30 nodes", groups=[{"phase": "Ready"}]), after) == same
