"""What is fixed about the real node: its name, its addresses, where its files lie."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ome_local.layout import Layout

NAME = "real-0"
LABEL = "ome.io/real"
"""`true` on the real node; also the key of its taint, so that only pods land there that say so."""
TAINT = {"key": LABEL, "value": "true", "effect": "NoSchedule"}
PLACED = {
    "nodeSelector": {LABEL: "true"},
    "tolerations": [{"key": LABEL, "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
}
"""What the spec of a pod says that is meant for the real node."""
SPACE = "node"
"""The process that holds the namespaces. Whoever enters them names it."""
COMPONENTS = (SPACE, "containerd", "kubelet", "kube-proxy", "coredns")
"""Short names of its processes, in the order in which they start."""
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
    """The addresses of the node with this number; no two nodes of a machine have the same."""

    number: int

    @property
    def pods(self) -> str:
        """Range of the pods' addresses, and of the three below."""
        return f"10.244.{self.number}.0/24"

    @property
    def gateway(self) -> str:
        """The node's own address: kubelet and DNS answer here."""
        return f"10.244.{self.number}.1"

    @property
    def host(self) -> str:
        """The machine's address on that network: a server on the machine is reached here from pods."""
        return f"10.244.{self.number}.254"

    @property
    def services(self) -> str:
        """Range of the cluster's Services."""
        return f"10.{96 + self.number}.0.0/16"

    @property
    def service_ip(self) -> str:
        """Of the Service `kubernetes`."""
        return f"10.{96 + self.number}.0.1"


@dataclass(frozen=True)
class RealNode:
    """The node of one cluster."""

    at: Layout
    network: Network
    name: str = NAME

    @property
    def folder(self) -> Path:
        """All its files."""
        return self.at.root / "node"

    @property
    def config(self) -> Path:
        """The configuration of its programs, written at each start."""
        return self.folder / "config"

    @property
    def registries(self) -> Path:
        """Folders `host:port` with containerd's hosts.toml, for registries that are reached elsewhere; read at each pull."""
        return self.config / "certs.d"

    @property
    def images(self) -> Path:
        """Containerd's images and containers."""
        return self.folder / "containerd"

    @property
    def run(self) -> Path:
        """Its /run."""
        return self.folder / "run"

    @property
    def socket(self) -> Path:
        """Containerd's."""
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
        """The pods' range."""
        return self.network.pods

    @property
    def own(self) -> dict[str, Path]:
        """Folders that the programs have built in → what they see there instead of the machine's."""
        return {
            "/run": self.run,
            "/var/log": self.folder / "log",
            "/var/lib/kubelet": self.folder / "kubelet",
            "/var/lib/cni": self.folder / "cni",
        }


def mark(root: Path) -> str:
    """Names the cluster's link and control groups on this machine. 12 characters: a link's name has at most 15."""
    return f"ome-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
