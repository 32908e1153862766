"""Draw a simulation as an SVG image: the request rate, and the numbers of groups of the operator's controller and of the
oracle.
"""

from collections.abc import Callable, Sequence
from html import escape

from ome_operator.simulation.compare import ORACLE, OURS, TraceOutcome
from ome_operator.simulation.run import PlotMoment

WIDTH, HEIGHT, LEFT, TOP = 760, 300, 48, 40
MOST_POINTS = 700
_LINES: tuple[tuple[str, str, str, str, Callable[[PlotMoment], float]], ...] = (
    ("requests/s", "#999999", "", OURS, lambda one: one.rate),
    ("prefill groups", "#1f77b4", "", OURS, lambda one: one.prefill),
    ("decode groups", "#d95f02", "", OURS, lambda one: one.decode),
    ("prefill groups of the oracle", "#1f77b4", "3 3", ORACLE, lambda one: one.prefill),
)


def svg_text(trace_outcome: TraceOutcome) -> str:
    """Return the image as text."""
    end = trace_outcome.trace.seconds
    top = max(value(one) for _, _, _, name, value in _LINES for one in trace_outcome.results[name].moments) * 1.1
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="16" font-size="14">{escape(trace_outcome.trace.title)}</text>',
        *_axes(end, top),
    ]
    for number, (label, color, dash, name, value) in enumerate(_LINES):
        points = _corners(_thinned(trace_outcome.results[name].moments), value)
        line = " ".join(f"{_x(at, end):.1f},{_y(height, top):.1f}" for at, height in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5" stroke-dasharray="{dash}"/>')
        x = LEFT + number * 160
        out.append(f'<line x1="{x}" y1="28" x2="{x + 18}" y2="28" stroke="{color}" stroke-dasharray="{dash}"/>')
        out.append(f'<text x="{x + 22}" y="32">{label}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def _thinned(moments: Sequence[PlotMoment]) -> Sequence[PlotMoment]:
    return moments[:: max(1, len(moments) // MOST_POINTS)]


def _corners(moments: Sequence[PlotMoment], value: Callable[[PlotMoment], float]) -> list[tuple[float, float]]:
    """Return the points of a line with steps, without the points inside a horizontal part."""
    out = list[tuple[float, float]]()
    for one in moments:
        now = value(one)
        if out and out[-1][1] != now:
            out.append((one.at, out[-1][1]))
        if not out or out[-1][1] != now:
            out.append((one.at, now))
    return [*out, (moments[-1].at, out[-1][1])]


def _x(at: float, end: float) -> float:
    return LEFT + at / end * (WIDTH - LEFT - 16)


def _y(value: float, top: float) -> float:
    bottom = HEIGHT - 28
    return bottom - value / top * (bottom - TOP)


def _axes(end: float, top: float) -> list[str]:
    out = [f'<path d="M{LEFT} {TOP} V{HEIGHT - 28} H{WIDTH - 16}" fill="none" stroke="black"/>']
    for part in range(5):
        at, value = end * part / 4, top * part / 4
        out.append(f'<text x="{_x(at, end):.0f}" y="{HEIGHT - 10}" text-anchor="middle">{at / 60:.0f} min</text>')
        out.append(f'<text x="{LEFT - 6}" y="{_y(value, top) + 4:.0f}" text-anchor="end">{value:.0f}</text>')
    return out
