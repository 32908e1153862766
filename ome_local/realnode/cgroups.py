"""Control groups of a real node. In each hierarchy, all processes of the node's containers are below one group."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_GONE_WITHIN_S = 10.0
_NEEDED = {"cpu", "memory", "pids"}


def hierarchies(mounts: str | None = None) -> list[Path]:
    """Return the mount points of control groups, of version 1 (one for each controller) and of version 2. `mounts` is the
    text of /proc/mounts; None means that the file is read.
    """
    lines = (mounts if mounts is not None else Path("/proc/mounts").read_text()).splitlines()
    return [Path(words[1]) for words in map(str.split, lines) if words[2] in ("cgroup", "cgroup2")]


def make(name: str) -> None:
    """Create the group in every hierarchy. In version 2, the group's controllers are delegated to the groups below it.

    Raises OSError if the group does not get the controllers that a kubelet needs, for example in a container whose own
    group holds processes.
    """
    tops = hierarchies()
    for top in tops:
        group = top / name
        for parent in (top, group):
            group.mkdir(exist_ok=True)
            controllers = parent / "cgroup.controllers"
            if controllers.exists():
                for controller in controllers.read_text().split():
                    with contextlib.suppress(OSError):  # a controller that this kernel does not delegate
                        (parent / "cgroup.subtree_control").write_text(f"+{controller}")
    got = {controller for top in tops for controller in _controllers(top, top / name)}
    if missing := _NEEDED - got:
        raise OSError(f"the controllers {', '.join(sorted(missing))} are not available in {name}")


def _controllers(top: Path, group: Path) -> list[str]:
    """Return the group's controllers. In version 1, the name of a hierarchy is the name of its controllers."""
    told = group / "cgroup.controllers"
    return told.read_text().split() if told.exists() else top.name.split(",")


def remove(name: str) -> None:
    """Kill all processes in the group and in the groups below it, and remove the group in every hierarchy."""
    until = time.monotonic() + _GONE_WITHIN_S
    while groups := [top / name for top in hierarchies() if (top / name).is_dir()]:
        for pid in {pid for group in groups for pid in _pids(group)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for group in groups:
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):  # busy until the last process has ended
                    Path(folder).rmdir()
        if time.monotonic() > until:
            return
        time.sleep(0.02)


def _pids(group: Path) -> Iterator[int]:
    for folder, _, _ in os.walk(group):
        with contextlib.suppress(OSError):
            yield from (int(line) for line in (Path(folder) / "cgroup.procs").read_text().split())
