"""Checks of a rank's own node and pod before its engine starts (docs/preflight.md).

This module runs in the engine's image: it uses the standard library only, and supports Python 3.10 and newer.
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
"""Maps each major version of CUDA to the oldest driver that supports it."""
PATHS = re.compile(r"--.*(path|paths|file|template|location|certfile|keyfile|ca-certs|model|tokenizer|config)$")
OUTPUT = re.compile(r"log|dump|save|output|storage|cache|record|export|download")
"""Pattern of flags whose value is a path that the engine creates if it does not exist."""
FILES = frozenset({"MODEL_PATH", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE", "SSL_CERT_FILE"})
ALL_REQUIRED = ("--disaggregation-ib-device", "--mooncake-ib-device", "--elastic-ep-ib-device", "MOONCAKE_DEVICE")
"""Flags and variables that list RDMA devices which must all exist."""
ANY_REQUIRED = ("NCCL_IB_HCA", "NVSHMEM_HCA_LIST", "UCX_NET_DEVICES")
"""Variables that list RDMA devices of which the existing ones are used."""
GIDS = ("NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "NVSHMEM_IB_GID_INDEX", "MC_GID_INDEX")
_DEFAULT = re.compile(r"\$\{(\w+):-([^${}]*)\}")
"""Pattern of a shell variable with a default value."""
_INSIDE, _MARK = re.compile(r"(?<=[^\s;&|(])#"), "\0"
"""Pattern of a `#` inside a word, which begins no comment, and the character that replaces it while the line is split into
words."""
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def finding(check: str, message: str, fix: str, rank: int = -1) -> Json:
    """Return a finding, the report of a problem; `rank` is the rank that the finding is about, -1 for this rank."""
    return {"check": check, "rank": rank, "said": message[:300], "fix": fix[:200]}


class CommandLine:
    """The engine's command and arguments, including those inside a shell command."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words: list[str] = []
        for word in words:
            if not re.search(r"\s", word) or "--" not in word:
                self.words.append(word)
                continue
            line = os.path.expandvars(_DEFAULT.sub(lambda found: os.environ.get(found[1]) or found[2], word))
            line = _INSIDE.sub(_MARK, line)
            try:
                words_of_line = shlex.split(line, comments=True)
            except ValueError:
                words_of_line = line.split()
            self.words += [each.replace(_MARK, "#") for each in words_of_line]

    def flags(self) -> Iterator[tuple[str, str]]:
        """Return (flag, value) of every argument with a value; several values are separated by blanks. A value that only a
        shell can compute is left out.
        """
        for position, word in enumerate(self.words):
            if not word.startswith("--"):
                continue
            flag, has_value, value = word.partition("=")
            following = itertools.takewhile(lambda after: not after.startswith("--"), self.words[position + 1 :])
            text = value if has_value else " ".join(following)
            if text and not re.search(r"[$`]", text):
                yield flag, text

    def values(self, *names: str) -> list[str]:
        """Return the values of the flags and variables with these names."""
        found_values = [value for flag, value in self.flags() if flag in names]
        return found_values + [os.environ[name] for name in names if os.environ.get(name)]


