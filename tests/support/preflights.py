"""Runs preflight checks of pods on this machine: real processes and ports, a loopback address for each rank, and faked
/sys trees.
"""

import json
import os
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ome_operator.preflight import code
from ome_operator.preflight import group as group_module
from ome_operator.preflight.findings import NEVER_SLOW, slow_ranks

FAKE = """
from contextlib import nullcontext
class Tensor(list):
    device = "cpu"
    def fill_(self, value): self[0] = value
    def __getitem__(self, at): return Item(list.__getitem__(self, at))
    def item(self): return 1.0
    def numel(self): return 1 << 20
class Item(float):
    def item(self): return float(self)
class cuda:
    is_available = staticmethod(lambda: False)
def ones(count, device=None): return Tensor([1.0])
"""
FAKE_DISTRIBUTED = """
import os, time
size = 1
def is_nccl_available(): return False
def init_process_group(backend, init_method, rank, world_size, timeout):
    global size
    size = world_size
    print("noise of", backend, init_method)
    HOW
def all_reduce(data): data[:] = [float(size)]
def send(data, to): time.sleep(0.01)
recv = send
"""
"""Source code of stand-ins for torch and torch.distributed, which compute nothing. `fake_torch` replaces HOW by code of a
test.
"""
QUICK = 29.0
"""Time limit in seconds with which rank 0 waits only 2 s for the other ranks."""
PATIENT = 90.0
"""Time limit in seconds with which rank 0 waits about a minute for the other ranks, which start late on a busy machine."""
ENGINE = ("python3", "-m", "sglang.launch_server")
_MAIN = "sys.modules[name].main()"
_GROUP = "sys.modules['ome_operator.preflight.group']"
BOOT = code.BOOT.replace(_MAIN, f"{_GROUP}.COPY_SECONDS=0.05;{_GROUP}.slow_ranks.__defaults__='TCP',0.0;{_MAIN}")
"""The start code of the check, changed because this machine does the work of all ranks: they copy data to each other for a
shorter time, and no rank is reported because its copy is slow, as copies are on a busy machine.
"""
assert code.BOOT != BOOT and hasattr(group_module, "COPY_SECONDS"), "the duration of copies could not be shortened"
assert slow_ranks.__defaults__ == ("TCP", NEVER_SLOW), "the rate below which a copy is slow could not be changed"


class Done(NamedTuple):
    """The result of the check of a rank."""

    code: int
    message: dict[str, Any]
    log: str

    @property
    def finding_names(self) -> list[tuple[int, str]]:
        """Return (rank, name of the check) of every finding in these results."""
        return sorted((each["rank"], each["check"]) for each in self.message["findings"])

    @property
    def finding_messages(self) -> str:
        """Return the messages of all findings in these results."""
        return "; ".join(f"rank {each['rank']}: {each['said']}" for each in self.message["findings"])


class Group(NamedTuple):
    """A group of ranks on this machine: a loopback address for each rank, and the ports at which ranks meet and of the
    engine.
    """

    number: int
    port: int
    http: int

    def host(self, rank: int) -> str:
        """Return the address of a rank."""
        return f"127.{self.number}.1.{rank}"


