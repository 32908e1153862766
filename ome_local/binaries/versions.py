"""The pinned programs of a local cluster: their versions, the locations of their releases, and how they are built.

An environment variable can replace the base address of a release, for mirrors and for machines without internet access.
Files from a mirror must also have the digest in checksums.txt. The Go module that builds a program is pinned by go.mod and
go.sum in `gomods/<module>/`. All programs of a cluster share a module: packages that Kubernetes, helm, kwok and CoreDNS have
in common are compiled once, which halves the compilation.
"""

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from ome_operator.errors import UserError

KUBERNETES = "1.34.2"
OTHERS = ("1.31.13", "1.35.4", "1.36.3", "1.37.2")
"""Other Kubernetes versions that a control plane can have, each built from its own Go module: the oldest minor version
that the charts support, and newer versions."""
ETCD = "3.6.6"
KWOK = "0.7.0"
HELM = "3.19.2"
COREDNS = "1.12.4"
KUEUE = "0.17.0"
KEDA = "2.21.0"

GOMODS = Path(__file__).parent / "gomods"
_MODULE = "cluster"


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A program. In the texts `archive`, `member` and `checksums`, the words version, os and arch in braces are replaced."""

    name: str
    module: str
    """Folder under gomods/. Programs of one module are built together."""
    version: str
    package: str
    base_env: str = ""
    base: str = ""
    archive: str = ""
    """Path of the release below the base address, and the name of the release in checksums.txt. "" for a program that is
    always built."""
    checksums: str = ""
    """Path of the host's SHA-256 file, which only `make checksums` reads. The file contains a single digest, or lines of
    `digest file`."""
    member: str | None = None
    """Path of the program inside a .tar.gz; None if the release is the program itself."""
    gomods: Path = GOMODS
    """Folder that contains the folder of the Go module."""
    files: tuple[str, ...] = ()
    """Paths of files and folders in the source of the program's module. The path of a folder ends with `/`. The files are
    kept next to the program."""

    def fill(self, pattern: str, target: "Target") -> str:
        """Return the pattern with the version, and the os and arch of `target`, filled in."""
        return pattern.format(name=self.name, version=self.version, os=target.os, arch=target.arch)

    def address(self) -> str:
        """Return the base address of the releases: the value of the environment variable, otherwise the official address."""
        return os.environ.get(self.base_env, self.base).rstrip("/")


@dataclass(frozen=True)
class Target:
    """A platform with the names that Go uses."""

    os: str
    arch: str


def this_machine(*, clients_only: bool = False) -> Target:
    """Return the platform of this machine. Only Linux on amd64 and arm64 is supported, because kube-apiserver is released
    for no other system; if `clients_only` is true, macOS is supported too. Raises UserError on any other platform.
    """
    arch = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine().lower())
    if arch and (sys.platform == "linux" or (clients_only and sys.platform == "darwin")):
        return Target(sys.platform, arch)
    if clients_only:
        raise UserError(f"This tool runs on Linux and macOS, amd64 or arm64, not on {sys.platform} {platform.machine()}.")
    raise UserError(
        f"A control plane runs only on Linux amd64 or arm64, but this machine is {sys.platform} {platform.machine()}: "
        "install Docker and kind, and use `ome local up --kind`."
    )


def kubernetes(asked: str) -> str:
    """Return the full Kubernetes version for a minor version or a full version. Raises UserError if the version is not
    supported.
    """
    known = sorted((KUBERNETES, *OTHERS))
    for version in known:
        if asked.removeprefix("v") in (version, version.rpartition(".")[0]):
            return version
    raise UserError(f"Kubernetes {asked!r} is not supported: use one of {', '.join(known)}.")


def minor(version: str) -> int:
    """Return the minor version of Kubernetes: 34 for 1.34.2."""
    return int(version.split(".")[1])


def _kubernetes(name: str, version: str = KUBERNETES) -> Tool:
    return Tool(
        name=name,
        module=_MODULE if version == KUBERNETES else f"kubernetes-{version.rpartition('.')[0]}",
        version=version,
        package=f"k8s.io/kubernetes/cmd/{name}",
        base_env="OME_K8S_RELEASES",
        base="https://dl.k8s.io/release",
        archive="v{version}/bin/{os}/{arch}/{name}",
        checksums="v{version}/bin/{os}/{arch}/{name}.sha256",
    )


_ALL = [
    Tool(
        name="etcd",
        module=_MODULE,
        version=ETCD,
        package="./etcd",
        base_env="OME_ETCD_RELEASES",
        base="https://github.com/etcd-io/etcd/releases/download",
        archive="v{version}/etcd-v{version}-{os}-{arch}.tar.gz",
        checksums="v{version}/SHA256SUMS",
        member="etcd-v{version}-{os}-{arch}/etcd",
    ),
    Tool(
        name="helm",
        module=_MODULE,
        version=HELM,
        package="helm.sh/helm/v3/cmd/helm",
        base_env="OME_HELM_RELEASES",
        base="https://get.helm.sh",
        archive="helm-v{version}-{os}-{arch}.tar.gz",
        checksums="helm-v{version}-{os}-{arch}.tar.gz.sha256sum",
        member="{os}-{arch}/helm",
    ),
    Tool(
        name="kwok",
        module=_MODULE,
        version=KWOK,
        package="sigs.k8s.io/kwok/cmd/kwok",
        base_env="OME_KWOK_RELEASES",
        base="https://github.com/kubernetes-sigs/kwok/releases/download",
        archive="v{version}/kwok-{os}-{arch}",
        # The project publishes no checksum file; a mirror may.
        checksums="v{version}/kwok-{os}-{arch}.sha256",
    ),
    *[_kubernetes(name) for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")],
    *[_kubernetes(name) for name in ("kubelet", "kube-proxy")],
    Tool(
        name="coredns",
        module=_MODULE,
        version=COREDNS,
        package="./coredns",
        base_env="OME_COREDNS_RELEASES",
        base="https://github.com/coredns/coredns/releases/download",
        archive="v{version}/coredns_{version}_{os}_{arch}.tgz",
        checksums="v{version}/coredns_{version}_{os}_{arch}.tgz.sha256",
        member="coredns",
    ),
    Tool(name="pause", module=_MODULE, version="1", package="./pause"),
    Tool(
        name="kueue",
        module="kueue",
        version=KUEUE,
        package="sigs.k8s.io/kueue/cmd/kueue",
        files=("config/components/crd/bases/", "config/components/webhook/manifests.yaml"),
    ),
    Tool(
        name="keda-operator",
        module="keda",
        version=KEDA,
        package="github.com/kedacore/keda/v2/cmd/operator",
        files=("config/crd/bases/",),
    ),
    Tool(name="keda-adapter", module="keda", version=KEDA, package="github.com/kedacore/keda/v2/cmd/adapter"),
]
TOOLS = {tool.name: tool for tool in _ALL}
OF_VERSION = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
"""Programs whose version is the Kubernetes version of the cluster. Nodes, helm and kwok are not among them: they have the
same version in all clusters."""


def tools(version: str = KUBERNETES) -> dict[str, Tool]:
    """Return the programs by name, for a cluster with this Kubernetes version."""
    return TOOLS if version == KUBERNETES else TOOLS | {name: _kubernetes(name, version) for name in OF_VERSION}


CONTROL_PLANE = ("etcd", "kwok", "helm", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE = ("kubelet", "kube-proxy", "coredns", "pause")
CLIENTS = ("kwok", "kubectl", "helm")
"""Programs for a cluster with kind's control plane. These programs also run on macOS."""


