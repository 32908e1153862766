"""A filter that prevents connections into the cluster's own network. It checks IP addresses, wherever the host name came
from: a URI, a redirect or an authentication realm.
"""

import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from ome_operator.errors import OmeError
from ome_operator.storage.addresses import HostRules, Network, host_listed

_CONTAINS_IPV4 = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")))
"""Prefixes of IPv6 addresses whose last 32 bits are an IPv4 address: NAT64 (RFC 6052), the stateless translation of
RFC 2765, and the IPv4-compatible addresses of RFC 4291."""
_NOT_PUBLIC = tuple(
    map(ipaddress.ip_network, ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24", "fec0::/10", "64:ff9b:1::/48"))
)
"""Networks that the module ipaddress of some supported versions of Python takes for public: the agent of an Azure host,
which only its virtual machines reach; protocol assignments, such as the metadata service of an Oracle host; the relays of
6to4; the site-local addresses of RFC 3879; local translation (RFC 8215)."""


class PrivateAddress(OmeError, OSError):
    """Error: the IP address is private, so it must not be contacted."""


def is_public(text: str, refused: tuple[Network, ...] = ()) -> bool:
    """Return whether an IP address is public: not loopback, link-local, private, shared or reserved, and in none of the
    `refused` networks.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and any(address in network for network in _CONTAINS_IPV4):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner), refused) and not any(address in network for network in refused)
    return address.is_global and not address.is_multicast and not any(address in each for each in (*_NOT_PUBLIC, *refused))


class AddressFilter(AbstractResolver):
    """A resolver that rejects private addresses, except the addresses of permitted hosts.

    A name is resolved once per connection, and the connection uses the resolved address, so that a later change of the name
    has no effect.
    """

    def __init__(self, reach: HostRules) -> None:
        # A proxy is configured by the administrator; it makes the connections and decides about them. Another port of its
        # host is not the proxy.
        self._refused = reach.refused
        self._allowed = {*reach.hosts, *(_host_and_port(item) for item in getproxies().values() if "://" in item)}
        self._known: set[tuple[str, int]] = set()
        self._inner: AbstractResolver | None = None

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a name. Raises PrivateAddress if all are private and the host is not permitted."""
        self._inner = self._inner or DefaultResolver()
        results = await self._inner.resolve(host, port, family)
        if self._is_allowed(host, port):
            self._known |= {(str(item["host"]), int(item["port"])) for item in results}
            return results
        public_results = [item for item in results if is_public(str(item["host"]), self._refused)]
        if not public_results:
            raise PrivateAddress(
                f"{host} has the private address {results[0]['host']}" if results else f"{host} has no address"
            )
        return public_results

    def socket(self, info: Any) -> socket.socket:
        """Return a socket for a permitted address. This is the only check for URLs that contain an IP address."""
        family, kind, protocol, _, where = info
        text, port = str(where[0]), int(where[1])
        if not is_public(text, self._refused) and (text, port) not in self._known and not self._is_allowed(text, port):
            raise PrivateAddress(f"{text} is a private address")
        return socket.socket(family, kind, protocol)

    def _is_allowed(self, host: str, port: int) -> bool:
        return host_listed(self._allowed, host.lower().strip("[]"), port)

    async def close(self) -> None:
        """Close the resolver."""
        if self._inner is not None:
            await self._inner.close()


def _host_and_port(proxy: str) -> str:
    """Return `host:port` of the URL of a proxy."""
    parts = urlsplit(proxy)
    return f"{parts.hostname or ''}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def connector(reach: HostRules | None) -> TCPConnector:
    """Return a connector for large files. `reach` states which addresses may be contacted; None permits every address."""
    if reach is None:
        return TCPConnector(limit=0, keepalive_timeout=30)
    gate = AddressFilter(reach)
    return TCPConnector(limit=0, keepalive_timeout=30, resolver=gate, socket_factory=gate.socket)


def refusal_reason(error: BaseException | None) -> str:
    """Return the message about a rejected IP address if this address (PrivateAddress) caused the error `error` of aiohttp;
    otherwise "".
    """
    while error is not None:
        if isinstance(error, PrivateAddress):
            return str(error)
        error = getattr(error, "os_error", None) or error.__cause__ or error.__context__
    return ""
