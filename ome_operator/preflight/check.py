"""The program of the init container that checks a rank before its engine starts. It reports its findings and ends in time
(docs/preflight.md).

The arguments of the program are those of the engine. The variable OME_PREFLIGHT contains all other settings as JSON:
`rank` and `size` (number of ranks of the group), `leader` and `worker` (host names of the ranks, in which %d is the rank),
`prefill` (host names of the prefill leaders, in which %d is the group), `http` (port of the engine), `gpus`, `hugepages`,
`seconds` (time limit), and `fetched` (folders whose contents are unknown, because the init containers that fill them did
not run). For tests there are `root` (parent of /sys, /proc and /dev), `bind`, `port`, `message` and `shm`.

The exit code is 1 if there are findings and OME_PREFLIGHT_MODE is Require, otherwise 0.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path
from typing import Any

from ome_operator.preflight import group, ports
from ome_operator.preflight.node import CommandLine, Json, Pod, finding

LIMIT = 4000
"""Maximum bytes of the message; the kubelet keeps 4,096."""
SECONDS = 60.0
MARK = "OME "
"""Prefix of the messages in the output of the torch process."""
LOADING = 12.0
"""Seconds for loading torch after all other checks are done; if it takes longer, the collective is not measured."""


class Torch:
    """A child process that uses torch. If NCCL hangs, only this process has to be killed."""

    def __init__(self, config: Json) -> None:
        self.config, self.condition = config, threading.Condition()
        self.messages: list[Json] = []
        env = {**os.environ, "OME_PREFLIGHT_TORCH": "1"}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(
            [sys.executable, "-c", os.environ["OME_PREFLIGHT_BOOT"]], text=True, env=env, errors="replace", **pipes
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        last = ""
        for line in self.process.stdout:
            print(line, end="", flush=True)
            if (message := _parse_line(line)) is not None:
                self._add_message(message)
            else:
                last = line.strip() or last
        self._add_message({"error": f"its process ended with code {self.process.wait()}: {last[:160]}"})

    def _add_message(self, message: Json) -> None:
        with self.condition:
            self.messages.append(message)
            self.condition.notify_all()

    def loaded(self, request: Json) -> Json:
        """Return whether the process has loaded torch."""
        return {"ready": bool(self._message(1, LOADING).get("ready"))}

    def _message(self, number: int, seconds: float) -> Json:
        """Return the message of the torch process with this number, or {} if it is not received in time."""
        with self.condition:
            self.condition.wait_for(lambda: len(self.messages) >= number, seconds)
            return dict(self.messages[number - 1]) if len(self.messages) >= number else {}

    def run(self, request: Json) -> Json:
        """Run the collective with the other ranks, and return its result."""
        parameters = {
            "rank": self.config["rank"],
            "size": self.config["size"],
            "port": int(self.config.get("port") or 29002) + 1,
        }
        try:
            assert self.process.stdin is not None
            print(json.dumps({**request, **parameters}), file=self.process.stdin, flush=True)
        except OSError as error:
            return {"error": str(error)}
        return self._message(2, float(request["seconds"])) or {
            "error": f"it did not end within {float(request['seconds']):.0f} s"
        }

    def end(self) -> None:
        """Kill the torch process."""
        self.process.kill()


def collective() -> None:
    """Main function of the torch process."""
    try:
        _collective()
    except Exception as error:
        _send({"error": shortened(f"{type(error).__name__}: {error}")})


def shortened(error: str) -> str:
    """Return an error as one line of at most 200 characters. Its beginning and its end are kept: NCCL and torch write the
    cause last (NCCL 2.28.9: "… Last error: Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60").
    """
    line = " ".join(error.split())
    return line if len(line) <= 200 else f"{line[:77]} … {line[-120:]}"


def _collective() -> None:
    """Run an all-reduce, and copies between ranks, with NCCL if there are GPUs, else with gloo."""
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    _send({"ready": True})
    request = json.loads(sys.stdin.readline())
    rank, size = int(request["rank"]), int(request["size"])
    cuda = bool(torch.cuda.is_available()) and bool(dist.is_nccl_available())
    address = f"tcp://{request['host']}:{request['port']}"
    timeout = timedelta(seconds=float(request["seconds"]))
    dist.init_process_group("nccl" if cuda else "gloo", init_method=address, rank=rank, world_size=size, timeout=timeout)
    data = torch.ones((64 if cuda else 1) << 20, device="cuda:0" if cuda else "cpu")
    for _ in range(2):
        data.fill_(1.0)
        dist.all_reduce(data)
    if int(data[0].item()) != size:
        _send({"error": f"the sum over {size} ranks was {data[0].item()}"})
        return
    rates: dict[int, float] = {}
    answer = torch.ones(1, device=data.device)
    # Each rank sends to both neighbours. With a single neighbour, the receiver of a slow sender would look slow, too.
    for shift in sorted({1, size - 1}) if size > 1 else ():
        for sender in range(size):
            receiver = (sender + shift) % size
            for _ in range(2):  # the first copy opens the connection
                started = time.monotonic()
                if rank == sender:
                    dist.send(data, receiver)
                    dist.recv(answer, receiver)
                    answer.item()
                    rates[receiver] = 4 * data.numel() / (time.monotonic() - started)
                elif rank == receiver:
                    dist.recv(data, sender)
                    dist.send(answer, sender)
    _send({"rates": rates})


def _send(message: Json) -> None:
    # Begin a new line, because a library may have written an incomplete line to the same pipe.
    print(f"\n{MARK}{json.dumps(message)}", flush=True)


def _parse_line(line: str) -> Json | None:
    """Return the message in a line of the torch process's output, or None for any other line."""
    try:
        message = json.loads(line[len(MARK) :]) if line.startswith(MARK) else None
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _listed(check: Callable[[], Iterator[Json]]) -> list[Json]:
    return list(check())


