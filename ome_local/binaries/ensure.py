"""Provide the programs of clusters in a shared cache. Each program is downloaded or built once, by one process at a time."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from ome_local.binaries import gobuild, releases
from ome_local.binaries.versions import CLIENTS, CONTROL_PLANE, KUBERNETES, Target, Tool, this_machine, tools
from ome_local.cancel import side_by_side
from ome_local.lock import acquire_lock
from ome_local.progress import print_progress, step
from ome_operator.errors import UserError

_DOWNLOADS = 4


def cache_dir() -> Path:
    """Return the folder $OME_CACHE, or the user's default folder for caches."""
    if own := os.environ.get("OME_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ome"


def program_path(tool: Tool, target: Target) -> Path:
    """Return the path of the program in the cache. Each version has its own folder, so that upgrades never mix."""
    return cache_dir() / f"{tool.name}-{tool.version}-{target.os}-{target.arch}" / tool.name


def files(tool: Tool, target: Target) -> Path:
    """Return the folder of the cache with the files of the program's source that are kept next to the program."""
    return program_path(tool, target).with_name(gobuild.files_of(tool))


def ensure(
    names: Iterable[str] = CONTROL_PLANE, kubernetes: str = KUBERNETES, *, more_to_come: bool = False
) -> dict[str, Path]:
    """Return the paths of these programs for a cluster with this Kubernetes version, after downloading or building
    missing programs.

    `more_to_come` is true if the caller will request more programs afterwards; compiled objects are then kept.
    """
    of_version = tools(kubernetes)
    return provide([of_version[name] for name in names], more_to_come=more_to_come)


def provide(wanted: Sequence[Tool], *, more_to_come: bool = False) -> dict[str, Path]:
    """Return the paths of these programs as `ensure` does, even for programs that do not belong to a cluster. `more_to_come`
    is true if the caller will request more programs afterwards; compiled objects are then kept.
    """
    target = this_machine(clients_only={tool.name for tool in wanted} <= set(CLIENTS))
    for module, members in groupby(sorted(wanted, key=lambda tool: tool.module), key=lambda tool: tool.module):
        together = list(members)
        if any(not program_path(tool, target).exists() for tool in together):
            with _lock(module):
                _get([tool for tool in together if not program_path(tool, target).exists()], target, more_to_come)
    return {tool.name: program_path(tool, target) for tool in wanted}


def _get(tools: list[Tool], target: Target, more_to_come: bool) -> None:
    """Put these programs, which belong to one Go module, into the cache: download the releases that can be verified, and
    build the other programs with Go. `more_to_come` is passed on to the build (see `ensure`).
    """
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".new-") as folder:
        beside = Path(folder)
        reasons = _fetch([tool for tool in tools if tool.archive], target, beside)
        if reasons:
            print_progress(f"There is no verified release of {_by_reason(reasons)}.")
        rest = [tool for tool in tools if not tool.archive or tool.name in reasons]
        if rest:
            gobuild.build(rest, target, beside, cache_dir(), more_to_come=more_to_come)
            for tool in rest:
                built = beside / tool.name
                if not built.exists():
                    raise UserError(f"The Go build of {tool.name} succeeded but created no program.")
                _keep(built, tool, target)


def _fetch(tools: Sequence[Tool], target: Target, beside: Path) -> dict[str, releases.Unavailable]:
    """Download releases into the cache, several at a time. Return a map from program name to reason for each unavailable
    release.
    """

    def fetch(tool: Tool) -> releases.Unavailable | None:
        try:
            releases.fetch(tool, target, beside / tool.name)
        except releases.Unavailable as reason:
            return reason
        _keep(beside / tool.name, tool, target)
        return None

    with step(f"fetching {', '.join(f'{tool.name} {tool.version}' for tool in tools)}"):
        found = side_by_side(fetch, tools, _DOWNLOADS)
    return {tool.name: reason for tool, reason in zip(tools, found, strict=True) if reason}


def _by_reason(reasons: Mapping[str, releases.Unavailable]) -> str:
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(str(reason), []).append(name)
    return "; ".join(f"{', '.join(those)} ({reason})" for reason, those in names.items())


def _keep(program: Path, tool: Tool, target: Target) -> None:
    """Move the program, and the files of its source that are kept, into the cache by a single rename, so that an incomplete
    program is never run.
    """
    final = program_path(tool, target)
    new = Path(tempfile.mkdtemp(dir=cache_dir(), prefix=f".new-{tool.name}-"))
    new.chmod(0o755)
    program.rename(new / tool.name)
    beside = program.with_name(gobuild.files_of(tool))
    if beside.exists():
        beside.rename(new / beside.name)
    shutil.rmtree(final.parent, ignore_errors=True)
    new.rename(final.parent)


@contextmanager
def _lock(module: str) -> Iterator[None]:
    """Hold the lock for the work on a Go module. Another process that waits for the lock then finds the work done."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f".{module}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"waiting for another `ome` process that downloads or builds {module}"):
                acquire_lock(file.fileno())
        yield
