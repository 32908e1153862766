"""Parse the summaries in which routers' registries report about requests and engines (docs/telemetry.md, decisions 42).

A summary comes from a pod of a tenant. If any field is invalid, nothing of the summary is used: `parse` raises
`UnusableSummary` with a sentence that names the first invalid field.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator.core.observed.transfers import PAIRS, FailingPair
from ome_operator.errors import OmeError
from ome_operator.util.json_limits import MIB, parse_untrusted

STALE = 20.0
"""Age in seconds above which a reported number is treated as unknown."""
LARGEST = 2.0**53
MEMORY = 16 * MIB
"""Maximum number of bytes of memory that parsing a summary may take."""
LEADERS, BUCKETS = 256, 65
"""Maximum numbers of leaders in a summary and of buckets in a histogram."""
STATES = ("serving", "adding", "waiting", "draining", "silent")
ROLES = ("prefill", "decode", "regular")
RATES = ("requests", "promptTokens", "outputTokens", "failedTransfers", "errors")
START_PARTS = ("own", "weights", "cache", "graphs")
"""The names of the durations that an engine reports about its start: of the whole start as the engine measures it (own),
of the loading of the weights (weights), of the allocation of the KV cache (cache), and of the capture of CUDA graphs
(graphs)."""
HISTOGRAMS = ("firstToken", "betweenTokens")

Buckets = tuple[tuple[float, float], ...]
"""(upper bound in seconds, observations) of each bucket that has observations; the last bound may be infinite."""


class UnusableSummary(OmeError):
    """Raised if a summary cannot be used. The text states the reason."""


class WorkRates(NamedTuple):
    """The rates and histograms of a router or an engine over the last `window` seconds."""

    at: float
    """Time of the reading, in seconds since the epoch, by the clock of this process."""
    window: float
    rates: Mapping[str, float]
    """Maps names from `RATES` to a number per second. Unknown rates are left out."""
    histograms: Mapping[str, Buckets]


class LeaderLoad(NamedTuple):
    """The numbers of requests in an engine at one time. None stands for an unknown number."""

    at: float
    running: int | None = None
    waiting: int | None = None
    in_transfer: int | None = None
    cache_use: float | None = None
    empty_readings: int | None = None
    """Number of consecutive readings without any request since the router removed the draining leader from its list; None
    if the engine does not report all of its numbers of requests (running, waiting, in transfer)."""


class LeaderSilence(NamedTuple):
    """The failed probes of a leader that does not answer the probes of one registry."""

    at: float
    """Time when the last probe ended, in seconds since the epoch, by the clock of this process."""
    since: float
    """Time when the first of the failed probes began, by the same clock."""


class LeaderStart(NamedTuple):
    """The times of the last start of a leader that the registries observed. None stands for an unknown time; all times are
    in seconds since the epoch, by the clock of this process.
    """

    parts: Mapping[str, float] = {}
    """Maps parts from `START_PARTS` to their duration in seconds, as the engine reports it."""
    answers_at: float | None = None
    """Time at which the engine's HTTP server first answered."""
    healthy_at: float | None = None
    """Time at which the engine first called itself healthy."""
    listed_at: float | None = None
    """Time at which a router first listed the leader as a worker."""
    succeeded_at: float | None = None
    """Time at which a registry first read that its router had counted an answer of the leader to a request."""

    @property
    def known_parts(self) -> tuple[str, ...]:
        """The names of the parts whose duration is known, and of the fields whose time is known."""
        return (*self.parts, *(name for name, at in zip(self._fields[1:], self[1:], strict=True) if at is not None))


class LeaderReport(NamedTuple):
    """What a router's registry reports about one leader."""

    role: str
    """Role that the registry reports: prefill, decode or regular; "" if the summary contains another value."""
    state: str
    """State of the leader in this router: one of `STATES`; "" if the summary contains another value."""
    load: LeaderLoad | None = None
    work: WorkRates | None = None
    silence: LeaderSilence | None = None
    is_paused: bool = False
    """Whether the engine has reported that its generation is paused."""
    start: LeaderStart | None = None


class RouterReport(NamedTuple):
    """The summary of one router's registry. Times are in seconds since the epoch, by the clock of this process."""

    at: float
    """Time when the summary was received."""
    strangers: int
    foreign_worker_at: float
    """Time when the last foreign worker was found; 0 if none was found."""
    work: WorkRates | None
    in_flight: int | None
    leaders: Mapping[str, LeaderReport]
    """The reports about leaders, by the mark of the leader's UID (`names.public_digest`)."""
    up_for: float | None = None
    """Seconds since the registry started; None if the registry does not report this."""
    unserved_at: float | None = None
    """Time of the last request that arrived while the router had no engine to send it to; None if there was none."""
    pairs: tuple[FailingPair, ...] = ()
    """The pairs of prefill and decode leaders whose transfers fail."""


