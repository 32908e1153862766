"""What a rank can see of its own node and pod, before its engine starts (docs/preflight.md).

It runs in the engine's image: the standard library alone, and Python 3.10 or newer.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import resource
import shlex
import struct
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Json = dict[str, Any]

GIB, MIB = 1 << 30, 1 << 20
DRIVERS = {"11": 450, "12": 525, "13": 580}
"""Major version of CUDA -> the oldest driver that runs it."""
PATHS = re.compile(r"--.*(path|paths|file|template|location|certfile|keyfile|ca-certs|model|tokenizer|config)$")
OUTPUT = re.compile(r"log|dump|save|output|storage|cache|record|export|download")
"""Flags whose path is made when it is not there."""
FILES = frozenset({"MODEL_PATH", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE", "SSL_CERT_FILE"})
EVERY = ("--disaggregation-ib-device", "--mooncake-ib-device", "--elastic-ep-ib-device", "MOONCAKE_DEVICE")
"""What names RDMA devices that all have to be there."""
ANY = ("NCCL_IB_HCA", "NVSHMEM_HCA_LIST", "UCX_NET_DEVICES")
"""What names devices of which those are taken that are there."""
GIDS = ("NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "NVSHMEM_IB_GID_INDEX", "MC_GID_INDEX")
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def finding(check: str, said: str, fix: str, rank: int = -1) -> Json:
    """Something that is wrong; `rank`: whom it is about, -1 for this rank."""
    return {"check": check, "rank": rank, "said": said[:300], "fix": fix[:200]}


class Words:
    """The engine's command and arguments, also those within a shell line."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words: list[str] = []
        for word in words:
            if not re.search(r"\s", word) or "--" not in word:
                self.words.append(word)
                continue
            line = os.path.expandvars(word)
            try:
                self.words += shlex.split(line, comments=True)
            except ValueError:
                self.words += line.split()

    def flags(self) -> Iterator[tuple[str, str]]:
        """(flag, value) of every argument that has a value; several values are separated by blanks."""
        for at, word in enumerate(self.words):
            if not word.startswith("--"):
                continue
            flag, found, value = word.partition("=")
            following = itertools.takewhile(lambda after: not after.startswith("--"), self.words[at + 1 :])
            if said := value if found else " ".join(following):
                yield flag, said

    def values(self, *names: str) -> list[str]:
        """What flags and variables of these names say."""
        said = [value for flag, value in self.flags() if flag in names]
        return said + [os.environ[name] for name in names if os.environ.get(name)]