class Run:
    """A rank's check, from its start to its message."""

    def __init__(self, config: Json, words: list[str]) -> None:
        self.config, self.words, self.begun = config, CommandLine(words), time.monotonic()
        self.rank, self.size, self.gpus = int(config["rank"]), int(config["size"]), int(config.get("gpus") or 0)
        self.deadline = self.begun + float(config.get("seconds") or SECONDS) - 2
        self.lock = threading.Lock()
        threading.Thread(target=self._give_up, daemon=True).start()

    def run(self) -> list[Json]:
        """Run all checks, and return their findings."""
        torch = Torch(self.config) if (self.size > 1 or self.gpus) and importlib.util.find_spec("torch") else None
        open_ports = ports.Ports(str(self.config.get("bind") or ""), self._listens())
        pod = Pod(self.config, self.words)
        pool = ThreadPoolExecutor(8)
        running = {"devices": pool.submit(_listed, pod.devices)}
        wait(running.values(), 5)  # the other checks use the links that the check `devices` finds
        for check in pod.checks():
            running[check.__name__] = pool.submit(_listed, check)
        running["prefill"] = pool.submit(_listed, lambda: ports.prefill(self.config, ports.other_ports(self.words)))

        def local() -> list[Json]:
            out = list(open_ports.findings)
            for name, item in running.items():
                try:
                    out += item.result(max(0.1, self.deadline - time.monotonic() - 5))
                except Exception as error:
                    why = str(error) or "it did not end in time; check whether a file system of the node hangs"
                    out.append(
                        finding(name, f"the check itself failed: {type(error).__name__}: {why}", "see the log of the check")
                    )
            return out

        findings = self._group(pod, open_ports, torch, local) if self.size > 1 else [*local(), *self._alone(torch)]
        if torch is not None:
            torch.end()
        return [{**item, "rank": self.rank if item["rank"] < 0 else item["rank"]} for item in findings]

    def _listens(self) -> list[int]:
        return ports.engine_ports(self.words, self.rank, int(self.config.get("http") or 0))

    def _group(self, pod: Pod, open_ports: ports.Ports, torch: Torch | None, local: Callable[[], list[Json]]) -> list[Json]:
        facts = {"link": min(pod.links.values(), default=0.0)}
        meeting = group.Meeting(self.config, self.words, open_ports, facts, self.deadline)
        if torch is not None:
            meeting.steps.update(loaded=torch.loaded, torch=torch.run)
        until = self.deadline - group.STEPS_SECONDS
        if self.rank == 0:
            return meeting.lead(until, local)
        return [*meeting.follow(until, local), *local()]

    def _alone(self, torch: Torch | None) -> list[Json]:
        """Check the GPU of a rank that is the only rank of its group."""
        if torch is None or not torch.loaded({})["ready"]:
            return []
        result = torch.run({"host": "127.0.0.1", "seconds": max(5.0, self.deadline - time.monotonic() - 3)})
        if not result.get("error"):
            return []
        return [
            finding("collective", f"all-reduce of torch.distributed failed: {result['error']}", "see the log of the check")
        ]

    def _give_up(self) -> None:
        time.sleep(max(0.0, self.deadline + 2 - time.monotonic()))
        took = time.monotonic() - self.begun
        message = f"the check did not end within {took:.0f} s"
        self.end([{**finding("preflight", message, "see the log of container ome-preflight"), "rank": self.rank}])

    def end(self, findings: list[Json]) -> None:
        """Report the findings, and exit even if checks still run."""
        with self.lock:
            own = [item for item in findings if item["rank"] == self.rank]
            ordered = own + [item for item in findings if item["rank"] != self.rank]
            unique = list({(item["rank"], item["check"], item["said"]): item for item in ordered}.values())
            for item in unique:
                print(f"preflight: rank {item['rank']}: {item['check']}: {item['said']}; {item['fix']}", flush=True)
            head = {"preflight": 1, "rank": self.rank, "seconds": round(time.monotonic() - self.begun, 1)}
            write(self.config, message(head, unique))
            print(f"preflight: {len(unique)} findings after {head['seconds']} s", flush=True)
            os._exit(_code() if unique else 0)  # a normal exit waits for threads, which may hang in a file system


