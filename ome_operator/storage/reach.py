"""Connections that do not lead into the cluster's own network, whatever a name, a redirect or a realm says."""

import ipaddress
import socket
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from ome_operator.errors import OmeError
from ome_operator.storage.addresses import listed

_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
"""NAT64: the last 32 bits are an address of IPv4."""


class Private(OmeError, OSError):
    """An address that nobody outside of the cluster has."""


def public(text: str) -> bool:
    """Whether an IP address is somebody's on the internet: not loopback, link-local, private, shared or reserved."""
    found = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if inner is None and found in _TRANSLATED:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return public(str(inner))
    return found.is_global and not found.is_multicast


class Gate(AbstractResolver):
    """Resolves names, and remembers which private addresses belong to hosts that are allowed.

    A name is resolved once for a connection, which goes to that address: a name that changes leads nowhere else.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        # Through a proxy the proxy connects, and decides; it is the administrator's own.
        proxies = {urlsplit(item).hostname or "" for item in getproxies().values() if "://" in item}
        self._allowed = {*allowed, *proxies}
        self._known: set[tuple[str, int]] = set()
        self._inner: AbstractResolver | None = None

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Addresses of a name; Private when all are private and the name is not among those that may be."""
        self._inner = self._inner or DefaultResolver()
        found = await self._inner.resolve(host, port, family)
        if self._may(host, port):
            self._known |= {(str(item["host"]), int(item["port"])) for item in found}
            return found
        left = [item for item in found if public(str(item["host"]))]
        if not left:
            raise Private(
                f"{host} has an address inside of a network ({found[0]['host']})" if found else f"{host} has no address"
            )
        return left

    def socket(self, info: Any) -> socket.socket:
        """A socket for an address that may be asked; the only place that numbers in URLs come through."""
        family, kind, protocol, _, where = info
        text, port = str(where[0]), int(where[1])
        if not public(text) and (text, port) not in self._known and not self._may(text, port):
            raise Private(f"{text} is an address inside of a network")
        return socket.socket(family, kind, protocol)

    def _may(self, host: str, port: int) -> bool:
        return listed(self._allowed, host.lower().strip("[]"), port)

    async def close(self) -> None:
        """End the resolver."""
        if self._inner is not None:
            await self._inner.close()


def connector(allowed: Collection[str] | None) -> TCPConnector:
    """A connector for large files; None allows every address."""
    if allowed is None:
        return TCPConnector(limit=0, keepalive_timeout=30)
    gate = Gate(allowed)
    return TCPConnector(limit=0, keepalive_timeout=30, resolver=gate, socket_factory=gate.socket)


def why(error: BaseException | None) -> str:
    """The sentence of a refused address behind an error of aiohttp, "" for other errors."""
    while error is not None:
        if isinstance(error, Private):
            return str(error)
        error = getattr(error, "os_error", None) or error.__cause__ or error.__context__
    return ""
