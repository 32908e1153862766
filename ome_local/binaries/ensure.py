"""The programs of a cluster in a cache that clusters share: fetched or built once, by one process at a time."""

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
from ome_local.lock import acquire
from ome_local.progress import say, step
from ome_operator.errors import UserError

_DOWNLOADS = 4


def cache_dir() -> Path:
    """$OME_CACHE, or the place for caches of the person's session."""
    if own := os.environ.get("OME_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ome"


def place(tool: Tool, target: Target) -> Path:
    """Where the program lies once it is there. A folder of its own per version, so upgrades never mix."""
    return cache_dir() / f"{tool.name}-{tool.version}-{target.os}-{target.arch}" / tool.name


def ensure(
    names: Iterable[str] = CONTROL_PLANE, kubernetes: str = KUBERNETES, *, more_to_come: bool = False
) -> dict[str, Path]:
    """The paths of these programs of a cluster of this Kubernetes, after fetching or building what is missing.

    `more_to_come`: others are asked for afterwards, so what was compiled for these is kept until then.
    """
    of_version = tools(kubernetes)
    return provide([of_version[name] for name in names], more_to_come=more_to_come)


def provide(wanted: Sequence[Tool], *, more_to_come: bool = False) -> dict[str, Path]:
    """`ensure` for programs that need not be those of a cluster."""
    target = this_machine(clients_only={tool.name for tool in wanted} <= set(CLIENTS))
    for module, members in groupby(sorted(wanted, key=lambda tool: tool.module), key=lambda tool: tool.module):
        together = list(members)
        if any(not place(tool, target).exists() for tool in together):
            with _lock(module):
                _get([tool for tool in together if not place(tool, target).exists()], target, more_to_come)
    return {tool.name: place(tool, target) for tool in wanted}


def _get(tools: list[Tool], target: Target, more_to_come: bool) -> None:
    """Releases where they can be verified, one Go build for the rest."""
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".new-") as folder:
        beside = Path(folder)
        reasons = _fetch([tool for tool in tools if tool.archive], target, beside)
        if reasons:
            say(f"No verified release of {_by_reason(reasons)}.")
        rest = [tool for tool in tools if not tool.archive or tool.name in reasons]
        if rest:
            gobuild.build(rest, target, beside, cache_dir(), more_to_come=more_to_come)
            for tool in rest:
                built = beside / tool.name
                if not built.exists():
                    raise UserError(f"The Go build of {tool.name} left no program.")
                _keep(built, tool, target)


def _fetch(tools: Sequence[Tool], target: Target, beside: Path) -> dict[str, releases.Unavailable]:
    """Put releases into their places, several at a time; those that cannot be had, with the reason."""

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
                acquire(file.fileno())
        yield
