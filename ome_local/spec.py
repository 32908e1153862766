"""The settings with which a cluster is created. They are stored in its directory, and most cannot change later."""

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
    """GPUs per simulated node; None for as many as such a machine has."""
    start_delay_s: float = 0.0
    """Seconds from the binding of a pod to Ready on simulated nodes."""
    audit: bool = False
    """Whether the API server writes audit.log. It costs the API server time, so it is off for users, and on for tests and
    benchmarks.
    """
    fast: bool = False
    """Whether the request limits of controller-manager and scheduler are raised. The defaults (20 per second) would dominate
    all measurements.
    """
    kind: bool = False
    """Whether the control plane is kind's, in Docker."""
    workers: int = 0
    """Number of kind's worker nodes. With workers the control plane node runs no pods of ours; without, it is the real node
    itself.
    """
    real_node: bool = False
    """Whether a kubelet on this machine joins as real-0. The API server then listens on every address, so that pods reach
    it.
    """
    prometheus: bool = False
    """Whether Prometheus runs with the control plane. A later `up` can add it."""
    kubernetes: str = ""
    """Kubernetes version of the control plane; "" for that of the existing cluster, or the default."""
    demo: str = ""
    """Folder of the packages of the installation whose `ome demo` created the cluster; "" for a cluster of `ome local
    up`."""

    @property
    def version(self) -> str:
        """Kubernetes version of the cluster. Clusters of earlier builds did not store it."""
        return self.kubernetes or KUBERNETES


@dataclass(frozen=True)
class Kept:
    """The content of cluster.json."""

    spec: Spec
    ports: dict[str, int]
    network: Network | None = None
    """Network of the real node."""

    def with_spec(self, **changes: object) -> "Kept":
        """Return the same cluster with changed options."""
        return replace(self, spec=replace(self.spec, **changes))  # type: ignore[arg-type]


def load(at: Layout) -> Kept | None:
    """Return the stored settings, or None if the cluster does not exist. Raises UserError if the file is invalid."""
    try:
        kept = json.loads(at.spec.read_text())
        ports = {name: int(port) for name, port in kept["ports"].items()}
        number = kept.get("network")
        return Kept(Spec(**kept["spec"]), ports, None if number is None else Network(int(number)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{at.spec} cannot be read ({error}): `ome local down` removes this cluster.") from error


def save(at: Layout, kept: Kept) -> None:
    """Write cluster.json."""
    number = kept.network and kept.network.number
    told = {"spec": asdict(kept.spec), "ports": kept.ports, **({} if number is None else {"network": number})}
    write_atomically(at.spec, json.dumps(told, indent=2) + "\n")
