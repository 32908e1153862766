"""What a cluster is made with. Kept in its directory; only its nodes may change later."""

import json
from dataclasses import asdict, dataclass, replace

from ome_local.binaries.versions import KUBERNETES
from ome_local.kubeconfig import write_atomically
from ome_local.layout import Layout
from ome_local.realnode.spec import Network
from ome_operator.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Options of `ome local up`."""

    nodes: int = 0
    """Simulated nodes; `up` again with a higher number adds some."""
    accelerator: str = "h200"
    gpus_per_node: int | None = None
    """None: as many as such a machine has."""
    start_delay_s: float = 0.0
    """Seconds from a pod's binding to Ready on simulated nodes."""
    audit: bool = False
    """Write audit.log. Costs the API server some time, so off for users and on for tests and benchmarks."""
    fast: bool = False
    """Raise the request limits of controller-manager and scheduler: the defaults (20 a second) hide everything else."""
    kind: bool = False
    """The control plane is kind's, in Docker."""
    workers: int = 0
    """Nodes of kind's beside its control plane, which takes no pods of ours then. None: it is the real node itself."""
    real_node: bool = False
    """A kubelet on this machine joins as real-0. The API server then listens on every address, so that pods reach it."""
    prometheus: bool = False
    """Prometheus beside the control plane; `up` again adds it."""
    kubernetes: str = ""
    """Version of the control plane; "" asks for that of the cluster, or for the usual."""
    demo: str = ""
    """The installation whose `ome demo` made it, as the folder of its packages; "" for a cluster of `ome local up`."""

    @property
    def version(self) -> str:
        """Of Kubernetes. Clusters of earlier builds did not keep it."""
        return self.kubernetes or KUBERNETES


@dataclass(frozen=True)
class Kept:
    """The content of cluster.json."""

    spec: Spec
    ports: dict[str, int]
    network: Network | None = None
    """Of the real node."""

    def with_spec(self, **changes: object) -> "Kept":
        """The same cluster with changed options."""
        return replace(self, spec=replace(self.spec, **changes))  # type: ignore[arg-type]


def load(at: Layout) -> Kept | None:
    """What was kept, or None when there is no such cluster."""
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
