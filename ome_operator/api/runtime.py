"""ClusterServingRuntime and ServingRuntime: which models an engine can serve, and the pods that do it."""

from typing import Annotated, Any

from pydantic import Field

from ome_operator.api.accelerator import AcceleratorRequirements
from ome_operator.api.base import ATOMIC, ATOMIC_MAP, Spec
from ome_operator.api.component import Component
from ome_operator.api.conditions import Conditions, Users, Waves
from ome_operator.api.model import DiffusionPipeline, Version
from ome_operator.api.objects import Object
from ome_operator.api.values import Labels, Open, ReleaseNumber, Replicas


class Parallelism(Spec):
    """How an engine divides a model."""

    tensor_parallel_size: int | None = None
    """GPUs that share each layer."""
    pipeline_parallel_size: int | None = None
    """Stages that a request passes; 1 when unset."""
    data_parallel_size: int | None = None
    """Has no effect."""


class AcceleratorOverride(Spec):
    """What is different on a class of accelerators."""

    tensor_parallelism_override: Parallelism | None = None
    runtime_args_override: list[str] | None = None
    """Arguments that replace those of the same name."""
    environment_override: Labels | None = None
    """Variables of the main container."""
    min_memory_per_billion_params: int | None = None
    """Has no effect."""


class SupportedModelFormat(Spec):
    """A kind of model that the runtime serves."""

    name: str | None = None
    """Format, where modelFormat is unset."""
    version: ReleaseNumber | None = None
    """Has no effect: use modelFormat.version."""
    model_format: Version | None = None
    model_framework: Version | None = None
    model_architecture: str | None = None
    """Class name in config.json."""
    model_type: str | None = None
    """Has no effect: architectures are compared."""
    quantization: str | None = None
    """How the weights are stored; plain weights when unset."""
    diffusion_pipeline: DiffusionPipeline | None = None
    auto_select: bool | None = None
    """Whether services that name no runtime may get it."""
    priority: int | None = None
    """Factor of the weights in the choice; 1 when unset."""
    accelerator_config: dict[str, AcceleratorOverride] | None = None
    """By the name of an AcceleratorClass."""


class ModelSizeRange(Spec):
    """Sizes of models that the runtime fits, such as "500B" to "2T"."""

    min: str | None = None
    """Fewest parameters."""
    max: str | None = None
    """Most parameters."""


class PodParts(Spec):
    """The pod spec below all components, in the fields that a runtime may set there."""

    containers: Annotated[list[Open] | None, ATOMIC] = None
    """Containers; the runner of a component merges into that of its name."""
    volumes: Annotated[list[Open] | None, ATOMIC] = None
    """Volumes."""
    node_selector: Labels | None = None
    """Labels that nodes must have."""
    affinity: Open | None = None
    """A core/v1 Affinity."""
    tolerations: Annotated[list[Open] | None, ATOMIC] = None
    """Taints of nodes that do not matter."""
    image_pull_secrets: Annotated[list[Open] | None, ATOMIC] = None
    """Secrets that open registries."""
    scheduler_name: str | None = None
    """Scheduler of the pods."""
    dns_policy: str | None = None
    """DNS policy of the pods."""
    host_network: bool | None = None
    """Pods use the node's network."""
    host_ipc: Annotated[bool | None, Field(alias="hostIPC")] = None
    """Pods share memory with the node."""
    labels: Labels | None = None
    """Labels of the pods."""
    annotations: Labels | None = None
    """Annotations of the pods."""

    @property
    def pod(self) -> dict[str, Any]:
        """The pod spec as it was written, without labels and annotations."""
        return self.model_dump(by_alias=True, exclude_unset=True, include=POD_FIELDS)


POD_FIELDS = set(PodParts.model_fields) - {"labels", "annotations"}


class Workers(PodParts):
    """The pod spec below all workers."""

    size: Replicas | None = None
    """Worker pods per group of the engine, where no worker says it."""


class RuntimeSpec(PodParts):
    """An engine: the models that it serves and the pods of each component."""

    supported_model_formats: Annotated[list[SupportedModelFormat] | None, ATOMIC] = None
    """Models that the runtime serves."""
    model_size_range: ModelSizeRange | None = None
    protocol_versions: list[str] | None = None
    """Has no effect: clients speak what the engine speaks."""
    disabled: bool | None = None
    """No new service may use it; those that run stay."""
    engine_config: Component | None = None
    """Pods of the engine, or of prefill."""
    decoder_config: Component | None = None
    """Pods of decode."""
    router_config: Component | None = None
    """Pods of the router."""
    accelerator_requirements: AcceleratorRequirements | None = None
    workers: Workers | None = None


class RuntimeStatus(Spec):
    """What the runtime is, in words for a table, and who uses it."""

    engine: str | None = None
    """Engine and version, such as "sglang 0.5.3"."""
    roles: str | None = None
    """Such as "prefill+decode+router"."""
    nodes: str | None = None
    """Nodes per replica of each role, such as "4+12"."""
    gpus: str | None = None
    """Accelerators of a replica of each role, such as "128"."""
    strategy: str | None = None
    """How each role divides the model, as far as its arguments say it, such as "TP32 DP32 EP + TP96 DP96 EP"."""
    users: int | None = None
    """Number of services that use the runtime."""
    used_by: Users | None = None
    """Services that use the runtime, at most 50."""
    rollout: Annotated[Waves | None, ATOMIC_MAP] = None
    conditions: Conditions | None = None
    """Ready, and Advice where something has no effect."""
    observed_generation: int | None = None
    """Generation of the spec that this is about."""


class Runtime(Object[RuntimeSpec]):
    """A parsed ClusterServingRuntime or ServingRuntime; `kind` says which."""

    KINDS = ("ClusterServingRuntime", "ServingRuntime")
    SPEC = RuntimeSpec
