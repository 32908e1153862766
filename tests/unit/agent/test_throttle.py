"""Tests of the limit on bytes per second."""

from ome_operator.agent.progress import Progress
from ome_operator.agent.throttle import Throttle


def test_consumer_above_the_rate_waits() -> None:
    now = 0.0
    throttle = Throttle(100, lambda: now)
    assert throttle.seconds_until_allowed(50) == 0.5
    assert throttle.seconds_until_allowed(50) == 1.0, "bytes of other downloads count"
    now = 10.0
    assert throttle.seconds_until_allowed(50) == 0.5, "unused bandwidth does not accumulate"
    assert Throttle(0).seconds_until_allowed(10**12) == 0.0


def test_speed_and_remaining_time_use_recent_bytes() -> None:
    now = 0.0
    progress = Progress(lambda: now)
    progress.start("r", 1000, 100, 1)
    for moment in (1.1, 2.2, 3.3, 4.0):
        now = moment
        progress.add_received(100)
    assert progress.speed == 100.0
    assert progress.eta == 5.0
    progress.subtract_wrong(500)
    assert progress.bytes == 0 and progress.fetched == 400
