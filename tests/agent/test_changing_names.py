"""Tests of host names whose address changes between the check and the connection (DNS rebinding)."""

import asyncio
import itertools
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver

from ome_operator.storage import private_addresses
from ome_operator.storage.addresses import HostRules
from ome_operator.storage.http import read_small, session
from ome_operator.storage.listing import SourceError

PUBLIC, PRIVATE = "127.0.0.2", "127.0.0.1"
"""Two addresses of this machine. The test treats the first one as public."""


class Changing(AbstractResolver):
    """The resolver of an attacker. It resolves every name to the addresses in `answers`, one entry after the other."""

    answers: Iterator[tuple[str, ...]]

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[Any]:
        flags = {"hostname": host, "port": port, "family": socket.AF_INET, "proto": 0, "flags": socket.AI_NUMERICHOST}
        return [{**flags, "host": address} for address in next(self.answers)]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "answers",
    [
        [(PUBLIC,), (PRIVATE,)],
        [(PRIVATE,), (PUBLIC,)],
        [(PUBLIC, PRIVATE)],
        [(PRIVATE, PUBLIC), (PRIVATE,)],
        [(PUBLIC,), (PUBLIC, PRIVATE), (PRIVATE,)],
    ],
)
@pytest.mark.parametrize("redirects", [0, 3])
def test_dns_rebinding_reaches_no_private_address(
    monkeypatch: pytest.MonkeyPatch, answers: list[tuple[str, ...]], redirects: int
) -> None:
    """A name resolves to a public and to a private address in turn, and servers listen on both. However often it is
    resolved, for new connections and for redirects, no request reaches the private address.
    """
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("sockname")[0])
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            step, port = int(head.split(b" ")[1].strip(b"/") or b"0"), writer.get_extra_info("sockname")[1]
            if step < redirects:
                away = f"Location: http://evil{step}.example:{port}/{step + 1}\r\n"
                writer.write(f"HTTP/1.1 302 Found\r\n{away}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            await writer.drain()
        writer.close()

    async def attack() -> None:
        first = await asyncio.start_server(serve, PUBLIC, 0)
        port = first.sockets[0].getsockname()[1]
        async with first, await asyncio.start_server(serve, PRIVATE, port), session(HostRules()) as asks:
            for _ in range(2 * len(answers)):
                with suppress(SourceError, aiohttp.ClientError):
                    await read_small(asks, f"http://evil.example:{port}/0", 100)
                asks.connector._cached_hosts.clear()  # type: ignore[union-attr]  # as after the 10 s that answers are kept

    real = private_addresses.is_public
    monkeypatch.setattr(private_addresses, "is_public", lambda text, refused=(): text == PUBLIC or real(text, refused))
    monkeypatch.setattr(private_addresses, "DefaultResolver", Changing)
    Changing.answers = itertools.cycle(answers)
    asyncio.run(attack())
    assert set(seen) == {PUBLIC}, "the connection uses the address that was checked"
