"""AcceleratorClass: a kind of accelerator, how its nodes are recognised, and how a service asks for one."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Spec
from ome_operator.api.conditions import Conditions
from ome_operator.api.objects import Object
from ome_operator.api.values import Labels, Open, Quantity, ReleaseNumber

Policy = Literal["BestFit", "Cheapest", "MostCapable", "FirstAvailable"]


class Latency(Spec):
    """Memory or kernel latency in milliseconds."""

    average_millis: int | None = None
    maximum_millis: int | None = None


class Performance(Spec):
    """Peak arithmetic rates."""

    fp16_tflops: int | None = None
    fp32_tflops: int | None = None
    int4_tops: int | None = None
    int8_tops: int | None = None
    latency: Latency | None = None


class Capabilities(Spec):
    """What one accelerator of the class can do."""

    memory_gb: Annotated[Quantity | None, Field(alias="memoryGB")] = None
    """Memory of one accelerator: 141 or "141Gi"."""
    memory_bandwidth_gbps: Annotated[Quantity | None, Field(alias="memoryBandwidthGBps")] = None
    compute_capability: ReleaseNumber | None = None
    """The vendor's architecture version, such as "9.0"."""
    clock_speed_mhz: Annotated[int | None, Field(alias="clockSpeedMHz")] = None
    level_zero_version: str | None = None
    features: list[str] | None = None
    performance: Performance | None = None


class Cost(Spec):
    """What an accelerator costs, for the policy Cheapest."""

    per_hour: Quantity | None = None
    per_million_tokens: Quantity | None = None
    spot_per_hour: Quantity | None = None
    tier: str | None = None


class Discovery(Spec):
    """How nodes that have the accelerator are recognised."""

    node_selector: Labels | None = None
    """Labels that such nodes carry."""
    affinity: Open | None = None
    device_ids: Annotated[list[str] | None, Field(alias="deviceIDs")] = None
    pci_vendor_id: Annotated[str | None, Field(alias="pciVendorID")] = None


class Integration(Spec):
    """Names of the class in other schedulers."""

    kueue_resource_flavor: str | None = None
    volcano_gpu_type: Annotated[str | None, Field(alias="volcanoGPUType")] = None


class AcceleratorResource(Spec):
    """An extended resource that pods request to get the accelerator."""

    name: str
    """Resource name, such as nvidia.com/gpu."""
    quantity: Quantity | None = None
    divisible: bool | None = None


class AcceleratorClassSpec(Spec):
    """A kind of accelerator."""

    vendor: str | None = None
    family: str | None = None
    """Architecture family, such as hopper."""
    model: str | None = None
    """Product, such as h200."""
    capabilities: Capabilities
    discovery: Discovery
    resources: Annotated[list[AcceleratorResource] | None, ATOMIC] = None
    cost: Cost | None = None
    integration: Integration | None = None


class AcceleratorClassStatus(Spec):
    """What the cluster has of the class."""

    nodes: Annotated[list[str] | None, ATOMIC] = None
    """Nodes that the discovery matches."""
    available_nodes: int | None = None
    available_accelerators: int | None = None
    total_accelerators: int | None = None
    last_updated: str | None = None
    conditions: Conditions | None = None
    observed_generation: int | None = None


class AcceleratorConstraints(Spec):
    """What an accelerator must have."""

    min_memory: int | None = None
    """GB of memory of one accelerator."""
    max_memory: int | None = None
    min_compute_performance_tflops: Annotated[int | None, Field(alias="minComputePerformanceTFLOPS")] = None
    min_architecture_version: ReleaseNumber | None = None
    required_features: list[str] | None = None
    preferred_precisions: list[str] | None = None
    excluded_classes: list[str] | None = None
    architecture_families: list[str] | None = None


class AcceleratorSelector(Spec):
    """Which accelerator to use: a class by name, or the best of those that meet the constraints."""

    accelerator_class: str | None = None
    constraints: AcceleratorConstraints | None = None
    policy: Policy | None = None


class AcceleratorRequirements(Spec):
    """Which accelerators a runtime can use."""

    accelerator_classes: list[str] | None = None
    """Names of classes; without any, every class that meets the rest."""
    min_memory: int | None = None
    min_compute_performance_tflops: Annotated[int | None, Field(alias="minComputePerformanceTFLOPS")] = None
    min_architecture_version: ReleaseNumber | None = None
    required_features: list[str] | None = None
    preferred_precisions: list[str] | None = None


class AcceleratorClass(Object[AcceleratorClassSpec]):
    """A parsed AcceleratorClass."""

    KINDS = ("AcceleratorClass",)
    SPEC = AcceleratorClassSpec
