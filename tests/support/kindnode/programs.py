"""The programs that the tests need: kind itself, and the programs in the node image."""

import json
import subprocess
from pathlib import Path

from ome_local.binaries import ensure, gobuild
from ome_local.binaries.versions import KUBERNETES, Tool

GOMODS = Path(__file__).parents[1] / "gomods"
KIND = "0.30.0"
CONTAINERD = "2.1.4"
_CTR = "github.com/containerd/containerd/v2/cmd"


def _tool(name: str, module: str, version: str, package: str = ".") -> Tool:
    return Tool(name=name, module=module, version=version, package=package, gomods=GOMODS)


OWN = (
    _tool("kind", "kind", KIND, "sigs.k8s.io/kind"),
    *(_tool(name, "containerd", CONTAINERD, f"{_CTR}/{name}") for name in ("containerd", "ctr", "containerd-shim-runc-v2")),
    _tool("kubeadm", "kubernetes", KUBERNETES, "k8s.io/kubernetes/cmd/kubeadm"),
    # It has the plugins of kubeadm's Corefile, so it differs from the program of the real node.
    _tool("coredns-kubeadm", "coredns", "1.12.4"),
    _tool("kindnetd", "kindnetd", "1"),
)
KUBERNETES_OWN = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet", "kube-proxy")
SHARED = (*KUBERNETES_OWN, "etcd", "pause")


def get() -> dict[str, Path]:
    """Return the path of each program by name. Programs that are not in the cache are built."""
    return {**ensure.provide(OWN), **ensure.ensure(SHARED)}


def sources() -> Path:
    """Return the folder of kind's module, which contains the files of its base image."""
    go = gobuild.find_go(ensure.cache_dir())
    command = [go, "mod", "download", "-json", f"sigs.k8s.io/kind@v{KIND}"]
    done = subprocess.run(command, cwd=GOMODS / "kind", capture_output=True, text=True, check=True)
    return Path(json.loads(done.stdout)["Dir"])
