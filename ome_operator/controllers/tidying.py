"""Forgetting what nobody needs any more: what events of the past were kept for, and results about services that are gone."""

import asyncio
import time
from collections.abc import Callable
from typing import NoReturn

from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.resources import SERVICE
from ome_operator.machinery.pace import PACE
from ome_operator.machinery.rounds import rounds
from ome_operator.util import memoize

LOOK_S = 5.0
FEW = 100
"""Services that go together without a turn of their own."""


async def tidy(cluster: ClusterCache, resync: float, gone: Callable[[], int], look_s: float = LOOK_S) -> NoReturn:
    """For ever, when every key had a pass or two, which ask again for what they need. Sooner where as many services have
    gone as live, and a few: however fast services come and go, what is kept of the dead is bounded by the living. What has
    to be made anew for one that lives is no more than what one that has gone did cost.

    `resync`: seconds within which every key has a pass. `gone`: how many services have gone until now.
    """

    async def turn() -> None:
        until, before = time.monotonic() + 2 * resync, gone()

        def waits() -> bool:
            return time.monotonic() < until and gone() - before < FEW + len(cluster.resources[SERVICE])

        while waits():  # noqa: ASYNC110 (deaths are counted, and told to nobody)
            await asyncio.sleep(min(look_s, resync))
        cluster.tidy()
        for _ in memoize.forget_unused():
            await PACE.breathe()

    await rounds("tidying", turn, lambda: 0.0)
