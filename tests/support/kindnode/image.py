"""Builds kind's node image once, and keeps it in the cache under a digest of everything from which it is built."""

import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from ome_local.binaries.ensure import cache_dir
from ome_local.binaries.versions import KUBERNETES
from ome_local.progress import step
from ome_operator.errors import UserError
from tests.support.kindnode import bundle, programs
from tests.support.kindnode.bundle import Image

HERE = Path(__file__).parent
VERSION = f"v{KUBERNETES}"
BASE = "localhost:1/kind-base:1"
"""Name of kind's base image. No server runs at the registry in this name: Docker has the image already, so Docker never
contacts the registry.
"""
_SYSTEMD = {
    "Env": ["container=docker"],
    "StopSignal": "SIGRTMIN+3",
    "Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"],
}


def key() -> str:
    """Return the digest of everything from which the image is built: versions, the files of this folder that build it, and
    the pinned modules.
    """
    mods = {file for tool in programs.OWN for file in (programs.GOMODS / tool.module).iterdir()}
    files = sorted([*mods, *(HERE / name for name in ("bundle.py", "image.py", "layers.sh", "rootfs.sh"))])
    parts = [KUBERNETES, *(f"{tool.name} {tool.version}" for tool in programs.OWN)]
    whole = b"".join([*(part.encode() for part in parts), *(file.read_bytes() for file in files)])
    return hashlib.sha256(whole).hexdigest()[:12]


def provide() -> str:
    """Make the node image available in the running Docker, and return its name. The first call takes about seven minutes,
    and later ones seconds.
    """
    name = f"ome/kind-node:{VERSION}-{key()}"
    if _docker("image", "inspect", name, check=False).returncode == 0:
        return name
    kept = cache_dir() / f"kind-node-{VERSION}-{key()}.tar"
    if kept.exists():
        with step("loading kind's node image into Docker"):
            _docker("load", "--quiet", "--input", str(kept))
        return name
    _build(name)
    with step("keeping kind's node image in the cache"):
        for old in cache_dir().glob("kind-node-*"):
            old.unlink()
        part = kept.with_suffix(".part")
        _docker("save", "--output", str(part), name)
        part.rename(kept)
    return name


def _build(name: str) -> None:
    found = programs.get()
    source = programs.sources()
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".kind-node-") as folder:
        work = Path(folder)
        (work / "bin").mkdir()
        for program, path in found.items():
            shutil.copy2(path, work / "bin" / program.removesuffix("-kubeadm"))
        with step("the root file system of kind's nodes"):
            _sh("rootfs.sh", str(work), str(source))
        with step("the layers of Kubernetes' images"):
            _sh("layers.sh", str(work))
        with step("kind's base image into Docker"):
            bundle.write(work / "base.tar", Image(BASE, work / "base-image.tar", _SYSTEMD))
            _docker("load", "--quiet", "--input", str(work / "base.tar"))
        with step("kind build node-image"):
            release = _release(work, source)
            words = ["--type", "file", str(release), "--base-image", BASE, "--image", name]
            _run([str(found["kind"]), "build", "node-image", *words])


def _release(work: Path, source: Path) -> Path:
    """Write the server release of Kubernetes in the form that kind reads: four archives contain every image that kubeadm and
    kind name.
    """
    place = work / "release" / "kubernetes"
    folder = place / "server" / "bin"
    folder.mkdir(parents=True)
    (place / "version").write_text(VERSION)
    for program in ("kubeadm", "kubelet", "kubectl"):
        shutil.copy2(work / "bin" / program, folder / program)
    layers = work / "layers"
    for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        bundle.write(folder / f"{program}.tar", Image(f"registry.k8s.io/{program}:{VERSION}", layers / f"{program}.tar"))
    wanted = _run([str(work / "bin" / "kubeadm"), "config", "images", "list", f"--kubernetes-version={VERSION}"])
    bundle.write(
        folder / "kube-proxy.tar",
        Image(f"registry.k8s.io/kube-proxy:{VERSION}", layers / "kube-proxy.tar"),
        Image(_named("etcd", wanted), layers / "etcd.tar"),
        Image(_named("coredns", wanted), layers / "coredns.tar", {"Entrypoint": ["/coredns"]}),
        Image("registry.k8s.io/pause:3.10", layers / "pause.tar", {"Entrypoint": ["/pause"], "User": "65535:65535"}),
        Image(_kinds("kindnetd", source), layers / "kindnetd.tar", {"Entrypoint": ["kindnetd"]}),
        # No test stores data on claims, so only the image has to exist.
        Image(_kinds("local-path-provisioner", source), layers / "pause.tar", {"Entrypoint": ["/pause"]}),
        Image(_kinds("local-path-helper", source), layers / "tools.tar", {"Cmd": ["/bin/sh"]}),
    )
    release = work / "kubernetes-server.tar.gz"
    with tarfile.open(release, "w:gz", compresslevel=1) as tar:
        tar.add(place, "kubernetes")
    return release


def _named(image: str, wanted: str) -> str:
    return next(line for line in wanted.split() if f"/{image}:" in line)


def _kinds(image: str, source: Path) -> str:
    """Return the name of one of kind's own images, from kind's source."""
    for file in sorted((source / "pkg/build/nodeimage").glob("*.go")):
        if found := re.search(rf"docker\.io/kindest/{image}:[a-z0-9.-]+", file.read_text()):
            return found[0]
    raise UserError(f"Kind {programs.KIND} names no image {image} any more: tests/support/kindnode/image.py has to follow.")


def _sh(script: str, *words: str) -> None:
    _run(["bash", str(HERE / script), *words])


def _docker(*words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise UserError(f"`docker {' '.join(words[:2])}` failed: {done.stderr.strip()}")
    return done


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise UserError(f"`{' '.join(command[:3])}` failed:\n{last}")
    return done.stdout
