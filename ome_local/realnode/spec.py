"""Constants of the real node: its name, its addresses, and the paths of its files."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ome_local.layout import Layout

NAME = "real-0"
LABEL = "ome.io/real"
"""Label that is `true` on the real node, and the key of its taint, so that only pods that tolerate it run there."""
TAINT = {"key": LABEL, "value": "true", "effect": "NoSchedule"}
PLACED = {
    "nodeSelector": {LABEL: "true"},
    "tolerations": [{"key": LABEL, "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
}
"""Fields of a pod's spec that place it on the real node."""
SPACE = "node"
"""Name of the process that holds the namespaces."""
COMPONENTS = (SPACE, "containerd", "kubelet", "kube-proxy", "coredns")
"""Short names of its processes in the order of their start."""
IDENTITIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "kubelet": (f"system:node:{NAME}", ("system:nodes",)),
    "kube-proxy": ("system:kube-proxy", ()),
    "coredns": ("system:coredns", ()),
}
"""File of the client certificate → user and groups."""
NUMBERS = range(64)
PAUSE = "local/pause:1"


@dataclass(frozen=True)
class Network:
    """The addresses of the node with this number. No two nodes of a machine have the same number."""

    number: int

    @property
    def pods(self) -> str:
        """Address range of the pods, which also contains the three addresses below."""
        return f"10.244.{self.number}.0/24"

    @property
    def gateway(self) -> str:
        """The node's own address, on which kubelet and DNS listen."""
        return f"10.244.{self.number}.1"

    @property
    def host(self) -> str:
        """The machine's address on that network, by which pods reach servers on the machine."""
        return f"10.244.{self.number}.254"

    @property
    def services(self) -> str:
        """Address range of the cluster's Services."""
        return f"10.{96 + self.number}.0.0/16"

    @property
    def service_ip(self) -> str:
        """Address of the Service `kubernetes`."""
        return f"10.{96 + self.number}.0.1"


@dataclass(frozen=True)
class RealNode:
    """The real node of a cluster."""

    at: Layout
    network: Network
    name: str = NAME

    @property
    def folder(self) -> Path:
        """Folder with all its files."""
        return self.at.root / "node"

    @property
    def config(self) -> Path:
        """Folder with the configuration of its programs, written at each start."""
        return self.folder / "config"

    @property
    def registries(self) -> Path:
        """Folder with subfolders `host:port` that contain containerd's hosts.toml, for registries with another address. It
        is read at each pull.
        """
        return self.config / "certs.d"

    @property
    def images(self) -> Path:
        """Folder of containerd's images and containers."""
        return self.folder / "containerd"

    @property
    def run(self) -> Path:
        """Folder that the node's programs see as /run."""
        return self.folder / "run"

    @property
    def socket(self) -> Path:
        """Socket of containerd."""
        return self.run / "containerd" / "containerd.sock"

    @property
    def gateway(self) -> str:
        """The node's address on the pod network."""
        return self.network.gateway

    @property
    def host(self) -> str:
        """The machine's address on the pod network."""
        return self.network.host

    @property
    def pods(self) -> str:
        """Address range of the pods."""
        return self.network.pods

    @property
    def own(self) -> dict[str, Path]:
        """Built-in paths of the programs → folders that they see there instead of the machine's."""
        return {
            "/run": self.run,
            "/var/log": self.folder / "log",
            "/var/lib/kubelet": self.folder / "kubelet",
            "/var/lib/cni": self.folder / "cni",
        }


def mark(root: Path) -> str:
    """Return the name of the cluster's network link and control groups on this machine. It has 12 characters, and a link's
    name may have at most 15.
    """
    return f"ome-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
