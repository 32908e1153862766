"""What a pass takes for granted about others."""

from datetime import UTC, datetime, timedelta

import pytest

from ome_operator.executor import Outcome
from ome_operator.kube.errors import KubeError
from ome_operator.memory import Memory
from ome_operator.passes import FIRST_WITHIN, another, premature

WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("later", "known"),
    [
        (timedelta(minutes=4), True),
        (timedelta(minutes=5), False),
        (timedelta(seconds=-2), True),  # the API server's clock is a little ahead of ours
        (timedelta(days=-1), False),  # ours was set back
    ],
)
def test_somebody_else_who_writes_our_statuses_is_known_for_five_minutes(later: timedelta, known: bool) -> None:
    assert another([("manager", WRITTEN)], WRITTEN + later) == ("manager" if known else "")


def status(ready: str) -> dict[str, object]:
    return {"conditions": [{"type": "Ready", "status": ready}]}


def test_the_first_status_of_what_comes_up_waits_for_a_second() -> None:
    memory, made, later = Memory(), Outcome(wrote=True), Outcome()
    assert premature({}, status("False"), memory, made, 10.0)
    assert made.again == FIRST_WITHIN
    assert premature({}, status("False"), memory, later, 10.9)
    assert later.again == pytest.approx(0.1)
    assert not premature({}, status("False"), memory, Outcome(), 11.0)


def test_the_first_status_waits_no_longer_than_until_ready() -> None:
    memory = Memory()
    assert premature({}, status("False"), memory, Outcome(wrote=True), 10.0)
    assert not premature({}, status("True"), memory, Outcome(), 10.1)


@pytest.mark.parametrize(
    ("stored", "outcome"),
    [
        ({"url": "http://x"}, Outcome(wrote=True)),  # it tells something already
        ({}, Outcome()),  # nothing was made, as of a spec that cannot be read: no pass will know more
        ({}, Outcome(wrote=True, error=KubeError("refused", 500))),
    ],
)
def test_any_other_status_is_written_at_once(stored: dict[str, object], outcome: Outcome) -> None:
    assert not premature(stored, status("False"), Memory(), outcome, 10.0)
