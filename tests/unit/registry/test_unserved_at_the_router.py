"""Tests of which requests to the router itself a registry counts as requests that no engine could serve."""

import pytest

from tests.unit.registry.conftest import Engine


@pytest.mark.parametrize(
    ("before", "after", "counted"),
    [(False, False, 3), (True, False, 0), (False, True, 0), (True, True, 0), (None, None, 0), (None, False, 0)],
)
async def test_requests_to_a_router_without_engines_are_counted_as_unserved(
    engine: Engine, before: bool | None, after: bool | None, counted: int
) -> None:
    """Requests to a router without engines are counted although the Service already selects the registry. A client with an
    open connection does not notice the change. A request that may have arrived before the last engine was removed does not
    count.
    """
    page = 'smg_router_requests_total{endpoint="chat"} '
    engine.pages["/router"], engine.has_engines = (200, f"{page}7\n"), before
    assert "unserved" not in await engine.read()
    engine.pages["/router"], engine.has_engines = (200, f"{page}10\n"), after
    found = await engine.read(after=5.0)
    assert found.get("unserved") == ({"requests": counted, "age": 0} if counted else None)
    engine.pages["/router"] = 200, f"{page}0\n"
    await engine.read(after=5.0)
    assert engine.unserved.total == counted, "after a restart, the router counts from 0"


async def test_requests_that_the_registry_has_answered_are_in_the_summary(engine: Engine) -> None:
    engine.unserved.count()
    assert (await engine.read(after=2.5))["unserved"] == {"requests": 1, "age": 2.5}
