"""Read pages of routers' registries, directly or through the API server (docs/telemetry.md).

The responding pod belongs to a tenant. In both cases, the length of a response is limited, no redirect is followed, no
compressed response is accepted, and no cookie is stored. The pod never receives a token: a direct request contains none, and
the API server removes the operator's token.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self

import aiohttp

from ome_operator import keys
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.telemetry import STALE, UnusableSummary
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.kube.errors import Forbidden, KubeError, TooLong
from ome_operator.kube.podproxy import PodPages
from ome_operator.settings import Settings
from ome_operator.util.bounded import content

logger = logging.getLogger(__name__)

PAGE = 256 * 1024
"""Maximum bytes of a page."""
PATIENCE = 2.0
"""Timeout of a request, in seconds."""
AT_ONCE = 32
"""Maximum number of requests that are sent at the same time."""
KEPT = 30.0
"""Seconds for which an unused connection stays open. This is longer than the interval between two requests to a router, so
that a request does not need a new connection."""
PROXY_INTERVAL = 30.0
"""Seconds between two requests to a router through the API server."""


class RouterPages(Protocol):
    """A way to read pages of routers."""

    spread: float
    """Maximum number of seconds over which the first requests to new routers are distributed."""
    silent_after: float
    """Seconds after its last summary after which a router counts as silent in the metric `ome_routers`."""

    async def read_page(self, pod: Pod, page: str) -> tuple[int, bytes]:
        """Return the HTTP status and the content of a page, such as `summary`. Raises UnusableSummary if there is no usable
        response; the exception's text is "" if the reason has already been logged. Every other exception also means that
        this request failed.
        """


Opened = Callable[[], AbstractAsyncContextManager[RouterPages]]
"""Opens the connections through which pages are read."""


def interval_of(settings: Settings) -> float:
    """Return the seconds between two requests to a router; 0 if the operator requests nothing from routers."""
    return settings.router_watch or (PROXY_INTERVAL if settings.router_proxy else 0.0)


def way_of(settings: Settings, client: Client) -> tuple[float, Opened]:
    """Return the interval in seconds between two requests to a router, and the way to read routers: through the API server
    if only `router_proxy` is set, otherwise directly.
    """
    proxied = settings.router_proxy and not settings.router_watch
    return interval_of(settings), (lambda: ProxiedPages(client.connection)) if proxied else DirectPages


class DirectPages:
    """Reads the pages from the addresses of the pods."""

    spread, silent_after = 5.0, STALE

    def __init__(self, port: int = keys.REGISTRY_PORT) -> None:
        self._port = port
        # A compressed response is not decompressed, because its length would not be bounded.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT),
            timeout=aiohttp.ClientTimeout(total=PATIENCE),
            headers={"User-Agent": keys.MANAGER, "Accept-Encoding": "identity"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def read_page(self, pod: Pod, page: str) -> tuple[int, bytes]:
        """Return the HTTP status and the content of a page. Raises UnusableSummary if the page is too long."""
        url = f"http://{f'[{pod.ip}]' if ':' in pod.ip else pod.ip}:{self._port}/{page}"
        async with self._session.get(url, allow_redirects=False) as answer:
            data = await content(answer.content.iter_any(), PAGE)
        if data is None:
            raise _too_long()
        return answer.status, data


class ProxiedPages:
    """Reads the pages through the API server, with the right to `get pods/proxy`."""

    spread, silent_after = PROXY_INTERVAL, PROXY_INTERVAL + 10.0

    def __init__(self, connection: Connection) -> None:
        self._pages = PodPages(connection, agent=keys.MANAGER, at_once=AT_ONCE, longest=PAGE, patience=PATIENCE)
        self._refused = False
        """Whether the API server has refused a request because of the missing right. Such a refusal is logged only once."""

    async def __aenter__(self) -> Self:
        logger.info(
            "the operator requests the load of routers through the API server, of each router every %.0f s, so the load "
            "is unknown for about a third of the time",
            PROXY_INTERVAL,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pages.close()

    async def read_page(self, pod: Pod, page: str) -> tuple[int, bytes]:
        """Return the HTTP status and the content of a page. Raises UnusableSummary if the page cannot be read. A missing
        right to read pages is logged only once, because it concerns all routers.
        """
        try:
            return 200, await self._pages.content(pod.namespace, pod.name, keys.REGISTRY_PORT, page)
        except Forbidden:
            if not self._refused:
                self._refused = True
                logger.warning(
                    "the summary of the router %s/%s cannot be read through the API server, because the operator has no "
                    "right to `get pods/proxy`: set registry.podsProxy=true in the chart. The load of such routers stays "
                    "unknown; this is not logged again",
                    pod.namespace,
                    pod.name,
                )
            raise UnusableSummary("") from None
        except TooLong:
            raise _too_long() from None
        except KubeError as error:  # the error's message may contain text of the pod
            if error.code:
                return error.code, b""
            raise UnusableSummary(
                f"the API server returned no response ({type(error.__cause__ or error).__name__})"
            ) from error


def _too_long() -> UnusableSummary:
    return UnusableSummary(f"the response is longer than {PAGE // 1024} KiB")
