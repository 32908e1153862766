"""Read the number of foreign workers in the lists of routers from the routers' registry sidecars, one sidecar after the
other.

A registry must not write anything to the cluster. Its ServiceAccount may only get, list and watch pods, so that an attacker
who takes over a router gets no more rights. The registry therefore exposes two numbers, which the operator reads. The
responding pod belongs to a tenant: the operator uses no text of the response, bounds its length, follows no redirect, and
sends no token.
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
from ome_operator.machinery.background import repeat
from ome_operator.util.wall_clock import WallClock

logger = logging.getLogger(__name__)

PAGE = 64 * 1024
"""Maximum number of bytes of a page that are read."""
TIMEOUT = aiohttp.ClientTimeout(total=3.0)
AT_ONCE = 8
_NUMBER = re.compile(
    rf"^({keys.STRANGERS}_total|{keys.STRANGER_AT}) (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$", re.ASCII | re.MULTILINE
)
"""Matches the two lines that are read from a page. The parser of the Prometheus library raises IndexError for some
malformed pages."""


class RouterWatch:
    """Visits all routers repeatedly; `changed` is called with a service for which the numbers changed."""

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
        """Number of foreign workers found since the start, over all services."""

    async def run(self) -> None:
        """Visit all routers repeatedly."""
        async with aiohttp.ClientSession(timeout=TIMEOUT, headers={"User-Agent": keys.MANAGER}) as session:
            await repeat("the check of routers", lambda: self.walk(session), lambda: self._interval)

    async def walk(self, session: aiohttp.ClientSession) -> None:
        """Query the registry of every router once."""
        routers = [pod for pod in self._pods() if pod.component == keys.ROUTER and pod.ip and not pod.deleting]
        self._found = {pod.uid: self._found[pod.uid] for pod in routers if pod.uid in self._found}
        slots = asyncio.Semaphore(AT_ONCE)

        async def item(pod: Pod) -> None:
            async with slots:
                try:
                    self._learn(pod, await self._ask(session, pod))
                except Exception:  # a pod of a tenant: a failure affects only this pod
                    if not self._broken:
                        logger.exception("cannot parse the response of the registry of %s/%s", pod.namespace, pod.name)
                    self._broken = True

        async with asyncio.TaskGroup() as group:
            for pod in routers:
                group.create_task(item(pod))

    def of(self, pods: Iterable[Pod]) -> dict[str, Strangers]:
        """Return the foreign workers in the list of each router, by the UID of the router's pod."""
        return {pod.uid: self._found[pod.uid] for pod in pods if pod.uid in self._found}

    def _learn(self, pod: Pod, found: Strangers | None) -> None:
        known = self._found.get(pod.uid)
        if found is None or found == known or not found.found:
            return
        self._found[pod.uid] = found
        self.total += max(0, found.found - (known.found if known else 0))
        self._changed(Ref(SERVICE, pod.namespace, pod.service))

    async def _ask(self, session: aiohttp.ClientSession, pod: Pod) -> Strangers | None:
        """Return the numbers that a registry exposes; None if there is no registry, or if its response cannot be parsed."""
        url = f"http://{f'[{pod.ip}]' if ':' in pod.ip else pod.ip}:{self._port}/metrics"
        try:
            async with session.get(url, allow_redirects=False) as answer:
                if answer.status != 200:
                    return None
                text = (await answer.content.read(PAGE)).decode(errors="replace")
            return read(text, self._wall().timestamp())
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            logger.debug("the registry of %s/%s does not respond: %s", pod.namespace, pod.name, error)
            return None


def read(text: str, now: float) -> Strangers | None:
    """Parse the two numbers of a registry's page; None if they are missing. A time in the future counts as now."""
    values = {name: float(number) for name, number in _NUMBER.findall(text)}
    count, at = values.get(f"{keys.STRANGERS}_total", math.nan), values.get(keys.STRANGER_AT, math.nan)
    if not (math.isfinite(count) and math.isfinite(at)) or not 0 <= count < 2**53:
        return None
    return Strangers(int(count), min(max(at, 0.0), now))
