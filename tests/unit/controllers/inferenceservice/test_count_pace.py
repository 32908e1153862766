"""Statuses in which only counts changed: each in its time, and all of them within a rate."""

from collections import Counter

from ome_operator.controllers.inferenceservice.count_pace import CountPace
from ome_operator.controllers.inferenceservice.memory import ServiceMemory

INTERVAL, RATE = 10.0, 10.0


def written(services: int, seconds: int) -> dict[int, list[float]]:
    """When each service writes where the counts of all change all the time, and each asks again when it was told to."""
    pace, memories = CountPace(INTERVAL, RATE), [ServiceMemory() for _ in range(services)]
    found: dict[int, list[float]] = {number: [] for number in range(services)}
    due = dict.fromkeys(range(services), 0.0)
    while (now := min(due.values())) < seconds:
        number = min(due, key=lambda each: due[each])
        wait = pace.wait(memories[number], now)
        if wait <= 1e-9:
            found[number].append(now)
            memories[number].status_at, memories[number].status_turn = now, None
            wait = pace.wait(memories[number], now)
        due[number] = now + wait
    return found


def test_a_service_alone_writes_once_in_an_interval() -> None:
    assert written(1, 35) == {0: [0.0, 10.0, 20.0, 30.0]}


def test_a_hundred_fill_the_rate_and_more_do_not_exceed_it() -> None:
    for services in (100, 500):
        found = written(services, 60)
        by_second = Counter(int(at + 1e-6) for times in found.values() for at in times)
        assert max(by_second.values()) <= RATE + 1
        assert sum(by_second.values()) >= 0.95 * RATE * 60
        assert all(abs(len(times) - 60 * RATE / services) <= 1 for times in found.values())


def test_who_waits_for_his_turn_holds_up_nobody_whose_turn_is_later() -> None:
    """A turn is of the rate alone: the interval of a service that wrote just now is not waited for by others."""
    pace, fresh, old = CountPace(INTERVAL, RATE), ServiceMemory(status_at=99.0), ServiceMemory()
    assert pace.wait(fresh, 100.0) == 9.0
    assert pace.wait(old, 100.0) <= 0
