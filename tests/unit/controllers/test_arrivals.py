"""Tests of the reports about requests that no engine could serve, and about tokens."""

from datetime import timedelta

from ome_operator.core.observed.arrivals import Arrivals
from tests.unit.controllers.test_telemetry import NOW, SERVICE, Registry, registry, summary

__all__ = ["registry"]


async def test_unserved_requests_make_the_service_dirty_every_ten_seconds(registry: Registry) -> None:
    registry.answers(summary())
    await registry.walk()
    assert registry.telemetry.arrivals(registry.pods) == Arrivals() and not registry.news
    for age in (1.0, 0.5, 1.2):  # the same request each time; its time is computed from its age
        registry.answers(summary(unserved={"requests": 1, "age": age}))
        await registry.walk()
        assert registry.telemetry.arrivals(registry.pods) == Arrivals(NOW - age)
    assert registry.news == [SERVICE]
    for number in range(2, 8):
        registry.now += timedelta(seconds=5)
        registry.answers(summary(unserved={"requests": number, "age": 0}))
        await registry.walk()
    assert len(registry.news) == 4
    registry.now += timedelta(seconds=21)
    assert registry.telemetry.arrivals(registry.pods) == Arrivals(), "an old report does not count"


async def test_time_of_the_last_reported_token_is_recorded(registry: Registry) -> None:
    body = summary()
    for work, token in (({"outputTokens": 0}, None), ({"outputTokens": 3}, NOW - 2), ({"firstToken": [[0.4, 1]]}, NOW - 2)):
        body["leaders"][0]["work"] = {"age": 2, "window": 10, **work}
        registry.answers(body)
        await registry.walk()
        assert registry.telemetry.arrivals(registry.pods) == Arrivals(None, token)
