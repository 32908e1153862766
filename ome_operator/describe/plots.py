"""Creates small plots of a service's traffic from the metrics of its engines. Values that are not numbers are left out."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

REQUESTS, TOKENS, WAITS, FIRST_SUM, FIRST_COUNT = "requests", "tokens", "queue", "first_sum", "first_count"
_SERIES: Mapping[str, str] = {
    "num_requests_total": REQUESTS,
    "request_success_total": REQUESTS,
    "generation_tokens_total": TOKENS,
    "num_queue_reqs": WAITS,
    "num_requests_waiting": WAITS,
    "time_to_first_token_seconds_sum": FIRST_SUM,
    "time_to_first_token_seconds_count": FIRST_COUNT,
}
"""Names of metrics of SGLang and vLLM, without the prefix of the engine → series."""
_LINE = re.compile(r"^(?:sglang|vllm)[:_](\w+)(?:\{[^\n]*\})? +(\S+)", re.MULTILINE)
GAUGES = frozenset({WAITS})
WIDTH, HEIGHT = 120, 30
"""Width and height of a plot, in SVG units."""
KEPT = 120
"""Maximum number of samples that are stored for a service."""


class Sample(NamedTuple):
    """Values of a service's metrics at one time, summed over its pods."""

    at: float
    """Time of the sample in seconds, from a monotonic clock."""
    values: Mapping[str, float]
    pods: frozenset[str]
    """Names of the pods whose metrics are in the sums. A rate can be computed only from two samples of the same pods."""


@dataclass(frozen=True)
class Plot:
    """A plot of a value over time, as text for a page."""

    title: str
    now: str
    """The newest value with its unit; "–" if there is no newest value."""
    points: str
    """The points of an SVG polyline; "" if there are fewer than two points."""
    most: str
    """The largest value in the plot, as text."""


def read_metrics(text: str) -> dict[str, float]:
    """Return the values of the known series in the metrics page of an engine, summed over labels. Values that are not
    finite numbers are left out.
    """
    found: dict[str, float] = {}
    for name, value in _LINE.findall(text):
        series = _SERIES.get(name)
        try:
            number = float(value)
        except ValueError:
            continue
        if series is not None and math.isfinite(number):
            found[series] = found.get(series, 0.0) + number
    return found


def summed(at: float, pages: Mapping[str, Mapping[str, float]], counting: Iterable[str]) -> Sample:
    """Return the sample at the time `at` from the metrics pages of the pods that answered. Gauges are summed over all
    pods, and counters over the pods in `counting`.

    With disaggregation, every request passes through prefill and decode, but must be counted once.
    """
    once, values = set(counting), dict[str, float]()
    for pod, page in pages.items():
        for series, value in page.items():
            if series in GAUGES or pod in once:
                values[series] = values.get(series, 0.0) + value
    return Sample(at, values, frozenset(pages))


def plots(samples: Sequence[Sample]) -> list[Plot]:
    """Return plots of requests per second, tokens per second, seconds to the first token, and waiting requests."""
    return [
        _plot("Requests", "/s", _rates(samples, REQUESTS)),
        _plot("Tokens generated", "/s", _rates(samples, TOKENS)),
        _plot("First token, mean", " s", _means(samples, FIRST_SUM, FIRST_COUNT)),
        _plot("Waiting in queues", "", [sample.values.get(WAITS) for sample in samples]),
    ]


def _grown(before: Sample, after: Sample, series: str) -> float | None:
    """Return the increase of a counter between two samples. Return None if the samples contain different pods, or if an
    engine has restarted.
    """
    if before.pods != after.pods or series not in before.values or series not in after.values:
        return None
    grown = after.values[series] - before.values[series]
    return grown if grown >= 0 else None


def _rates(samples: Sequence[Sample], series: str) -> list[float | None]:
    found: list[float | None] = []
    for before, after in pairwise(samples):
        grown = _grown(before, after, series)
        found.append(grown / (after.at - before.at) if grown is not None and after.at > before.at else None)
    return found


def _means(samples: Sequence[Sample], total: str, count: str) -> list[float | None]:
    found: list[float | None] = []
    for before, after in pairwise(samples):
        seconds, requests = _grown(before, after, total), _grown(before, after, count)
        found.append(seconds / requests if seconds is not None and requests else None)
    return found


def _plot(title: str, unit: str, values: Sequence[float | None]) -> Plot:
    known = [(at, value) for at, value in enumerate(values) if value is not None]
    if not known:
        return Plot(title, "–", "", "")
    most = max(value for _, value in known)
    width = max(1, len(values) - 1)
    points = [
        f"{WIDTH * at / width:.1f},{HEIGHT - 1 - (HEIGHT - 2) * (value / most if most else 0):.1f}" for at, value in known
    ]
    return Plot(title, _said(known[-1][1], unit), " ".join(points) if len(points) > 1 else "", _said(most, unit))


def _said(value: float, unit: str) -> str:
    if value >= 10_000:
        return f"{value / 1000:,.0f}k{unit}"
    return f"{value:,.0f}{unit}" if value >= 100 or value == int(value) else f"{value:.3g}{unit}"
