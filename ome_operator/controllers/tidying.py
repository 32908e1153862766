"""Discard what is no longer needed: data kept for past events, and results about deleted services."""

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
"""Number of deleted services below which nothing is discarded early."""


async def tidy(cluster: ClusterCache, resync: float, gone: Callable[[], int], look_s: float = LOOK_S) -> NoReturn:
    """Discard old data periodically, after every key has been reconciled once or twice and has thereby requested the data
    that it needs.

    Discard data earlier if as many services have been deleted as exist. Thus the data about deleted services never exceeds
    the data about existing services. The cost of recomputing the data of existing services is no higher than the cost of
    computing those of the deleted ones.

    `resync`: seconds within which every key is reconciled. `gone`: returns the number of services deleted so far.
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
