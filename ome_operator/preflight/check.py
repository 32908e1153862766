"""What runs in an init container before an engine: it looks, says what it found, and ends in time (docs/preflight.md).

Its arguments are those of the engine. OME_PREFLIGHT has the rest as JSON: `rank`, `size`, `leader` and `worker` (names of
ranks; %d is the rank), `prefill` (of prefill leaders; %d is the group), `http`, `gpus`, `hugepages`, `seconds`,
`fetched` (folders that init containers would have filled, which did not run); for tests `root` (of /sys, /proc and /dev),
`bind`, `port`, `message` and `shm`. Exit code 1: something was found, and OME_PREFLIGHT_MODE is Require. Else 0.
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
from ome_operator.preflight.node import Json, Pod, Words, finding

LIMIT = 4000
"""Bytes of the message: the kubelet keeps 4,096."""
SECONDS = 60.0
MARK = "OME "
"""Begins the lines of the process with torch that are meant for us."""
LOADING = 12.0
"""Seconds in which torch has to be loaded when all others are done: what takes longer is not measured."""


class Torch:
    """A process with torch: NCCL may hang, and then it alone ends."""

    def __init__(self, config: Json) -> None:
        self.config, self.news = config, threading.Condition()
        self.said: list[Json] = []
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
            if (said := _meant(line)) is not None:
                self._tell(said)
            else:
                last = line.strip() or last
        self._tell({"error": f"its process ended with code {self.process.wait()}: {last[:160]}"})

    def _tell(self, said: Json) -> None:
        with self.news:
            self.said.append(said)
            self.news.notify_all()

    def loaded(self, asked: Json) -> Json:
        """Whether it has torch."""
        return {"ready": bool(self._said(1, LOADING).get("ready"))}

    def _said(self, number: int, seconds: float) -> Json:
        """The next thing that it says; {} when it says nothing."""
        with self.news:
            self.news.wait_for(lambda: len(self.said) >= number, seconds)
            return dict(self.said[number - 1]) if len(self.said) >= number else {}

    def run(self, asked: Json) -> Json:
        """Meet the other ranks."""
        place = {"rank": self.config["rank"], "size": self.config["size"], "port": int(self.config.get("port") or 29002) + 1}
        try:
            assert self.process.stdin is not None
            print(json.dumps({**asked, **place}), file=self.process.stdin, flush=True)
        except OSError as error:
            return {"error": str(error)}
        return self._said(2, float(asked["seconds"])) or {"error": f"no end within {float(asked['seconds']):.0f} s"}

    def end(self) -> None:
        """Whatever it does."""
        self.process.kill()


def collective() -> None:
    """The process with torch."""
    try:
        _collective()
    except Exception as error:
        _say({"error": f"{type(error).__name__}: {error}"[:200]})


def _collective() -> None:
    """All-reduce and a copy from rank to rank, by NCCL where there are GPUs, else by gloo."""
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    _say({"ready": True})
    asked = json.loads(sys.stdin.readline())
    rank, size = int(asked["rank"]), int(asked["size"])
    cuda = bool(torch.cuda.is_available()) and bool(dist.is_nccl_available())
    address = f"tcp://{asked['host']}:{asked['port']}"
    waits = timedelta(seconds=float(asked["seconds"]))
    dist.init_process_group("nccl" if cuda else "gloo", init_method=address, rank=rank, world_size=size, timeout=waits)
    data = torch.ones((64 if cuda else 1) << 20, device="cuda:0" if cuda else "cpu")
    for _ in range(2):
        data.fill_(1.0)
        dist.all_reduce(data)
    if int(data[0].item()) != size:
        _say({"error": f"the sum over {size} ranks was {data[0].item()}"})
        return
    rates: dict[int, float] = {}
    answer = torch.ones(1, device=data.device)
    # To both neighbours: else who takes from a slow sender looks slow itself.
    for shift in sorted({1, size - 1}) if size > 1 else ():
        for sender in range(size):
            taker = (sender + shift) % size
            for _ in range(2):  # the first makes the connection
                begun = time.monotonic()
                if rank == sender:
                    dist.send(data, taker)
                    dist.recv(answer, taker)
                    answer.item()
                    rates[taker] = 4 * data.numel() / (time.monotonic() - begun)
                elif rank == taker:
                    dist.recv(data, sender)
                    dist.send(answer, sender)
    _say({"rates": rates})


def _say(said: Json) -> None:
    # On a line of its own: a library may have written half of a line to the same pipe.
    print(f"\n{MARK}{json.dumps(said)}", flush=True)


def _meant(line: str) -> Json | None:
    """What a line of the process with torch says to us; None for any other line."""
    try:
        said = json.loads(line[len(MARK) :]) if line.startswith(MARK) else None
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _listed(check: Callable[[], Iterator[Json]]) -> list[Json]:
    return list(check())


class Run:
    """A rank's check from its begin to its message."""

    def __init__(self, config: Json, words: list[str]) -> None:
        self.config, self.words, self.begun = config, Words(words), time.monotonic()
        self.rank, self.size, self.gpus = int(config["rank"]), int(config["size"]), int(config.get("gpus") or 0)
        self.deadline = self.begun + float(config.get("seconds") or SECONDS) - 2
        self.lock = threading.Lock()
        threading.Thread(target=self._give_up, daemon=True).start()

    def run(self) -> list[Json]:
        """Everything that was found."""
        torch = Torch(self.config) if (self.size > 1 or self.gpus) and importlib.util.find_spec("torch") else None
        held = ports.Ports(str(self.config.get("bind") or ""), self._listens())
        pod = Pod(self.config, self.words)
        pool = ThreadPoolExecutor(8)
        running = {"devices": pool.submit(_listed, pod.devices)}
        wait(running.values(), 5)  # the others look at the links that it finds
        for check in pod.checks():
            running[check.__name__] = pool.submit(_listed, check)
        running["prefill"] = pool.submit(_listed, lambda: ports.prefill(self.config, ports.other_ports(self.words)))

        def local() -> list[Json]:
            out = list(held.findings)
            for name, each in running.items():
                try:
                    out += each.result(max(0.1, self.deadline - time.monotonic() - 5))
                except Exception as error:
                    why = str(error) or "no end in time: does a file system hang?"
                    out.append(finding(name, f"this check itself failed: {type(error).__name__}: {why}", "see its log"))
            return out

        found = self._group(pod, held, torch, local) if self.size > 1 else [*local(), *self._alone(torch)]
        if torch is not None:
            torch.end()
        return [{**each, "rank": self.rank if each["rank"] < 0 else each["rank"]} for each in found]

    def _listens(self) -> list[int]:
        return ports.engine_ports(self.words, self.rank, int(self.config.get("http") or 0))

    def _group(self, pod: Pod, held: ports.Ports, torch: Torch | None, local: Callable[[], list[Json]]) -> list[Json]:
        facts = {"link": min(pod.links.values(), default=0.0)}
        meeting = group.Meeting(self.config, self.words, held, facts, self.deadline)
        if torch is not None:
            meeting.steps.update(loaded=torch.loaded, torch=torch.run)
        until = self.deadline - group.TALK
        if self.rank == 0:
            return meeting.lead(until, local)
        return [*meeting.follow(until, local), *local()]

    def _alone(self, torch: Torch | None) -> list[Json]:
        """A rank without others has only its own GPU to prove."""
        if torch is None or not torch.loaded({})["ready"]:
            return []
        said = torch.run({"host": "127.0.0.1", "seconds": max(5.0, self.deadline - time.monotonic() - 3)})
        if not said.get("error"):
            return []
        return [
            finding("collective", f"all-reduce of torch.distributed failed: {said['error']}", "see the log of the check")
        ]

    def _give_up(self) -> None:
        time.sleep(max(0.0, self.deadline + 2 - time.monotonic()))
        took = time.monotonic() - self.begun
        said = f"the check did not end within {took:.0f} s"
        self.end([{**finding("preflight", said, "see the log of container ome-preflight"), "rank": self.rank}])

    def end(self, found: list[Json]) -> None:
        """Say it, and end whatever still runs."""
        with self.lock:
            mine = [each for each in found if each["rank"] == self.rank]
            ordered = mine + [each for each in found if each["rank"] != self.rank]
            unique = list({(each["rank"], each["check"], each["said"]): each for each in ordered}.values())
            for each in unique:
                print(f"preflight: rank {each['rank']}: {each['check']}: {each['said']}; {each['fix']}", flush=True)
            head = {"preflight": 1, "rank": self.rank, "seconds": round(time.monotonic() - self.begun, 1)}
            write(self.config, message(head, unique))
            print(f"preflight: {len(unique)} findings after {head['seconds']} s", flush=True)
            os._exit(_code() if unique else 0)  # a usual exit waits for threads, and a file system may hang under them


