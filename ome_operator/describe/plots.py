"""Creates small plots of a service's traffic from samples of its numbers. Unknown values are left out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ome_operator.describe.top import TopRow
from ome_operator.describe.top_table import seconds

WIDTH, HEIGHT = 120, 30
"""Width and height of a plot, in SVG units."""
KEPT = 120
"""Maximum number of samples that are stored for a service."""


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


def plots(samples: Sequence[TopRow]) -> list[Plot]:
    """Return the plots of a service: the numbers of `ome top` over time."""
    return [
        _plot("Requests", "/s", [row.requests_per_second for row in samples]),
        _plot("Tokens generated", "/s", [row.output_tokens_per_second for row in samples]),
        _plot("Tokens of prompts", "/s", [row.prompt_tokens_per_second for row in samples]),
        _plot("Running", "", [row.running for row in samples]),
        _plot("Waiting", "", [row.waiting for row in samples]),
        _times("First token, p95", samples, lambda row: row.time_to_first_token),
        _times("Between tokens, p95", samples, lambda row: row.time_between_tokens),
        _plot("KV cache, fullest", " %", [None if row.cache_use is None else 100 * row.cache_use for row in samples]),
    ]


def _times(title: str, samples: Sequence[TopRow], of: Callable[[TopRow], Mapping[str, Mapping[str, float]]]) -> Plot:
    """Return the plot of the upper bounds of a time, or of lower bounds that have no upper one. Its newest value is shown
    with both bounds.
    """
    bounds = [of(row).get("p95") for row in samples]
    plot = _plot(title, " s", [None if each is None else each.get("upTo", each["above"]) for each in bounds])
    newest = next((each for each in reversed(bounds) if each is not None), None)
    return replace(plot, now=seconds(newest))


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
