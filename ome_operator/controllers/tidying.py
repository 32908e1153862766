"""Discard cached data that is no longer needed: remembered deletions, and computed results of deleted services."""

import asyncio
import time
from collections.abc import Callable
from typing import NoReturn

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.resources import SERVICE
from ome_operator.machinery.background import PACER, repeat
from ome_operator.util import memoize

LOOK_S = 5.0
FEW = 100
"""Data is discarded early only if the number of deleted services exceeds the number of existing services by at least this
number."""


async def tidy(cluster: ClusterCache, resync: float, gone: Callable[[], int], look_s: float = LOOK_S) -> NoReturn:
    """Discard old data periodically, forever. Between two such deletions, every key is reconciled once or twice, and thereby
    requests the data that it still needs.

    Data is discarded earlier if as many services have been deleted as exist (plus `FEW`). So the data about deleted
    services never exceeds the data about existing services by much. Recomputing the data of existing services costs no more
    than computing the data of the deleted services did.

    `resync` is the number of seconds within which every key is reconciled. `gone` returns the number of services deleted so
    far. `look_s` is the number of seconds between two calls of `gone`.
    """

    async def turn() -> None:
        until, before = time.monotonic() + 2 * resync, gone()

        def waits() -> bool:
            return time.monotonic() < until and gone() - before < FEW + len(cluster.resources[SERVICE])

        while waits():  # noqa: ASYNC110 (deletions are counted; no event reports them)
            await asyncio.sleep(min(look_s, resync))
        cluster.tidy()
        for _ in memoize.forget_unused():
            await PACER.yield_if_due()

    await repeat("tidying", turn, lambda: 0.0)
