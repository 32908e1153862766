"""The traces of the simulator: when requests arrive, how long they are, and when metrics are missing."""

import csv
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ome_operator.errors import UserError

COLUMNS = ("seconds", "rate", "prompt", "answer")
"""The columns of a CSV file."""
MOST_ROWS = 10_000
MOST = 1_000_000_000
"""Largest number in a CSV file."""
MOST_REQUESTS = 2_000_000
LEAST_SECONDS, MOST_SECONDS = 10, 7 * 86_400
"""Shortest and longest trace in seconds: controllers decide every 10 s."""


class RequestKind(NamedTuple):
    """A kind of request: its share of all requests, and its length in tokens."""

    share: float
    prompt: float
    answer: float


USUAL = (RequestKind(1.0, 8000, 1000),)


class Trace(NamedTuple):
    """The load of a simulated service over time."""

    name: str
    title: str
    seconds: float
    rate: Callable[[float], float]
    """Maps a time in seconds to a number of requests per second."""
    peak: float
    kinds: Callable[[float], tuple[RequestKind, ...]] = lambda _at: USUAL
    ttft: float = 3.0
    tbt: float = 0.05
    slopes: bool = False
    """Whether the rate changes gradually instead of in steps."""
    constant: bool = False
    """Whether rate and lengths never change."""
    missing: tuple[tuple[float, float, str], ...] = ()
    """Triples (begin, end, field of `DemandSample`, or `all`) of the times in which a number is not known."""


class TraceRequest(NamedTuple):
    """A request of a trace: its time of arrival and its lengths."""

    at: float
    prompt: float
    answer: float


def requests(trace: Trace, seed: int = 1) -> Iterator[TraceRequest]:
    """Yield the requests of a trace, which arrive at random (Poisson). The same seed gives the same requests."""
    rng = random.Random(seed)
    at, peak = 0.0, trace.peak
    while True:
        at += rng.expovariate(peak)
        if at >= trace.seconds:
            return
        if rng.random() * peak >= trace.rate(at):
            continue
        kinds = trace.kinds(at)
        chosen, left = kinds[-1], rng.random()
        for kind in kinds:
            left -= kind.share
            if left < 0:
                chosen = kind
                break
        yield TraceRequest(at, chosen.prompt, chosen.answer)


def sinusoid(period: float = 3600.0, seconds: float = 7200.0, low: float = 1.0, high: float = 24.0) -> Trace:
    """Return the trace (a): a sinusoid that begins at its lowest rate."""
    middle, width = (low + high) / 2, (high - low) / 2
    title = f"(a) sinusoid of {low:g} to {high:g} requests/s, period {period / 60:g} min"
    return Trace(
        "sinusoid", title, seconds, lambda at: middle - width * math.cos(2 * math.pi * at / period), high, slopes=True
    )


STEPS = (15.0, 2.0, 10.0, 15.0, 5.0, 2.0)


def steps(each: float = 1800.0, rates: tuple[float, ...] = STEPS) -> Trace:
    """Return the trace (b): rates that change in steps of `each` seconds."""
    title = f"(b) {' → '.join(f'{rate:g}' for rate in rates)} requests/s, each {each / 60:g} min"
    return Trace("steps", title, each * len(rates), lambda at: rates[min(int(at / each), len(rates) - 1)], max(rates))


def constant(seconds: float = 86400.0, rate: float = 4.0) -> Trace:
    """Return the trace (c): a constant load."""
    return Trace(
        "constant", f"(c) {rate:g} requests/s for {seconds / 3600:g} h", seconds, lambda _at: rate, rate, constant=True
    )


LONG = (0.02, 0.10, 0.02)


def sizes(each: float = 1800.0, rate: float = 10.0, shares: tuple[float, ...] = LONG) -> Trace:
    """Return the trace (d): inputs of two sizes, whose shares change while the number of requests does not."""
    mixes = tuple((RequestKind(1 - share, 100, 1000), RequestKind(share, 50000, 1000)) for share in shares)
    title = (
        f"(d) {rate:g} requests/s of 100 tokens, and of 50,000 tokens: "
        f"{' → '.join(f'{share:.0%}' for share in shares)}, each {each / 60:g} min"
    )
    return Trace(
        "sizes", title, each * len(shares), lambda _at: rate, rate,
        kinds=lambda at: mixes[min(int(at / each), len(mixes) - 1)], ttft=10.0,
    )  # fmt: skip