def _code() -> int:
    """Return the exit code for a check with findings."""
    return 1 if os.environ.get("OME_PREFLIGHT_MODE") == "Require" else 0


def message(head: Json, findings: list[Json]) -> str:
    """Return the message as JSON, with as many findings as fit into LIMIT bytes."""
    for number in range(len(findings), -1, -1):
        text = json.dumps({**head, "findings": findings[:number], "more": len(findings) - number}, ensure_ascii=False)
        if len(text.encode("utf-8", "replace")) <= LIMIT:
            return text
    return json.dumps(head)


def write(config: Json, text: str) -> None:
    """Write the message to the file where the kubelet reads it."""
    try:
        Path(config.get("message") or "/dev/termination-log").write_text(text, "utf-8", "replace")
    except OSError as error:
        print(f"preflight: the message cannot be written: {error}", flush=True)


def main() -> None:
    """Run the check. If the check itself fails, report that; it blocks the engine only in the mode Require."""
    if os.environ.get("OME_PREFLIGHT_TORCH"):
        collective()
        return
    config: Json = {}
    try:
        config = dict(json.loads(os.environ["OME_PREFLIGHT"]))
        run = Run(config, sys.argv[1:])
        run.end(run.run())
    except Exception as error:
        problem, rank = f"the check itself failed: {type(error).__name__}: {error}", str(config.get("rank", ""))
        print(f"preflight: {problem}", flush=True)
        own = int(rank) if rank.isdigit() else -1
        own_finding = {**finding("preflight", problem, "report this problem with the log of the check"), "rank": own}
        write(config, message({"preflight": 1, "rank": own}, [own_finding]))
        os._exit(_code())
