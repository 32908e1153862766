"""Tests of when the operator removes unused results from memory."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.controllers import tidying
from ome_operator.core.observed.objects import Deps
from ome_operator.util import memoize

pytestmark = pytest.mark.looptime
FEW, LONG = 0.01, 3600.0
"""A short and a very long interval in seconds."""


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each removal of unused results adds a number."""
    made: list[int] = []

    def turn() -> Iterator[None]:
        made.append(len(made))
        yield

    monkeypatch.setattr(memoize, "forget_unused", turn)
    return made


async def tidied(resync: float, gone: list[int], patch: pytest.MonkeyPatch) -> None:
    """Run the cleanup while the number of deleted services has these values, one after another."""
    counts = iter(gone)
    last = [0]

    def until_now() -> int:
        last[0] = next(counts, last[0])
        return last[0]

    patch.setattr(tidying, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
    cluster = ClusterCache(Deps())
    task = asyncio.create_task(tidying.tidy(cluster, resync, until_now, look_s=FEW))
    await asyncio.sleep(20 * FEW)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_garbage_is_collected_after_every_key_was_reconciled(
    turns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await tidied(FEW, [], monkeypatch)
    assert len(turns) > 2


@pytest.mark.parametrize(("gone", "times"), [(tidying.FEW - 1, 0), (tidying.FEW, 1)])
async def test_garbage_is_collected_earlier_if_more_services_were_deleted_than_exist(
    gone: int, times: int, turns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await tidied(LONG, [0, 0, gone], monkeypatch)
    assert len(turns) == times
