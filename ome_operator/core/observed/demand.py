"""Reduce the reports of a service's routers (docs/telemetry.md) to a sample of its demand (docs/demand.md).

If a router or an engine does not report a number, this number is unknown for the service, because a sum of the other
reports would look like less demand.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ome_operator.core.demand.facts import WINDOW, CompletedWork, DemandSample
from ome_operator.core.observed.telemetry import LeaderReport, RouterReport, WorkRates, is_fresh

FEW = 20
"""Minimum number of requests in a window for which the share of late requests is calculated."""


class LeaderQueue(NamedTuple):
    """The state of a prefill leader that is kept from one sample to the next. Times are in seconds since the epoch."""

    at: float
    waiting: int
    busy_since: float
    """Time since which the leader has had work without interruption."""
    queue_since: float
    """Time of the first reading of an uninterrupted series of readings that found requests in the queue."""


def sample(
    routers: Iterable[RouterReport],
    recent: Sequence[DemandSample],
    before: Mapping[str, LeaderQueue],
    bound: float,
    now: float,
) -> tuple[DemandSample, dict[str, LeaderQueue]]:
    """Return the sample at the time `now`, and the state of the prefill leaders for the next sample.

    `routers` are the reports of all routers of the service, `recent` the earlier samples, and `before` the state of the
    leaders that the previous call returned. A request is late if its first token came after more than `bound` seconds.
    """
    every = [one if is_fresh(one.at, now) else None for one in routers]
    known = [one for one in every if one is not None]
    whole = bool(known) and len(known) == len(every)
    leaders = _leaders(known, now)
    prefill = {mark: one for mark, one in leaders.items() if one.role == "prefill"}
    decode = {mark: one for mark, one in leaders.items() if one.role == "decode"}
    work = [one.work for one in known]
    running = _total(_load(one, "running", now) for one in decode.values()) if whole and decode else None
    earlier = [one.running_now for one in recent if now - WINDOW < one.at < now and one.running_now is not None]
    queues = {mark: queue for mark, one in prefill.items() if (queue := _queue(one, before.get(mark), now)) is not None}
    full = [prefill[mark].work for mark, queue in queues.items() if now - queue.busy_since >= WINDOW]
    waited = [prefill[mark].work for mark, queue in queues.items() if now - queue.queue_since >= WINDOW]
    found = DemandSample(
        at=now,
        arrivals=_total(_rate(one, "requests", now) for one in work) if whole else None,
        waiting=_whole(_total(_load(one, "waiting", now) for one in prefill.values())) if whole and prefill else None,
        running=None if running is None else (running + sum(earlier)) / (1 + len(earlier)),
        running_now=_whole(running),
        requests=_sum_of(prefill, "requests", now),
        prompt_tokens=_sum_of(prefill, "promptTokens", now),
        ended=_sum_of(decode, "requests", now),
        output_tokens=_sum_of(decode, "outputTokens", now),
        errors=_total(_rate(one, "errors", now) for one in work) if whole else None,
        late=_late(decode.values(), bound, now) if decode else None,
        saturated=_completed(full, now),
        queued=_completed(waited, now),
        in_flight=_whole(_total(None if one.in_flight is None else float(one.in_flight) for one in known))
        if whole
        else None,
    )
    return found, queues


def _leaders(routers: Iterable[RouterReport], now: float) -> dict[str, LeaderReport]:
    """Return the newest report about each leader, by the mark of the leader (a digest of its UID). Several routers may
    report about a leader, because every router reads all leaders of its revision.
    """

    def age(one: LeaderReport) -> float:
        return now - one.load.at if one.load is not None else float("inf")

    found = dict[str, LeaderReport]()
    for router in routers:
        for mark, one in router.leaders.items():
            if mark not in found or age(one) < age(found[mark]):
                found[mark] = one
    return found


def _queue(leader: LeaderReport, before: LeaderQueue | None, now: float) -> LeaderQueue | None:
    """Return the state of a prefill leader; None if its queue is unknown. `before` is the state at the previous reading;
    None if it is unknown.

    If at least as many requests waited at the previous reading as were completed since, the leader was never idle between
    the two readings.
    """
    waiting, rate = _load(leader, "waiting", now), _rate(leader.work, "requests", now)
    if waiting is None or rate is None or leader.load is None:
        return None
    at = leader.load.at
    if before is None or at < before.at:
        return LeaderQueue(at, int(waiting), now, now)
    if at == before.at:
        return before
    busy = 0 < rate * (at - before.at) <= before.waiting
    queued = rate > 0 and waiting > 0 and before.waiting > 0
    return LeaderQueue(at, int(waiting), before.busy_since if busy else now, before.queue_since if queued else now)


def _load(leader: LeaderReport, name: str, now: float) -> float | None:
    load = leader.load
    value = getattr(load, name) if load is not None and is_fresh(load.at, now) else None
    return None if value is None else float(value)


def _completed(works: Sequence[WorkRates | None], now: float) -> CompletedWork:
    """Return the requests and prompt tokens that several prefill groups completed, one entry of `works` for each group; an
    unknown rate counts as 0.
    """
    requests, tokens = (sum(_rate(work, name, now) or 0.0 for work in works) for name in ("requests", "promptTokens"))
    return CompletedWork(len(works), requests, tokens)


def _rate(work: WorkRates | None, name: str, now: float) -> float | None:
    return work.rates.get(name) if work is not None and is_fresh(work.at, now) else None


def _sum_of(leaders: Mapping[str, LeaderReport], name: str, now: float) -> float | None:
    return _total(_rate(one.work, name, now) for one in leaders.values()) if leaders else None


def _total(values: Iterable[float | None]) -> float | None:
    """Return the sum of the values; None if any value is None, which means that it is unknown."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _late(leaders: Iterable[LeaderReport], bound: float, now: float) -> float | None:
    """Return the share of requests whose first token came after more than `bound` seconds; None if fewer than `FEW` requests
    are known.

    If the upper bound of a bucket is larger than `bound`, all observations in this bucket count as late.
    """
    late = total = 0.0
    for one in leaders:
        if one.work is None or not is_fresh(one.work.at, now):
            return None
        for upper, count in one.work.histograms.get("firstToken", ()):
            total += count
            late += count if upper > bound else 0.0
    return late / total if total >= FEW else None
