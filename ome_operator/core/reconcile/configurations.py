"""Determine which configurations the groups of a service have: what they run, and on which GPUs. The speed of groups is
measured and stored separately for each configuration (docs/demand.md).
"""

from collections.abc import Mapping
from typing import Any

from ome_operator import keys, names
from ome_operator.core.demand.facts import Configuration
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.observed.slices import Slice
from ome_operator.core.podspec.compose import compose
from ome_operator.core.problem import ProblemError
from ome_operator.core.reconcile.decided import PassDecisions
from ome_operator.core.render.statefulsets import StoredRole, gpus, roles_by_component
from ome_operator.core.resolve.finetuned import ADAPTERS, BASE
from ome_operator.core.selection.accelerator import ASKED, unset_by_service
from ome_operator.core.traces.collector import endpoint
from ome_operator.util.memoize import memoize_by_identity

_NO_SPEED = frozenset(
    {
        "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "imagePullPolicy", "terminationMessagePath",
        "terminationMessagePolicy",
    }
)  # fmt: skip
"""Fields of a container that do not affect how fast it serves."""


def configurations(decided: PassDecisions, component: str) -> tuple[Configuration, ...]:
    """Return the distinct configurations of the ready groups of a component or, if no group is ready, of its existing
    groups. The configuration of the oldest revision comes first.
    """
    slices = decided.snapshot.slices
    built = {name: counts[component] for name, counts in decided.counts.built.items() if component in counts}
    serving = {name for name, counts in built.items() if any(counts.ready)}
    chosen = serving or {name for name, counts in built.items() if counts.existing}
    found = (
        Configuration(_template(component, data), _hardware(decided, slices[name], roles_by_component(data)[component]))
        for name, data in decided.intent.data.items()
        if name in chosen
    )
    return tuple(dict.fromkeys(found))


@memoize_by_identity(1024)
def _template(component: str, data: Mapping[str, Any]) -> str:
    """Return a digest of the pods of a group, as runtime and service specify them, and of their weights; "" if they cannot
    be determined from the stored revision.

    The digest does not include what the operator adds to pods, so it is the same in another version of the operator. It does
    not include the name of the revision, so it stays the same after a restart and after a change of another component.
    """
    inputs = data.get("inputs") or {}
    if component not in inputs:
        return ""
    try:
        composed = compose(component, inputs["runtime"], inputs[component])
    except ProblemError:  # an earlier version of the operator stored a configuration that this version rejects
        return ""
    pods = [_decisive(pod) for pod in (composed.leader, composed.worker) if pod is not None]
    rdma = [composed.annotations.get(key) for key in (keys.RDMA_INJECT, keys.RDMA_PROFILE, keys.RDMA_CONTAINER)]
    chosen = unset_by_service((inputs.get("accelerator") or {}).get(component) or {}, inputs[component])
    accelerator = {key: value for key, value in chosen.items() if key != ASKED}
    weights = [inputs.get(name) for name in ("model", BASE, ADAPTERS)]
    return names.digest([composed.size, pods, rdma, accelerator, bool(endpoint(inputs, component)), weights])


def _decisive(pod: Manifest) -> Manifest:
    """Return the pod spec `pod` without those fields of its containers that do not affect how fast the containers serve."""
    boxes = [{key: value for key, value in box.items() if key not in _NO_SPEED} for box in pod["containers"]]
    return {**pod, "containers": boxes}


def _hardware(decided: PassDecisions, slice_: Slice, role: StoredRole) -> str:
    """Return the number and the products of the GPUs of a group, such as "8x NVIDIA-H100-80GB-HBM3". The products are read
    from the labels of the nodes on which ready pods of the role run; "" if no label names a product.
    """
    nodes = decided.snapshot.deps.nodes
    used = {pod.node for pod in slice_.pods if pod.component == role.component and pod.ready and pod.node in nodes}
    products = {nodes[name].labels.get(label, "") for name in used for label in keys.GPU_PRODUCTS} - {""}
    return f"{gpus(role)}x {', '.join(sorted(products))}" if products else ""
