"""Tests of the plots of a service that is scaled by demand."""

from typing import Any

from ome_operator.describe import plots
from ome_operator.describe.demand_plots import demand_plots
from ome_operator.describe.scaling import view
from tests.unit.describe.test_scaling import service

DAYS = [
    {"day": "2026-11-26", "gpuHours": 384, "gpuHoursWanted": 300, "requests": 200, "met": 150, "metWanted": 200},
    {"day": "2026-11-27", "gpuHours": 192, "gpuHoursWanted": 384, "requests": 0, "met": 0, "metWanted": 0},
]


def told(**scaling: Any) -> dict[str, plots.Plot]:
    """Return the plots of a service that has two prefill and two decode groups, by title."""
    return {plot.title: plot for plot in demand_plots(view(service(days=DAYS, **scaling), {}))}


def heights(points: str) -> list[float]:
    """Return the vertical coordinates of a line, from the top."""
    return [float(place.partition(",")[2]) for place in points.split()]


def test_wanted_groups_are_plotted_in_steps_beside_existing_ones() -> None:
    decisions = [{"decode": number, "prefill": 2, "routers": 1} for number in (1, 4)]
    found = told(decisions=decisions)
    decode = found["Decode groups"]
    assert (decode.now, decode.most) == ("2 (3)", "4")
    first, second, third = heights(decode.points)[::2]
    assert first > third > second and heights(decode.points)[1::2] == [first, second, third]
    (has,) = set(heights(decode.other))
    assert second < third < has < first, "two groups exist"
    assert found["Prefill groups"].now == "2 (2)"


def test_ready_and_wanted_groups_are_plotted_over_time() -> None:
    """A plot shows the ready and the wanted groups over time. Its samples are taken while the page is open, as the samples
    of the plots of traffic are.
    """
    bodies = [service(wanted={"prefill": 2, "decode": wanted, "routers": 1}) for wanted in (2, 4, 4)]
    bodies[-1]["status"]["components"]["decoder"]["readyReplicas"] = 3
    seen = [view(body, {}) for body in bodies]
    found = {plot.title: plot for plot in demand_plots(seen[-1], seen)}
    decode = found["Decode groups ready"]
    assert (decode.now, decode.most) == ("3 (4)", "4")
    assert heights(decode.points)[::2] == [15.0, 1.0, 1.0] and heights(decode.other)[::2] == [15.0, 15.0, 8.0]
    assert heights(decode.other)[1::2] == heights(decode.other)[::2], "a group is ready or is not"
    assert found["Prefill groups ready"].now == "1 (2)"
    assert not any("ready" in title for title in told()), "no sample was taken yet"


def test_days_are_plotted_as_used_and_as_wanted() -> None:
    found = told()
    hours, share = found["GPU-hours a day"], found["In time, by day"]
    assert (hours.now, hours.most) == ("192 (384)", "384")
    assert len(heights(hours.points)) == len(heights(hours.other)) == 2
    assert share.now == "75 % (100 %)" and share.points == "", "a single day makes no line"


def test_every_plotted_line_stays_within_its_box() -> None:
    decisions = [{"decode": number * number, "prefill": 1, "routers": 0} for number in range(10)]
    for plot in told(decisions=decisions).values():
        for points in (plot.points, plot.other):
            places = [tuple(map(float, place.split(","))) for place in points.split()]
            assert all(0 <= x <= plots.WIDTH and 0 <= y <= plots.HEIGHT for x, y in places), plot.title


def test_invalid_numbers_are_not_plotted() -> None:
    found = told(decisions=[{"decode": "9"}, {"decode": -1}, {}], wanted={"decode": "<b>", "prefill": True})
    assert found["Decode groups"].points == "" and found["Decode groups"].now == "2 (–)"


def test_no_plot_exists_before_the_first_decision() -> None:
    assert told(wanted={}) == {} == told(wanted=None)
