"""Accelerator classes against what a service asks for and a runtime requires, and the policies that choose among them."""

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from ome_operator import quantity
from ome_operator.api import AcceleratorClass, AcceleratorConstraints, AcceleratorRequirements
from ome_operator.core.observed.objects import Node

DEFAULT_POLICY = "BestFit"
HEADROOM = Fraction(5, 4)
"""Memory for each byte of weights that BestFit looks for: caches and buffers need room beside them."""


class Want(NamedTuple):
    """What a component needs of an accelerator."""

    constraints: AcceleratorConstraints | None
    """The service's."""
    requirements: AcceleratorRequirements | None
    """The runtime's."""
    bytes_each: int | None
    """Weights that lie on one accelerator; None when that is not known."""


def unfit(one: AcceleratorClass, want: Want) -> tuple[str, ...]:
    """What a class lacks, one clause each; () when it fits."""
    out: list[str] = []
    for asked, who in ((want.constraints, "the service"), (want.requirements, "the runtime")):
        if asked is not None:
            out += _lacks(one, asked, who)
    if (c := want.constraints) is not None:
        if one.name in (c.excluded_classes or ()):
            out.append("the service excludes it")
        if c.max_memory is not None and (memory(one) or 0) > c.max_memory:
            out.append(f"it has {_number(memory(one))} GB and the service asks for at most {c.max_memory}")
        if c.architecture_families and (one.spec.family or "") not in c.architecture_families:
            out.append(f"its family {one.spec.family or '(none)'} is not among {', '.join(c.architecture_families)}")
    if (r := want.requirements) is not None and r.accelerator_classes and one.name not in r.accelerator_classes:
        out.append(f"the runtime is for {', '.join(r.accelerator_classes)}")
    return tuple(out)


def _lacks(one: AcceleratorClass, asked: AcceleratorConstraints | AcceleratorRequirements, who: str) -> list[str]:
    out, can = [], one.spec.capabilities
    if asked.min_memory is not None and (memory(one) or 0) < asked.min_memory:
        out.append(f"it has {_number(memory(one))} GB and {who} asks for {asked.min_memory}")
    speed = can.performance.fp16_tflops if can.performance else None
    if asked.min_compute_performance_tflops is not None and (speed or 0) < asked.min_compute_performance_tflops:
        out.append(f"it has {speed or 'no known'} TFLOPS and {who} asks for {asked.min_compute_performance_tflops}")
    wanted = asked.min_architecture_version
    if wanted and _version(can.compute_capability) < _version(wanted):
        out.append(f"its compute capability is {can.compute_capability or 'not known'} and {who} asks for {wanted}")
    if missing := sorted(set(asked.required_features or ()) - set(can.features or ())):
        out.append(f"it has no {', '.join(missing)}, which {who} asks for")
    return out


def ranked(
    classes: Iterable[AcceleratorClass], policy: str, want: Want, nodes: Mapping[str, Node]
) -> list[AcceleratorClass]:
    """Classes that fit, the best first; those that have ready nodes come before all others."""
    preferred = set((want.constraints and want.constraints.preferred_precisions) or ())

    def key(one: AcceleratorClass) -> tuple[object, ...]:
        absent = not has_nodes(one, nodes)
        precise = -len(preferred & set(one.spec.capabilities.features or ()))
        return (absent, precise, *_order(one, policy, want), one.name)

    return sorted(classes, key=key)


def _order(one: AcceleratorClass, policy: str, want: Want) -> tuple[float, ...]:
    """What a policy compares; smaller is better."""
    can = one.spec.capabilities
    if policy == "Cheapest":
        price = one.spec.cost
        return tuple(_amount(each) for each in ((price.per_hour, price.per_million_tokens) if price else (None, None)))
    if policy == "MostCapable":
        speed = (can.performance.fp16_tflops if can.performance else None) or 0
        bandwidth = float(quantity.parse(can.memory_bandwidth_gbps or 0))
        return -float(speed), -float(memory(one) or 0), -bandwidth
    if policy == "FirstAvailable":
        return ()
    # BestFit: the smallest memory that holds the weights with some room; if none does, the largest.
    have, need = memory(one), want.bytes_each
    if have is None:
        return math.inf, 0.0
    holds = need is None or Fraction(need) * HEADROOM <= have * 10**9
    return (0.0 if holds else 1.0, float(have if holds else -have))


def has_nodes(one: AcceleratorClass, nodes: Mapping[str, Node]) -> bool:
    """Whether a ready node carries the labels of the class."""
    return any(node.ready and carries(node, one) for node in nodes.values())


def carries(node: Node, accelerator: AcceleratorClass) -> bool:
    """Whether a node has all the labels that a class names; a class that names none has no nodes."""
    wanted = accelerator.spec.discovery.node_selector or {}
    return bool(wanted) and all(node.labels.get(key) == value for key, value in wanted.items())


def memory(one: AcceleratorClass) -> Fraction | None:
    """GB of one accelerator: `141` and `"141"` mean GB, `"141Gi"` GiB; None where nothing or no amount is written."""
    written = one.spec.capabilities.memory_gb
    if written is None or not quantity.valid(written):
        return None
    value = quantity.parse(written)
    return value / 10**9 if value >= 10**6 else value


def _amount(written: int | str | None) -> float:
    return math.inf if written is None else float(quantity.parse(written))


def _number(value: Fraction | None) -> str:
    return "an unknown number of" if value is None else f"{float(value):g}"


def _version(text: str | None) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", text or ""))
