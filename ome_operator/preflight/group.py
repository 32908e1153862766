"""The ranks of a group meet before their engines start: check which ranks are present, which reach each other, and how fast
(docs/preflight.md).

Ranks above 0 connect to rank 0, which sends the next step to all of them, collects the answers, and derives the findings.
Only rank 0 waits for others, so that all ranks end at the same time. A message is a JSON object on one line.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ome_operator.preflight import messages
from ome_operator.preflight.findings import NEVER_SLOW, UNKNOWN, clocks, failed_copies, links, slow_ranks, unreachable
from ome_operator.preflight.node import CommandLine, Json, finding
from ome_operator.preflight.ports import CHECK, REACH, Ports, engine_ports, failure_reason, listen

LINE = 65536
"""Maximum bytes of a line that ranks send each other."""
COPY_SECONDS = 0.7
"""Duration of each test copy between two ranks, in seconds."""
CHUNK = bytes(1 << 20)
STEPS_SECONDS = 25.0
"""Seconds before the end of the check at which rank 0 stops waiting for further ranks, so that the steps of the check have
time to run."""
ENGINE_SECONDS = 3.0
"""Seconds for which the port of rank 0 must be open without the marker of the check, before another rank concludes that
the engine of rank 0 runs already. A shorter time proves nothing, because another process may listen on the port for a
moment."""
MAX_FINDINGS = 60
"""Number of findings that are sent to every rank."""


class Line:
    """A connection on which both sides send JSON objects, one per line."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.rest = b""

    def send(self, data: Json) -> None:
        """Send an object. Raises OSError."""
        self.socket.sendall(json.dumps(data).encode() + b"\n")

    def read(self, deadline: float) -> Json:
        """Return the next object. Raises OSError if the connection fails, and ValueError for an invalid line."""
        while b"\n" not in self.rest:
            self.socket.settimeout(max(0.05, deadline - time.monotonic()))
            more = self.socket.recv(LINE)
            if not more or len(self.rest) > LINE:
                raise OSError("the connection ended")
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        try:
            data = json.loads(line)
        except RecursionError as error:
            raise ValueError("too deep") from error
        if not isinstance(data, dict):
            raise ValueError("not an object")
        return data


