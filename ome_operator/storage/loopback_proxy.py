"""A proxy on the loopback interface that restricts the client of object stores to a single host.

The client follows redirects and sends the header `x-amz-security-token` with them; it has no option that prevents this.
Therefore the client is configured to use this proxy, which opens connections to the host of the store and rejects all other
hosts. The proxy does not read TLS traffic; plain HTTP uses one connection per request. The resolved IP addresses are not
checked here, because the permission for the host was checked before (grants.py).
"""

import asyncio
import base64
import socket
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ome_operator.storage.addresses import host_and_port
from ome_operator.storage.listing import RequestRefused

_HEAD = 64 * 1024
"""Maximum bytes of the head of a request (everything before the body)."""
_STEP = 256 * 1024
_CONNECT = 15.0
"""Maximum seconds to connect to a host, and to receive the head of a request."""
_PORTS = {"http": 80, "https": 443}


class Endpoint(NamedTuple):
    """Scheme, host and port of an address."""

    scheme: str
    host: str
    port: int


class LoopbackProxy:
    """A proxy that opens connections to a single object store only."""

    def __init__(self, address: str) -> None:
        (name, port), scheme = host_and_port(address), address.partition("://")[0].lower()
        self._only = Endpoint(scheme, name, port or _PORTS.get(scheme, 0))
        self._proxy = _proxy(self._only)
        self._task: asyncio.Task[None] | None = None
        self.refused = ""
        """The last host, as `host:port`, that the client requested and the proxy rejected; "" if there is none."""

    async def open(self) -> str:
        """Start the proxy, and return the URL that the client uses as its proxy."""
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self._task = asyncio.create_task(self._accept(listener))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    async def close(self) -> None:
        """Stop the proxy and all its connections."""
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
        """Serve one connection of the client. After an error, the connection to the client is closed."""
        with client, suppress(OSError, ValueError):
            client.setblocking(False)
            async with asyncio.timeout(_CONNECT):
                head, rest = await _head(client)
            method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
            wanted = _endpoint(urlsplit(f"https://{target}" if method == "CONNECT" else target))
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
        """Return a connection to the store's host, through the proxy of the environment if one is configured."""
        if self._proxy is None:
            return await _connected(self._only.host, self._only.port)
        server = await _connected(self._proxy.hostname or "", self._proxy.port or 80)
        if self._only.scheme == "https":
            try:
                name = f"[{self._only.host}]" if ":" in self._only.host else self._only.host
                where = f"{name}:{self._only.port}"
                await _send(server, f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{_proxy_login(self._proxy)}\r\n".encode())
                answer, _ = await _head(server)
                if answer.split(b" ")[1:2] != [b"200"]:
                    raise OSError("the proxy of the environment rejects the connection")
            except BaseException:
                server.close()
                raise
        return server

    def _plain(self, head: bytes) -> bytes:
        """Return the head of an HTTP request, rewritten for the store's host or the environment's proxy, with
        `Connection: close`.
        """
        first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, target, version = first.split(" ")
        if self._proxy is None:
            target = "/" + target.split("/", 3)[3] if target.count("/") > 2 else "/"
        kept = [line for line in lines if not line.lower().startswith(("proxy-", "connection:"))]
        login = _proxy_login(self._proxy) if self._proxy else ""
        return "\r\n".join([f"{method} {target} {version}", *kept, f"Connection: close\r\n{login}\r\n"]).encode("latin-1")


def _endpoint(parts: SplitResult) -> Endpoint:
    return Endpoint(parts.scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme, 0))


def _proxy(only: Endpoint) -> SplitResult | None:
    """Return the URL of the proxy that environment variables configure for the host of `only`; None if they configure no
    proxy for it. Raises RequestRefused for a type of proxy that is not supported.
    """
    if proxy_bypass(only.host):
        return None
    proxies = getproxies()
    if not (proxy := proxies.get(only.scheme) or proxies.get("all")):
        return None
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme != "http":
        raise RequestRefused(
            f"the agent's proxy is a {parts.scheme}:// proxy, but object stores can be reached through http:// proxies only"
        )
    host_and_port(f"{parts.scheme}://{parts.netloc}")
    return parts


def _proxy_login(proxy: SplitResult) -> str:
    """Return the header that authenticates at a proxy; "" if the proxy's URL has no user name."""
    if not proxy.username:
        return ""
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"


async def _head(source: socket.socket) -> tuple[bytes, bytes]:
    """Return the head of a request up to the empty line, and the bytes that were received after the head."""
    received = b""
    while b"\r\n\r\n" not in received:
        if not (data := await asyncio.get_running_loop().sock_recv(source, _HEAD)) or len(received) > _HEAD:
            raise OSError("the connection ended before the head of a request")
        received += data
    head, _, rest = received.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


async def _connected(name: str, port: int) -> socket.socket:
    loop, failed = asyncio.get_running_loop(), OSError(f"{name} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, address)
        except OSError as error:
            connection.close()
            failed = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise failed


async def _both(first: socket.socket, second: socket.socket) -> None:
    """Copy bytes in both directions until either side closes its connection."""
    tasks = {asyncio.create_task(_pump(first, second)), asyncio.create_task(_pump(second, first))}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(source: socket.socket, target: socket.socket) -> None:
    loop, buffer = asyncio.get_running_loop(), bytearray(_STEP)
    view = memoryview(buffer)
    while count := await loop.sock_recv_into(source, buffer):
        await loop.sock_sendall(target, view[:count])


async def _send(target: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(target, data)