class ForeignWorkers(NamedTuple):
    """Foreign workers in the list of a router, which means workers that the operator's registry did not register."""

    found: int
    """Number of foreign workers that were found."""
    at: float
    """Time when the last foreign worker was found, in seconds since the epoch."""


class DrainReport(NamedTuple):
    """The report of one router's registry about the requests of a leader that is being drained."""

    router: str
    """UID of the router's pod."""
    at: float
    """Time of the reading, in seconds since the epoch, by the clock of this process."""
    requests: int | None = None
    """Number of requests in the engine; None if it is unknown."""
    empty_readings: int | None = None
    """Number of consecutive readings without any request, as `LeaderLoad.empty_readings` defines it."""


def parse(body: Any, slice_mark: str, now: float) -> RouterReport:
    """Return the report in a summary that was received at the time `now`. `slice_mark` is the mark of the slice whose
    router was asked. Raises UnusableSummary for an invalid summary.
    """
    top = _map(body, "the summary")
    if _count(top, "version") < 1:
        raise UnusableSummary("version is less than 1")
    if top.get("slice") != slice_mark:
        raise UnusableSummary("slice names another slice: the router's address now belongs to another pod")
    strangers, router = _map(top.get("strangers"), "strangers"), _map(top.get("router"), "router")
    found_age = _number(strangers, "age")
    leaders = top.get("leaders")
    if not isinstance(leaders, list) or len(leaders) > LEADERS:
        raise UnusableSummary(f"leaders is not a list of at most {LEADERS} leaders")
    return RouterReport(
        at=now,
        strangers=_count(strangers, "found"),
        foreign_worker_at=0.0 if found_age is None else max(0.0, now - found_age),
        work=_work(router, now),
        in_flight=_optional_count(router, "inFlight"),
        leaders=dict(_leader(leader, now) for leader in leaders),
        up_for=_number(top, "upFor"),
        unserved_at=None if top.get("unserved") is None else _time(_map(top["unserved"], "unserved"), "age", now),
        pairs=_pairs(top.get("pairs", [])),
    )


def parse_report(text: str | bytes, slice_mark: str, now: float) -> RouterReport:
    """Return the report in the text of a summary, as `parse` does. Raises UnusableSummary for an invalid summary."""
    try:
        return parse_untrusted(text, "the summary", memory=MEMORY, extract=lambda body: parse(body, slice_mark, now))
    except ValueError as error:
        raise UnusableSummary("the response is not JSON of the permitted size") from error


def failing_pairs(reports: Mapping[str, RouterReport]) -> dict[str, tuple[FailingPair, ...]]:
    """Return the failing pairs by the UID of the router's pod. `reports` maps these UIDs to the reports of registries."""
    return {uid: report.pairs for uid, report in reports.items() if report.pairs}


def _leader(body: Any, now: float) -> tuple[str, LeaderReport]:
    leader = _map(body, "an entry of leaders")
    mark, role, state = _mark(leader, "id", "a leader"), leader.get("role"), leader.get("state")
    load, work, silence = leader.get("load"), leader.get("work"), leader.get("silence")
    return mark, LeaderReport(
        role if role in ROLES else "",
        state if state in STATES else "",
        None if load is None else _load(_map(load, "load"), now),
        None if work is None else _work(_map(work, "work"), now),
        None if silence is None else _silence(_map(silence, "silence"), now),
        leader.get("paused") is True,
        None if (start := leader.get("start")) is None else _start(_map(start, "start"), now),
    )


def _mark(part: Mapping[str, Any], name: str, entry: str, *, needed: bool = True) -> str:
    mark = part.get(name, None if needed else "")
    if not isinstance(mark, str) or len(mark) > 64:
        raise UnusableSummary(f"{name} of {entry} is not a text of at most 64 characters")
    return mark


def _pairs(pairs: Any) -> tuple[FailingPair, ...]:
    if not isinstance(pairs, list) or len(pairs) > PAIRS:
        raise UnusableSummary(f"pairs is not a list of at most {PAIRS} pairs")
    return tuple(_pair(_map(pair, "an entry of pairs")) for pair in pairs)


def _pair(pair: Mapping[str, Any]) -> FailingPair:
    prefill, decode = (_mark(pair, name, "a pair") for name in ("prefill", "decode"))
    partners = (_mark(pair, f"{name}WorksWith", "a pair", needed=False) for name in ("prefill", "decode"))
    return FailingPair(prefill, decode, _count(pair, "probes"), _count(pair, "failed"), *partners)


def _start(start: Mapping[str, Any], now: float) -> LeaderStart:
    parts = {name: seconds for name in START_PARTS if (seconds := _number(start, name))}
    ages = (_number(start, name) for name in ("answersFor", "healthyFor", "listedFor", "succeededFor"))
    return LeaderStart(parts, *(None if age is None else now - age for age in ages))


