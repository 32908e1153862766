"""Check whether a machine can run a real node: root permissions, kernel features, and a few programs."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from ome_local import cancel, layout
from ome_local.progress import step
from ome_local.realnode import cgroups
from ome_operator.errors import UserError

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
"""Value of PATH that includes the folders of root's programs, which some sessions omit."""
_PROGRAMS = {"containerd": "containerd", "ctr": "containerd", "runc": "runc", "nft": "nftables", "ip": "iproute2"}
"""Maps the name of a program to the Debian package that contains the program."""
_PLUGIN_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
_PLUGINS = ("bridge", "host-local", "loopback")
_PLUGINS_PACKAGE = "containernetworking-plugins"
_OTHERWISE = (
    "If this machine is a container, start the container with --privileged. Simulated nodes do not need these permissions."
)
_OVERLAY = "mkdir low up work all; mount -t overlay -o lowerdir=low,upperdir=up,workdir=work overlay all"
_APT = threading.Lock()
"""Lock for calls of apt-get. Several parts of a run install packages, and apt-get fails if another apt-get is running."""
_PATIENT = ("-o", "DPkg::Lock::Timeout=300")
"""Option of apt-get with the seconds to wait for another process's lock."""
_PROBES = (
    ("unshare", "true", "make network and mount namespaces"),
    ("mount", _OVERLAY, "mount an overlay file system in {folder}"),
    ("ip", "ip link add probe type bridge; ip link add one type veth peer name two", "make bridges and virtual links"),
    ("nft", "nft add table ip probe", "write packet rules (nftables)"),
)
"""Checks in temporary namespaces. Each consists of the program, its arguments, and the ability that the check proves."""


def why_not() -> str | None:
    """Return why no real node can run on this machine, as a sentence with a remedy; None if a real node can run after its
    packages are installed.
    """
    if sys.platform != "linux":
        return f"A real node runs on Linux, not on {sys.platform}: use simulated nodes, or --kind."
    if os.geteuid() != 0:
        return (
            "A real node creates networks and mounts, which only root may do: run this command as root, or leave out "
            "--real-node."
        )
    if (missing := missing_packages()) and shutil.which("apt-get", path=PATH) is None:
        return (
            f"A real node needs {', '.join(missing)} (names of Debian packages), and there is no apt-get: install "
            "them yourself."
        )
    return _kernel()


def require() -> None:
    """Raise UserError if the machine cannot run a real node; otherwise install missing packages."""
    for _ in range(2):  # checked again with the installed programs, which permit more checks
        if reason := why_not():
            raise UserError(reason)
        if not (packages := missing_packages()):
            return
        install(packages)
    raise UserError(
        f"apt-get installed {', '.join(packages)}, but some of their programs are still not in {PATH}: install "
        "these programs yourself."
    )


def missing_packages() -> list[str]:
    """Return the Debian packages whose programs are missing. A program that was installed in another way is not missing."""
    packages = [package for program, package in _PROGRAMS.items() if shutil.which(program, path=PATH) is None]
    return list(dict.fromkeys([*packages, *([] if plugins() else [_PLUGINS_PACKAGE])]))


def plugins() -> str | None:
    """Return the folder of the CNI plugins; None if the plugins are not installed."""
    return next((f for f in _PLUGIN_FOLDERS if all((Path(f) / name).exists() for name in _PLUGINS)), None)


def install(packages: Sequence[str]) -> None:
    """Install packages with apt-get. The package lists are downloaded only if a package is not in the existing lists."""
    with step(f"installing {' '.join(packages)} (apt-get)", quiet_below=0.0):
        if _apt("install", *packages).returncode:
            _apt("update")
            done = _apt("install", *packages)
            if done.returncode:
                raise UserError(f"apt-get could not install {' '.join(packages)}: {_last_line(done)}")


def _apt(*words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PATH": PATH, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-qq", "-y", "--no-install-recommends", *_PATIENT, *words]
    with _APT:
        return cancel.run(command, env=environment)


def _kernel() -> str | None:
    """Test all kernel features that a real node needs, once, in temporary namespaces. Return which feature is missing and
    why; None if all features exist.
    """
    home = next(
        path for path in (layout.clusters_home().absolute(), *layout.clusters_home().absolute().parents) if path.is_dir()
    )
    for program, script, what in _PROBES:
        if shutil.which(program, path=PATH) is None:
            continue
        with tempfile.TemporaryDirectory(dir=home, prefix=".ome-probe-") as folder:
            command = ["unshare", "--mount", "--net", "sh", "-ec", script]
            environment = {**os.environ, "PATH": PATH}
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            return f"A real node cannot run here: this machine does not permit ome to {what.format(folder=home)} " \
                f"({_last_line(done)}). {_OTHERWISE}"  # fmt: skip
    try:
        cgroups.make(name := f"ome-probe-{os.getpid()}")
        cgroups.remove(name)
    except OSError as error:
        return (
            f"A real node cannot run here: this machine does not permit ome to create control groups ({error}). {_OTHERWISE}"
        )
    return None


def _last_line(done: "subprocess.CompletedProcess[str]") -> str:
    return ((done.stderr or done.stdout).strip().splitlines() or ["(no output)"])[-1].strip()
