"""Build dashboards in Grafana's format from dashboards.yaml."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).with_name("dashboards.yaml")
SOURCE = {"type": "prometheus", "uid": "${source}"}
COLUMNS, HEIGHT, TALL = 24, 8, 4
"""Grafana's grid: its number of columns, the height of a panel, and the height of a stat panel."""
KINDS = ("timeseries", "stat", "table", "bargauge")
Panel = Mapping[str, Any]


def data() -> Mapping[str, Any]:
    """Return name of a dashboard -> content in dashboards.yaml."""
    loaded: Mapping[str, Any] = yaml.load(DATA.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return loaded


def queries() -> Iterator[tuple[str, Panel, str]]:
    """Yield (dashboard, panel, expression) of each query."""
    for name, board in data().items():
        for panels in board["rows"].values():
            yield from ((name, panel, query) for panel in panels for query in panel["queries"].values())


def files() -> Mapping[Path, str]:
    """Return path in the repository -> text of every generated file."""
    folder = Path("charts/ome-resources/files/dashboards")
    return {folder / f"{name}.json": json.dumps(dashboard(name, each), indent=1) + "\n" for name, each in data().items()}


def dashboard(name: str, board: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dashboard. The dashboard has no `id`, because Grafana assigns it, but a `uid`, so that its identity stays
    the same after an upgrade.
    """
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"ome-{name}",
        "title": board["title"],
        "description": board["text"],
        "tags": ["ome"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, *(_variable(*each) for each in board.get("variables", {}).items())]},
        "links": [{"type": "dashboards", "title": "OME", "tags": ["ome"], "asDropdown": True, "keepTime": True}],
        "panels": list(_panels(board["rows"])),
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {"name": name, "label": name, "type": "query", "datasource": SOURCE, "query": query, "refresh": 2, "sort": 1}


def _panels(rows: Mapping[str, list[Panel]]) -> Iterator[dict[str, Any]]:
    """Yield all panels with their positions. The panels of a row are placed from left to right, and continue on the next
    line.
    """
    number = top = 0
    for title, panels in rows.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": _place(0, top, 24, 1),
        }
        top, left, height = top + 1, 0, 0
        for panel in panels:
            width, high = (
                panel.get("width", 8),
                TALL if panel.get("kind") == "stat" and panel.get("width", 8) <= 4 else HEIGHT,
            )
            if left + width > COLUMNS:
                top, left, height = top + height, 0, 0
            number += 1
            yield _panel(number, panel, _place(left, top, width, high))
            left, height = left + width, max(height, high)
        top += height


def _place(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    kind = panel.get("kind", "timeseries")
    steps = [{"color": "green", "value": None}, *([{"color": "red", "value": panel["red"]}] if "red" in panel else [])]
    defaults = {"unit": panel.get("unit", "short"), "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    return {
        "id": number,
        "type": kind,
        "title": panel["title"],
        **({"description": panel["text"]} if "text" in panel else {}),
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [_target(at, kind, *each) for at, each in enumerate(panel["queries"].items())],
    }


def _target(at: int, kind: str, legend: str, query: str) -> dict[str, Any]:
    now = kind != "timeseries"
    return {
        "refId": chr(ord("A") + at),
        "datasource": SOURCE,
        "expr": query,
        "legendFormat": legend,
        "instant": now,
        "range": not now,
        **({"format": "table"} if kind == "table" else {}),
    }
