"""Draw the layouts of a plan as an SVG image: throughput against TPOT, the frontier, and the bound of --tpot."""

import math
from collections.abc import Iterator, Sequence
from html import escape

from ome_operator.sizing.layouts import Layout
from ome_operator.sizing.request import PlanRequest
from ome_operator.sizing.workloads import mean_load

WIDTH, HEIGHT, MARGIN = 760, 480, 64
_COLORS = {True: "#1f77b4", False: "#d95f02"}
_LABELS = {True: "prefill and decode on different nodes", False: "engines that do both"}


def pareto_frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (TPOT, throughput) for which no other point has both a lower or equal TPOT and a higher or equal
    throughput. The points are sorted by ascending TPOT.
    """
    out: list[tuple[float, float]] = []
    for tpot, tokens in sorted(points, key=lambda point: (point[0], -point[1])):
        if not out or tokens > out[-1][1]:
            out.append((tpot, tokens))
    return out


def svg_text(request: PlanRequest, layouts: Sequence[Layout]) -> str:
    """Return the image as text. Each point is a layout; its title names the workers."""
    answer = mean_load(request.loads).answer
    points = [(layout.state.tpot * 1000, layout.state.rate * answer / _gpus(request, layout)) for layout in layouts]
    bound = request.tpot * 1000 if math.isfinite(request.tpot) else None
    right = max([x for x, _ in points] + ([bound] if bound else [])) * 1.08
    top = max(y for _, y in points) * 1.08

    def place(x: float, y: float) -> tuple[float, float]:
        return MARGIN + x / right * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - y / top * (HEIGHT - 2 * MARGIN)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="24" font-size="14">{escape(request.title)}</text>',
        *_axes(right, top),
    ]
    if bound is not None:
        x, _ = place(bound, 0)
        out.append(
            f'<line x1="{x:.1f}" y1="{MARGIN}" x2="{x:.1f}" y2="{HEIGHT - MARGIN}" stroke="#c00" stroke-dasharray="4"/>'
        )
        out.append(f'<text x="{x - 4:.1f}" y="{MARGIN - 4}" fill="#c00" text-anchor="end">--tpot {bound:g} ms</text>')
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in pareto_frontier(points)))
    out.append(f'<polyline points="{line}" fill="none" stroke="#555"/>')
    for layout, point in zip(layouts, points, strict=True):
        x, y = place(*point)
        workers = " and ".join(f"{side.role.copies}x {side.role.worker}" for side in (layout.prefill, layout.decode) if side)
        color = _COLORS[layout.prefill is not None]
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"><title>{escape(workers)}</title></circle>')
    return "\n".join([*out, *_legend(layouts), "</svg>"]) + "\n"


def _gpus(request: PlanRequest, layout: Layout) -> int:
    return layout.nodes * request.per_node


def _axes(right: float, top: float) -> Iterator[str]:
    bottom, end = HEIGHT - MARGIN, WIDTH - MARGIN
    yield f'<path d="M{MARGIN} {MARGIN} V{bottom} H{end}" fill="none" stroke="black"/>'
    for part in range(5):
        x, y = MARGIN + part / 4 * (end - MARGIN), bottom - part / 4 * (bottom - MARGIN)
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{right * part / 4:,.0f}</text>'
        yield f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{top * part / 4:,.0f}</text>'
    yield f'<text x="{(MARGIN + end) / 2}" y="{HEIGHT - 20}" text-anchor="middle">mean TPOT, ms</text>'
    yield f'<text x="{MARGIN}" y="{MARGIN - 18}">output tokens per second and GPU</text>'


def _legend(layouts: Sequence[Layout]) -> Iterator[str]:
    for number, split in enumerate(sorted({layout.prefill is not None for layout in layouts})):
        y = HEIGHT - MARGIN - 16 - 18 * number
        yield f'<circle cx="{WIDTH - 300}" cy="{y}" r="4" fill="{_COLORS[split]}"/>'
        yield f'<text x="{WIDTH - 290}" y="{y + 4}">{_LABELS[split]}</text>'
