"""Compare accelerator classes with what a service requests and a runtime requires, and rank them by policy."""

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from ome_operator import quantity
from ome_operator.api import AcceleratorClass, AcceleratorConstraints, AcceleratorRequirements
from ome_operator.core.observed.objects import Node
from ome_operator.util.versions import numbers

DEFAULT_POLICY = "BestFit"
HEADROOM = Fraction(5, 4)
"""Bytes of GPU memory that the policy BestFit requires for each byte of weights, because caches and buffers need memory,
too."""


class AcceleratorNeeds(NamedTuple):
    """The requirements that a component has for its accelerator."""

    constraints: AcceleratorConstraints | None
    """What the service requests of the accelerator."""
    requirements: AcceleratorRequirements | None
    """What the runtime requires of the accelerator."""
    bytes_each: int | None
    """Bytes of weights that one accelerator has to hold; None if unknown."""


def unmet_requirements(accelerator: AcceleratorClass, want: AcceleratorNeeds) -> tuple[str, ...]:
    """Return the requirements that a class does not meet, as clauses for a message; () if the class meets all
    requirements.
    """
    out: list[str] = []
    for required, requester in ((want.constraints, "the service"), (want.requirements, "the runtime")):
        if required is not None:
            out += _lacks(accelerator, required, requester)
    if (constraints := want.constraints) is not None:
        if accelerator.name in (constraints.excluded_classes or ()):
            out.append("the service excludes it")
        if constraints.max_memory is not None and (memory(accelerator) or 0) > constraints.max_memory:
            out.append(
                f"it has {_number(memory(accelerator))} GB, but the service asks for at most {constraints.max_memory}"
            )
        if constraints.architecture_families and (accelerator.spec.family or "") not in constraints.architecture_families:
            families = ", ".join(constraints.architecture_families)
            out.append(f"its family {accelerator.spec.family or '(none)'} is not among {families}")
    classes = want.requirements.accelerator_classes if want.requirements is not None else None
    if classes and accelerator.name not in classes:
        out.append(f"the runtime is for {', '.join(classes)}")
    return tuple(out)


def _lacks(
    accelerator: AcceleratorClass, required: AcceleratorConstraints | AcceleratorRequirements, requester: str
) -> list[str]:
    out, capabilities = [], accelerator.spec.capabilities
    if required.min_memory is not None and (memory(accelerator) or 0) < required.min_memory:
        out.append(f"it has {_number(memory(accelerator))} GB, but {requester} asks for {required.min_memory}")
    speed = capabilities.performance.fp16_tflops if capabilities.performance else None
    if required.min_compute_performance_tflops is not None and (speed or 0) < required.min_compute_performance_tflops:
        out.append(
            f"it has {speed or 'no known'} TFLOPS, but {requester} asks for {required.min_compute_performance_tflops}"
        )
    wanted = required.min_architecture_version
    if wanted and numbers(capabilities.compute_capability or "") < numbers(wanted):
        out.append(
            f"its compute capability is {capabilities.compute_capability or 'not known'}, but {requester} asks for {wanted}"
        )
    if missing := sorted(set(required.required_features or ()) - set(capabilities.features or ())):
        out.append(f"it has no {', '.join(missing)}, which {requester} asks for")
    return out


def rank_classes(
    classes: Iterable[AcceleratorClass], policy: str, want: AcceleratorNeeds, nodes: Mapping[str, Node]
) -> list[AcceleratorClass]:
    """Return the accelerator classes, the best first. Classes with ready nodes come before all other classes, and `policy`
    determines the rest of the order.
    """
    preferred = set((want.constraints and want.constraints.preferred_precisions) or ())

    def key(accelerator: AcceleratorClass) -> tuple[object, ...]:
        absent = not has_nodes(accelerator, nodes)
        precise = -len(preferred & set(accelerator.spec.capabilities.features or ()))
        return (absent, precise, *_order(accelerator, policy, want), accelerator.name)

    return sorted(classes, key=key)


def _order(accelerator: AcceleratorClass, policy: str, want: AcceleratorNeeds) -> tuple[float, ...]:
    """Return the sort key of an accelerator class for a policy; a smaller key is better."""
    capabilities = accelerator.spec.capabilities
    if policy == "Cheapest":
        price = accelerator.spec.cost
        return tuple(_amount(amount) for amount in ((price.per_hour, price.per_million_tokens) if price else (None, None)))
    if policy == "MostCapable":
        speed = (capabilities.performance.fp16_tflops if capabilities.performance else None) or 0
        bandwidth = float(quantity.parse(capabilities.memory_bandwidth_gbps or 0))
        return -float(speed), -float(memory(accelerator) or 0), -bandwidth
    if policy == "FirstAvailable":
        return ()
    # BestFit prefers the smallest memory that holds the weights with headroom. If no class has so much memory, it
    # prefers the largest.
    available, need = memory(accelerator), want.bytes_each
    if available is None:
        return math.inf, 0.0
    sufficient = need is None or Fraction(need) * HEADROOM <= available * 10**9
    return (0.0 if sufficient else 1.0, float(available if sufficient else -available))


def has_nodes(accelerator: AcceleratorClass, nodes: Mapping[str, Node]) -> bool:
    """Return whether a ready node has all labels of an accelerator class."""
    return any(node.ready and has_class_labels(node, accelerator) for node in nodes.values())


def has_class_labels(node: Node, accelerator: AcceleratorClass) -> bool:
    """Return whether a node has all labels that an accelerator class names; a class that names no labels has no nodes."""
    wanted = accelerator.spec.discovery.node_selector or {}
    return bool(wanted) and all(node.labels.get(key) == value for key, value in wanted.items())


def memory(accelerator: AcceleratorClass) -> Fraction | None:
    """Return the memory of one accelerator in GB: `141` and `"141"` mean GB, `"141Gi"` means GiB; None if it is unset or
    invalid.
    """
    written = accelerator.spec.capabilities.memory_gb
    if written is None or not quantity.is_valid(written):
        return None
    value = quantity.parse(written)
    return value / 10**9 if value >= 10**6 else value


def _amount(written: int | str | None) -> float:
    return math.inf if written is None else float(quantity.parse(written))


def _number(value: Fraction | None) -> str:
    return "an unknown number of" if value is None else f"{float(value):g}"