class Pod:
    """Checks of this rank's own node and pod; every check yields findings."""

    def __init__(self, config: Json, words: CommandLine) -> None:
        self.config, self.words = config, words
        self.root = Path(config.get("root") or "/")
        self.links: dict[str, float] = {}
        """Maps each device to the rate of its slowest port in Gb/s."""

    def checks(self) -> list[Callable[[], Iterator[Json]]]:
        """Return all checks except `devices`, which must run first because `limits` uses the links that it finds."""
        return [self.paths, self.interfaces, self.gpus, self.limits, self.memory, self.weights, self.packages]

    def text(self, path: str) -> str:
        """Return the text of a file below /sys or /proc, or "" if it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return ""

    def names(self, path: str) -> list[str]:
        """Return the names in a directory."""
        try:
            return sorted(item.name for item in (self.root / path).iterdir())
        except OSError:
            return []

    def paths(self) -> Iterator[Json]:
        """Check the files and directories that arguments and variables name."""
        paths = [(flag, value) for flag, value in self.words.flags() if PATHS.fullmatch(flag) and not OUTPUT.search(flag)]
        paths += [(name, value) for name, value in os.environ.items() if name in FILES]
        for flag, value in paths:
            for path in re.split(r"[,\s]+", value):
                path = path.partition("=")[2] or path
                if path.startswith("/") and not Path(path).exists() and not self.fetched(path):
                    yield finding(
                        "paths", f"{flag} names {path}, which does not exist", "mount the path, or correct the argument"
                    )

    def fetched(self, path: str | Path) -> bool:
        """Return whether an init container would fill this path and did not run, so that its contents are unknown."""
        return any(Path(path).is_relative_to(folder) for folder in self.config.get("fetched") or ())

    def packages(self) -> Iterator[Json]:
        """Check the packages that SGLang imports for tracing; without them it exits a minute after its start."""
        wanted = ("sdk", "exporter.otlp.proto.grpc", "exporter.otlp.proto.http")
        if "--enable-trace" in self.words.words and not all(_imports("opentelemetry", *name.split(".")) for name in wanted):
            yield finding("packages", "--enable-trace is set, but the image lacks the packages of OpenTelemetry",
                          "install sglang[tracing] into the image, or set ome.io/otlp-traces-endpoint to Off")  # fmt: skip

    def devices(self) -> Iterator[Json]:
        """Check RDMA devices: the named devices exist, are usable and active, run at the rate of the others, and have the
        requested GID.
        """
        present = self.names("sys/class/infiniband")
        required = [device for value in self.words.values(*ALL_REQUIRED) for device in _devices(value)]
        for device in dict.fromkeys(required):
            if device not in present:
                yield finding(
                    "devices",
                    f"RDMA device {device} does not exist; existing devices: {', '.join(present) or 'none'}",
                    "name devices that every node has (ibv_devices), or add the RDMA resource",
                )
        used = [device for device in dict.fromkeys(required) if device in present]
        for name in ANY_REQUIRED:
            value = os.environ.get(name, "")
            matching = [
                d for d in present if any(d == n or (name == ANY_REQUIRED[0] and d.startswith(n)) for n in _devices(value))
            ]
            interfaces = self.names("sys/class/net") if name == "UCX_NET_DEVICES" else []
            if not value or value == "all" or value.startswith("^"):
                continue
            if not matching and not any(device in interfaces for device in _devices(value)):
                yield finding(
                    "devices",
                    (
                        f"{name} names {value[:80]}, but no such device exists; existing devices: "
                        f"{', '.join(present) or 'none'}"
                    ),
                    "name devices that every node has (ibv_devices)",
                )
            used += [device for device in matching if device not in used]
        for device in used:
            yield from self._device(device)
        best = max(self.links.values(), default=0.0)
        for device, rate in self.links.items():
            if rate < best:
                yield finding("links", f"{device} runs at {rate:g} Gb/s, but other devices of this node at {best:g} Gb/s",
                              "check the cable, the switch port and the PCIe slot of the device")  # fmt: skip

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
                          "request the resource of the RDMA device plugin, or mount /dev/infiniband")  # fmt: skip
        for port in self.names(f"sys/class/infiniband/{device}/ports"):
            path = f"sys/class/infiniband/{device}/ports/{port}"
            state = self.text(f"{path}/state").rpartition(": ")[2]
            if state != "ACTIVE":
                phys = self.text(f"{path}/phys_state").rpartition(": ")[2]
                yield finding("links", f"port {port} of {device} is {state or 'unknown'} ({phys or 'unknown'}), not ACTIVE",
                              "check its cable, its switch port and the subnet manager")  # fmt: skip
                continue
            if (rate := re.match(r"[\d.]+", self.text(f"{path}/rate"))) is not None:
                self.links[device] = min(float(rate[0]), self.links.get(device, float("inf")))
            yield from self._gid(device, path)

    def _gid(self, device: str, path: str) -> Iterator[Json]:
        for name, index in {n: os.environ[n] for n in GIDS if os.environ.get(n, "").isdigit()}.items():
            gid, kind = self.text(f"{path}/gids/{index}"), self.text(f"{path}/gid_attrs/types/{index}")
            if not gid.strip("0:"):
                yield finding(
                    "gid",
                    f"{name} is {index}, but {device} has no GID with this index",
                    "set the index that show_gids lists",
                )
            elif self.text(f"{path}/link_layer") == "Ethernet" and kind and "v2" not in kind:
                yield finding(
                    "gid",
                    f"the GID of {device} that {name}={index} selects is {kind}, not RoCE v2",
                    "set the index of the RoCE v2 GID",
                )

    def interfaces(self) -> Iterator[Json]:
        """Check the network interfaces that NCCL and gloo are configured to use."""
        present = self.names("sys/class/net")
        for name in INTERFACES:
            value = os.environ.get(name, "")
            requested, exact = [part for part in value.lstrip("=").split(",") if part], value.startswith("=")
            if value.startswith("^") or not requested or not present:
                continue
            if not any(face == part or (not exact and face.startswith(part)) for face in present for part in requested):
                yield finding(
                    "interfaces", f"{name} is {value}, but the pod has only: {', '.join(present)}", f"correct {name}"
                )

    def gpus(self) -> Iterator[Json]:
        """Compare the visible GPUs with the requested number, and the driver with the image's CUDA version."""
        requested = int(self.config.get("gpus") or 0)
        if not requested:
            return
        lines = [] if self.config.get("root") else _output_lines(["nvidia-smi", "-L"])
        mig_devices, gpus = (sum(line.strip().startswith(word) for line in lines) for word in ("MIG ", "GPU "))
        seen = mig_devices or gpus or sum(re.fullmatch(r"nvidia\d+", name) is not None for name in self.names("dev"))
        if seen != requested:
            why = f" ({lines[-1][:120]})" if lines and not lines[-1].startswith(("GPU ", " ")) else ""
            yield finding("gpus", f"GPUs visible: {seen}, requested: {requested}{why}",
                          "check the device plugin, and dmesg of the node (Xid)")  # fmt: skip
        driver = re.search(r"(?:Kernel Module|x86_64|aarch64)\s+(\d+)\.\d+", self.text("proc/driver/nvidia/version"))
        cuda = os.environ.get("CUDA_VERSION", "").partition(".")[0]
        if driver is None or cuda not in DRIVERS or self.names("usr/local/cuda/compat"):
            return
        if int(driver[1]) < DRIVERS[cuda]:
            yield finding(
                "driver",
                f"driver {driver[1]} of the node is older than {DRIVERS[cuda]}, which CUDA "
                f"{os.environ['CUDA_VERSION']} of the image needs",
                "update the driver, or use an older image",
            )

    def limits(self) -> Iterator[Json]:
        """Check the limits on open files and on memory that may be locked for RDMA."""
        hard, need = resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65535 if self.config.get("gpus") else 4096
        if hard != resource.RLIM_INFINITY and hard < need:
            yield finding("nofile", f"at most {hard} files may be open, but {need} are needed",
                          "raise LimitNOFILE of the node's container runtime")  # fmt: skip
        locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        granted = re.search(r"CapEff:\s*([0-9a-f]+)", self.text("proc/self/status"))
        free = granted is not None and int(granted[1], 16) >> 14 & 1
        if self.links and locked != resource.RLIM_INFINITY and not free:
            yield finding("memlock", f"only {locked >> 10} KiB of memory may be locked, but RDMA needs no limit",
                          "add the capability IPC_LOCK, or set LimitMEMLOCK=infinity for the container runtime")  # fmt: skip

    def memory(self) -> Iterator[Json]:
        """Check the size of shared memory, and requested huge pages."""
        gpus, size = int(self.config.get("gpus") or 0), int(self.config["size"])
        need = GIB if gpus > 1 else 128 * MIB if size > 1 else 64 * MIB
        try:
            status = os.statvfs(self.root / "dev/shm")
            total = int(self.config.get("shm") or status.f_frsize * status.f_blocks)
        except OSError:
            total = 0
        if total < need - MIB:
            yield finding("shm", f"/dev/shm has {total // MIB} MiB, but {need // MIB} MiB are needed",
                          "mount an emptyDir with medium: Memory and a larger sizeLimit at /dev/shm")  # fmt: skip
        for name, asked in (self.config.get("hugepages") or {}).items():
            kib = {"2Mi": 2048, "1Gi": 1048576}.get(name, 0)
            pages = self.text(f"sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages")
            if (int(pages) if pages.isdigit() else 0) * kib * 1024 < asked:
                yield finding("hugepages", f"{asked // MIB} MiB of hugepages-{name} were requested, but the node has "
                              f"{pages or 'no'} such pages", "set vm.nr_hugepages on the node")  # fmt: skip

    def weights(self) -> Iterator[Json]:
        """Check the files in the index of the weights: each must have the size that its own header states."""
        for folder in {Path(value) for value in self.words.values("--model-path", "--model", "MODEL_PATH")}:
            if not folder.is_absolute() or not folder.is_dir() or self.fetched(folder):
                continue
            names = {file.name for file in folder.glob("*.safetensors")}
            for index in folder.glob("*.safetensors.index.json"):
                try:
                    names |= {str(name) for name in json.loads(index.read_text())["weight_map"].values()}
                except (OSError, ValueError, KeyError, AttributeError) as error:
                    yield finding("weights", f"{index} cannot be read: {error}", "download the model again")
            with ThreadPoolExecutor(8) as pool:
                for problem in pool.map(_damage, [folder / name for name in sorted(names)]):
                    if problem:
                        yield finding("weights", problem, "download the file again")


