"""AcceleratorClass: a kind of accelerator, how its nodes are recognised, and how a service asks for one."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, ATOMIC_MAP, Spec
from ome_operator.api.conditions import Conditions, Waves
from ome_operator.api.objects import Object
from ome_operator.api.values import Labels, Open, Quantity, ReleaseNumber

Policy = Literal["BestFit", "Cheapest", "MostCapable", "FirstAvailable"]


class Latency(Spec):
    """Memory or kernel latency in milliseconds."""

    average_millis: int | None = None
    """Has no effect."""
    maximum_millis: int | None = None
    """Has no effect."""


class Performance(Spec):
    """Peak arithmetic rates."""

    fp16_tflops: int | None = None
    """TFLOPS in FP16."""
    fp32_tflops: int | None = None
    """Has no effect."""
    int4_tops: int | None = None
    """Has no effect."""
    int8_tops: int | None = None
    """Has no effect."""
    latency: Latency | None = None


class Capabilities(Spec):
    """What an accelerator of the class can do."""

    memory_gb: Annotated[Quantity | None, Field(alias="memoryGB")] = None
    """Memory of an accelerator: 141 or "141Gi"."""
    memory_bandwidth_gbps: Annotated[Quantity | None, Field(alias="memoryBandwidthGBps")] = None
    """GB per second of memory, for the policy MostCapable."""
    compute_capability: ReleaseNumber | None = None
    """The vendor's architecture version, such as "9.0"."""
    clock_speed_mhz: Annotated[int | None, Field(alias="clockSpeedMHz")] = None
    """Has no effect."""
    level_zero_version: str | None = None
    """Has no effect."""
    features: list[str] | None = None
    """What it can do, such as fp8, nvlink, rdma."""
    performance: Performance | None = None


class Cost(Spec):
    """What an accelerator costs, for the policy Cheapest."""

    per_hour: Quantity | None = None
    """Price of an hour."""
    per_million_tokens: Quantity | None = None
    """Price of a million tokens, where perHour is equal."""
    spot_per_hour: Quantity | None = None
    """Has no effect."""
    tier: str | None = None
    """Has no effect."""


class Discovery(Spec):
    """How nodes that have the accelerator are recognised."""

    node_selector: Labels | None = None
    """Labels that such nodes carry."""
    affinity: Open | None = None
    """Has no effect: use nodeSelector."""
    device_ids: Annotated[list[str] | None, Field(alias="deviceIDs")] = None
    """Has no effect: use nodeSelector."""
    pci_vendor_id: Annotated[str | None, Field(alias="pciVendorID")] = None
    """Has no effect: use nodeSelector."""


class Integration(Spec):
    """Names of the class in other schedulers."""

    kueue_resource_flavor: str | None = None
    """Has no effect."""
    volcano_gpu_type: Annotated[str | None, Field(alias="volcanoGPUType")] = None
    """Has no effect."""


class AcceleratorResource(Spec):
    """An extended resource that pods request to get the accelerator."""

    name: str
    """Resource name, such as nvidia.com/gpu."""
    quantity: Quantity | None = None
    """Has no effect."""
    divisible: bool | None = None
    """Has no effect."""


class AcceleratorClassSpec(Spec):
    """A kind of accelerator."""

    vendor: str | None = None
    """Who makes it."""
    family: str | None = None
    """Architecture family, such as hopper."""
    model: str | None = None
    """Product, such as h200."""
    capabilities: Capabilities
    discovery: Discovery
    resources: Annotated[list[AcceleratorResource] | None, ATOMIC] = None
    """What containers ask for to get it; `ome generate` reads the first name, and nothing else does."""
    cost: Cost | None = None
    integration: Integration | None = None


class AcceleratorClassStatus(Spec):
    """What the cluster has of the class."""

    nodes: Annotated[list[str] | None, ATOMIC] = None
    """Nodes that the discovery matches."""
    available_nodes: int | None = None
    """Nodes that are ready."""
    available_accelerators: int | None = None
    """Accelerators of nodes that are ready."""
    total_accelerators: int | None = None
    """Accelerators of all nodes."""
    last_updated: str | None = None
    """Not written."""
    rollout: Annotated[Waves | None, ATOMIC_MAP] = None
    conditions: Conditions | None = None
    """Ready, and Advice where something has no effect."""
    observed_generation: int | None = None
    """Generation of the spec that this is about."""


class AcceleratorConstraints(Spec):
    """What an accelerator must have."""

    min_memory: int | None = None
    """GB of memory of an accelerator at least."""
    max_memory: int | None = None
    """GB of memory at most."""
    min_compute_performance_tflops: Annotated[int | None, Field(alias="minComputePerformanceTFLOPS")] = None
    """FP16 TFLOPS at least."""
    min_architecture_version: ReleaseNumber | None = None
    """Compute capability at least, such as "9.0"."""
    required_features: list[str] | None = None
    """Features that the class must have, such as fp8."""
    preferred_precisions: list[str] | None = None
    """Features that come first in the choice."""
    excluded_classes: list[str] | None = None
    """Names of classes that are not wanted."""
    architecture_families: list[str] | None = None
    """Families that are wanted, such as hopper."""


class AcceleratorSelector(Spec):
    """Which accelerator to use: a class by name, or the best of those that meet the constraints."""

    accelerator_class: str | None = None
    """Name of an AcceleratorClass."""
    constraints: AcceleratorConstraints | None = None
    policy: Policy | None = None
    """How to choose among classes that fit; BestFit when unset."""


class AcceleratorRequirements(Spec):
    """Which accelerators a runtime can use."""

    accelerator_classes: list[str] | None = None
    """Names of classes; without any, every class that meets the rest."""
    min_memory: int | None = None
    """GB of memory of an accelerator at least."""
    min_compute_performance_tflops: Annotated[int | None, Field(alias="minComputePerformanceTFLOPS")] = None
    """FP16 TFLOPS at least."""
    min_architecture_version: ReleaseNumber | None = None
    """Compute capability at least."""
    required_features: list[str] | None = None
    """Features that the class must have."""
    preferred_precisions: list[str] | None = None
    """Has no effect: a service says it."""


class AcceleratorClass(Object[AcceleratorClassSpec]):
    """A parsed AcceleratorClass."""

    KINDS = ("AcceleratorClass",)
    SPEC = AcceleratorClassSpec