class Meeting:
    """The steps that a rank and rank 0 perform together."""

    def __init__(self, config: Json, words: CommandLine, ports: Ports, facts: Json, deadline: float) -> None:
        self.config, self.words, self.ports, self.facts, self.deadline = config, words, ports, facts, deadline
        self.rank, self.size = int(config["rank"]), int(config["size"])
        self.port = int(config.get("port") or 29002)
        self.steps: dict[str, Callable[[Json], Json]] = {"reach": self.reach, "copy": self.copy}
        self.gone: dict[int, str] = {}
        """Ranks that left before the end, with the reason."""

    def host(self, rank: int) -> str:
        """Return the host name of a rank."""
        return str(self.config["worker"]).replace("%d", str(rank)) if rank else str(self.config["leader"])

    def reach(self, request: Json) -> Json:
        """Connect to every port of every other rank."""
        targets = [(int(rank), port) for rank, ports in request["ports"].items() for port in ports if int(rank) != self.rank]
        with ThreadPoolExecutor(32) as pool:
            failed = [failure for failure in pool.map(self._reach, targets) if failure is not None]
        return {"failed": failed}

    def _reach(self, target: tuple[int, int]) -> tuple[int, int, str] | None:
        rank, port = target
        until = time.monotonic() + REACH
        while True:
            try:
                socket.create_connection((self.host(rank), port), REACH).close()
                return None
            except OSError as error:
                if time.monotonic() < until and not isinstance(error, TimeoutError):
                    time.sleep(0.3)  # DNS resolves a name shortly after its pod exists
                    continue
                return rank, port, failure_reason(error)

    def copy(self, request: Json) -> Json:
        """Send test data to another rank for `COPY_SECONDS`. The answer contains the rate, in bytes per second that
        arrived; None if the transfer failed.
        """
        target = (self.rank + int(request["shift"])) % self.size
        port = next((ports[-1] for rank, ports in request["ports"].items() if int(rank) == target), None)
        if port is None or target == self.rank:
            return {"to": target, "rate": None}
        try:
            with socket.create_connection((self.host(target), int(port)), REACH) as line:
                line.settimeout(5)
                started = time.monotonic()
                while time.monotonic() < started + COPY_SECONDS:
                    line.sendall(CHUNK)
                line.shutdown(socket.SHUT_WR)
                received = int(line.recv(64) or b"0")
                return {"to": target, "rate": received / (time.monotonic() - started)}
        except (OSError, ValueError) as error:
            return {"to": target, "rate": None, "why": failure_reason(error) if isinstance(error, OSError) else "no answer"}

    def hello(self) -> Json:
        """Return the first message of a rank to rank 0."""
        left = self.deadline - time.monotonic()
        return {"rank": self.rank, "ports": self.ports.all, "clock": time.time(), "left": left, **self.facts}

    # --- ranks above 0 ----------------------------------------------------------------------------------------------------

    def follow(self, until: float, findings: Callable[[], list[Json]]) -> list[Json]:
        """Perform the steps that rank 0 requests, and return the findings about the group; `findings` returns this rank's
        own findings.
        """
        line, problem = self._join(until)
        if line is None:
            return [problem] if problem else []
        request: Json = {}
        try:
            with line.socket:
                line.send(self.hello())
                while True:
                    request = messages.parse_order(line.read(self.deadline))
                    if request.get("do") == "end":
                        return list(request["findings"])
                    if request.get("do") == "tell":
                        line.send({"findings": findings()})
                    else:
                        step = self.steps.get(request["do"])
                        line.send(step(request) if step is not None else {})  # this rank may not have torch
        except (OSError, ValueError, KeyError, TypeError) as error:
            if not request:
                return [finding("absent", "it arrived after rank 0 had stopped waiting", "check why its pod started late")]
            return [finding("meeting", f"rank 0 ended before the check was complete: {error}", "see the log of rank 0", 0)]

    def _join(self, until: float) -> tuple[Line | None, Json | None]:
        """Return a connection to rank 0, or a finding. Both are None if the engine of rank 0 already runs, which means that
        the group has started.
        """
        host, last, since = self.host(0), "", time.monotonic()
        while time.monotonic() < until:
            try:
                return Line(socket.create_connection((host, self.port), REACH)), None
            except OSError as error:
                last = failure_reason(error)
            if not self._started(host):
                since = time.monotonic()
            elif time.monotonic() - since > ENGINE_SECONDS:
                return None, None
            time.sleep(0.3)
        if last == UNKNOWN:
            return None, finding(
                "absent", f"rank 0 cannot be reached: {host} does not resolve", "check the pod of rank 0", 0
            )
        return None, finding("absent", f"rank 0 cannot be reached: port {self.port} of {host}: {last}",
                             "check the pod of rank 0, and the network policies and firewalls of its node", 0)  # fmt: skip

    def _started(self, host: str) -> bool:
        """Return whether the engine of rank 0 already runs. This is the case if only this rank was restarted."""
        for port in engine_ports(self.words, 0, int(self.config.get("http") or 0)):
            with contextlib.suppress(OSError), socket.create_connection((host, port), 1) as line:
                line.settimeout(1)
                try:
                    return line.recv(len(CHECK)) not in (CHECK, b"")
                except TimeoutError:
                    return True  # the server waits for a request
        return False

    # --- rank 0 -----------------------------------------------------------------------------------------------------------

    def lead(self, until: float, findings: Callable[[], list[Json]]) -> list[Json]:
        """Wait for the ranks, send them the steps, and return the findings about the group."""
        try:
            server = listen(str(self.config.get("bind") or ""), self.port)
        except OSError as error:
            problem = f"port {self.port}, to which the other ranks connect, cannot be opened: {error.strerror}"
            return [finding("ports", problem, "stop the process on this node that uses the port")]
        hellos: dict[int, Json] = {0: {**self.hello(), "skew": 0.0}}
        lines: dict[int, Line] = {}
        threading.Thread(target=self._accept, args=(server, hellos, lines, until), daemon=True).start()
        started = time.monotonic()
        while len(hellos) < self.size and time.monotonic() < min(until, self.deadline - STEPS_SECONDS):
            time.sleep(0.05)
        server.close()
        hellos, lines = dict(hellos), dict(lines)  # ranks that connect from now on are ignored
        present = sorted(hellos)
        waited = time.monotonic() - started
        all_findings = [self._absent(rank, waited) for rank in range(self.size) if rank not in present]
        ports = {str(rank): hellos[rank]["ports"] for rank in present}
        reached = self._round(lines, {"do": "reach", "ports": ports})
        rates, stuck = self._copies(lines, ports)
        all_findings += [
            *clocks(hellos),
            *links(hellos),
            *unreachable(reached, self.host),
            *slow_ranks(rates),
            *failed_copies(stuck, reached),
        ]
        if "torch" in self.steps:
            all_findings += self._collective(lines, hellos)
        own_findings = self._round(lines, {"do": "tell"}, {"findings": findings()})
        for rank, answer in own_findings.items():
            all_findings += [{**item, "rank": rank} for item in answer.get("findings") or ()]
        all_findings += [
            finding("meeting", f"it ended before the check was complete: {how}", "see the log of its check", rank)
            for rank, how in sorted(self.gone.items())
        ]
        for line in lines.values():
            with contextlib.suppress(OSError):
                line.send({"do": "end", "findings": all_findings[:MAX_FINDINGS]})
        return all_findings

    def _copies(
        self, lines: dict[int, Line], ports: dict[str, Any]
    ) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], str]]:
        """Let every rank send test data to another rank over TCP, in two rounds. Return the best rate (bytes per second) and
        the error of each pair of sender and receiver. A pair without a rate or without an error is left out.
        """
        rates: dict[tuple[int, int], float] = {}
        stuck: dict[tuple[int, int], str] = {}
        for shift in (1, 1) if self.size == 2 else (1, 2):
            for rank, answer in self._round(lines, {"do": "copy", "shift": shift, "ports": ports}).items():
                if answer.get("why"):
                    stuck[rank, int(answer["to"])] = str(answer["why"])
                if isinstance(answer.get("rate"), (int, float)):
                    pair = rank, int(answer["to"])
                    rates[pair] = max(rates.get(pair, 0.0), float(answer["rate"]))
        return rates, stuck

    def _collective(self, lines: dict[int, Line], hellos: dict[int, Json]) -> list[Json]:
        """Return the findings of a collective with torch between all ranks, if every rank has loaded torch."""
        loaded = self._round(lines, {"do": "loaded"})
        seconds = self.deadline - time.monotonic() - 3
        if len(loaded) < self.size or not all(answer.get("ready") for answer in loaded.values()) or seconds < 5:
            return []
        answers = self._round(lines, {"do": "torch", "host": self.host(0), "seconds": seconds})
        rates = {
            (rank, int(taker)): float(rate)
            for rank, answer in answers.items()
            for taker, rate in (answer.get("rates") or {}).items()
        }
        failed = {rank: str(answer["error"]) for rank, answer in answers.items() if answer.get("error")}
        problems = [
            finding("collective", f"all-reduce of torch.distributed failed: {text}", "see the log of its container", rank)
            for rank, text in failed.items()
        ]
        return problems or list(slow_ranks(rates, "torch.distributed", 20 * NEVER_SLOW))

    def _accept(self, server: socket.socket, hellos: dict[int, Json], lines: dict[int, Line], until: float) -> None:
        while time.monotonic() < until:
            try:
                server.settimeout(max(0.05, until - time.monotonic()))
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(connection, hellos, lines), daemon=True).start()

    def _greet(self, connection: socket.socket, hellos: dict[int, Json], lines: dict[int, Line]) -> None:
        line = Line(connection)
        try:
            hello = messages.parse_hello(line.read(time.monotonic() + 5), time.time())
        except (OSError, ValueError):
            connection.close()  # not a rank of this group
            return
        if 0 < (rank := hello["rank"]) < self.size:
            # All ranks end when the first of them has no time left.
            self.deadline = min(self.deadline, time.monotonic() + max(hello["left"], STEPS_SECONDS))
            lines[rank] = line
            hellos[rank] = hello

    def _round(self, lines: dict[int, Line], request: Json, own_answer: Json | None = None) -> dict[int, Json]:
        """Return every rank's answer; a rank that does not answer has an empty answer."""

        def request_answer(item: tuple[int, Line]) -> tuple[int, Json]:
            try:
                item[1].send(request)
                return item[0], messages.parse_answer(item[1].read(self.deadline - 1))
            except (OSError, ValueError) as error:
                self.gone.setdefault(item[0], str(error))
                return item[0], {}

        with ThreadPoolExecutor(max(1, len(lines))) as pool:
            futures = [pool.submit(request_answer, item) for item in sorted(lines.items())]
            own_result = own_answer if own_answer is not None else self.steps[str(request["do"])](request)
            return {0: own_result, **dict(future.result() for future in futures)}

    def _absent(self, rank: int, waited: float) -> Json:
        try:
            socket.getaddrinfo(self.host(rank), None)
            where = "its name resolves, so its pod is scheduled"
        except OSError:
            where = UNKNOWN
        return finding("absent", f"rank {rank} did not connect within {waited:.0f} s; {where}",
                       (
                           "check whether its pod is scheduled, its image is pulled and its preflight check runs"
                       ), rank)  # fmt: skip
