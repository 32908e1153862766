"""What a pass takes for granted about others."""

from datetime import UTC, datetime, timedelta

import pytest

from ome_operator.passes import another

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