class Pod:
    """What this rank can see of its own node; every check yields findings."""

    def __init__(self, config: Json, words: Words) -> None:
        self.config, self.words = config, words
        self.root = Path(config.get("root") or "/")
        self.links: dict[str, float] = {}
        """Device -> Gb/s of its slowest port."""

    def checks(self) -> list[Callable[[], Iterator[Json]]]:
        """All of them but `devices`, which finds the links that `limits` looks at."""
        return [self.paths, self.interfaces, self.gpus, self.limits, self.memory, self.weights, self.packages]

    def text(self, path: str) -> str:
        """A file below /sys or /proc, "" where it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return ""

    def names(self, path: str) -> list[str]:
        """What a directory has."""
        try:
            return sorted(item.name for item in (self.root / path).iterdir())
        except OSError:
            return []

    def paths(self) -> Iterator[Json]:
        """Files and directories that arguments and variables name."""
        named = [(flag, value) for flag, value in self.words.flags() if PATHS.fullmatch(flag) and not OUTPUT.search(flag)]
        named += [(name, value) for name, value in os.environ.items() if name in FILES]
        for flag, value in named:
            for path in re.split(r"[,\s]+", value):
                path = path.partition("=")[2] or path
                if path.startswith("/") and not Path(path).exists() and not self.fetched(path):
                    yield finding("paths", f"{flag} names {path}, which is not there", "mount it, or fix the argument")

    def fetched(self, path: str | Path) -> bool:
        """Whether an init container would fill this path, and did not run: nothing is known of it."""
        return any(Path(path).is_relative_to(folder) for folder in self.config.get("fetched") or ())

    def packages(self) -> Iterator[Json]:
        """What SGLang imports for its traces; it ends a minute after its start without them."""
        wanted = ("sdk", "exporter.otlp.proto.grpc", "exporter.otlp.proto.http")
        if "--enable-trace" in self.words.words and not all(_imports("opentelemetry", *name.split(".")) for name in wanted):
            yield finding("packages", "--enable-trace is there, and the image lacks OpenTelemetry's packages",
                          "install sglang[tracing] into the image, or set ome.io/otlp-traces-endpoint to Off")  # fmt: skip

    def devices(self) -> Iterator[Json]:
        """RDMA devices: named and there, usable, up, at the rate of the others, with the GID that is asked for."""
        have = self.names("sys/class/infiniband")
        every = [device for value in self.words.values(*EVERY) for device in _devices(value)]
        for device in dict.fromkeys(every):
            if device not in have:
                yield finding("devices", f"RDMA device {device} is not there; there are: {', '.join(have) or 'none'}",
                              "name devices that every node has (ibv_devices), or add the RDMA resource")  # fmt: skip
        used = [device for device in dict.fromkeys(every) if device in have]
        for name in ANY:
            value = os.environ.get(name, "")
            some = [d for d in have if any(d == n or (name == ANY[0] and d.startswith(n)) for n in _devices(value))]
            others = self.names("sys/class/net") if name == "UCX_NET_DEVICES" else []
            if not value or value == "all" or value.startswith("^"):
                continue
            if not some and not any(device in others for device in _devices(value)):
                yield finding("devices", f"{name} names {value[:80]}, and none of these is there; there are: "
                              f"{', '.join(have) or 'none'}", "name devices that every node has (ibv_devices)")  # fmt: skip
            used += [device for device in some if device not in used]
        for device in used:
            yield from self._device(device)
        best = max(self.links.values(), default=0.0)
        for device, rate in self.links.items():
            if rate < best:
                yield finding("links", f"{device} runs at {rate:g} Gb/s, others of this node at {best:g}",
                              "look at cable, switch port and PCIe slot of the device")  # fmt: skip

    def _device(self, device: str) -> Iterator[Json]:
        verbs = [
            v
            for v in self.names("sys/class/infiniband_verbs")
            if self.text(f"sys/class/infiniband_verbs/{v}/ibdev") == device
        ]
        inside = self.names("dev/infiniband")
        opens = any(v in inside for v in verbs) if verbs else any(v.startswith("uverbs") for v in inside)
        if not opens:
            file = f"/dev/infiniband/{verbs[0] if verbs else 'uverbs*'}"
            yield finding("devices", f"{file} of {device} is not in the container",
                          "ask for the RDMA device plugin's resource, or mount /dev/infiniband")  # fmt: skip
        for port in self.names(f"sys/class/infiniband/{device}/ports"):
            at = f"sys/class/infiniband/{device}/ports/{port}"
            state = self.text(f"{at}/state").rpartition(": ")[2]
            if state != "ACTIVE":
                phys = self.text(f"{at}/phys_state").rpartition(": ")[2]
                yield finding("links", f"port {port} of {device} is {state or 'unknown'} ({phys or 'unknown'}), not ACTIVE",
                              "look at its cable and switch port, and at the subnet manager")  # fmt: skip
                continue
            if (rate := re.match(r"[\d.]+", self.text(f"{at}/rate"))) is not None:
                self.links[device] = min(float(rate[0]), self.links.get(device, float("inf")))
            yield from self._gid(device, at)

    def _gid(self, device: str, at: str) -> Iterator[Json]:
        for name, index in {n: os.environ[n] for n in GIDS if os.environ.get(n, "").isdigit()}.items():
            gid, kind = self.text(f"{at}/gids/{index}"), self.text(f"{at}/gid_attrs/types/{index}")
            if not gid.strip("0:"):
                yield finding("gid", f"{name}={index}, and {device} has no GID there", "see show_gids for the index to name")
            elif self.text(f"{at}/link_layer") == "Ethernet" and kind and "v2" not in kind:
                yield finding(
                    "gid", f"{name}={index} of {device} is {kind}, not RoCE v2", "name the index of the RoCE v2 GID"
                )

    def interfaces(self) -> Iterator[Json]:
        """Network interfaces that NCCL and gloo are told to use."""
        have = self.names("sys/class/net")
        for name in INTERFACES:
            value = os.environ.get(name, "")
            asked, exact = [part for part in value.lstrip("=").split(",") if part], value.startswith("=")
            if value.startswith("^") or not asked or not have:
                continue
            if not any(face == part or (not exact and face.startswith(part)) for face in have for part in asked):
                yield finding("interfaces", f"{name}={value}, and there are only: {', '.join(have)}", f"fix {name}")

    def gpus(self) -> Iterator[Json]:
        """GPUs seen against GPUs asked, and the driver against the image's CUDA."""
        asked = int(self.config.get("gpus") or 0)
        if not asked:
            return
        listed = [] if self.config.get("root") else _lines(["nvidia-smi", "-L"])
        parts, whole = (sum(line.strip().startswith(word) for line in listed) for word in ("MIG ", "GPU "))
        seen = parts or whole or sum(re.fullmatch(r"nvidia\d+", name) is not None for name in self.names("dev"))
        if seen != asked:
            why = f" ({listed[-1][:120]})" if listed and not listed[-1].startswith(("GPU ", " ")) else ""
            yield finding("gpus", f"{seen} GPUs are seen, and {asked} were asked for{why}",
                          "look at the device plugin and at dmesg of the node (Xid)")  # fmt: skip
        driver = re.search(r"(?:Kernel Module|x86_64|aarch64)\s+(\d+)\.\d+", self.text("proc/driver/nvidia/version"))
        cuda = os.environ.get("CUDA_VERSION", "").partition(".")[0]
        if driver is None or cuda not in DRIVERS or self.names("usr/local/cuda/compat"):
            return
        if int(driver[1]) < DRIVERS[cuda]:
            yield finding("driver", f"driver {driver[1]} of the node is older than {DRIVERS[cuda]}, which the image's CUDA "
                          f"{os.environ['CUDA_VERSION']} needs", "update the driver, or take an older image")  # fmt: skip

    def limits(self) -> Iterator[Json]:
        """Open files, and memory that may be locked for RDMA."""
        hard, need = resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65535 if self.config.get("gpus") else 4096
        if hard != resource.RLIM_INFINITY and hard < need:
            yield finding("nofile", f"at most {hard} files may be open, and {need} are needed",
                          "raise LimitNOFILE of the node's container runtime")  # fmt: skip
        locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        granted = re.search(r"CapEff:\s*([0-9a-f]+)", self.text("proc/self/status"))
        free = granted is not None and int(granted[1], 16) >> 14 & 1
        if self.links and locked != resource.RLIM_INFINITY and not free:
            yield finding("memlock", f"{locked >> 10} KiB may be locked, and RDMA needs all",
                          "add the capability IPC_LOCK, or LimitMEMLOCK=infinity to the container runtime")  # fmt: skip

    def memory(self) -> Iterator[Json]:
        """Shared memory, and huge pages where asked."""
        gpus, size = int(self.config.get("gpus") or 0), int(self.config["size"])
        need = GIB if gpus > 1 else 128 * MIB if size > 1 else 64 * MIB
        try:
            found = os.statvfs(self.root / "dev/shm")
            total = int(self.config.get("shm") or found.f_frsize * found.f_blocks)
        except OSError:
            total = 0
        if total < need - MIB:
            yield finding("shm", f"/dev/shm has {total // MIB} MiB, and {need // MIB} are needed",
                          "mount an emptyDir with medium: Memory and a larger sizeLimit at /dev/shm")  # fmt: skip
        for name, asked in (self.config.get("hugepages") or {}).items():
            kib = {"2Mi": 2048, "1Gi": 1048576}.get(name, 0)
            pages = self.text(f"sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages")
            if (int(pages) if pages.isdigit() else 0) * kib * 1024 < asked:
                yield finding("hugepages", f"{asked // MIB} MiB of hugepages-{name} were asked for, and the node has "
                              f"{pages or 'no'} of them", "set vm.nr_hugepages on the node")  # fmt: skip

    def weights(self) -> Iterator[Json]:
        """Files that the index of the weights names, each as long as its own header says."""
        for folder in {Path(value) for value in self.words.values("--model-path", "--model", "MODEL_PATH")}:
            if not folder.is_absolute() or not folder.is_dir() or self.fetched(folder):
                continue
            names = {file.name for file in folder.glob("*.safetensors")}
            for index in folder.glob("*.safetensors.index.json"):
                try:
                    names |= {str(name) for name in json.loads(index.read_text())["weight_map"].values()}
                except (OSError, ValueError, KeyError, AttributeError) as error:
                    yield finding("weights", f"{index} cannot be read: {error}", "fetch the model again")
            with ThreadPoolExecutor(8) as pool:
                for said in pool.map(_cut, [folder / name for name in sorted(names)]):
                    if said:
                        yield finding("weights", said, "fetch the file again; its size is not what it should be")


