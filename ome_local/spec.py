"""The settings with which a cluster is created. They are stored in the cluster's directory, and most settings cannot
change later.
"""

import json
from dataclasses import asdict, dataclass, replace

from ome_local.binaries.versions import KUBERNETES
from ome_local.kubeconfig import write_atomically
from ome_local.layout import Layout
from ome_local.realnode.spec import Network
from ome_operator.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The options of `ome local up`."""

    nodes: int = 0
    """Number of simulated nodes. A later `up` with a higher number adds nodes."""
    accelerator: str = "h200"
    gpus_per_node: int | None = None
    """Number of GPUs per simulated node; None selects the number that such a machine has."""
    start_delay_s: float = 0.0
    """Seconds from the binding of a pod to a simulated node until the pod is Ready."""
    audit: bool = False
    """Whether the API server writes audit.log. The log costs the API server time, so it is enabled only for tests and
    benchmarks."""
    fast: bool = False
    """Whether the request limits of controller-manager and scheduler are raised. The default limits (20 per second) would
    dominate all measurements."""
    kind: bool = False
    """Whether kind runs the control plane in Docker."""
    workers: int = 0
    """Number of kind's worker nodes. If this number is 0, the control plane node is the real node; otherwise the control
    plane node runs no pods of services."""
    real_node: bool = False
    """Whether a kubelet on this machine joins the cluster as the node real-0. The API server then listens on every
    address, so that pods can reach it."""
    prometheus: bool = False
    """Whether Prometheus runs with the control plane. A later `up` can add it."""
    kueue: bool = False
    """Whether Kueue runs with the control plane. A later `up` can add it."""
    keda: bool = False
    """Whether KEDA runs with the control plane. A later `up` can add it."""
    kubernetes: str = ""
    """Kubernetes version of the control plane; "" selects the version of the existing cluster, or the default version."""
    demo: str = ""
    """Folder with the packages of the installation whose `ome demo` created the cluster; "" if `ome local up` created the
    cluster."""

    @property
    def version(self) -> str:
        """Kubernetes version of the cluster, including clusters of earlier versions of this package, which did not store
        the version.
        """
        return self.kubernetes or KUBERNETES


@dataclass(frozen=True)
class ClusterFile:
    """The content of cluster.json."""

    spec: Spec
    ports: dict[str, int]
    network: Network | None = None
    """Network of the real node; None if the cluster has no real node."""

    def with_spec(self, **changes: object) -> "ClusterFile":
        """Return the settings of the same cluster with changed options."""
        return replace(self, spec=replace(self.spec, **changes))  # type: ignore[arg-type]


def load(at: Layout) -> ClusterFile | None:
    """Return the stored settings, or None if the cluster does not exist. Raises UserError if the file is invalid."""
    try:
        kept = json.loads(at.spec.read_text())
        ports = {name: int(port) for name, port in kept["ports"].items()}
        number = kept.get("network")
        return ClusterFile(Spec(**kept["spec"]), ports, None if number is None else Network(int(number)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{at.spec} cannot be read ({error}): run `ome local down`, which removes this cluster.") from error


def save(at: Layout, cluster_file: ClusterFile) -> None:
    """Write cluster.json."""
    number = cluster_file.network and cluster_file.network.number
    told = {
        "spec": asdict(cluster_file.spec),
        "ports": cluster_file.ports,
        **({} if number is None else {"network": number}),
    }
    write_atomically(at.spec, json.dumps(told, indent=2) + "\n")
