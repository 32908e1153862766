"""Requests to engines. An engine is less trusted than the router in this pod: a response has a timeout and a maximum length,
no redirect is followed, and a response in an unexpected form is a failed reading.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp

from ome_operator.registry.clients import NO_ANSWER
from ome_operator.registry.engine_load import UNKNOWN, EngineLoad
from ome_operator.registry.exposition import EMPTY_PAGE, EnginePage, parse_engine_page
from ome_operator.registry.pages import parse_engine_load
from ome_operator.util.bounded import content
from ome_operator.util.json_limits import MIB

TIMEOUT = aiohttp.ClientTimeout(total=2.0)
AFTER_PROBE = aiohttp.ClientTimeout(total=1.0)
"""Timeout of each request during or after a probe."""
READY_PATH, HEALTHY_PATH = "/ready", "/ping"
"""Paths of two pages of SGLang. `/ready` reports whether the engine is healthy and not paused, `/ping` only whether it is
healthy."""
LOAD_BYTES, PAGE_BYTES = 1 * MIB, 4 * MIB
"""Maximum bytes of a response that contains an engine's load, and of a metrics page."""
LOAD_PATHS = ("/v1/loads?include=core,disagg", "/get_load")
"""Paths at which an engine reports its load, in the order in which they are tried. Older engines have only the second
one."""


class EngineClient:
    """A client of engines and routers. `worker_key` is the key that the router sends to its workers."""

    def __init__(self, session: aiohttp.ClientSession, worker_key: str = "") -> None:
        self._session = session
        # Compression would cost the engine time, and the length of what is compressed is not bounded.
        self.headers = {"Accept-Encoding": "identity"}
        if worker_key:
            self.headers["Authorization"] = f"Bearer {worker_key}"

    async def page(self, url: str) -> EnginePage | None:
        """Return the values of an engine's metrics page; `EMPTY_PAGE` if the engine has no such page, and None if the page
        cannot be read. `url` is the URL of the engine without a path.
        """
        text = await self.text(f"{url}/metrics", PAGE_BYTES)
        return text if text is None else parse_engine_page(text) if text else EMPTY_PAGE

    async def load(self, url: str, within: aiohttp.ClientTimeout = TIMEOUT) -> EngineLoad | None:
        """Return the load of an engine; `UNKNOWN` if the engine has no page that reports its load, and None if such a page
        cannot be read. `url` is the URL of the engine without a path, and `within` is the timeout of each request.
        """
        for path in LOAD_PATHS:
            text = await self.text(url + path, LOAD_BYTES, within)
            if text is None:
                return None
            if text:
                return parse_engine_load(text)
        return UNKNOWN

    async def is_paused(self, url: str) -> bool:
        """Return whether the engine reports that it is healthy but not ready, because its generation is paused."""
        if await self.status(url + READY_PATH, AFTER_PROBE) != 503:
            return False
        return await self.status(url + HEALTHY_PATH, AFTER_PROBE) == 200

    async def status(self, url: str, within: aiohttp.ClientTimeout) -> int | None:
        """Return the HTTP status of the response to a GET request. Return None if the server does not answer before the
        timeout `within`.
        """
        try:
            async with self._request("GET", url, within) as answer:
                return answer.status
        except (*NO_ANSWER, ValueError):
            return None

    async def post(self, url: str, body: Mapping[str, Any], seconds: float) -> int | None:
        """Send a POST request with the JSON body `body`, and return the HTTP status of the response. Return 0 if no response
        comes within `seconds` seconds, and None if the connection fails.
        """
        try:
            async with self._request("POST", url, aiohttp.ClientTimeout(total=seconds), body) as answer:
                return answer.status
        except TimeoutError:
            return 0
        except (*NO_ANSWER, ValueError):
            return None

    async def text(self, url: str, most: int, within: aiohttp.ClientTimeout = TIMEOUT) -> str | None:
        """Send a GET request to an engine, and return the body of its response; "" if the engine has no such page (400,
        404). Return None if the response exceeds the timeout `within` or `most` bytes, or is another error.
        """
        try:
            async with self._request("GET", url, within) as answer:
                if answer.status in (400, 404):
                    return ""
                if answer.status != 200:
                    return None
                data = await content(answer.content.iter_any(), most)
                return None if data is None else data.decode(errors="replace")
        except (*NO_ANSWER, ValueError):
            return None

    def _request(
        self, method: str, url: str, within: aiohttp.ClientTimeout, body: Mapping[str, Any] | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request, and return a context manager that yields the response. No redirect is followed, and nothing is
        decompressed.
        """
        return self._session.request(
            method,
            url,
            json=body,
            headers=self.headers,
            timeout=within,
            allow_redirects=False,
            auto_decompress=False,
            ssl=False,
        )