def vanishing_metrics_trace(seconds: float = 7200.0, rate: float = 10.0) -> Trace:
    """Return the trace (e): a constant load. During four periods, numbers that the service reports are missing."""
    each = seconds / 10
    missing = tuple(
        (each * (2 * turn + 1), each * (2 * turn + 2), field)
        for turn, field in enumerate(("all", "arrivals", "waiting", "output_tokens"), start=1)
    )
    title = f"(e) {rate:g} requests/s for {seconds / 3600:g} h; numbers vanish four times for {each / 60:g} min"
    return Trace("vanishing", title, seconds, lambda _at: rate, rate, constant=True, missing=missing)


TRACES: dict[str, Callable[[], Trace]] = {
    "sinusoid": sinusoid,
    "steps": steps,
    "constant": constant,
    "sizes": sizes,
    "vanishing": vanishing_metrics_trace,
    "fast-sinusoid": lambda: sinusoid(600.0, 3600.0)._replace(name="fast-sinusoid"),
    "fast-steps": lambda: steps(600.0)._replace(name="fast-steps"),
}
"""Maps the name of each trace to a function that makes the trace."""


def trace_by_name(name: str) -> Trace:
    """Return the trace with the name `name` in TRACES, or the trace in the CSV file with the path `name`. Raises UserError
    if neither exists, or if the file is invalid.
    """
    if name in TRACES:
        return TRACES[name]()
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror}): write the name of another CSV file.") from error
    if text is None:
        raise UserError(f"there is no trace {name}: write {', '.join(TRACES)}, or the name of a CSV file.")
    return parse_trace(text, path.name)


def parse_trace(text: str, name: str) -> Trace:
    """Return the trace of a CSV file with the columns `seconds`, `rate`, `prompt` and `answer`. A row applies for its
    number of seconds, and states the requests per second and the input and output tokens of a request. Raises UserError
    if the file is invalid.
    """
    rows = list[tuple[float, RequestKind]]()
    ends = list[float]()
    for length, rate, prompt, answer in _numbers(text, name):
        ends.append((ends[-1] if ends else 0.0) + length)
        rows.append((rate, RequestKind(1.0, prompt, answer)))
        if len(rows) > MOST_ROWS:
            raise UserError(f"{name} has more than {MOST_ROWS:,} rows: remove some rows.")
    peak, end = max((rate for rate, _ in rows), default=0.0), ends[-1] if ends else 0.0
    if peak <= 0:
        raise UserError(f"{name} has no row with a rate above 0: write a row such as 600,2,8000,1000.")
    if not LEAST_SECONDS <= end <= MOST_SECONDS:
        most = f"{MOST_SECONDS / 86_400:.0f} days"
        raise UserError(f"{name} lasts {end:,.3g} s, but a trace has to last {LEAST_SECONDS} s to {most}: edit seconds.")
    if peak * end > MOST_REQUESTS:
        raise UserError(
            f"{name} has up to {peak * end:,.0f} requests, more than the {MOST_REQUESTS:,} that can be "
            "simulated: shorten the trace."
        )

    def row_at(at: float) -> tuple[float, RequestKind]:
        return rows[min(bisect_right(ends, at), len(rows) - 1)]

    found = Trace(name, name, end, lambda at: row_at(at)[0], peak, kinds=lambda at: (row_at(at)[1],))
    if next(requests(found), None) is None:
        raise UserError(f"{name} is so short that no request arrives: raise rate or seconds.")
    return found


def _numbers(text: str, name: str) -> Iterator[tuple[float, ...]]:
    """Yield the numbers of each row of a CSV file in the order of `COLUMNS`. Raises UserError if the file is invalid."""
    reader = csv.DictReader(text.removeprefix("\ufeff").splitlines(), skipinitialspace=True)
    columns = ", ".join(COLUMNS)
    try:
        if missing := [column for column in COLUMNS if column not in (reader.fieldnames or ())]:
            raise UserError(f"{name}, line 1: there is no column {' or '.join(missing)}: write {','.join(COLUMNS)}.")
        for row in reader:
            line = f"{name}, line {reader.line_num}"
            if None in row:
                raise UserError(f"{line}: there are more values than columns: write decimals with a point, such as 1.5.")
            try:
                found = tuple(float(row[column] or "") for column in COLUMNS)
            except ValueError as error:
                raise UserError(f"{line}: {columns} must be numbers: write a row such as 600,2,8000,1000.") from error
            length, rate, prompt, answer = found
            if not (0 < length <= MOST and 0 <= rate <= MOST and 1 <= prompt <= MOST and 2 <= answer <= MOST):
                least = "seconds must be above 0, rate at least 0, prompt at least 1 and answer at least 2"
                raise UserError(f"{line}: {least}, and all of them at most {MOST:,}.")
            yield found
    except csv.Error as error:
        raise UserError(f"{name}, line {reader.line_num + 1}: {error}: write {columns} as numbers.") from error
