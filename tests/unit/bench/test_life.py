"""Tests of the measurement of the life of services: when it ends, and that it reports a service that is never Ready."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from bench import life


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Restore the settings of the garbage collector, which the measurement changes as the operator does."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_measurement_ends_when_all_services_are_ready() -> None:
    found = asyncio.run(life.run(1))
    assert found["services"] == 1 and found["events"] > 0


def test_measurement_ends_with_an_error_if_a_service_is_never_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "LIMIT_S", -8.0)
    monkeypatch.setattr(life.ApiServer, "step", lambda server: None)
    with pytest.raises(life.NotReady, match=r"^1 of 1 services are not Ready after 2 s\. \S+: \S+"):
        asyncio.run(life.run(1))
