"""The ranks of a group meet before their engines do: who comes, who reaches whom, how fast (docs/preflight.md).

Ranks above 0 connect to rank 0, which tells all of them what to do next, collects the answers, and says what they mean. Only
rank 0 waits for others, so that all end at the same time. A line is a JSON object.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ome_operator.preflight import said as told
from ome_operator.preflight.node import Json, Words, finding
from ome_operator.preflight.ports import CHECK, REACH, Ports, engine_ports, listen, why
from ome_operator.preflight.verdict import FAST, UNKNOWN, clocks, links, lost, slow, unreached

LINE = 65536
"""Bytes of a line that ranks send each other, at most."""
COPY = 0.7
"""Seconds that a copy lasts."""
CHUNK = bytes(1 << 20)
TALK = 25.0
"""Seconds that are left for the steps when rank 0 stops waiting for others."""
SURE = 3.0
"""Seconds for which an engine of rank 0 has to be seen, and no check: a stranger may listen there."""
MANY = 60
"""Findings that are told to every rank."""


class Line:
    """A connection on which both sides send JSON objects, a line each."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.rest = b""

    def send(self, data: Json) -> None:
        """Raises OSError."""
        self.socket.sendall(json.dumps(data).encode() + b"\n")

    def read(self, deadline: float) -> Json:
        """The next object. Raises OSError and ValueError."""
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
    """What a rank and rank 0 do together."""

    def __init__(self, config: Json, words: Words, ports: Ports, facts: Json, deadline: float) -> None:
        self.config, self.words, self.ports, self.facts, self.deadline = config, words, ports, facts, deadline
        self.rank, self.size = int(config["rank"]), int(config["size"])
        self.port = int(config.get("port") or 29002)
        self.steps: dict[str, Callable[[Json], Json]] = {"reach": self.reach, "copy": self.copy}
        self.gone: dict[int, str] = {}
        """Ranks that left before the end, and how."""

    def host(self, rank: int) -> str:
        """The name of a rank."""
        return str(self.config["worker"]).replace("%d", str(rank)) if rank else str(self.config["leader"])

    def reach(self, asked: Json) -> Json:
        """Connect to every port of every other rank."""
        targets = [(int(rank), port) for rank, ports in asked["ports"].items() for port in ports if int(rank) != self.rank]
        with ThreadPoolExecutor(32) as pool:
            failed = [found for found in pool.map(self._reach, targets) if found is not None]
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
                    time.sleep(0.3)  # a name is known a moment after its pod
                    continue
                return rank, port, why(error)

    def copy(self, asked: Json) -> Json:
        """Send to a rank for some time; the bytes a second that it has taken, None where it failed."""
        target = (self.rank + int(asked["shift"])) % self.size
        port = next((ports[-1] for rank, ports in asked["ports"].items() if int(rank) == target), None)
        if port is None or target == self.rank:
            return {"to": target, "rate": None}
        try:
            with socket.create_connection((self.host(target), int(port)), REACH) as line:
                line.settimeout(5)
                begun = time.monotonic()
                while time.monotonic() < begun + COPY:
                    line.sendall(CHUNK)
                line.shutdown(socket.SHUT_WR)
                taken = int(line.recv(64) or b"0")
                return {"to": target, "rate": taken / (time.monotonic() - begun)}
        except (OSError, ValueError) as error:
            return {"to": target, "rate": None, "why": why(error) if isinstance(error, OSError) else "no answer"}

    def hello(self) -> Json:
        """What rank 0 has to know of a rank."""
        left = self.deadline - time.monotonic()
        return {"rank": self.rank, "ports": self.ports.all, "clock": time.time(), "left": left, **self.facts}

    # --- ranks above 0 ----------------------------------------------------------------------------------------------------

    def follow(self, until: float, findings: Callable[[], list[Json]]) -> list[Json]:
        """What was found about the group; `findings` of this rank are told to rank 0."""
        line, said = self._join(until)
        if line is None:
            return [said] if said else []
        asked: Json = {}
        try:
            with line.socket:
                line.send(self.hello())
                while True:
                    asked = told.order(line.read(self.deadline))
                    if asked.get("do") == "end":
                        return list(asked["findings"])
                    if asked.get("do") == "tell":
                        line.send({"findings": findings()})
                    else:
                        step = self.steps.get(asked["do"])
                        line.send(step(asked) if step is not None else {})  # a rank may have no torch
        except (OSError, ValueError, KeyError, TypeError) as error:
            if not asked:
                return [finding("absent", "it came when rank 0 did not wait any more", "see why it came late")]
            return [finding("meeting", f"rank 0 left the check before its end: {error}", "see the log of rank 0", 0)]

    def _join(self, until: float) -> tuple[Line | None, Json | None]:
        """A connection to rank 0, or why there is none; neither where its engine runs already, for the group has started."""
        host, last, since = self.host(0), "", time.monotonic()
        while time.monotonic() < until:
            try:
                return Line(socket.create_connection((host, self.port), REACH)), None
            except OSError as error:
                last = why(error)
            if not self._started(host):
                since = time.monotonic()
            elif time.monotonic() - since > SURE:
                return None, None
            time.sleep(0.3)
        if last == UNKNOWN:
            return None, finding("absent", f"rank 0 did not come: {host} does not resolve", "look at the pod of rank 0", 0)
        return None, finding("absent", f"rank 0 did not come: port {self.port} of {host}: {last}",
                             "look at the pod of rank 0, at network policies and firewalls of its node", 0)  # fmt: skip

    def _started(self, host: str) -> bool:
        """Whether rank 0's engine runs: this rank alone was started again."""
        for port in engine_ports(self.words, 0, int(self.config.get("http") or 0)):
            with contextlib.suppress(OSError), socket.create_connection((host, port), 1) as line:
                line.settimeout(1)
                try:
                    return line.recv(len(CHECK)) not in (CHECK, b"")
                except TimeoutError:
                    return True  # a server that waits for a request
        return False

    # --- rank 0 -----------------------------------------------------------------------------------------------------------

    def lead(self, until: float, findings: Callable[[], list[Json]]) -> list[Json]:
        """Wait for the ranks, tell them what to do, and say what was found about the group."""
        try:
            server = listen(str(self.config.get("bind") or ""), self.port)
        except OSError as error:
            return [finding("ports", f"port {self.port}, where ranks meet, cannot be opened: {error.strerror}", "free it")]
        hellos: dict[int, Json] = {0: {**self.hello(), "skew": 0.0}}
        lines: dict[int, Line] = {}
        threading.Thread(target=self._accept, args=(server, hellos, lines, until), daemon=True).start()
        begun = time.monotonic()
        while len(hellos) < self.size and time.monotonic() < min(until, self.deadline - TALK):
            time.sleep(0.05)
        server.close()
        hellos, lines = dict(hellos), dict(lines)  # who comes now is not waited for
        present = sorted(hellos)
        found = [self._absent(rank, time.monotonic() - begun) for rank in range(self.size) if rank not in present]
        ports = {str(rank): hellos[rank]["ports"] for rank in present}
        reached = self._round(lines, {"do": "reach", "ports": ports})
        rates: dict[tuple[int, int], float] = {}
        stuck: dict[tuple[int, int], str] = {}
        for shift in (1, 1) if self.size == 2 else (1, 2):
            for rank, answer in self._round(lines, {"do": "copy", "shift": shift, "ports": ports}).items():
                if answer.get("why"):
                    stuck[rank, int(answer["to"])] = str(answer["why"])
                if isinstance(answer.get("rate"), (int, float)):
                    pair = rank, int(answer["to"])
                    rates[pair] = max(rates.get(pair, 0.0), float(answer["rate"]))
        found += [*clocks(hellos), *links(hellos), *unreached(reached, self.host), *slow(rates), *lost(stuck, reached)]
        if "torch" in self.steps:
            found += self._collective(lines, hellos)
        told = self._round(lines, {"do": "tell"}, {"findings": findings()})
        for rank, answer in told.items():
            found += [{**each, "rank": rank} for each in answer.get("findings") or ()]
        found += [finding("meeting", f"it left the check before its end: {how}", "see the log of its check", rank)
                  for rank, how in sorted(self.gone.items())]  # fmt: skip
        for line in lines.values():
            with contextlib.suppress(OSError):
                line.send({"do": "end", "findings": found[:MANY]})
        return found

    def _collective(self, lines: dict[int, Line], hellos: dict[int, Json]) -> list[Json]:
        """What torch measures between all ranks, where each has it and has loaded it."""
        loaded = self._round(lines, {"do": "loaded"})
        left = self.deadline - time.monotonic() - 3
        if len(loaded) < self.size or not all(answer.get("ready") for answer in loaded.values()) or left < 5:
            return []
        answers = self._round(lines, {"do": "torch", "host": self.host(0), "seconds": left})
        rates = {
            (rank, int(taker)): float(rate)
            for rank, answer in answers.items()
            for taker, rate in (answer.get("rates") or {}).items()
        }
        failed = {rank: str(answer["error"]) for rank, answer in answers.items() if answer.get("error")}
        said = [
            finding("collective", f"all-reduce of torch.distributed failed: {text}", "see the log of its container", rank)
            for rank, text in failed.items()
        ]
        return said or list(slow(rates, "torch.distributed", 20 * FAST))

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
            said = told.hello(line.read(time.monotonic() + 5), time.time())
        except (OSError, ValueError):
            connection.close()  # nobody of ours
            return
        if 0 < (rank := said["rank"]) < self.size:
            # All end when the first of them has no time left.
            self.deadline = min(self.deadline, time.monotonic() + max(said["left"], TALK))
            lines[rank] = line
            hellos[rank] = said

    def _round(self, lines: dict[int, Line], asked: Json, own: Json | None = None) -> dict[int, Json]:
        """Every rank's answer; who does not answer is missing."""

        def ask(item: tuple[int, Line]) -> tuple[int, Json]:
            try:
                item[1].send(asked)
                return item[0], told.answer(item[1].read(self.deadline - 1))
            except (OSError, ValueError) as error:
                self.gone.setdefault(item[0], str(error))
                return item[0], {}

        with ThreadPoolExecutor(max(1, len(lines))) as pool:
            waits = [pool.submit(ask, item) for item in sorted(lines.items())]
            mine = own if own is not None else self.steps[str(asked["do"])](asked)
            return {0: mine, **dict(each.result() for each in waits)}

    def _absent(self, rank: int, waited: float) -> Json:
        try:
            socket.getaddrinfo(self.host(rank), None)
            where = "its name resolves, so its pod has a node"
        except OSError:
            where = UNKNOWN
        return finding("absent", f"rank {rank} did not come within {waited:.0f} s; {where}",
                       "look at its pod: is it placed, is its image pulled, does its check run", rank)  # fmt: skip
