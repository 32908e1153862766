"""Prometheus and promtool: the programs that are installed on this machine, otherwise the programs of Debian's package,
whose signature apt verifies.
"""

import shutil
import tempfile
from pathlib import Path

from ome_local import cancel
from ome_local.binaries.ensure import cache_dir
from ome_local.binaries.releases import Unavailable
from ome_local.progress import step

PROGRAMS = ("prometheus", "promtool")
PAGES = "web"
"""Key of the folder with the files of Prometheus' web pages."""
_UNPACKED = {**{name: Path("usr/bin", name) for name in PROGRAMS}, PAGES: Path("usr/share/prometheus/web")}
"""Maps the key of a file or folder of the package that is kept to its path in the package."""


def prometheus() -> dict[str, Path]:
    """Return the paths of both programs by name, and the path of the folder PAGES if the programs do not find their web
    pages by themselves. Raises Unavailable if the package cannot be downloaded.
    """
    if found := _here():
        return found
    kept = cache_dir() / "prometheus-debian"
    if not all((kept / name).exists() for name in _UNPACKED):
        with step("downloading Prometheus from Debian"):
            _fetch(kept)
    return {name: kept / name for name in _UNPACKED}


def _here() -> dict[str, Path]:
    found = {name: Path(path) for name in PROGRAMS if (path := shutil.which(name)) is not None}
    return found if len(found) == len(PROGRAMS) else {}


def _fetch(kept: Path) -> None:
    """Download and unpack the package, and move it to the path `kept` in the cache by a single rename, so that the cache
    never contains a part of it.
    """
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise Unavailable(
                f"this machine has neither prometheus nor {program}, which downloads the package of Debian: install "
                "prometheus"
            )
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".new-") as text:
        folder = Path(text)
        _run(["apt-get", "download", "prometheus"], folder)
        (package,) = folder.glob("prometheus_*.deb")
        _run(["dpkg-deb", "-x", package.name, "tree"], folder)
        new = folder / "new"
        new.mkdir()
        for name, place in _UNPACKED.items():
            shutil.move(folder / "tree" / place, new / name)
        shutil.rmtree(kept, ignore_errors=True)
        new.rename(kept)


def _run(command: list[str], folder: Path) -> None:
    done = cancel.run(command, cwd=folder)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise Unavailable(f"{' '.join(command)}: {last[0]} (run `apt-get update` first)")
