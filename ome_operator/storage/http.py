"""Download files and parts of files over HTTP."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import aiohttp
from yarl import URL  # the class of URLs in the interface of aiohttp

from ome_operator import quantity
from ome_operator.storage import private_addresses
from ome_operator.storage.addresses import HostRules
from ome_operator.storage.listing import RangeIgnored, RemoteFile, RequestRefused, SourceUnreachable
from ome_operator.util.bounded import content

TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=15.0, sock_read=60.0)
LONGEST_WAIT = 3600
"""Maximum seconds for which a source can delay the next attempt by the header Retry-After."""
NO_HEADERS: Mapping[str, str] = {}


class SourceUnauthorized(RequestRefused):
    """Error with status 401: the source requires authentication, or the token has expired."""

    def __init__(self, text: str, challenge: str) -> None:
        super().__init__(text)
        self.challenge = challenge
        """Value of the header WWW-Authenticate, which describes the required authentication."""


class FileAbsent(RequestRefused):
    """Error with status 403, 404 or 410: the file does not exist or access is denied."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code
        """The hub's error code, from the header X-Error-Code."""


class Credential(NamedTuple):
    """A credential in the form in which it is sent: a Secret, or a token that was obtained with a Secret."""

    header: str
    """Value of the header Authorization. It must not be logged."""
    check: Callable[[str], None] = lambda address: None
    """A function that raises RequestRefused for a URL to which the credential must not be sent."""


def session(reach: HostRules | None = None, *, proxies: bool = True) -> aiohttp.ClientSession:
    """Return an HTTP session for large files, which uses the proxy of the environment if `proxies` is true.

    `reach` states which addresses may be contacted; None permits every address. The session keeps no cookies: a server may
    set a cookie in exchange for a credential, and a cookie is sent to every port of a host, even without TLS.
    """
    connector, jar = private_addresses.connector(reach), aiohttp.DummyCookieJar()
    return aiohttp.ClientSession(
        connector=connector, cookie_jar=jar, timeout=TIMEOUT, trust_env=proxies, auto_decompress=False
    )


class HttpSource:
    """A source on one host. The HTTP session is opened at its first use."""

    def __init__(self, reach: HostRules | None = None) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._reach = reach

    def report_wrong_hash(self, file: RemoteFile) -> None:
        """Do nothing, because there is no alternative source."""

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        self._session = self._session or session(self._reach)
        return self._session


async def read_range(
    session: aiohttp.ClientSession,
    url: str,
    start: int,
    end: int,
    size: int,
    credential: Credential | None,
    *,
    redirects: bool = True,
) -> AsyncIterator[bytes]:
    """Iterate over the bytes of a file of `size` bytes, from `start` up to, but not including, `end`. Raises RequestRefused
    if the source rejects the request, and SourceUnreachable if the source fails.

    Redirects are followed, unless `redirects` is false; the credential is sent to the original host only. Messages do not
    contain the URL, because a hub redirects to a signed URL, with which every reader of the message could download the
    file.
    """
    headers = {"Range": f"bytes={start}-{end - 1}"} if start or end < size else NO_HEADERS
    try:
        async with _get(session, url, headers, credential, redirects) as response:
            _check(response)
            if response.status == 200 and end < size:
                raise RangeIgnored("the source does not support range requests")
            skip = start if response.status == 200 else 0  # a server without ranges sends the file from its beginning
            if response.status == 206 and _first(response) != start:
                raise SourceUnreachable(
                    f"the source sent a range other than the requested one, which starts at byte {start}"
                )
            async for data in response.content.iter_any():
                if skip:
                    data, skip = data[skip:], max(0, skip - len(data))
                if data:
                    yield data
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise _broken(error) from error


async def read_all(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str] = NO_HEADERS, credential: Credential | None = None
) -> AsyncIterator[bytes]:
    """Download a file whose size is not known, and yield its bytes in pieces. Raises RequestRefused if the source of the
    file rejects the request, and SourceUnreachable if it fails. `credential` is None for a request without a credential.
    """
    try:
        async with _get(session, url, headers, credential) as response:
            _check(response)
            async for data in response.content.iter_any():
                yield data
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise _broken(error) from error


async def read_small(
    session: aiohttp.ClientSession,
    url: str,
    limit: int,
    headers: Mapping[str, str] = NO_HEADERS,
    credential: Credential | None = None,
) -> bytes:
    """Return all bytes of a short response. Raises SourceUnreachable if the source fails, and RequestRefused if the source
    rejects the request or the response is longer than `limit` bytes. `credential` is None for a request without a
    credential.
    """
    received = await content(read_all(session, url, headers, credential), limit)
    if received is None:
        raise RequestRefused(f"the source sent more than {limit} bytes, although a short response was expected")
    return received


def _get(
    session: aiohttp.ClientSession,
    url: str,
    headers: Mapping[str, str],
    credential: Credential | None,
    redirects: bool = True,
) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
    """Send a request. Raises RequestRefused if the URL contains a password, or must not receive the credential.

    The client normalizes a URL before it sends the request, so the normalized URL is compared with the permissions.
    """
    address, sent = URL(url), {**headers, "Accept-Encoding": "identity"}
    if address.raw_user or address.raw_password:
        raise RequestRefused("the address contains a user name or a password: put them into the Secret of spec.storage.key")
    if credential is not None:
        credential.check(str(address))
        sent["Authorization"] = credential.header
    return session.get(address, headers=sent, allow_redirects=redirects)


def _broken(error: Exception) -> RequestRefused | SourceUnreachable:
    """Return the error to raise for a failed connection. The message about a rejected address contains no information
    about the server at that address.
    """
    if reason := private_addresses.refusal_reason(error):
        return RequestRefused(
            f"{reason}, which agents do not contact: ask an administrator to add the host to agent.privateHosts"
        )
    return SourceUnreachable(f"the connection to the source failed: {type(error).__name__}")


def _check(response: aiohttp.ClientResponse) -> None:
    code = response.status
    if code in (200, 206):
        return
    message = f"the source returned status {code}"
    if code == 401:
        raise SourceUnauthorized(message, response.headers.get("WWW-Authenticate", ""))
    if code in (403, 404, 410):
        raise FileAbsent(message, response.headers.get("X-Error-Code", ""))
    wait = response.headers.get("Retry-After", "")
    raise SourceUnreachable(message, float(min(quantity.whole_number(wait) or 0, LONGEST_WAIT)))


def _first(response: aiohttp.ClientResponse) -> int:
    text = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return -1 if (start := quantity.whole_number(text)) is None else start
