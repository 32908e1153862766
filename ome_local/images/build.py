"""Container images where there is no Docker and no registry: the Dockerfiles of images/, run in a chroot.

One layer per stage that an image stands on, kept in the cache under a digest of everything that goes into it: images share
layers, and what did not change is not made again. The result is a docker-archive for `ome local load`.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ome_local.binaries.ensure import cache_dir
from ome_local.binaries.versions import this_machine
from ome_local.images import archive
from ome_local.images.builder import NOT_COPIED, Builder, megabytes
from ome_local.images.dockerfile import Run, Stage, parse
from ome_local.images.rootfs import SUITE
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
"""Name of the folder below images/ -> what pods call the image."""
SERVING = ("operator", "engine-cpu", "router", "agent")
"""What a service with the tiny model needs, and a benchmark of it."""
BASE = "debian:bookworm-slim"
"""The only image that a Dockerfile here may begin with: mmdebstrap makes its like."""
_MADE_BY = "1"
"""Part of every key: raise it when the way of building changes what comes out."""


def build(names: Iterable[str] = SERVING) -> dict[str, Path]:
    """The docker-archives of these images, after building what is not in the cache. Building needs root on
    Linux amd64, or Docker.
    """
    root, made = checkout(), {}
    for name in names:
        if name not in REFERENCES:
            raise UserError(f"There is no image {name!r}; there are {', '.join(REFERENCES)}.")
        stages = stages_of(name, root)
        keys = keys_of(stages, root)
        made[name] = place(name, keys)
        if not made[name].exists():
            make = _maker(name)
            with locked(folder(), create=True):
                if not made[name].exists():
                    make(name, stages, keys, root)
        if str(root) not in _told(made[name])["checkouts"]:
            with locked(folder(), create=True):
                claim(name, keys, root)
    return made


def folder() -> Path:
    """Archives, and in layers/ what they share."""
    return cache_dir() / "images"


def place(name: str, keys: Mapping[str, str]) -> Path:
    """Where the archive lies once it is there."""
    return folder() / f"{name}-{keys['']}.tar"


def stages_of(name: str, root: Path) -> dict[str, Stage]:
    """The stages of images/<name>/Dockerfile."""
    file = root / "images" / name / "Dockerfile"
    return parse(file.read_text(encoding="utf-8"), str(file.relative_to(root)))


def keys_of(stages: Mapping[str, Stage], root: Path) -> dict[str, str]:
    """Stage -> digest of all that it is made of: its text, the files that it copies, and the stages it builds on."""
    keys = {BASE: _digest([_MADE_BY, SUITE])}
    for stage in stages.values():
        parts: list[object] = [_key(keys, stage.parent), sorted(stage.env.items()), stage.user, stage.entrypoint]
        for each in stage.steps:
            if isinstance(each, Run):
                parts.append([each.command, each.caches, sorted(each.env.items())])
            else:
                what = [_key(keys, each.stage)] if each.stage else [content(root / path, root) for path in each.sources]
                parts.append([each.sources, each.to, what])
        keys[stage.name] = _digest(parts)
    return keys


def content(path: Path, root: Path) -> str:
    """Digest of a file, or of all files below a folder: names, bytes, and who may run them."""
    if not path.exists():
        raise UserError(f"There is no {path.relative_to(root)} in {root}: images are built from a checkout.")
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


def _key(keys: Mapping[str, str], name: str) -> str:
    if name not in keys:
        raise UserError(f"A Dockerfile here begins with {BASE} or a stage above; {name!r} is neither.")
    return keys[name]


def _maker(name: str) -> Callable[[str, Mapping[str, Stage], Mapping[str, str], Path], None]:
    """How this machine builds; what is missing is said before anything is downloaded."""
    target = this_machine(clients_only=True)
    if (target.os, target.arch) == ("linux", "amd64") and os.geteuid() == 0:
        return _in_chroot
    if shutil.which("docker"):
        return _by_docker
    raise UserError(f"Image {name} is built as root on Linux amd64, or by Docker: neither is here.")


def _by_docker(name: str, _: Mapping[str, Stage], keys: Mapping[str, str], root: Path) -> None:
    """`docker build` of the same file."""
    out, log = place(name, keys), folder() / f"{name}.log"
    part = out.with_suffix(".part")
    commands = (
        ["docker", "build", "--platform=linux/amd64", "-f", f"images/{name}/Dockerfile", "-t", REFERENCES[name], "."],
        ["docker", "save", "-o", str(part), REFERENCES[name]],
    )
    with log.open("w") as said:
        for command in commands:
            with step(f"{name}: {' '.join(command[:2])}", quiet_below=0.0):
                if subprocess.run(command, cwd=root, stdout=said, stderr=said, check=False).returncode:
                    raise UserError(f"`{' '.join(command)}` failed; its log is {log}.")
    part.rename(out)
    out.with_suffix(".json").write_text(json.dumps({"layers": []}))


def _told(archived: Path) -> dict[str, list[str]]:
    """What is written beside an archive: its layers, and the checkouts that use it."""
    file = archived.with_suffix(".json")
    return {"layers": [], "checkouts": [], **(json.loads(file.read_text()) if file.exists() else {})}


def _in_chroot(name: str, stages: Mapping[str, Stage], keys: Mapping[str, str], root: Path) -> None:
    """Build into a work folder, and write the archive."""
    for stale in folder().glob(".work-*"):
        shutil.rmtree(stale)
    log = folder() / f"{name}.log"
    log.unlink(missing_ok=True)
    out = place(name, keys)
    with tempfile.TemporaryDirectory(dir=folder(), prefix=".work-") as work:
        builder = Builder(name, stages, keys, root=root, base=BASE, store=folder() / "layers", work=Path(work), log=log)
        layers = builder.layers("")
        with step(f"{name}: archive", quiet_below=0.0) as more:
            archive.write(out, REFERENCES[name], layers, builder.config())
            more.append(megabytes(out))
    out.with_suffix(".json").write_text(json.dumps({"layers": [layer.name for layer in layers]}))


def claim(name: str, keys: Mapping[str, str], root: Path) -> None:
    """Note that the checkout `root` uses this archive. Remove those that no checkout uses, and layers that none has.

    Checkouts share the cache: without this each would remove what the other has just built.
    """
    mine = place(name, keys)
    for archived in {file.with_suffix(".tar") for file in folder().glob(f"{name}-????????????????.*")}:
        told = _told(archived)
        users = {one for one in told["checkouts"] if one != str(root) and Path(one).is_dir()}
        if users or archived == mine:
            told["checkouts"] = sorted(users | ({str(root)} if archived == mine else set()))
            archived.with_suffix(".json").write_text(json.dumps(told))
        else:
            for file in folder().glob(f"{archived.stem}.*"):
                file.unlink()
    used = {layer for file in folder().glob("*.json") for layer in json.loads(file.read_text())["layers"]}
    for layer in (folder() / "layers").glob("*.tar"):
        if layer.name not in used:
            layer.unlink()
