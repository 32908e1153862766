"""The program that runs in a pod of an engine, in the engine's image. With the argument `load` it copies the compile cache
that the agent of the node has sealed. With the argument `seal` it waits until the engine serves, and hands the engine's
cache to the agent (docs/compile-caches.md).

The variable OME_COMPILE_CACHE contains all settings as JSON: `folder` (the volume of the pod), `agent` (the socket of the
agent), `health` (the URL that returns 200 when the engine serves), and `gpus` (whether the engine requests NVIDIA GPUs). For
tests there are `root` (parent of /proc) and `pause` (seconds between two attempts).

The program never fails: if there is no cache, it prints the reason, and the engine starts without a cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ome_operator.compile_cache.archive import ChangedError, NoCache, pack, unpack

CACHE, FRESH, HARDWARE, PROGRAM = "cache", ".new", ".hardware", ".program"
"""Names in the pod's volume: the engine's cache, a cache that is not complete yet, the digest of the hardware, and this
program as text, for the sidecar."""
OF_ENGINE = (".started", ".old")
"""Names that `code.AGAIN` creates in the pod's volume when the engine's container starts."""
LINE = 1024
"""Maximum length of an answer of the agent in bytes."""
LOADING = 120.0
"""Seconds after which a copy that is not complete is given up."""
WAITS, ATTEMPTS = 5, 10
"""Number of attempts to reach an agent that is busy or starts again: before the engine starts, and when it serves."""
_OF_CPU = ("vendor_id", "cpu family", "model", "model name", "flags", "CPU implementer", "CPU part", "Features")
_DIGEST = re.compile(r"[0-9a-f]{32}")

Json = dict[str, Any]


class BusyError(Exception):
    """The agent does not answer now."""


def hardware(root: Path, gpus: bool) -> str:
    """Return a digest of the CPU, of the GPUs and of their driver. Raises NoCache if they are not known."""
    wanted: dict[str, str] = {}
    for line in _read(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in _OF_CPU:
            wanted.setdefault(name.strip(), value.strip())
    if not wanted:
        raise NoCache("the CPU is not known: /proc/cpuinfo names no model and no flags")
    driver = _read(root / "proc/driver/nvidia/version")
    files = (root / "proc/driver/nvidia/gpus").glob("*/information")
    models = {line for path in files for line in _read(path).splitlines() if line.startswith("Model:")}
    if gpus and not (driver and models):
        raise NoCache("the GPUs and their driver are not known: they are not listed in /proc/driver/nvidia")
    facts = [platform.machine(), sorted(wanted.items()), driver, sorted(models)]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@contextlib.contextmanager
def _asked(agent: str, request: Json) -> Iterator[tuple[BinaryIO, Json, socket.socket]]:
    """Send a request to the agent, and yield the stream after its answer, the answer, and the connection. Raises NoCache if
    no agent exists or it has no cache, and BusyError if it does not answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(30.0)
        try:
            connection.connect(agent)
            connection.sendall(json.dumps(request).encode() + b"\n")
            stream = connection.makefile("rb")
            line = stream.readline(LINE)
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise NoCache(f"no agent of this node keeps compile caches of this engine yet ({error.strerror})") from error
        except OSError as error:
            raise BusyError(f"the agent of this node does not answer ({error})") from error
        if not line:
            raise BusyError("the agent of this node is busy")
        with stream:
            yield stream, _answer(line), connection


def _answer(line: bytes) -> Json:
    try:
        answer = json.loads(line)
    except ValueError as error:
        raise NoCache("the answer of the agent cannot be read") from error
    if not isinstance(answer, dict):
        raise NoCache("the answer of the agent cannot be read")
    if "none" in answer:
        raise NoCache(str(answer["none"])[:300])
    if answer.get("busy"):
        raise BusyError("the agent of this node is busy")
    return answer


def load(config: Json) -> str:
    """Copy the sealed cache into the pod's volume, and return a sentence about it. Raises NoCache and BusyError; the engine
    then starts with an empty cache.
    """
    folder = Path(config["folder"])
    for name in (CACHE, FRESH, HARDWARE, *OF_ENGINE):  # they exist if the pod was started again
        _remove(folder / name)
    try:
        digest = hardware(Path(config.get("root", "/")), bool(config.get("gpus")))
        (folder / HARDWARE).write_text(digest)
        began = time.monotonic()
        with _asked(config["agent"], {"op": "load", "hardware": digest}) as (stream, answer, _):
            files, size = unpack(stream, int(answer["size"]), folder / FRESH)
        (folder / FRESH).rename(folder / CACHE)
        return f"compile cache: copied {files} files with {size / 1e6:.1f} MB in {time.monotonic() - began:.1f} s"
    except OSError as error:
        raise NoCache(f"the cache cannot be copied: {error}") from error
    finally:
        _remove(folder / FRESH)
        (folder / CACHE).mkdir(exist_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def serves(url: str) -> bool:
    """Return whether the engine serves."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as reply:
            return bool(reply.status == 200)
    except (OSError, ValueError):
        return False


def seal(config: Json) -> str:
    """Report to the agent that the engine serves and, if the agent has no cache for it yet, hand over the engine's cache.
    Return a sentence about it. Raises NoCache, BusyError, ChangedError and OSError.
    """
    folder = Path(config["folder"])
    digest = _read(folder / HARDWARE)
    if not _DIGEST.fullmatch(digest):
        raise NoCache("the hardware is not known or the engine had to start again, so the engine's cache is not kept")
    if not Path(config["agent"]).exists():  # the agent finds a new directory within seconds, and may start after the engine
        raise BusyError("no agent of this node keeps compile caches")
    with _asked(config["agent"], {"op": "served", "hardware": digest}) as (stream, answer, connection):
        if not isinstance(answer.get("send"), int):
            return "compile cache: the agent of this node has this cache already"
        files = size = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # then the answer of the agent says why
            with connection.makefile("wb") as out:
                files, size = pack(folder / CACHE, out, answer["send"])
            connection.shutdown(socket.SHUT_WR)
        _answer(stream.readline(LINE))
    return f"compile cache: sealed {files} files with {size / 1e6:.1f} MB"


def repeated(step: Any, config: Json, attempts: int, pause: float) -> str:
    """Return the sentence of `step`, which is repeated while the agent is busy or the engine's cache changes."""
    for attempt in range(attempts):
        try:
            return str(step(config))
        except NoCache as error:
            return f"no compile cache: {error}"
        except (BusyError, ChangedError, OSError) as error:
            last = error
        except Exception as error:
            return f"no compile cache: {type(error).__name__}: {error}"
        if attempt + 1 < attempts:
            time.sleep(pause)
    return f"no compile cache: {last}"


def main() -> None:
    """Run the step that the first argument names."""
    config = json.loads(os.environ["OME_COMPILE_CACHE"])
    if sys.argv[1:2] == ["load"]:
        with contextlib.suppress(OSError):
            Path(config["folder"], PROGRAM).write_text(os.environ["OME_COMPILE_CACHE_CODE"])

        def give_up(*_: object) -> None:
            raise NoCache(f"the copy was not complete after {LOADING:.0f} s")

        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, config.get("seconds", LOADING))
        print(repeated(load, config, WAITS, config.get("pause", 1.0)), flush=True)
        return
    while not serves(config["health"]):
        time.sleep(config.get("pause", 2.0))
    print(repeated(seal, config, ATTEMPTS, config.get("pause", 30.0)), flush=True)
