"""Read the properties of the machine for a GPU check, independently of the check's code. Needs only Python's standard
library.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import resource
import socket
from dataclasses import dataclass
from pathlib import Path

OPEN_FILES = 1 << 20
"""Limit of open files that containerd's unit sets for containers."""


@dataclass(frozen=True)
class Machine:
    """Properties of this machine, read independently of the code of the check."""

    gpus: int
    driver: int
    shm: int
    nofile: int
    torch: bool

    @classmethod
    def read(cls) -> Machine:
        """Read /proc, /dev and the limits of this process."""
        status, hard = os.statvfs("/dev/shm"), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        driver = re.search(r"\b(\d{3,4})\.\d+", text(Path("/proc/driver/nvidia/version")))
        return cls(
            gpus=len(names(Path("/proc/driver/nvidia/gpus"))) or len(numbered_gpus()),
            driver=int(driver[1]) if driver else 0,
            shm=status.f_frsize * status.f_blocks,
            nofile=1 << 62 if hard == resource.RLIM_INFINITY else hard,
            torch=importlib.util.find_spec("torch") is not None,
        )


def raise_open_files() -> tuple[int, int]:
    """Raise the limit of open files as container runtimes do, as far as this process is permitted to. Return the previous
    limits.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < OPEN_FILES:
        with contextlib.suppress(OSError, ValueError):  # without the right to raise it, the finding of `nofile` is correct
            resource.setrlimit(resource.RLIMIT_NOFILE, (before[0], OPEN_FILES))
    return before


def older_driver(root: Path, version: str, driver: int, older: int) -> None:
    """Create a root folder with the real /sys and /dev, in which the text of the driver's version states another version:
    `older` in place of the major version `driver`.
    """
    (root / "proc/driver/nvidia").mkdir(parents=True)
    for name in ("sys", "dev"):
        (root / name).symlink_to(f"/{name}")
    (root / "proc/self").symlink_to("/proc/self")
    (root / "proc/driver/nvidia/version").write_text(re.sub(rf"\b{driver}(?=\.\d)", str(older), version))


def two_ports() -> int:
    """Return a free port P such that port P + 1 is free as well. The check opens port P, and torch opens port P + 1."""
    while True:
        with socket.create_server(("", 0)) as first:
            port: int = first.getsockname()[1]
            if port < 65535 and not in_use("", port + 1):
                return port


def in_use(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return True
    return False


def numbered_gpus() -> list[str]:
    return [name for name in names(Path("/dev")) if re.fullmatch(r"nvidia\d+", name)]


def names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def package_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
