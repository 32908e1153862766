"""The programs of a cluster in a cache that clusters share: fetched or built once, by one process at a time."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from ome_local.binaries import gobuild, releases
from ome_local.binaries.versions import CLIENTS, CONTROL_PLANE, TOOLS, Target, Tool, this_machine
from ome_local.progress import say, step
from ome_operator.errors import UserError


def cache_dir() -> Path:
    """$OME_CACHE, or the place for caches of the person's session."""
    if own := os.environ.get("OME_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ome"


def place(tool: Tool, target: Target) -> Path:
    """Where the program lies once it is there. A folder of its own per version, so upgrades never mix."""
    return cache_dir() / f"{tool.name}-{tool.version}-{target.os}-{target.arch}" / tool.name


def ensure(names: Iterable[str] = CONTROL_PLANE) -> dict[str, Path]:
    """The paths of these programs, after fetching or building what is missing."""
    return provide([TOOLS[name] for name in names])


def provide(tools: Sequence[Tool]) -> dict[str, Path]:
    """`ensure` for programs that need not be those of a cluster."""
    target = this_machine(clients_only={tool.name for tool in tools} <= set(CLIENTS))
    # The short builds come first: a failure that has nothing to do with Kubernetes shows before its long one.
    ordered = sorted(tools, key=lambda tool: (tool.module == "kubernetes", tool.module))
    for module, members in groupby(ordered, key=lambda tool: tool.module):
        wanted = list(members)
        if any(not place(tool, target).exists() for tool in wanted):
            with _lock(module):
                _get([tool for tool in wanted if not place(tool, target).exists()], target)
    return {tool.name: place(tool, target) for tool in tools}


def _get(tools: list[Tool], target: Target) -> None:
    """Releases where they can be verified, one Go build for the rest."""
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".new-") as folder:
        beside, reasons = Path(folder), dict[str, releases.Unavailable]()
        for tool in (each for each in tools if each.archive):
            try:
                with step(f"fetching {tool.name} {tool.version}"):
                    releases.fetch(tool, target, beside / tool.name)
                _keep(beside / tool.name, tool, target)
            except releases.Unavailable as reason:
                reasons[tool.name] = reason
        if reasons:
            say(f"No verified release of {', '.join(reasons)} ({next(iter(reasons.values()))}).")
        rest = [tool for tool in tools if not tool.archive or tool.name in reasons]
        if rest:
            gobuild.build(rest, target, beside, cache_dir())
            for tool in rest:
                built = beside / tool.name
                if not built.exists():
                    raise UserError(f"The Go build of {tool.name} left no program.")
                _keep(built, tool, target)


def _keep(program: Path, tool: Tool, target: Target) -> None:
    """Into its place by one rename, so that nobody ever runs half a program."""
    final = place(tool, target)
    new = Path(tempfile.mkdtemp(dir=cache_dir(), prefix=f".new-{tool.name}-"))
    new.chmod(0o755)
    program.rename(new / tool.name)
    shutil.rmtree(final.parent, ignore_errors=True)
    new.rename(final.parent)


@contextmanager
def _lock(module: str) -> Iterator[None]:
    """One builder per module, across processes: the second waits and then finds the work done."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f".{module}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"waiting for another `ome` that gets {module}"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
