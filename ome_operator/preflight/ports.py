"""Ports of engines: held open while the ranks of a group try to reach each other (docs/preflight.md)."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ome_operator.preflight.node import Json, Words, finding
from ome_operator.preflight.verdict import UNKNOWN

CHECK = b"ome-preflight\n"
"""What a port of an engine says while a check holds it open: so a rank that comes late takes no check for an engine."""
REACH = 3.0
"""Seconds in which a port has to answer."""
PREFILL_GROUPS = 16
"""Numbers of prefill groups that a decode rank asks for."""


class Ports:
    """What this rank listens on meanwhile: the ports of its engine, and a port that takes a copy."""

    def __init__(self, bind: str, engine: list[int]) -> None:
        self.findings: list[Json] = []
        self.open: list[int] = []
        self.servers: list[socket.socket] = []
        for port in engine:
            try:
                self.servers.append(listen(bind, port))
                self.open.append(port)
                _serve(self.servers[-1], _greet)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:  # of all else, such as a port below 1024, the engine itself tells
                    said = f"port {port}, which the engine will use, is taken on this node"
                    self.findings.append(finding("ports", said, "free it, or name another port in the engine's arguments"))
        self.copy = listen(bind, 0)
        _serve(self.copy, _count)

    @property
    def all(self) -> list[int]:
        """Ports that other ranks should reach."""
        return [*self.open, self.copy.getsockname()[1]]


def _serve(server: socket.socket, answer: Callable[[socket.socket], None]) -> None:
    """Answer all who come, each in a thread of its own."""

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _greet(connection: socket.socket) -> None:
    """Say that no engine listens here."""
    with connection, contextlib.suppress(OSError):  # who only looks whether the port is open has left
        connection.settimeout(1)
        connection.sendall(CHECK)


def _count(connection: socket.socket) -> None:
    """Take what is sent, and answer how much it was."""
    taken, buffer = 0, bytearray(1 << 20)
    with connection, contextlib.suppress(OSError):  # the sender says that its copy failed
        connection.settimeout(10)
        while read := connection.recv_into(buffer):
            taken += read
        connection.sendall(b"%d\n" % taken)


def listen(bind: str, port: int) -> socket.socket:
    """A server on both families where there are two. Raises OSError."""
    if not bind and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # IPv6 may be switched off
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=256)
    return socket.create_server((bind, port), backlog=256)


def engine_ports(words: Words, rank: int, http: int) -> list[int]:
    """Ports on which the engine of a rank will listen, as its arguments say."""
    if rank:
        return []
    found = {http} if http else set()
    decode = "decode" in words.values("--disaggregation-mode")
    for flag, said in words.flags():
        value = said.split()[0]
        if flag.endswith("-port") and not (decode and "bootstrap" in flag) and "metrics" not in flag and value.isdigit():
            found.add(int(value))
        if flag in ("--dist-init-addr", "--nccl-init-addr") and value.rpartition(":")[2].isdigit():
            found.add(int(value.rpartition(":")[2]))
    return sorted(port for port in found if 0 < port < 65536)


def why(error: OSError) -> str:
    """What a failed connection tells."""
    if isinstance(error, socket.gaierror):
        return UNKNOWN
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, TimeoutError):
        return "no answer"
    return error.strerror or str(error)


def prefill(config: Json, ports: list[int]) -> Iterator[Json]:
    """Prefill leaders that exist and do not answer a decode rank. A refusal is an answer: their engine may not run yet."""
    name = str(config.get("prefill") or "")

    def look(number: int) -> str | None:
        host = name.replace("%d", str(number))
        try:
            socket.getaddrinfo(host, None)
        except OSError:
            return None  # there is no such group
        for port in ports:
            try:
                socket.create_connection((host, port), REACH).close()
            except ConnectionRefusedError:
                continue
            except OSError as error:
                return f"prefill group {number} is not reached at port {port} of {host}: {why(error)}"
        return None

    if name and ports:
        with ThreadPoolExecutor(PREFILL_GROUPS) as pool:
            for said in pool.map(look, range(PREFILL_GROUPS)):
                if said:
                    yield finding("prefill", said, "open the port in network policies and firewalls")


def other_ports(words: Words) -> list[int]:
    """Ports of prefill leaders that decode ranks use."""
    return [int(value) for value in words.values("--disaggregation-bootstrap-port") if value.isdigit()] or [8998]
