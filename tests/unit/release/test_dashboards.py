"""Tests that dashboards have the format that Grafana reads, and that every query reads existing series."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from release import dashboards
from tests.node.serving import test_panels
from tests.support import promql
from tests.unit.release.test_alerts import OF_SCRAPES, known

ROOT = Path(__file__).parents[3]
BOARDS = {name: dashboards.dashboard(name, board) for name, board in dashboards.data().items()}
QUERIES = [(board, panel["title"], query) for board, panel, query in dashboards.queries()]


@pytest.mark.parametrize(("board", "title", "query"), QUERIES)
def test_every_dashboard_query_reads_existing_series_and_labels(board: str, title: str, query: str) -> None:
    there = known()
    asked = promql.metrics(query.replace("$namespace", "n").replace("$service", "s"))
    assert asked and asked <= there.keys(), asked - there.keys()
    for metric, labels in promql.labels(query).items():
        assert labels <= there[metric] | OF_SCRAPES, metric
    assert promql.aggregation_labels(query) <= set().union(*(there[metric] for metric in asked))


def test_engine_panels_are_marked_as_such() -> None:
    for _, panel, query in dashboards.queries():
        own = all(metric.startswith("ome_") for metric in promql.metrics(query))
        assert own == ("of" not in panel), panel["title"]


def test_legends_name_labels_of_their_query() -> None:
    for board in dashboards.data().values():
        for panel in (each for panels in board["rows"].values() for each in panels):
            assert set(panel) <= {"title", "kind", "unit", "width", "red", "text", "of", "queries"}
            assert panel.get("kind", "timeseries") in dashboards.KINDS
            for legend, query in panel["queries"].items():
                for label in {part.split("}}")[0] for part in legend.split("{{")[1:]}:
                    assert label in promql.aggregation_labels(query), f"{panel['title']}: {label}"


@pytest.mark.parametrize("name", BOARDS)
def test_dashboard_has_required_grafana_fields(name: str) -> None:
    """Each dashboard has the fields that Grafana's documentation requires. Grafana's own schema is not available as a
    package.
    """
    board: dict[str, Any] = json.loads(json.dumps(BOARDS[name]))
    assert board["uid"] == f"ome-{name}" and len(board["uid"]) <= 40 and "id" not in board
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(numbers) == len(set(numbers))
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24 and place["h"] > 0
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
            assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGH")[: len(panel["targets"])]
    assert board["templating"]["list"][0]["name"] == "source"
    names = {each["name"] for each in board["templating"]["list"]}
    assert {word for word in ("namespace", "service") if f"${word}" in json.dumps(board["panels"])} <= names


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    places = [panel["gridPos"] for panel in BOARDS[name]["panels"]]
    for a, b in combinations(places, 2):
        apart = (
            a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"] or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (a, b)


def test_chart_contains_three_dashboards() -> None:
    assert set(BOARDS) == {"fleet", "service", "nodes"}
    folder = ROOT / "charts/ome-resources/files/dashboards"
    assert {file.stem for file in folder.iterdir()} == set(BOARDS)


def test_queries_listed_without_data_exist() -> None:
    """The queries that are listed as having no data on the real node exist in the dashboards. tests/node does not run for
    every change, so a renamed panel would be noticed late.
    """
    assert test_panels.EMPTY.keys() <= test_panels.queries().keys()
