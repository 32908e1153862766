"""Run Debian's buildah with a storage in the cache: build Dockerfiles, and write archives and OCI layouts.

Images are defined by Dockerfiles (decisions 26). Each call runs in a separate mount namespace. Otherwise buildah would
leave its storage mounted, and the cache could not be removed.
"""

import json
import os
import re
import shutil
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ome_local import cancel
from ome_local.binaries import releases
from ome_local.binaries.ensure import cache_dir
from ome_local.images import debian
from ome_local.lock import locked
from ome_local.progress import step
from ome_local.realnode import requirements
from ome_operator.errors import UserError

PROGRAM = "buildah"
_BEGIN = re.compile(r"^ARG BASE=(\S+):(\S+)@(sha256:[0-9a-f]{64})$", re.MULTILINE)
"""Pattern of the line with a Dockerfile's base image: repository, tag, and digest of the index. Only the digest is used;
the tag is information for readers."""
MANY = 200
"""Maximum number of unnamed layers that are kept. An edit of the operator leaves three layers with some MB, and all
images together need forty layers."""
_HUB = "https://registry-1.docker.io/v2/"
_INSIDE = "/run/ome"
_PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT")
"""Environment variables with settings of the package index. The settings are specific to this machine, so they are
mounted during a build and never become part of an image."""
_OF_LOGINS = ("DOCKER_CONFIG", "REGISTRY_AUTH_FILE")
"""Environment variables that are removed for buildah, because buildah exits if such a variable contains the path of a
missing file. No login is needed, because buildah pulls public images and pushes only to files."""
_ALONE = ("unshare", "--mount", "--propagation", "private")


def why_not() -> str | None:
    """Return why this machine cannot run buildah; None if it can run buildah after the package is installed."""
    if os.geteuid() != 0 or not Path("/proc/self/ns/mnt").exists():
        return "buildah needs root on Linux"
    if shutil.which(PROGRAM) is None and shutil.which("apt-get") is None:
        return "buildah is missing, and there is no apt-get to install it"
    return None


def run(*words: str, log: Path | None = None) -> str:
    """Run buildah, and return its output. If `log` is given, all output is also appended to that file. Raises UserError,
    with the last line of the output, if buildah fails.
    """
    place = storage()
    own = ["--root", str(place / "root"), "--runroot", str(place / "run"), "--storage-driver", "overlay"]
    command = [*_ALONE, PROGRAM, *own, *words]
    # buildah also creates the folders of `--mount=type=cache` there
    environment = {name: value for name, value in os.environ.items() if name not in _OF_LOGINS} | {
        "TMPDIR": str(place / "tmp")
    }
    done = cancel.run(command, env=environment)
    if log:
        with log.open("a") as file:
            file.write(done.stdout + done.stderr)
    if done.returncode:
        where = f" (see {log})" if log else ""
        raise UserError(f"`buildah {' '.join(words[:2])}` failed{where}: {_last_line(done.stderr or done.stdout)}")
    return done.stdout.strip()


def storage() -> Path:
    """Return the folder of the images and of the layers that the images share."""
    return cache_dir() / "images" / "storage"


def require() -> None:
    """Install Debian's package buildah unless it is installed. Raises UserError if this machine cannot run buildah."""
    if reason := why_not():
        raise UserError(f"Images cannot be built here: {reason}.")
    if shutil.which(PROGRAM) is None:
        requirements.install([PROGRAM])
    (storage() / "tmp").mkdir(parents=True, exist_ok=True)


def bud(dockerfile: Path, root: Path, name: str, log: Path, *, published: bool = False) -> None:
    """Build a Dockerfile with the files below `root`, and store the image with the name `name`.

    If `published` is true, only the published Debian image is used as base.
    """
    with locked(storage(), create=True), _settings() as mounts:
        _remove_interrupted()
        begin = ["--build-arg", f"BASE={base_image(dockerfile, log, published=published)}"]
        volumes = [word for source, place in mounts.items() for word in ("-v", f"{source}:{place}:ro")]
        words = ["--isolation", "chroot", "--pull-never", "--layers", "--format", "oci", *begin, *volumes]
        run("bud", *words, "-f", str(dockerfile), "-t", name, str(root), log=log)


