"""The ports of an engine, held open by the check while the ranks of a group try to reach each other (docs/preflight.md)."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ome_operator.preflight.findings import UNKNOWN
from ome_operator.preflight.messages import MAX_PORT
from ome_operator.preflight.node import CommandLine, Json, finding

CHECK = b"ome-preflight\n"
"""Marker that the check sends on the engine's ports while it holds them open, so that a late rank does not mistake the check
for an engine."""
REACH = 3.0
"""Seconds within which a port must accept a connection."""
PREFILL_GROUPS = 16
"""Number of prefill groups that a decode rank probes."""


class Ports:
    """The ports that this rank listens on during the check: those of its engine, and a port that receives copies."""

    def __init__(self, bind: str, engine: list[int]) -> None:
        self.findings: list[Json] = []
        self.open: list[int] = []
        self.servers: list[socket.socket] = []
        for port in engine:
            try:
                self.servers.append(listen(bind, port))
                self.open.append(port)
                _serve_connections(self.servers[-1], _greet)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:  # the engine itself reports other errors, such as for a port below 1024
                    problem = f"port {port}, which the engine will use, is already in use on this node"
                    self.findings.append(
                        finding(
                            "ports",
                            problem,
                            ("stop the process that uses the port, or set another port in the engine's arguments"),
                        )
                    )
        self.copy_server = listen(bind, 0)
        _serve_connections(self.copy_server, _count)

    @property
    def all(self) -> list[int]:
        """Ports that other ranks should reach."""
        return [*self.open, self.copy_server.getsockname()[1]]


def _serve_connections(server: socket.socket, answer: Callable[[socket.socket], None]) -> None:
    """Accept connections, and handle each in its own thread."""

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _greet(connection: socket.socket) -> None:
    """Send the marker `CHECK`, which states that the check, and not an engine, listens on this port."""
    with connection, contextlib.suppress(OSError):  # a client that only tests the port has already closed the connection
        connection.settimeout(1)
        connection.sendall(CHECK)


def _count(connection: socket.socket) -> None:
    """Receive the data of a test copy, and reply with the number of received bytes."""
    received, buffer = 0, bytearray(1 << 20)
    with connection, contextlib.suppress(OSError):  # the sender reports the failed copy
        connection.settimeout(10)
        while read := connection.recv_into(buffer):
            received += read
        connection.sendall(b"%d\n" % received)


def listen(bind: str, port: int) -> socket.socket:
    """Return a socket that listens on a port, for IPv4 and IPv6 where both are available. Raises OSError."""
    if not bind and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # IPv6 may be disabled
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=256)
    return socket.create_server((bind, port), backlog=256)


def engine_ports(command_line: CommandLine, rank: int, http: int) -> list[int]:
    """Return the ports on which the engine of a rank will listen according to its arguments."""
    if rank:
        return []
    ports = {http} if http else set()
    decode = "decode" in command_line.values("--disaggregation-mode")
    for flag, text in command_line.flags():
        value = text.split()[0]
        if flag.endswith("-port") and not (decode and "bootstrap" in flag) and "metrics" not in flag:
            ports.add(port_number(value))
        if flag in ("--dist-init-addr", "--nccl-init-addr"):
            ports.add(port_number(value.rpartition(":")[2]))
    return sorted(port for port in ports if 0 < port <= MAX_PORT)


def port_number(text: str) -> int:
    """Return the number of a port; 0 if the text is not such a number."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 5 else 0
    return number if number <= MAX_PORT else 0


def failure_reason(error: OSError) -> str:
    """Return the reason of a failed connection as text."""
    if isinstance(error, socket.gaierror):
        return UNKNOWN
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, TimeoutError):
        return "no answer"
    return error.strerror or str(error)


def prefill(config: Json, ports: list[int]) -> Iterator[Json]:
    """Report existing prefill leaders that do not respond to a decode rank. A refused connection counts as a response,
    because the engine may not run yet.
    """
    name = str(config.get("prefill") or "")

    def probe(number: int) -> str | None:
        host = name.replace("%d", str(number))
        try:
            socket.getaddrinfo(host, None)
        except OSError:
            return None  # the group does not exist
        for port in ports:
            try:
                socket.create_connection((host, port), REACH).close()
            except ConnectionRefusedError:
                continue
            except OSError as error:
                return f"prefill group {number} is not reachable at port {port} of {host}: {failure_reason(error)}"
        return None

    if name and ports:
        with ThreadPoolExecutor(PREFILL_GROUPS) as pool:
            for problem in pool.map(probe, range(PREFILL_GROUPS)):
                if problem:
                    yield finding("prefill", problem, "open the port in network policies and firewalls")


def other_ports(command_line: CommandLine) -> list[int]:
    """Return the ports of prefill leaders that decode ranks use."""
    found = map(port_number, command_line.values("--disaggregation-bootstrap-port"))
    return [port for port in found if port] or [8998]
