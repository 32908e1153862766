"""Reading a part of a file over HTTP."""

from collections.abc import AsyncIterator, Collection, Mapping

import aiohttp

from ome_operator.storage import reach
from ome_operator.storage.listing import Refused, RemoteFile, Unranged, Unreachable

TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=15.0, sock_read=60.0)
NONE: Mapping[str, str] = {}


class SourceUnauthorized(Refused):
    """The source wants to know who we are, or does not know any more: 401."""

    def __init__(self, text: str, challenge: str) -> None:
        super().__init__(text)
        self.challenge = challenge
        """What it asks for: the header WWW-Authenticate."""


class Absent(Refused):
    """It is not there, or not for us: 403, 404, 410."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code
        """What a hub calls it: the header X-Error-Code."""


def session(private: Collection[str] | None = None) -> aiohttp.ClientSession:
    """A session for large files; the environment's proxy counts.

    `private` are the hosts that may have addresses inside of a network; None: every host.
    """
    connector = reach.connector(private)
    return aiohttp.ClientSession(connector=connector, timeout=TIMEOUT, trust_env=True, auto_decompress=False)


class Direct:
    """A source of one host, with one session that opens when it is first needed."""

    def __init__(self, private: Collection[str] | None = None) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._private = private

    def suspect(self, file: RemoteFile) -> None:
        """There is nobody else to ask."""

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        self._session = self._session or session(self._private)
        return self._session


async def ranged(
    session: aiohttp.ClientSession, url: str, start: int, end: int, size: int, headers: Mapping[str, str]
) -> AsyncIterator[bytes]:
    """Bytes from `start` up to, and without, `end` of a file of `size` bytes; raises Refused or Unreachable.

    Redirects are followed, and a token stays with the host that it is for. No message names the URL: what a hub redirects
    to is signed, and whoever reads it may fetch.
    """
    asked = {**headers, "Accept-Encoding": "identity"}
    if start or end < size:
        asked["Range"] = f"bytes={start}-{end - 1}"
    try:
        async with session.get(url, headers=asked) as response:
            _check(response)
            if response.status == 200 and end < size:
                raise Unranged("the source cannot give a part of a file")
            skip = start if response.status == 200 else 0  # a server without ranges begins at the beginning
            if response.status == 206 and _first(response) != start:
                raise Unreachable(f"asked for bytes from {start} on, the source sent others")
            async for data in response.content.iter_any():
                if skip:
                    data, skip = data[skip:], max(0, skip - len(data))
                if data:
                    yield data
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _broken(error) from error


async def whole(session: aiohttp.ClientSession, url: str, headers: Mapping[str, str] = NONE) -> AsyncIterator[bytes]:
    """All bytes of a file whose size nobody has said; raises Refused or Unreachable."""
    try:
        async with session.get(url, headers={**headers, "Accept-Encoding": "identity"}) as response:
            _check(response)
            async for data in response.content.iter_any():
                yield data
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _broken(error) from error


async def small(session: aiohttp.ClientSession, url: str, limit: int, headers: Mapping[str, str] = NONE) -> bytes:
    """All bytes of a short answer; raises Refused or Unreachable, also for a long one."""
    found = bytearray()
    async for data in whole(session, url, headers):
        found += data
        if len(found) > limit:
            raise Refused(f"the source answers with more than {limit} bytes where a short answer is due")
    return bytes(found)


def _broken(error: Exception) -> Refused | Unreachable:
    """What a connection that failed means. An address that is not asked tells nothing about who listens there."""
    if said := reach.why(error):
        return Refused(f"{said}, which agents do not ask: an administrator allows the host with agent.privateHosts")
    return Unreachable(f"the connection to the source broke: {type(error).__name__}")


def _check(response: aiohttp.ClientResponse) -> None:
    code = response.status
    if code in (200, 206):
        return
    said = f"the source answers {code}"
    if code == 401:
        raise SourceUnauthorized(said, response.headers.get("WWW-Authenticate", ""))
    if code in (403, 404, 410):
        raise Absent(said, response.headers.get("X-Error-Code", ""))
    wait = response.headers.get("Retry-After", "")
    raise Unreachable(said, float(wait) if wait.isdigit() else 0.0)


def _first(response: aiohttp.ClientResponse) -> int:
    text = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(text) if text.isdigit() else -1