def group(number: int) -> Group:
    """Return a group whose ports are free on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as other:
        return Group(number, first.getsockname()[1], other.getsockname()[1])


def start(
    folder: Path,
    rank: int = 0,
    size: int = 1,
    of: Group | None = None,
    words: Sequence[str] = ENGINE,
    env: Mapping[str, str] | None = None,
    limits: Mapping[int, int] | None = None,
    mode: str = "Warn",
    isolated: bool = True,
    **config: Any,
) -> subprocess.Popen[str]:
    """Start the preflight check of a rank as a process. `config` is added to the configuration that a rendered pod has.
    `of` is the rank's group if it has several ranks, `words` is the command of the engine, `limits` are resource limits of
    the process, and `mode` is the mode of the check. If `isolated` is true, Python ignores its environment variables
    (`-I`).
    """
    folder.mkdir(exist_ok=True)
    facts = {"rank": str(rank), "size": size, "seconds": QUICK, "message": str(folder / f"message-{rank}"), **config}
    facts.setdefault("root", str(healthy_node_root(folder)))
    if of is not None:
        facts = {"leader": of.host(0), "worker": f"127.{of.number}.1.%d", "bind": of.host(rank), "port": of.port, **facts}
        facts.setdefault("http", of.http)
    own = {"OME_PREFLIGHT": json.dumps(facts), "OME_PREFLIGHT_BOOT": code.BOOT, "OME_PREFLIGHT_CODE": code.packed()}
    base = {"PATH": os.environ["PATH"], "OME_PREFLIGHT_MODE": mode}

    def bounded() -> None:
        for kind, most in (limits or {}).items():
            resource.setrlimit(kind, (most, most))

    # Only the standard library can be imported.
    python = [sys.executable, *(["-I"] if isolated else []), "-S"]
    return subprocess.Popen(
        [*python, "-c", BOOT, *words], env={**base, **own, **(env or {})}, cwd=folder, preexec_fn=bounded, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def wait_for_check(folder: Path, rank: int, process: subprocess.Popen[str]) -> Done:
    """Wait for the check of a rank, and return its result."""
    log, _ = process.communicate(timeout=120)
    text = (folder / f"message-{rank}").read_text()
    assert len(text.encode()) <= 4096, "the kubelet would truncate the termination message"
    return Done(process.returncode, json.loads(text), log)


def run(folder: Path, **options: Any) -> Done:
    """Run the check of a single rank."""
    return wait_for_check(folder, 0, start(folder, **options))


def run_checks(
    folder: Path, size: int, of: Group, each: Mapping[int, Mapping[str, Any]] | None = None, **all_: Any
) -> list[Done]:
    """Run the checks of all ranks of a group at the same time. `each` maps a rank to options of its own, or to None if the
    rank does not run. `all_` are options of all ranks.
    """
    own = each or {}
    if None not in own.values():
        all_ = {"seconds": PATIENT, **all_}
    running = {
        rank: start(folder, rank, size, of, **{**all_, **own.get(rank, {})})
        for rank in range(size)
        if own.get(rank, {}) is not None
    }
    return [wait_for_check(folder, rank, process) for rank, process in running.items()]


def healthy_node_root(folder: Path) -> Path:
    """Create the files in /sys of a healthy node that has neither RDMA devices nor GPUs."""
    at = folder / "root"
    write(at, "dev/shm/.keep", "")
    write(at, "sys/class/net/eth0/mtu", "1500")
    write(at, "sys/class/net/lo/mtu", "65536")
    return at


def write(at: Path, path: str, text: str) -> None:
    """Write a file below a root directory that stands for the node's."""
    file = at / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def device(
    at: Path, name: str, number: int = 0, *, rate: int = 400, state: str = "4: ACTIVE", link: str = "InfiniBand"
) -> None:
    """Create an RDMA device: its directory in /sys, and its device file in the container."""
    port = f"sys/class/infiniband/{name}/ports/1"
    write(at, f"{port}/state", f"{state}\n")
    write(at, f"{port}/phys_state", "5: LinkUp\n" if "ACTIVE" in state else "3: Disabled\n")
    write(at, f"{port}/rate", f"{rate} Gb/sec (4X NDR)\n")
    write(at, f"{port}/link_layer", f"{link}\n")
    write(at, f"{port}/gids/3", "fe80:0000:0000:0000:a288:c2ff:fe00:0001\n")
    write(at, f"{port}/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n")
    write(at, f"{port}/gids/2", "fe80:0000:0000:0000:a288:c2ff:fe00:0001\n")
    write(at, f"{port}/gid_attrs/types/3", "RoCE v2\n")
    write(at, f"{port}/gid_attrs/types/2", "IB/RoCE v1\n")
    write(at, f"sys/class/infiniband_verbs/uverbs{number}/ibdev", f"{name}\n")
    write(at, f"dev/infiniband/uverbs{number}", "")
    write(at, "proc/self/status", "CapEff:\t0000000000004000\n")


def weights(folder: Path, files: int = 2) -> Path:
    """Create a model of some files with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"model-{number}-of-{files}.safetensors" for number in range(1, files + 1)]
    for name in names:
        header = json.dumps({"__metadata__": {}, "w": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}).encode()
        (folder / name).write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    index = {"weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def fake_torch(folder: Path, how: str = "pass") -> dict[str, str]:
    """Create a stand-in for torch that computes nothing, and return the environment variables with which Python imports it.
    `how` is Python code that runs when a group of ranks is created.
    """
    package = folder / "fake/torch/distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text(FAKE)
    (package / "__init__.py").write_text(FAKE_DISTRIBUTED.replace("HOW", how))
    return {"PYTHONPATH": str(folder / "fake")}