def _imports(*names: str) -> bool:
    """Whether there is a module of this name."""
    try:
        return importlib.util.find_spec(".".join(names)) is not None
    except ImportError:  # what it is in is not there
        return False


def _devices(value: str) -> list[str]:
    """Names of devices in a value such as "mlx5_0:1,mlx5_1", "=mlx5_0", or a JSON map of lists."""
    if value.lstrip().startswith("{"):
        try:
            value = ",".join(map(str, json.loads(value).values()))
        except ValueError:
            return []
    if value.startswith("/"):
        return []
    return [part.strip().partition(":")[0] for part in value.lstrip("=").split(",") if part.strip()]


def _cut(file: Path) -> str:
    """Why a file of the weights is not whole; "" when it is. Only its header is read."""
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            length = struct.unpack("<Q", opened.read(8))[0]
            header = json.loads(opened.read(min(length, 100 * MIB)))
        end = (
            8 + length + max((item["data_offsets"][1] for name, item in header.items() if name != "__metadata__"), default=0)
        )
    except (OSError, ValueError, struct.error, TypeError, KeyError, AttributeError) as error:
        return f"{file} is no whole file of weights: {error}"
    return "" if size == end else f"{file} has {size:,} bytes, and its header says {end:,}"


def _lines(command: list[str]) -> list[str]:
    """What a command says; nothing where there is no such command."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
