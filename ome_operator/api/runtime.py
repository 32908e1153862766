"""ClusterServingRuntime and ServingRuntime: the models that an engine can serve, and the pods that serve them."""

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
    """How an engine divides a model over GPUs."""

    tensor_parallel_size: int | None = None
    """Number of GPUs that share each layer (tensor parallelism)."""
    pipeline_parallel_size: int | None = None
    """Number of pipeline stages; 1 if unset."""
    data_parallel_size: int | None = None
    """Has no effect."""


class AcceleratorOverride(Spec):
    """Changes for one accelerator class."""

    tensor_parallelism_override: Parallelism | None = None
    runtime_args_override: list[str] | None = None
    """Arguments that replace the runtime's arguments of the same names."""
    environment_override: Labels | None = None
    """Environment variables of the main container."""
    min_memory_per_billion_params: int | None = None
    """Has no effect."""


class SupportedModelFormat(Spec):
    """A kind of model that the runtime can serve."""

    name: str | None = None
    """Name of the format, if modelFormat is unset."""
    version: ReleaseNumber | None = None
    """Has no effect: use modelFormat.version."""
    model_format: Version | None = None
    model_framework: Version | None = None
    model_architecture: str | None = None
    """Name of the model class in config.json."""
    model_type: str | None = None
    """Has no effect: modelArchitecture is compared instead."""
    quantization: str | None = None
    """Quantization of the weights; if unset, only weights that are not quantized match."""
    diffusion_pipeline: DiffusionPipeline | None = None
    auto_select: bool | None = None
    """Whether the runtime can be chosen for services that name no runtime."""
    priority: int | None = None
    """Factor for the weights in the choice of a runtime; 1 if unset."""
    accelerator_config: dict[str, AcceleratorOverride] | None = None
    """Changes by name of the AcceleratorClass."""


class ModelSizeRange(Spec):
    """Range of model sizes that the runtime can serve, such as "500B" to "2T"."""

    min: str | None = None
    """Minimum number of parameters."""
    max: str | None = None
    """Maximum number of parameters."""


class PodParts(Spec):
    """The fields of the pod spec that a runtime can set for all components."""

    containers: Annotated[list[Open] | None, ATOMIC] = None
    """Containers. The runner of a component is merged into the container of the same name."""
    volumes: Annotated[list[Open] | None, ATOMIC] = None
    """Volumes."""
    node_selector: Labels | None = None
    """Labels that nodes must have."""
    affinity: Open | None = None
    """A core/v1 Affinity."""
    tolerations: Annotated[list[Open] | None, ATOMIC] = None
    """Tolerations of the pods."""
    image_pull_secrets: Annotated[list[Open] | None, ATOMIC] = None
    """Secrets for pulling images from registries."""
    scheduler_name: str | None = None
    """Scheduler of the pods."""
    dns_policy: str | None = None
    """DNS policy of the pods."""
    host_network: bool | None = None
    """Whether the pods use the network namespace of the node."""
    host_ipc: Annotated[bool | None, Field(alias="hostIPC")] = None
    """Whether the pods use the IPC namespace of the node."""
    labels: Labels | None = None
    """Labels of the pods."""
    annotations: Labels | None = None
    """Annotations of the pods."""

    @property
    def pod(self) -> dict[str, Any]:
        """The pod spec as the user wrote it, without labels and annotations."""
        return self.model_dump(by_alias=True, exclude_unset=True, include=POD_FIELDS)


POD_FIELDS = set(PodParts.model_fields) - {"labels", "annotations"}


class Workers(PodParts):
    """The pod spec that is the base of all worker pods."""

    size: Replicas | None = None
    """Number of worker pods per engine group, if the worker of the engine does not set it."""


class RuntimeSpec(PodParts):
    """An engine: the models that it can serve, and the pods of each component."""

    supported_model_formats: Annotated[list[SupportedModelFormat] | None, ATOMIC] = None
    """Models that the runtime can serve."""
    model_size_range: ModelSizeRange | None = None
    protocol_versions: list[str] | None = None
    """Has no effect: the engine determines the protocol."""
    disabled: bool | None = None
    """If true, no new service can use the runtime; existing services keep running."""
    engine_config: Component | None = None
    """Pods of the engine, or of prefill if there is a decoder."""
    decoder_config: Component | None = None
    """Pods of the decoder."""
    router_config: Component | None = None
    """Pods of the router."""
    accelerator_requirements: AcceleratorRequirements | None = None
    workers: Workers | None = None


class RuntimeStatus(Spec):
    """Summary of the runtime for printer columns, and the services that use it."""

    engine: str | None = None
    """Name and version of the engine, such as "sglang 0.5.3"."""
    roles: str | None = None
    """Roles of the runtime, such as "prefill+decode+router"."""
    nodes: str | None = None
    """Number of nodes per replica of each role, such as "4+12"."""
    gpus: str | None = None
    """Number of accelerators per replica of each role, such as "128"."""
    strategy: str | None = None
    """How each role divides the model, as far as its arguments state it, such as "TP32 DP32 EP + TP96 DP96 EP"."""
    users: int | None = None
    """Number of services that use the runtime."""
    used_by: Users | None = None
    """Services that use the runtime, at most 50."""
    rollout: Annotated[Waves | None, ATOMIC_MAP] = None
    conditions: Conditions | None = None
    """The conditions Ready and Advice. Advice lists the fields that have no effect."""
    observed_generation: int | None = None
    """Generation of the spec that this status describes."""


class Runtime(Object[RuntimeSpec]):
    """A parsed ClusterServingRuntime or ServingRuntime; the field `kind` contains the kind."""

    KINDS = ("ClusterServingRuntime", "ServingRuntime")
    SPEC = RuntimeSpec
