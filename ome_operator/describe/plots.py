"""Creates small plots of a service's traffic from samples of its metrics. Unknown values are left out."""

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
    """The newest value with its unit; "–" if there is no value."""
    points: str
    """The points of an SVG polyline; "" if there are fewer than two points."""
    most: str
    """The largest value in the plot, as text."""
    other: str = ""
    """The points of a second line, which is drawn dashed; "" if there is no second line."""


def plots(samples: Sequence[TopRow]) -> list[Plot]:
    """Return the plots of a service: the metrics of `ome top` over time."""
    return [
        plot("Requests", "/s", [row.requests_per_second for row in samples]),
        plot("Tokens generated", "/s", [row.output_tokens_per_second for row in samples]),
        plot("Tokens of prompts", "/s", [row.prompt_tokens_per_second for row in samples]),
        plot("Running", "", [row.running for row in samples]),
        plot("Waiting", "", [row.waiting for row in samples]),
        _times("First token, p95", samples, lambda row: row.time_to_first_token),
        _times("Between tokens, p95", samples, lambda row: row.time_between_tokens),
        plot("KV cache, fullest", " %", [None if row.cache_use is None else 100 * row.cache_use for row in samples]),
    ]


def _times(title: str, samples: Sequence[TopRow], of: Callable[[TopRow], Mapping[str, Mapping[str, float]]]) -> Plot:
    """Return the plot of a duration that is known by a lower and an upper bound. The plot shows the upper bounds. Where
    there is no upper bound, it shows the lower bound. The newest value is shown with both bounds.
    """
    bounds = [of(row).get("p95") for row in samples]
    made = plot(title, " s", [None if each is None else each.get("upTo", each["above"]) for each in bounds])
    newest = next((each for each in reversed(bounds) if each is not None), None)
    return replace(made, now=seconds(newest))


def plot(title: str, unit: str, values: Sequence[float | None]) -> Plot:
    """Return the plot of `values`, which were measured at equal intervals, the newest last. An unknown value is None."""
    known = [value for value in values if value is not None]
    if not known:
        return Plot(title, "–", "", "")
    return Plot(title, _with_unit(known[-1], unit), line(values, max(known)), _with_unit(max(known), unit))


def line(values: Sequence[float | None], most: float, *, steps: bool = False) -> str:
    """Return the points of an SVG polyline in a plot whose upper edge is the value `most`; "" if there are fewer than two
    points. With `steps`, the line stays at each value until the next one.
    """
    width = max(1, len(values) - 1 + steps)
    points = [
        f"{WIDTH * place / width:.1f},{HEIGHT - 1 - (HEIGHT - 2) * (value / most if most else 0):.1f}"
        for at, value in enumerate(values)
        if value is not None
        for place in ((at, at + 1) if steps else (at,))
    ]
    return " ".join(points) if len(points) > 1 else ""


def _with_unit(value: float, unit: str) -> str:
    if value >= 10_000:
        return f"{value / 1000:,.0f}k{unit}"
    return f"{value:,.0f}{unit}" if value >= 100 or value == int(value) else f"{value:.3g}{unit}"