def _silence(silence: Mapping[str, Any], now: float) -> LeaderSilence:
    return LeaderSilence(_time(silence, "age", now), _time(silence, "seconds", now))


def _load(load: Mapping[str, Any], now: float) -> LeaderLoad:
    share = _number(load, "cacheUse")
    return LeaderLoad(
        at=_time(load, "age", now),
        running=_optional_count(load, "running"),
        waiting=_optional_count(load, "waiting"),
        in_transfer=_optional_count(load, "inTransfer"),
        cache_use=None if share is None else min(share, 1.0),
        empty_readings=_optional_count(load, "emptyReadings"),
    )


def _work(work: Mapping[str, Any], now: float) -> WorkRates | None:
    if "age" not in work:
        return None
    window = _number(work, "window")
    rates = {name: rate for name in RATES if (rate := _number(work, name)) is not None}
    histograms = {name: _buckets(work[name], name) for name in HISTOGRAMS if name in work}
    return WorkRates(_time(work, "age", now), window or 0.0, rates, histograms)


def _buckets(body: Any, name: str) -> Buckets:
    if not isinstance(body, list) or len(body) > BUCKETS:
        raise UnusableSummary(f"{name} is not a list of at most {BUCKETS} buckets")
    found, below = list[tuple[float, float]](), -1.0
    for pair in body:
        if type(pair) is not list or len(pair) != 2:
            raise UnusableSummary(f"a bucket of {name} is not a pair")
        bound, count = pair
        if bound is None:
            bound = math.inf
        elif not _is_number(bound):
            raise UnusableSummary(f"a bound of {name} is not a number from 0 to 2^53")
        if bound <= below:
            raise UnusableSummary(f"the bounds of {name} do not increase")
        if not _is_number(count):
            raise UnusableSummary(f"the observations of {name} are not a number from 0 to 2^53")
        found.append((bound, count))
        below = bound
    return tuple(found)


def _is_number(value: Any) -> bool:
    return (type(value) is float or type(value) is int) and 0 <= value <= LARGEST  # false for NaN and for true


def _map(body: Any, part: str) -> Mapping[str, Any]:
    if not isinstance(body, dict):
        raise UnusableSummary(f"{part} is not a map")
    return body


def _time(part: Mapping[str, Any], name: str, now: float) -> float:
    age = _number(part, name)
    if age is None:
        raise UnusableSummary(f"{name} is missing")
    return now - age


def _number(part: Mapping[str, Any], name: str) -> float | None:
    return _checked(part.get(name), name)


def _count(part: Mapping[str, Any], name: str) -> int:
    found = _optional_count(part, name)
    if found is None:
        raise UnusableSummary(f"{name} is missing")
    return found


def _optional_count(part: Mapping[str, Any], name: str) -> int | None:
    found = _number(part, name)
    return None if found is None else int(found)


def _checked(value: Any, name: str) -> float | None:
    """Return `value`, a number or None. Raises UnusableSummary, with the name of the field, for any other value."""
    if value is None:
        return None
    if not _is_number(value):
        raise UnusableSummary(f"{name} is not a number from 0 to 2^53")
    return float(value)


def is_fresh(at: float, now: float) -> bool:
    """Return whether a number that was read at the time `at` can be used at the time `now`: it is at most `STALE` seconds
    old. A number with a time in the future cannot be used, because the clock was set back after the reading.
    """
    return 0 <= now - at <= STALE


def requests(load: LeaderLoad) -> int | None:
    """Return the number of requests in an engine; None if it is unknown."""
    known = [part for part in (load.running, load.waiting, load.in_transfer) if part is not None]
    return sum(known) if load.running is not None else None


def combined_start(starts: Iterable[LeaderStart]) -> LeaderStart | None:
    """Return the earliest value of each time that registries observed of a start; None if `starts` is empty."""
    starts = [*starts]
    moments = ([at for at in found if at is not None] for found in zip(*(start[1:] for start in starts), strict=True))
    parts = max((start.parts for start in starts), key=len, default={})
    return LeaderStart(parts, *(min(known, default=None) for known in moments)) if starts else None


def drain_reports(reports: Iterable[tuple[str, RouterReport]], mark: str) -> tuple[DrainReport, ...]:
    """Return the reports of routers about the requests of a leader that is being drained. `mark` identifies the leader
    (`names.public_digest` of its UID), and `reports` are pairs of the UID of a router's pod and the report of its registry.
    Reports without the leader's load are left out.
    """
    found = ((uid, report.leaders.get(mark)) for uid, report in reports)
    return tuple(
        DrainReport(uid, leader.load.at, requests(leader.load), leader.load.empty_readings)
        for uid, leader in found
        if leader is not None and leader.load is not None
    )
