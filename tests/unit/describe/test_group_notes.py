"""Tests of the text about the starts of groups."""

from datetime import UTC, datetime, timedelta
from typing import Any

from ome_operator.describe.group_notes import group_notes
from ome_operator.quantity import rfc3339

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
START: dict[str, Any] = {
    "time": "2026-11-28T11:00:00Z",
    "seconds": 53,
    "parts": [
        {"name": "scheduled", "seconds": 0},
        {"name": "image", "seconds": 3, "rank": 2},
        {"name": "imports", "seconds": 20.5},
        {"name": "listed", "seconds": 2},
    ],
}


def entry(index: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": f"g-{index}", "component": "engine", "revision": "r", "index": index, "phase": "Ready", **more}


def starting(index: int = 0, **more: Any) -> dict[str, Any]:
    return entry(index, **{"phase": "Starting", "since": rfc3339(NOW - timedelta(seconds=80)), **more})


def said(*entries: dict[str, Any], now: datetime | None = NOW) -> tuple[str, str]:
    return group_notes("engine", "r", {"groups": [*entries]}, now)[0]


def test_starting_group_shows_present_and_last_duration() -> None:
    assert said(starting()) == ("starting for 80 s", "")
    note, start = said(starting(start=START))
    assert note == "starting for 80 s, last time 55 s"
    assert start == "the last start took 55 s: image 3 s (rank 2), imports 20.5 s, listed 2 s"


def test_new_group_shows_the_last_start_of_another_group() -> None:
    older, decode = START | {"time": "2026-11-27T11:00:00Z", "seconds": 7}, START | {"time": "2026-11-28T11:59:00Z"}
    others = entry(1, start=START), entry(2, start=older), entry(3, component="decoder", start=decode | {"seconds": 9})
    assert said(starting(), *others)[0] == "starting for 80 s, last time 55 s"


def test_serving_group_shows_the_parts_of_its_start() -> None:
    assert said(entry(start=START)) == ("", "started in 55 s: image 3 s (rank 2), imports 20.5 s, listed 2 s")
    assert said(entry(start={"time": "x", "seconds": 4})) == ("", "started in 4 s")


def test_present_start_is_omitted_without_a_time() -> None:
    assert said(starting(), now=None)[0] == said(starting(since="soon"))[0] == ""


def test_first_token_time_is_shown_separately_from_the_duration() -> None:
    parts = [*START["parts"], {"name": "firstToken", "seconds": 0.4}]
    begins = "started in 55 s: image 3 s (rank 2), imports 20.5 s, listed 2 s"
    assert said(entry(start=START | {"parts": parts}))[1] == f"{begins}; first token 0.4 s after a router listed it"
    short = {"time": "x", "seconds": 4, "parts": parts[-1:]}
    assert said(entry(start=short))[1] == "started in 4 s; first token 0.4 s after a router listed it"