def _imports(*names: str) -> bool:
    """Return whether a module with this name exists."""
    try:
        return importlib.util.find_spec(".".join(names)) is not None
    except ImportError:  # the parent package does not exist
        return False


def _devices(value: str) -> list[str]:
    """Return the names of devices in a value such as "mlx5_0:1,mlx5_1", "=mlx5_0", or a JSON map of lists."""
    if value.lstrip().startswith("{"):
        try:
            value = ",".join(map(str, json.loads(value).values()))
        except ValueError:
            return []
    if value.startswith("/"):
        return []
    return [part.strip().partition(":")[0] for part in value.lstrip("=").split(",") if part.strip()]


def _damage(file: Path) -> str:
    """Return why a file of the weights is incomplete, or "" if it is complete. Only the header is read."""
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            length = struct.unpack("<Q", opened.read(8))[0]
            header = json.loads(opened.read(min(length, 100 * MIB)))
        end = (
            8 + length + max((item["data_offsets"][1] for name, item in header.items() if name != "__metadata__"), default=0)
        )
    except (OSError, ValueError, struct.error, TypeError, KeyError, AttributeError) as error:
        return f"{file} is not a complete file of weights: {error}"
    return "" if size == end else f"{file} has {size:,} bytes, but its header requires {end:,}"


def _output_lines(command: list[str]) -> list[str]:
    """Return the lines that a command prints; [] if the command does not exist or does not end within 10 s."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
