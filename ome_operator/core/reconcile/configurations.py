"""Determine which configurations the groups of a service have: what they run, and on which GPUs. The measured speeds of
groups are bound to them (docs/demand.md).
"""

import json
from collections.abc import Mapping
from typing import Any

from ome_operator import keys, names
from ome_operator.core.demand.facts import Configuration
from ome_operator.core.observed.slices import Slice
from ome_operator.core.reconcile.decided import Decided
from ome_operator.core.render.statefulsets import Stored, gpus, stored
from ome_operator.core.resolve.finetuned import ADAPTERS, BASE
from ome_operator.util.memoize import memoize_by_identity


def configurations(decided: Decided, component: str) -> tuple[Configuration, ...]:
    """Return the configurations of the groups of a component that serve or, if none serves, of those that exist; each once,
    that of the oldest revision first.
    """
    service, slices = decided.snapshot.service.name, decided.snapshot.slices
    built = {name: counts[component] for name, counts in decided.counts.built.items() if component in counts}
    serving = {name for name, counts in built.items() if any(counts.ready)}
    chosen = serving or {name for name, counts in built.items() if counts.have}
    found = (
        Configuration(_template(service, component, name, data), _hardware(decided, slices[name], stored(data)[component]))
        for name, data in decided.intent.data.items()
        if name in chosen
    )
    return tuple(dict.fromkeys(found))


@memoize_by_identity(1024)
def _template(service: str, component: str, revision: str, data: Mapping[str, Any]) -> str:
    """Return a digest of the pods of a group and of their weights. It does not depend on the name of the revision, so a
    restart, and a change of the other component only, do not change it.
    """
    role = stored(data)[component]
    pods = [one["spec"]["template"]["spec"] for one in (role.leader, role.worker) if one is not None]
    weights = [data.get("inputs", {}).get(name) for name in ("model", BASE, ADAPTERS)]
    text = json.dumps([role.size, pods, weights], sort_keys=True)
    return names.digest(text.replace(names.stem(service, component, revision), "").replace(revision, ""))


def _hardware(decided: Decided, slice_: Slice, role: Stored) -> str:
    """Return the GPUs of a group, as the labels of the nodes of all groups that serve name them; "" if they name none."""
    nodes = decided.snapshot.deps.nodes
    used = {pod.node for pod in slice_.pods if pod.component == role.component and pod.ready and pod.node in nodes}
    products = {nodes[name].labels.get(label, "") for name in used for label in keys.GPU_PRODUCTS} - {""}
    return f"{gpus(role)}x {', '.join(sorted(products))}" if products else ""
