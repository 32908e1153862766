"""Convert results.json to a single HTML page that needs no other files: a table, and plots as inline SVG."""

import math
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined

from ome_operator.benchmark_pod.results import latencies

Json = dict[str, Any]
Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 420, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 14, 38
COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
"""Colors of the lines. All colors are readable on white, and also differ in lightness."""
_PLOTTED = (("ttft", "Time to first token, ms"), ("tpot", "Time per output token, ms"), ("e2e_latency", "Whole request, ms"))
_SHARES = ("median", "p90", "p99")


class Curve(NamedTuple):
    """One line of a plot, in the coordinates of the plot."""

    label: str
    colour: str
    points: tuple[tuple[float, float], ...]

    @property
    def path(self) -> str:
        """Value of the attribute `points` of an SVG polyline."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)


class Plot(NamedTuple):
    """A plot over the number of concurrent requests, on a logarithmic axis."""

    title: str
    lines: tuple[Curve, ...]
    xs: tuple[tuple[float, str], ...]
    """Horizontal position and label of each tick."""
    ys: tuple[tuple[float, str], ...]


def page(report: Json) -> str:
    """Return the HTML page of a report."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = files("ome_operator.benchmark_pod").joinpath("page.html.j2").read_text(encoding="utf-8")
    box = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "top": TOP, "bottom": HEIGHT - BOTTOM}
    has_accuracy = any("accuracy" in run["metrics"] for run in report["runs"])
    values = {"found": report, "box": box, "latencies": latencies, "asked": has_accuracy}
    scenarios = [(name, [_latency(report, name, which, title) for which, title in _PLOTTED]) for name in _names(report)]
    return environment.from_string(text).render(**values, throughput=_throughput(report), scenarios=scenarios)


def _names(report: Json) -> list[str]:
    return list(dict.fromkeys(run["scenario"] for run in report["runs"]))


def _throughput(report: Json) -> Plot | None:
    """Return a plot of output tokens per second, with one line for each scenario; None if there are no measurements."""
    series = []
    for name in _names(report):
        runs = [run for run in report["runs"] if run["scenario"] == name and "output_throughput" in run["metrics"]]
        series.append((name, [(run["concurrency"], run["metrics"]["output_throughput"]) for run in runs]))
    return plot("Output tokens per second", series)


def _latency(report: Json, scenario: str, which: str, title: str) -> Plot | None:
    """Return a plot of the median, the 90th and the 99th percentile of one latency; None if there are no measurements."""
    runs = [run for run in report["runs"] if run["scenario"] == scenario and run["requests"]]
    values = [(run["concurrency"], latencies(run, which)) for run in runs]
    return plot(
        title,
        [(share, [(concurrency, shares[share]) for concurrency, shares in values if share in shares]) for share in _SHARES],
    )


def plot(title: str, series: Iterable[tuple[str, Points]]) -> Plot | None:
    """Return a plot of the series, or None if there are no points. A series is a label and points of (concurrency,
    value).
    """
    kept = [(label, sorted(points)) for label, points in series if points]
    if not kept:
        return None
    concurrencies = sorted({x for _, points in kept for x, _ in points})
    top = _round_up(max(y for _, points in kept for _, y in points))
    low, high = math.log2(concurrencies[0]), math.log2(concurrencies[-1])

    def x_of(value: float) -> float:
        share = (math.log2(value) - low) / (high - low) if high > low else 0.5
        return LEFT + 12 + share * (WIDTH - LEFT - RIGHT - 24)

    def y_of(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    lines = tuple(
        Curve(label, COLOURS[number % len(COLOURS)], tuple((x_of(x), y_of(y)) for x, y in points))
        for number, (label, points) in enumerate(kept)
    )
    ys = tuple((y_of(top * step / 4), f"{top * step / 4:g}") for step in range(5))
    return Plot(title, lines, _without_overlaps([(x_of(x), f"{x:g}") for x in concurrencies]), ys)


def _round_up(value: float) -> float:
    """Return a number for the labels of the axis: the smallest number that is at least `value` and whose quarter has few
    digits.
    """
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * unit >= value)


def _without_overlaps(ticks: Sequence[tuple[float, str]], least: float = 26.0) -> tuple[tuple[float, str], ...]:
    """Return the labels, leaving out each label that is closer than `least` to the previous label."""
    kept: list[tuple[float, str]] = []
    for tick in ticks:
        if not kept or tick[0] - kept[-1][0] >= least:
            kept.append(tick)
    return tuple(kept)
