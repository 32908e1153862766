"""Read the faults that a node itself reports: conditions and taints of known types, and GPUs that are missing."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ome_operator import quantity
from ome_operator.core.observed.objects import Taint

FAULTY = {
    "KernelDeadlock": "True",
    "ReadonlyFilesystem": "True",
    "CorruptDockerOverlay2": "True",
    "XfsShutdown": "True",
    "AcceleratedHardwareReady": "False",
}
"""Maps the type of a node's condition to the status that reports a fault. node-problem-detector sets the first four
conditions for faults that do not end by themselves; the monitoring agent of EKS sets the last. Kubernetes' own conditions
are left out, because a node with such a condition has a taint and gets no pods."""
GPU_MISSING = "GPUMissing"
WORDS = 160


def reported_faults(status: Mapping[str, Any], taints: Iterable[Taint]) -> Iterator[tuple[str, str]]:
    """Yield each kind of fault that a node reports, each kind once, with a human-readable text. `status` is the status of
    the node.
    """
    found: dict[str, str] = {}
    for condition in status.get("conditions") or ():
        kind = condition.get("type")
        if condition.get("status") == FAULTY.get(kind, ""):
            message = condition.get("message") or condition.get("reason") or ""
            found[kind] = f"the condition is {condition['status']}" + (f" ({message[:WORDS]})" if message else "")
    for taint in taints:
        kind = taint.key.rpartition("/")[2]
        if kind in FAULTY:
            found.setdefault(kind, f"taint {taint.key}")
    allocatable = status.get("allocatable") or {}
    for name, value in sorted((status.get("capacity") or {}).items()):
        if name.endswith("/gpu") and name in allocatable:
            here, whole = quantity.units(name, allocatable[name]), quantity.units(name, value)
            if here < whole:
                found[GPU_MISSING] = f"only {here} of {whole} {name} are allocatable"
    yield from sorted(found.items())
