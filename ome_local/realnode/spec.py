"""Constants of the real node: its name, its addresses, and the paths of its files."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ome_local.layout import Layout

NAME = "real-0"
LABEL = "ome.io/real"
"""Node label that is `true` on the real node, and key of the node's taint. Because of the taint, only pods that tolerate
it run on the node."""
TAINT = {"key": LABEL, "value": "true", "effect": "NoSchedule"}
PLACED = {
    "nodeSelector": {LABEL: "true"},
    "tolerations": [{"key": LABEL, "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
}
"""Fields of a pod's spec with which the scheduler places the pod on the real node."""
SPACE = "node"
"""Name of the process that holds the namespaces."""
COMPONENTS = (SPACE, "containerd", "kubelet", "kube-proxy", "coredns")
"""Short names of the node's processes, in the order in which they are started."""
IDENTITIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "kubelet": (f"system:node:{NAME}", ("system:nodes",)),
    "kube-proxy": ("system:kube-proxy", ()),
    "coredns": ("system:coredns", ()),
}
"""Maps the file name of a client certificate to (user, groups)."""
NUMBERS = range(64)
PAUSE = "local/pause:1"


@dataclass(frozen=True)
class Network:
    """The addresses of the real node with the number `number`. All nodes of a machine have different numbers."""

    number: int

    @property
    def pods(self) -> str:
        """Address range of the pods. It also contains the address of the gateway and the address of the host."""
        return f"10.244.{self.number}.0/24"

    @property
    def gateway(self) -> str:
        """Address of the node, on which the kubelet and the DNS server listen."""
        return f"10.244.{self.number}.1"

    @property
    def host(self) -> str:
        """Address of the machine in the pod network, at which pods reach servers on the machine."""
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
        """Folder with all files of the node."""
        return self.at.root / "node"

    @property
    def config(self) -> Path:
        """Folder with the configuration of the node's programs. It is written at each start."""
        return self.folder / "config"

    @property
    def registries(self) -> Path:
        """Folder with subfolders `host:port`. Each contains containerd's hosts.toml for a registry with another address,
        and is read at each pull.
        """
        return self.config / "certs.d"

    @property
    def images(self) -> Path:
        """Folder of containerd's images and containers."""
        return self.folder / "containerd"

    @property
    def run(self) -> Path:
        """Folder that the node's programs use as /run."""
        return self.folder / "run"

    @property
    def socket(self) -> Path:
        """Socket of containerd."""
        return self.run / "containerd" / "containerd.sock"

    @property
    def gateway(self) -> str:
        """Address of the node in the pod network."""
        return self.network.gateway

    @property
    def host(self) -> str:
        """Address of the machine in the pod network."""
        return self.network.host

    @property
    def pods(self) -> str:
        """Address range of the pods."""
        return self.network.pods

    @property
    def private_directories(self) -> dict[str, Path]:
        """Directories of the machine that the node's programs must not share with the machine. Each path that is compiled
        into the programs is mapped to the folder of the node that the programs see at this path.
        """
        return {
            "/run": self.run,
            "/var/log": self.folder / "log",
            "/var/lib/kubelet": self.folder / "kubelet",
            "/var/lib/cni": self.folder / "cni",
        }


def link_name(root: Path) -> str:
    """Return the name of the cluster's network link and control groups on this machine. The name has 12 characters; the
    name of a link may have at most 15.
    """
    return f"ome-{hashlib.sha256(str(root).encode()).hexdigest()[:8]}"