@dataclass(frozen=True)
class Patch:
    """A replacement of text in the source of a module."""

    module: str
    file: str
    old: str
    new: str


PATCHES = {
    # Kubernetes 1.34 no longer has this constant. Without the patch, kwok would also need the libraries of 1.33.
    "kwok": Patch(
        "sigs.k8s.io/kwok",
        "pkg/utils/informer/informer.go",
        "metav1.InitialEventsListBlueprintAnnotationKey",
        '"kubernetes.io/initial-events-list-blueprint"',
    ),
    # Without its own management of certificates, Kueue reads the certificates of its metrics server from a fixed
    # folder.
    "kueue": Patch(
        "sigs.k8s.io/kueue",
        "cmd/kueue/main.go",
        'metricsCertPath := "/etc/kueue/metrics/certs"',
        'metricsCertPath := os.Getenv("KUEUE_METRICS_CERTS")',
    ),
}
"""Maps a program to a replacement in the source of a module. Without its replacement, kwok could not be compiled with the
libraries of the other programs, and Kueue would need a fixed folder of this machine."""


def _of_kubernetes(version: str) -> dict[str, str]:
    said = {
        "gitVersion": f"v{version}",
        "gitMajor": version.split(".")[0],
        "gitMinor": version.split(".")[1],
        "gitTreeState": "clean",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return {f"{package}.{key}": value for package in packages for key, value in said.items()}


_OF_HELM = {
    "helm.sh/helm/v3/internal/version.version": f"v{HELM}",
    "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": KUBERNETES.split(".")[0],
    "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": KUBERNETES.split(".")[1],
    "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": KUBERNETES.split(".")[0],
    "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": KUBERNETES.split(".")[1],
}
LDFLAGS: dict[str, dict[str, str]] = {
    "keda": {"github.com/kedacore/keda/v2/version.Version": KEDA},
    _MODULE: {**_of_kubernetes(KUBERNETES), **_OF_HELM},
    **{_kubernetes("kubectl", version).module: _of_kubernetes(version) for version in OTHERS},
}
"""Linker variables by module. Without these variables, the servers report version v0.0.0. Programs that do not contain a
variable ignore it."""
