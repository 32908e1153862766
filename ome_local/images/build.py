"""Build container images without Docker and without a registry: buildah executes the Dockerfiles of images/.

The name of an archive in the cache contains a digest of all inputs of the image, so an unchanged image is not built again. A
changed image is built from the layers in buildah's storage.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ome_local import cancel
from ome_local.binaries.ensure import cache_dir
from ome_local.binaries.versions import this_machine
from ome_local.images import buildah
from ome_local.lock import locked
from ome_local.progress import step
from ome_operator import __version__
from ome_operator.errors import UserError
from ome_operator.util.checkout import checkout

REFERENCES = {
    "operator": f"local/ome-operator:{__version__}",
    "engine-cpu": "local/sglang-cpu:0.5.23",
    "router": "local/sglang-router:0.3.2",
    "agent": f"local/ome-agent:{__version__}",
}
"""Maps the name of a folder below images/ to the reference with which pods use the image."""
SERVING = ("operator", "engine-cpu", "router", "agent")
"""Images that a service with the tiny model needs, and that a benchmark of this service needs."""
NOT_COPIED = ("__pycache__", "*.pyc")
"""Patterns in .dockerignore of the files that COPY does not copy."""
_MADE_BY = "2"
"""Version of the build process, a part of every cache key. It is incremented if a change of the build process changes the
images."""
_COPY = re.compile(r"^COPY (?!--)(.+) \S+$", re.MULTILINE)


def build(names: Iterable[str] = SERVING) -> dict[str, Path]:
    """Return a map from image name to the path of the docker-archive, after building the images that are not cached.
    Building needs root on Linux amd64, or Docker.
    """
    root, made = checkout(), {}
    for name in names:
        if name not in REFERENCES:
            raise UserError(f"There is no image {name!r}: use one of {', '.join(REFERENCES)}.")
        made[name] = _kept(name, key(name, root), _maker(name, root), folder())
    return made


def single(name: str, reference: str, files: Mapping[Path, str], *config: str) -> Path:
    """Return the path of the docker-archive of an image that contains only the given files. `files` maps a file or tar on
    this machine to a path in the image; `config` are arguments of `buildah config`.
    """

    def make(out: Path, log: Path) -> None:
        buildah.require()
        buildah.commit(reference, {str(file): place for file, place in files.items()}, *config, log=log)
        buildah.archive(reference, reference, out)

    parts = [(hashlib.sha256(file.read_bytes()).hexdigest(), place) for file, place in files.items()]
    # A separate lock: this image shares no layers with images of Dockerfiles, whose builds take minutes.
    return _kept(name, _digest([_MADE_BY, reference, parts, config]), make, folder() / "single")


def folder() -> Path:
    """Return the folder of the archives, their logs, and buildah's storage."""
    return cache_dir() / "images"


def key(name: str, root: Path) -> str:
    """Return a digest of all inputs of an image: its Dockerfile, and the files that the Dockerfile copies from the
    repository.
    """
    text = dockerfile(name, root).read_text(encoding="utf-8")
    sources = [source for words in _COPY.findall(text) for source in words.split()]
    return _digest([_MADE_BY, text, [content(root / source, root) for source in sources]])


def dockerfile(name: str, root: Path) -> Path:
    """Return the path of an image's Dockerfile."""
    return root / "images" / name / "Dockerfile"


def content(path: Path, root: Path) -> str:
    """Return a digest of a file, or of all files below a folder. It covers names, contents and executable bits."""
    if not path.exists():
        raise UserError(
            f"There is no {path.relative_to(root)} in {root}: run this command in a checkout, because images "
            "are built from its files."
        )
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    wanted = [file for file in files if not any(part.match(skip) for part in _below(file, path) for skip in NOT_COPIED)]
    return _digest(
        [(str(file.relative_to(path)), _runs(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in wanted]
    )


def _below(file: Path, top: Path) -> list[Path]:
    return [Path(part) for part in file.relative_to(top).parts]


def _runs(file: Path) -> bool:
    return os.access(file, os.X_OK)


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _kept(name: str, digest: str, make: Callable[[Path, Path], None], lock: Path) -> Path:
    """Return the path of an archive in the cache. If the archive does not exist there, `make` is called with the paths of
    the archive and of its log, and creates the archive. The function waits while another process holds the same lock.
    """
    out, user = folder() / f"{name}-{digest}.tar", str(checkout())
    if not out.exists() or user not in _users(out):
        with locked(lock, create=True):
            if not out.exists():
                log = folder() / f"{name}.log"
                log.unlink(missing_ok=True)
                make(out, log)
            _claim(name, out, user)
    return out


def _users(archived: Path) -> set[str]:
    """Return the checkouts that use an archive. A file next to the archive lists them."""
    file = archived.with_suffix(".json")
    return set(json.loads(file.read_text())) if file.exists() else set()


def _claim(name: str, mine: Path, user: str) -> None:
    """Record that a checkout uses this archive, and remove archives of this name that no checkout uses.

    Checkouts share the cache. Without this record, each checkout would remove the archives that another checkout has just
    built.
    """
    for archived in folder().glob(f"{name}-????????????????.tar"):
        users = {other for other in _users(archived) if other != user and Path(other).is_dir()}
        users |= {user} if archived == mine else set()
        if users:
            archived.with_suffix(".json").write_text(json.dumps(sorted(users)))
        else:
            archived.unlink()
            archived.with_suffix(".json").unlink(missing_ok=True)


def _maker(name: str, root: Path) -> Callable[[Path, Path], None]:
    """Return the function that builds an image on this machine. Missing requirements are reported before anything is
    downloaded.
    """

    def by_buildah(out: Path, log: Path) -> None:
        reason = buildah.why_not() or _foreign()
        if reason and shutil.which("docker"):
            _by_docker(name, root, out, log)
            return
        if reason:
            raise UserError(
                f"Image {name} can be built only as root on Linux amd64 or with Docker, but {reason}, and docker is not "
                "installed."
            )
        buildah.require()
        with step(f"{name}: buildah bud", quiet_below=0.0):
            buildah.bud(dockerfile(name, root), root, REFERENCES[name], log)
        with step(f"{name}: archive", quiet_below=0.0) as more:
            buildah.archive(REFERENCES[name], REFERENCES[name], out)
            more.append(f"{out.stat().st_size / 1e6:.0f} MB")
        buildah.prune()

    return by_buildah


def _foreign() -> str | None:
    """Return why this machine cannot build images natively; None if it can build them. The packages of images/ are pinned
    for amd64; Docker emulates amd64 on other machines.
    """
    target = this_machine(clients_only=True)
    return None if target.arch == "amd64" else f"this is {target.os} {target.arch}"


def _by_docker(name: str, root: Path, out: Path, log: Path) -> None:
    """Build the Dockerfile of an image with `docker build` instead of buildah, and write the docker-archive `out`."""
    part = out.with_suffix(".part")
    commands = (
        ["docker", "build", "--platform=linux/amd64", "-f", f"images/{name}/Dockerfile", "-t", REFERENCES[name], "."],
        ["docker", "save", "-o", str(part), REFERENCES[name]],
    )
    with log.open("w") as said:
        for command in commands:
            with step(f"{name}: {' '.join(command[:2])}", quiet_below=0.0):
                if cancel.run(command, cwd=root, output=said).returncode:
                    raise UserError(f"`{' '.join(command)}` failed; its log is {log}.")
    part.rename(out)
