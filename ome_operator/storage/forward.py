"""A step on loopback between the client of object stores and the network, which leads to a single host.

That client follows redirects, keeps the header `x-amz-security-token` on the way, and has no option against either. So it
gets a proxy: this step, which opens connections to the host of the store and refuses all others. What goes over TLS is not
read here, and plain HTTP is a connection for each request. The name is not looked at again: who may be asked was decided
before (grants.py).
"""

import asyncio
import base64
import socket
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ome_operator.storage.addresses import place
from ome_operator.storage.listing import Refused

_HEAD = 64 * 1024
"""Bytes of a request before its body."""
_STEP = 256 * 1024
_CONNECT = 15.0
"""Seconds to reach a host, and for the head of a request to come."""
_PORTS = {"http": 80, "https": 443}


class Where(NamedTuple):
    """A host as connections know it."""

    scheme: str
    host: str
    port: int


class Forward:
    """A step, for a single store."""

    def __init__(self, address: str) -> None:
        (name, port), scheme = place(address), address.partition("://")[0].lower()
        self._only = Where(scheme, name, port or _PORTS.get(scheme, 0))
        self._proxy = _proxy(self._only)
        self._task: asyncio.Task[None] | None = None
        self.refused = ""
        """The last other host that was asked for."""

    async def open(self) -> str:
        """Begin; the address that the client is given as its proxy."""
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self._task = asyncio.create_task(self._accept(listener))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def close(self) -> None:
        """End it, with all connections."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _accept(self, listener: socket.socket) -> None:
        with listener:
            async with asyncio.TaskGroup() as group:
                while True:
                    client, _ = await asyncio.get_running_loop().sock_accept(listener)
                    group.create_task(self._serve(client))

    async def _serve(self, client: socket.socket) -> None:
        """One connection of the client. What breaks here, the client sees as a connection that broke."""
        with client, suppress(OSError, ValueError):
            client.setblocking(False)
            async with asyncio.timeout(_CONNECT):
                head, rest = await _head(client)
            method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
            wanted = _where(urlsplit(f"https://{target}" if method == "CONNECT" else target))
            if wanted != self._only:
                self.refused = f"{wanted.host}:{wanted.port}"
                await _send(client, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            async with asyncio.timeout(_CONNECT):
                server = await self._reach()
            with server:
                if method == "CONNECT":
                    await _send(client, b"HTTP/1.1 200 OK\r\n\r\n")
                else:
                    await _send(server, self._plain(head) + rest)
                await _both(client, server)

    async def _reach(self) -> socket.socket:
        """A connection to the host, behind the proxy of the environment if it names any, which connects then."""
        if self._proxy is None:
            return await _connected(self._only.host, self._only.port)
        server = await _connected(self._proxy.hostname or "", self._proxy.port or 80)
        if self._only.scheme == "https":
            try:
                name = f"[{self._only.host}]" if ":" in self._only.host else self._only.host
                where = f"{name}:{self._only.port}"
                await _send(server, f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{_shown(self._proxy)}\r\n".encode())
                answer, _ = await _head(server)
                if answer.split(b" ")[1:2] != [b"200"]:
                    raise OSError("the proxy refuses")
            except BaseException:
                server.close()
                raise
        return server

    def _plain(self, head: bytes) -> bytes:
        """The head of a request as the host wants it, or the next proxy; the answer to it ends the connection."""
        first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, target, version = first.split(" ")
        if self._proxy is None:
            target = "/" + target.split("/", 3)[3] if target.count("/") > 2 else "/"
        kept = [line for line in lines if not line.lower().startswith(("proxy-", "connection:"))]
        more = _shown(self._proxy) if self._proxy else ""
        return "\r\n".join([f"{method} {target} {version}", *kept, f"Connection: close\r\n{more}\r\n"]).encode("latin-1")


def _where(parts: SplitResult) -> Where:
    return Where(parts.scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme, 0))


def _proxy(only: Where) -> SplitResult | None:
    """The proxy of the environment for a host; Refused for a kind that cannot be used here."""
    if proxy_bypass(only.host):
        return None
    given = getproxies()
    if not (found := given.get(only.scheme) or given.get("all")):
        return None
    parts = urlsplit(found if "://" in found else f"http://{found}")
    if parts.scheme != "http":
        raise Refused(
            f"the agent's proxy is an {parts.scheme}:// one, and object stores are asked through http:// ones alone"
        )
    place(f"{parts.scheme}://{parts.netloc}")
    return parts


def _shown(proxy: SplitResult) -> str:
    """The header that opens a proxy, "" where its address has no name."""
    if not proxy.username:
        return ""
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"


async def _head(source: socket.socket) -> tuple[bytes, bytes]:
    """What comes up to the empty line, and what came behind it already."""
    found = b""
    while b"\r\n\r\n" not in found:
        if not (data := await asyncio.get_running_loop().sock_recv(source, _HEAD)) or len(found) > _HEAD:
            raise OSError("no head of a request")
        found += data
    head, _, rest = found.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


async def _connected(name: str, port: int) -> socket.socket:
    loop, failed = asyncio.get_running_loop(), OSError("no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        try:
            await loop.sock_connect(made, address)
        except OSError as error:
            made.close()
            failed = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise failed


async def _both(first: socket.socket, second: socket.socket) -> None:
    """Bytes in both directions until either side ends."""
    ways = {asyncio.create_task(_pump(first, second)), asyncio.create_task(_pump(second, first))}
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _pump(source: socket.socket, target: socket.socket) -> None:
    loop, buffer = asyncio.get_running_loop(), bytearray(_STEP)
    view = memoryview(buffer)
    while count := await loop.sock_recv_into(source, buffer):
        await loop.sock_sendall(target, view[:count])


async def _send(target: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(target, data)