def base_image(dockerfile: Path, log: Path, *, published: bool = False) -> str:
    """Return the name of a Dockerfile's base image in the storage. The image is the published Debian image, or, if no
    registry responds and `published` is false, an equivalent image that is created on this machine.

    Both names contain the digest, so that another digest results in another image.
    """
    begin = _BEGIN.search(dockerfile.read_text(encoding="utf-8"))
    if begin is None:
        raise UserError(f"{dockerfile} has no line `ARG BASE=REPOSITORY:TAG@sha256:…` that names the base image: add it.")
    repository, tag, digest = begin.groups()
    pulled, made = (f"localhost/debian-{how}:{digest[7:]}" for how in ("pulled", "made"))
    if has_image(pulled):
        return pulled
    if releases.is_registry(_HUB):
        with step(f"pulling {repository}:{tag}", quiet_below=0.0):
            image = run("pull", "--quiet", f"{repository}@{digest}", log=log)
            run("tag", image, pulled)
        return pulled
    if published:
        raise UserError(f"{_HUB} does not respond, and this machine does not store {repository}@{digest}: try again later.")
    if not has_image(made):
        with tempfile.TemporaryDirectory(dir=storage()) as folder, step(f"Debian {debian.SUITE}", quiet_below=0.0):
            tar = Path(folder) / "base.tar"
            debian.tree(tar, log)
            commit(made, {str(tar): "/"}, log=log)
    return made


def commit(name: str, files: Mapping[str, str], *config: str, log: Path | None = None) -> None:
    """Create an image that contains only the given files. `files` maps a path on this machine to a path in the image; a tar
    file is unpacked. `config` are options of `buildah config`. If `log` is given, the output of buildah is also appended to
    that file.
    """
    container = run("from", "scratch")
    try:
        for source, place in files.items():
            run("add", container, source, place, log=log)
        if config:
            run("config", *config, container, log=log)
        run("commit", "--quiet", "--format", "oci", container, name, log=log)
    finally:
        run("rm", container)


def archive(name: str, reference: str, out: Path) -> None:
    """Write a docker-archive in which the image has the name `reference`. The file is replaced atomically."""
    beside = out.with_name(f".{out.name}.new")
    try:
        run("push", "--quiet", name, f"docker-archive:{beside}:{reference}")
        beside.replace(out)
    finally:
        beside.unlink(missing_ok=True)


def layout(name: str, folder: Path, tag: str) -> None:
    """Write an OCI layout whose manifest has the name `tag`."""
    run("push", "--quiet", "--format", "oci", name, f"oci:{folder}:{tag}")


def has_image(name: str) -> bool:
    """Return whether the storage has an image of this name."""
    return any(name in (image.get("names") or ()) for image in _images())


def prune() -> None:
    """Remove layers of earlier builds if there are more than MANY. The next build of an image whose layers were removed
    installs the packages again.
    """
    if sum(not image.get("names") for image in _images("--all")) > MANY:
        run("rmi", "--prune")


def _remove_interrupted() -> None:
    """Remove the containers of interrupted Dockerfile builds, which can use several GB. The caller makes sure that no
    Dockerfile build is running; `commit` may be running, but its containers have no base image.
    """
    listed = json.loads(run("containers", "--json") or "[]") or []
    if left := [container["id"] for container in listed if container.get("imageid")]:
        run("rm", *left)


def _images(*words: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(run("images", "--json", *words) or "[]") or []
    return listed


@contextmanager
def _settings() -> Iterator[dict[str, str]]:
    """Yield a map from file on this machine to path in the image, for the files with this machine's settings of apt and
    pip; {} if the machine has no such settings.
    """
    pip = {name: os.environ[name] for name in _PIP if name in os.environ}
    bundle = ssl.get_default_verify_paths().cafile if {"SSL_CERT_FILE", "PIP_CERT"} & os.environ.keys() else None
    with tempfile.TemporaryDirectory(prefix="ome-image-") as folder:
        path, mounts = Path(folder), dict[str, str]()
        words = {name.removeprefix("PIP_").lower().replace("_", "-"): value for name, value in pip.items()}
        if bundle:
            shutil.copyfile(bundle, path / "ca.crt")
            mounts[str(path / "ca.crt")] = f"{_INSIDE}/ca.crt"
            words["cert"] = f"{_INSIDE}/ca.crt"
        if words:
            (path / "pip.conf").write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in words.items()))
            mounts[str(path / "pip.conf")] = "/etc/pip.conf"
        if lines := debian.apt_settings():
            (path / "apt.conf").write_text(lines)
            mounts[str(path / "apt.conf")] = "/etc/apt/apt.conf.d/99-this-machine"
        yield mounts


def _last_line(text: str) -> str:
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]
    told: Sequence[str] = [line for line in lines if "rror" in line] or lines
    return told[-1] if told else "(no output)"