def _code() -> int:
    """How it ends where something was found."""
    return 1 if os.environ.get("OME_PREFLIGHT_MODE") == "Require" else 0


def message(head: Json, found: list[Json]) -> str:
    """The JSON with as many findings as have room."""
    for number in range(len(found), -1, -1):
        text = json.dumps({**head, "findings": found[:number], "more": len(found) - number}, ensure_ascii=False)
        if len(text.encode("utf-8", "replace")) <= LIMIT:
            return text
    return json.dumps(head)


def write(config: Json, text: str) -> None:
    """Where the kubelet finds it."""
    try:
        Path(config.get("message") or "/dev/termination-log").write_text(text, "utf-8", "replace")
    except OSError as error:
        print(f"preflight: the message cannot be written: {error}", flush=True)


def main() -> None:
    """A check that fails itself says so, and holds an engine only in the mode Require."""
    if os.environ.get("OME_PREFLIGHT_TORCH"):
        collective()
        return
    config: Json = {}
    try:
        config = dict(json.loads(os.environ["OME_PREFLIGHT"]))
        run = Run(config, sys.argv[1:])
        run.end(run.run())
    except Exception as error:
        said, rank = f"the check itself failed: {type(error).__name__}: {error}", str(config.get("rank", ""))
        print(f"preflight: {said}", flush=True)
        own = int(rank) if rank.isdigit() else -1
        told = {**finding("preflight", said, "report it with its log"), "rank": own}
        write(config, message({"preflight": 1, "rank": own}, [told]))
        os._exit(_code())
