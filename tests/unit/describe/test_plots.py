"""Tests of the plots of a service's numbers, some of which may be unknown for a time."""

from dataclasses import replace
from typing import Any

from ome_operator.describe import plots
from ome_operator.describe.top import TopRow

ROW = TopRow("team", "svc", "", "live", 1.0, False, None, None, None, None, None, {}, {}, None, 8)


def told(*samples: dict[str, Any]) -> dict[str, plots.Plot]:
    """Return the plots of samples with these numbers, by title."""
    return {plot.title: plot for plot in plots.plots([replace(ROW, **sample) for sample in samples])}


def test_the_newest_and_the_largest_value_are_written_next_to_the_plot() -> None:
    found = told(
        {"requests_per_second": 4, "output_tokens_per_second": 60_000, "cache_use": 0.5, "running": 7},
        {"requests_per_second": 2.5, "output_tokens_per_second": 12_000, "cache_use": 0.41, "running": 0},
    )
    assert [(plot.now, plot.most) for plot in (found["Requests"], found["Tokens generated"])] == [
        ("2.5/s", "4/s"),
        ("12k/s", "60k/s"),
    ]
    assert (found["Running"].now, found["KV cache, fullest"].now) == ("0", "41 %")


def test_latency_is_plotted_by_its_upper_bound_and_shown_with_both_bounds() -> None:
    first, second = {"p95": {"above": 0.2, "upTo": 0.4}}, {"p95": {"above": 0.4, "upTo": 0.6}}
    plot = told({"time_to_first_token": first}, {"time_to_first_token": second})["First token, p95"]
    assert (plot.now, plot.most) == ("0.4-0.6s", "0.6 s")
    assert told({"time_to_first_token": {"p95": {"above": 2}}})["First token, p95"].now == ">2s"


def test_unknown_values_are_omitted_from_the_plot() -> None:
    plot = told({"running": 3}, {"running": None}, {"running": 1})["Running"]
    assert len(plot.points.split()) == 2 and plot.now == "1"
    assert told({}, {})["Running"] == plots.Plot("Running", "–", "", "") and told()["Requests"].now == "–"
    assert told({"running": 3})["Running"].points == "", "a single value makes no line"


def test_every_plot_stays_within_its_box() -> None:
    samples = [
        dict.fromkeys(("requests_per_second", "output_tokens_per_second", "prompt_tokens_per_second", "running"), at * at)
        | {"waiting": at, "cache_use": at / 9, "time_to_first_token": {"p95": {"above": at, "upTo": at + 1}}}
        | {"time_between_tokens": {"p95": {"above": at}}}
        for at in range(9)
    ]
    found = told(*samples)
    assert len(found) == 8
    for plot in found.values():
        places = [tuple(map(float, place.split(","))) for place in plot.points.split()]
        assert len(places) == 9 and all(0 <= x <= plots.WIDTH and 0 <= y <= plots.HEIGHT for x, y in places), plot.title
