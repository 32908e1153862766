"""What a pass takes for granted about others."""

from datetime import UTC, datetime, timedelta

import pytest

from ome_operator.executor import Outcome
from ome_operator.kube.errors import KubeError
from ome_operator.memory import Memory
from ome_operator.passes import another, premature

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


def test_the_first_status_waits_once_for_what_the_first_pass_made() -> None:
    memory, made = Memory(), Outcome(wrote=True)
    assert [premature({}, memory, made) for _ in range(3)] == [True, False, False]


@pytest.mark.parametrize(
    ("stored", "outcome"),
    [
        ({"url": "http://x"}, Outcome(wrote=True)),  # it tells something already
        ({}, Outcome()),  # nothing was made, as of a spec that cannot be read: no pass will know more
        ({}, Outcome(wrote=True, error=KubeError("refused", 500))),
    ],
)
def test_any_other_status_is_written_at_once(stored: dict[str, object], outcome: Outcome) -> None:
    assert not premature(stored, Memory(), outcome)
