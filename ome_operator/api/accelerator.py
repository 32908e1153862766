"""AcceleratorClass: a type of accelerator, the labels of nodes that have it, and the constraints with which a service
selects it.
"""

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
    """Peak arithmetic rates of one accelerator."""

    fp16_tflops: int | None = None
    """Peak FP16 rate in TFLOPS."""
    fp32_tflops: int | None = None
    """Has no effect."""
    int4_tops: int | None = None
    """Has no effect."""
    int8_tops: int | None = None
    """Has no effect."""
    latency: Latency | None = None


class Capabilities(Spec):
    """Hardware capabilities of one accelerator of the class."""

    memory_gb: Annotated[Quantity | None, Field(alias="memoryGB")] = None
    """Memory of one accelerator, such as 141 or "141Gi". A number without a unit is in GB."""
    memory_bandwidth_gbps: Annotated[Quantity | None, Field(alias="memoryBandwidthGBps")] = None
    """Memory bandwidth of one accelerator in GB per second. The policy MostCapable compares it."""
    compute_capability: ReleaseNumber | None = None
    """Architecture version of the vendor, such as "9.0" (CUDA compute capability)."""
    clock_speed_mhz: Annotated[int | None, Field(alias="clockSpeedMHz")] = None
    """Has no effect."""
    level_zero_version: str | None = None
    """Has no effect."""
    features: list[str] | None = None
    """Features of the accelerator, such as fp8, nvlink or rdma."""
    performance: Performance | None = None


class Cost(Spec):
    """Cost of one accelerator. The policy Cheapest compares it."""

    per_hour: Quantity | None = None
    """Price per hour."""
    per_million_tokens: Quantity | None = None
    """Price per million tokens. It decides between classes with the same perHour."""
    spot_per_hour: Quantity | None = None
    """Has no effect."""
    tier: str | None = None
    """Has no effect."""


class Discovery(Spec):
    """How the operator recognizes nodes that have the accelerator."""

    node_selector: Labels | None = None
    """Labels of the nodes that have the accelerator."""
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
    """Name of the extended resource, such as nvidia.com/gpu."""
    quantity: Quantity | None = None
    """Has no effect."""
    divisible: bool | None = None
    """Has no effect."""


class AcceleratorClassSpec(Spec):
    """A kind of accelerator, such as the NVIDIA H200."""

    vendor: str | None = None
    """Manufacturer of the accelerator."""
    family: str | None = None
    """Architecture family, such as hopper."""
    model: str | None = None
    """Product name, such as h200."""
    capabilities: Capabilities
    discovery: Discovery
    resources: Annotated[list[AcceleratorResource] | None, ATOMIC] = None
    """Extended resources that containers request to get the accelerator. Only `ome generate` reads them, and only the
    first name."""
    cost: Cost | None = None
    integration: Integration | None = None


class AcceleratorClassStatus(Spec):
    """Nodes and accelerators of the class in the cluster."""

    nodes: Annotated[list[str] | None, ATOMIC] = None
    """Nodes that match the discovery of the class."""
    available_nodes: int | None = None
    """Number of matching nodes that are ready."""
    available_accelerators: int | None = None
    """Number of accelerators on matching nodes that are ready."""
    total_accelerators: int | None = None
    """Number of accelerators on all matching nodes."""
    last_updated: str | None = None
    """Not written."""
    rollout: Annotated[Waves | None, ATOMIC_MAP] = None
    conditions: Conditions | None = None
    """The conditions Ready and Advice. Advice lists the fields that have no effect."""
    observed_generation: int | None = None
    """Generation of the spec that this status describes."""


class AcceleratorConstraints(Spec):
    """Requirements that an accelerator class has to meet."""

    min_memory: int | None = None
    """Minimum memory of one accelerator in GB."""
    max_memory: int | None = None
    """Maximum memory of one accelerator in GB."""
    min_compute_performance_tflops: Annotated[int | None, Field(alias="minComputePerformanceTFLOPS")] = None
    """Minimum FP16 rate in TFLOPS."""
    min_architecture_version: ReleaseNumber | None = None
    """Minimum compute capability, such as "9.0"."""
    required_features: list[str] | None = None
    """Features that the class must have, such as fp8."""
    preferred_precisions: list[str] | None = None
    """Features, such as fp8, that are preferred: classes that have them are chosen first."""
    excluded_classes: list[str] | None = None
    """Names of AcceleratorClasses that must not be chosen."""
    architecture_families: list[str] | None = None
    """Architecture families that are allowed, such as hopper."""


class AcceleratorSelector(Spec):
    """The accelerator to use: a class by name, or the best of the classes that meet the constraints."""

    accelerator_class: str | None = None
    """Name of an AcceleratorClass."""
    constraints: AcceleratorConstraints | None = None
    policy: Policy | None = None
    """How to choose among the classes that meet the constraints; BestFit if unset."""


class AcceleratorRequirements(Spec):
    """The accelerators that a runtime can use."""

    accelerator_classes: list[str] | None = None
    """Names of AcceleratorClasses that the runtime can use. If unset, every class that meets the other requirements."""
    min_memory: int | None = None
    """Minimum memory of one accelerator in GB."""
    min_compute_performance_tflops: Annotated[int | None, Field(alias="minComputePerformanceTFLOPS")] = None
    """Minimum FP16 rate in TFLOPS."""
    min_architecture_version: ReleaseNumber | None = None
    """Minimum compute capability, such as "9.0"."""
    required_features: list[str] | None = None
    """Features that the class must have, such as fp8."""
    preferred_precisions: list[str] | None = None
    """Has no effect: set acceleratorSelector.constraints.preferredPrecisions of the service."""


class AcceleratorClass(Object[AcceleratorClassSpec]):
    """A parsed AcceleratorClass."""

    KINDS = ("AcceleratorClass",)
    SPEC = AcceleratorClassSpec
