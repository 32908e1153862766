"""Store what the registry knows about the work of its router and its leaders, and calculate the summary that it serves. Pure
functions.

All times are seconds of a monotonic clock. A number that is unknown is left out of the summary, and is never 0
(docs/telemetry.md).
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator.names import public_digest
from ome_operator.registry import starting
from ome_operator.registry.answers import AnswerSigns, RouterCounts, with_router_counts
from ome_operator.registry.engine_load import EngineLoad
from ome_operator.registry.exposition import LARGEST, EnginePage
from ome_operator.registry.records import LeaderState
from ome_operator.registry.silence import LifeSigns, with_progress, with_reading

VERSION = 1
"""Version of the summary's format. A higher version may only add fields."""
WINDOW = 60.0
"""Maximum seconds between the two readings from which a rate is calculated."""
LEADERS = 256
"""Maximum number of leaders in a summary."""
DECIMALS = 3
RENEWED = 2.5
"""Minimum number of seconds between the times at which an engine recorded the numbers of two consecutive readings, so
that the second reading counts as new. The readings themselves are 5 s apart. SGLang records its numbers between two steps
of its scheduler. During a step, for example a prefill of several seconds, `/v1/loads` returns the numbers from before the
step. They do not include the request that this step computes (measured with 0.5.23)."""


class WorkReading(NamedTuple):
    """One reading of the counters of a leader."""

    at: float
    counters: Mapping[str, float]
    histograms: Mapping[str, Mapping[float, float]]


class LeaderMemory(NamedTuple):
    """What the registry knows about one leader."""

    load: EngineLoad = EngineLoad()
    load_at: float | None = None
    """Time of the reading of `load`; None if the engine has not reported its load."""
    work: tuple[WorkReading, ...] = ()
    """The readings of the last `WINDOW` seconds, the oldest first."""
    forgotten_at: float | None = None
    """Time at which the leader was first seen both marked for draining and not in the router's list; None before that."""
    empty_readings: int = 0
    """Number of consecutive readings, up to the last reading, in which the engine had no request. Only readings after
    `forgotten_at` are counted."""
    silence: LifeSigns = LifeSigns()
    answer_signs: AnswerSigns = AnswerSigns()
    start: Mapping[str, float] = {}
    """Maps a part of the engine's start to its duration in seconds, as the engine reports it."""
    start_signs: starting.StartSigns = starting.StartSigns()

    @property
    def is_silent(self) -> bool:
        """Whether the engine is silent: it no longer answers the probes of its scheduler, or it no longer answers requests
        for a token.
        """
        return self.silence.is_silent or self.answer_signs.returns_no_token


NEW = LeaderMemory()


def with_leader_state(memory: LeaderMemory, leader: LeaderState, now: float) -> LeaderMemory:
    """Return the leader's updated memory after a pass of the registry.

    If a leader is not listed for another reason than draining, for example because it is not ready, the router may list it
    again at any time. A leader that is marked for draining and not listed gets no further request from this router.
    """
    memory = memory._replace(
        start_signs=starting.with_leader_state(memory.start_signs, leader, now, memory.answer_signs.succeeded)
    )
    if leader.is_starting:
        memory = memory._replace(start={})
    if leader.state != "draining" or leader.listed:
        return memory._replace(forgotten_at=None, empty_readings=0)
    return memory if memory.forgotten_at is not None else memory._replace(forgotten_at=now, empty_readings=0)


def with_counts(memory: LeaderMemory, counts: RouterCounts, now: float) -> LeaderMemory:
    """Return the leader's updated memory after a reading of the router's metrics; `counts` are the router's numbers for
    this leader.
    """
    signs = starting.with_router_count(memory.start_signs, counts.succeeded, now, memory.answer_signs.read_at)
    return memory._replace(start_signs=signs, answer_signs=with_router_counts(memory.answer_signs, counts, now))


def with_load(memory: LeaderMemory, load: EngineLoad | None, began: float, now: float) -> LeaderMemory:
    """Return the leader's updated memory after a reading of the load, which began at `began` and ended at `now`. `load` is
    None if the reading failed.

    A failed reading changes no number of the load. But it resets `empty_readings`, because the readings before and after it
    are not consecutive.
    """
    if load is None:
        return memory._replace(empty_readings=0)
    is_forgotten = memory.forgotten_at is not None and began >= memory.forgotten_at
    counts = is_forgotten and load.is_empty and _is_renewed(memory.load, load)
    return memory._replace(
        load=load,
        load_at=now,
        empty_readings=memory.empty_readings + 1 if counts else 0,
        silence=with_reading(memory.silence, load.taken, began),
    )


def _is_renewed(before: EngineLoad, after: EngineLoad) -> bool:
    """Return whether every rank of the engine has recorded new numbers since the reading `before`."""
    return 0 < len(after.taken) == len(before.taken) and all(
        new - old >= RENEWED for old, new in zip(before.taken, after.taken, strict=True)
    )


def with_work(readings: tuple[WorkReading, ...], page: EnginePage, now: float) -> tuple[WorkReading, ...]:
    """Return the readings with the reading of `page` appended. If a counter has decreased, the engine's process has
    restarted, and only the new reading is kept.
    """
    new = WorkReading(now, page.counters, page.histograms)
    if readings and _is_restarted(readings[-1], new):
        return (new,)
    kept = tuple(reading for reading in readings if 0 <= now - reading.at <= WINDOW)
    return (*kept, new)


