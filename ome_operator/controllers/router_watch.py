"""What the registries beside routers say of strangers in their lists, asked of each in turn.

A registry may write nothing on the cluster: its ServiceAccount gets, lists and watches pods, and who takes over a router
gets no more. So it shows two numbers, and the operator reads them. What answers belongs to tenants: no words of it are used,
its length is bounded, no redirect is followed, and the operator shows it no token.
"""

import asyncio
import logging
import math
import re
from collections.abc import Callable, Iterable

import aiohttp

from ome_operator import keys
from ome_operator.cache.resources import SERVICE
from ome_operator.core.observed.objects import Pod, Ref, Strangers
from ome_operator.machinery.rounds import rounds
from ome_operator.util.wall_clock import WallClock

logger = logging.getLogger(__name__)

PAGE = 64 * 1024
"""Bytes of a page that are read."""
TIMEOUT = aiohttp.ClientTimeout(total=3.0)
AT_ONCE = 8
_NUMBER = re.compile(
    rf"^({keys.STRANGERS}_total|{keys.STRANGER_AT}) (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$", re.ASCII | re.MULTILINE
)
"""Its two lines, of which nothing else is read. The library's parser ends with an IndexError at some pages of others."""


class RouterWatch:
    """One walk after the other over all routers; `changed` hears of a service of which there is news."""

    def __init__(
        self,
        pods: Callable[[], Iterable[Pod]],
        changed: Callable[[Ref], None],
        wall: WallClock,
        interval: float,
        port: int = keys.REGISTRY_PORT,
    ) -> None:
        self._pods, self._changed, self._wall, self._interval, self._port = pods, changed, wall, interval, port
        self._found: dict[str, Strangers] = {}
        self._broken = False
        self.total = 0
        """Strangers that were found since the start, over all services."""

    async def run(self) -> None:
        """For ever."""
        async with aiohttp.ClientSession(timeout=TIMEOUT, headers={"User-Agent": keys.MANAGER}) as session:
            await rounds("the look at routers", lambda: self.walk(session), lambda: self._interval)

    async def walk(self, session: aiohttp.ClientSession) -> None:
        """Ask every router's registry once."""
        routers = [pod for pod in self._pods() if pod.component == keys.ROUTER and pod.ip and not pod.deleting]
        self._found = {pod.uid: self._found[pod.uid] for pod in routers if pod.uid in self._found}
        slots = asyncio.Semaphore(AT_ONCE)

        async def item(pod: Pod) -> None:
            async with slots:
                try:
                    self._learn(pod, await self._ask(session, pod))
                except Exception:  # a stranger's pod: it costs itself, and neither the others nor the operator
                    if not self._broken:
                        logger.exception("the registry of %s/%s breaks who reads it", pod.namespace, pod.name)
                    self._broken = True

        async with asyncio.TaskGroup() as group:
            for pod in routers:
                group.create_task(item(pod))

    def of(self, pods: Iterable[Pod]) -> dict[str, Strangers]:
        """UID of a router's pod -> the strangers in its list."""
        return {pod.uid: self._found[pod.uid] for pod in pods if pod.uid in self._found}

    def _learn(self, pod: Pod, found: Strangers | None) -> None:
        known = self._found.get(pod.uid)
        if found is None or found == known or not found.found:
            return
        self._found[pod.uid] = found
        self.total += max(0, found.found - (known.found if known else 0))
        self._changed(Ref(SERVICE, pod.namespace, pod.service))

    async def _ask(self, session: aiohttp.ClientSession, pod: Pod) -> Strangers | None:
        """What its registry says; None where there is none, or it says nothing that can be read."""
        url = f"http://{f'[{pod.ip}]' if ':' in pod.ip else pod.ip}:{self._port}/metrics"
        try:
            async with session.get(url, allow_redirects=False) as answer:
                if answer.status != 200:
                    return None
                text = (await answer.content.read(PAGE)).decode(errors="replace")
            return read(text, self._wall().timestamp())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            logger.debug("the registry of %s/%s does not answer: %s", pod.namespace, pod.name, error)
            return None


def read(text: str, now: float) -> Strangers | None:
    """The two numbers of a registry's page; None where it has none. A time to come counts as now."""
    values = {name: float(number) for name, number in _NUMBER.findall(text)}
    count, at = values.get(f"{keys.STRANGERS}_total", math.nan), values.get(keys.STRANGER_AT, math.nan)
    if not (math.isfinite(count) and math.isfinite(at)) or not 0 <= count < 2**53:
        return None
    return Strangers(int(count), min(max(at, 0.0), now))