def with_page(memory: LeaderMemory, page: EnginePage, now: float) -> LeaderMemory:
    """Return the leader's updated memory after a reading of the engine's metrics."""
    before, work = memory.work, with_work(memory.work, page, now)
    has_moved = bool(before) and work[-1].counters != before[-1].counters
    silence = with_progress(memory.silence, before[-1].at) if has_moved else memory.silence
    return memory._replace(work=work, silence=silence, start=page.start)


def _is_restarted(before: WorkReading, after: WorkReading) -> bool:
    counts = (*((after.counters.get(name), value) for name, value in before.counters.items()),)
    buckets = (
        (after.histograms.get(name, {}).get(bound), count)
        for name, histogram in before.histograms.items()
        for bound, count in histogram.items()
    )
    return any(new is None or new < old for new, old in (*counts, *buckets))


# --- the summary ------------------------------------------------------------------------------------------------------


class Foreign(NamedTuple):
    """The number of workers in the router's list that do not belong to the slice, and the age of the newest discovery."""

    found: int
    age: float | None
    """Seconds since the last foreign worker was found; None if none was found."""


class RouterReading(NamedTuple):
    """What the registry has last read from the router's metrics and worker list."""

    readings: tuple[WorkReading, ...] = ()
    in_flight: int | None = None
    """Number of requests that run through this router."""
    in_flight_at: float = 0.0


def summary(
    slice_: str,
    leaders: Iterable[LeaderState],
    memories: Mapping[str, LeaderMemory],
    router: RouterReading,
    foreign: Foreign,
    now: float,
) -> dict[str, Any]:
    """Return the summary at the time `now`. `slice_` is the digest that identifies the slice (`names.slice_mark`), and
    `memories` maps UIDs of leaders to what is known about them.
    """
    every = list(leaders)
    body: dict[str, Any] = {
        "version": VERSION,
        "slice": slice_,
        "strangers": {"found": foreign.found, "age": None if foreign.age is None else _round(foreign.age)},
        "router": _router_part(router, now),
        "leaders": [_leader_part(leader, memories.get(leader.uid, NEW), now) for leader in every[:LEADERS]],
        "omitted": max(0, len(every) - LEADERS),
    }
    return body


def _router_part(router: RouterReading, now: float) -> dict[str, Any]:
    found = _work_part(router.readings, now)
    if router.in_flight is not None:
        found["inFlight"], found["inFlightAge"] = min(router.in_flight, int(LARGEST)), _round(now - router.in_flight_at)
    return found


def _leader_part(leader: LeaderState, memory: LeaderMemory, now: float) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": public_digest(leader.uid),
        "role": leader.role,
        "state": leader.state,
        "listed": leader.listed,
    }
    if memory.load_at is not None:
        load = memory.load
        values = {
            "running": load.running,
            "waiting": load.waiting,
            "inTransfer": load.in_transfer,
            "cacheUse": load.cache_use,
        }
        known = {name: _round(value) for name, value in values.items() if value is not None}
        found["load"] = {"age": _round(now - memory.load_at), **known}
        if load.is_provable:
            found["load"]["emptyReadings"] = memory.empty_readings
    if memory.work:
        found["work"] = _work_part(memory.work, now)
    if start := {**memory.start, **starting.event_ages(memory.start_signs, now)}:
        found["start"] = {name: _round(value) for name, value in start.items()}
    if (silence := _silence_part(memory, now)) is not None:
        found["silence"] = silence
    if memory.silence.is_paused:
        found["paused"] = True
    return found


def _silence_part(memory: LeaderMemory, now: float) -> dict[str, float] | None:
    """Return two numbers of seconds about a silent engine: `seconds` is the time for which it had been silent when the last
    failed probe ended, and `age` is the time since that probe ended. Return None if the engine responds, or if its silence
    is not proven.
    """
    life, answers = memory.silence, memory.answer_signs
    if life.is_silent and life.probed_at is not None:
        ended, began = life.probed_at, life.failed_since
    elif answers.returns_no_token and answers.is_proven and answers.proven_since is not None:
        ended, began = answers.proven_at, answers.proven_since
    else:
        return None
    return {"age": _round(now - ended), "seconds": _round(now - began)}


def _work_part(readings: tuple[WorkReading, ...], now: float) -> dict[str, Any]:
    """Return the work of a leader over the last `WINDOW` seconds as a part of the summary: rates per second, and
    histograms of latencies.
    """
    if not readings:
        return {}
    first, last = readings[0], readings[-1]
    seconds = last.at - first.at
    found: dict[str, Any] = {"age": _round(now - last.at), "window": _round(seconds)}
    if seconds <= 0:
        return found
    for name, value in last.counters.items():
        if name in first.counters:
            found[name] = _round((value - first.counters[name]) / seconds)
    for name, buckets in last.histograms.items():
        if name in first.histograms:
            found[name] = _observations(first.histograms[name], buckets)
    return found


def _observations(before: Mapping[float, float], after: Mapping[float, float]) -> list[list[float | None]]:
    """Return a list [upper bound, observations] for each bucket that got observations between the readings `before` and
    `after` of a histogram. The upper bound of the infinite bucket is None.
    """
    found = list[list[float | None]]()
    below = 0.0
    for bound in sorted(after):
        cumulative = max(below, after[bound] - before.get(bound, 0.0))
        if cumulative > below:
            found.append([None if bound == float("inf") else bound, cumulative - below])
        below = cumulative
    return found


def _round(value: float) -> float:
    """Return a number from 0 to `LARGEST`, rounded to DECIMALS decimals; an integer if the result is a whole number."""
    rounded = round(min(max(0.0, value), LARGEST), DECIMALS)
    return int(rounded) if rounded == int(rounded) else rounded
