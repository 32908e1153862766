"""ClusterServingRuntime and ServingRuntime: which models an engine can serve, and the pods that do it."""

from typing import Annotated, Any

from pydantic import Field

from ome_operator.api.accelerator import AcceleratorRequirements
from ome_operator.api.base import ATOMIC, Spec
from ome_operator.api.component import Component
from ome_operator.api.conditions import Conditions, Users
from ome_operator.api.model import DiffusionPipeline, Version
from ome_operator.api.objects import Object
from ome_operator.api.values import Labels, Open, ReleaseNumber, Replicas


class Parallelism(Spec):
    """How an engine divides a model."""

    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None


class AcceleratorOverride(Spec):
    """What is different on one class of accelerators."""

    tensor_parallelism_override: Parallelism | None = None
    runtime_args_override: list[str] | None = None
    """Arguments that replace those of the same name."""
    environment_override: Labels | None = None
    min_memory_per_billion_params: int | None = None


class SupportedModelFormat(Spec):
    """A kind of model that the runtime serves."""

    name: str | None = None
    version: ReleaseNumber | None = None
    model_format: Version | None = None
    model_framework: Version | None = None
    model_architecture: str | None = None
    model_type: str | None = None
    quantization: str | None = None
    diffusion_pipeline: DiffusionPipeline | None = None
    auto_select: bool | None = None
    """Whether services that name no runtime may get this one."""
    priority: int | None = None
    accelerator_config: dict[str, AcceleratorOverride] | None = None
    """By the name of an AcceleratorClass."""


class ModelSizeRange(Spec):
    """Sizes of models that the runtime fits, such as "500B" to "2T"."""

    min: str | None = None
    max: str | None = None


class PodParts(Spec):
    """The pod spec below all components, in the fields that a runtime may set there."""

    containers: Annotated[list[Open] | None, ATOMIC] = None
    volumes: Annotated[list[Open] | None, ATOMIC] = None
    node_selector: Labels | None = None
    affinity: Open | None = None
    tolerations: Annotated[list[Open] | None, ATOMIC] = None
    image_pull_secrets: Annotated[list[Open] | None, ATOMIC] = None
    scheduler_name: str | None = None
    dns_policy: str | None = None
    host_network: bool | None = None
    host_ipc: Annotated[bool | None, Field(alias="hostIPC")] = None
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


class RuntimeSpec(PodParts):
    """An engine: the models that it serves and the pods of each component."""

    supported_model_formats: Annotated[list[SupportedModelFormat] | None, ATOMIC] = None
    model_size_range: ModelSizeRange | None = None
    protocol_versions: list[str] | None = None
    disabled: bool | None = None
    """No new service may use it; those that run stay."""
    engine_config: Component | None = None
    decoder_config: Component | None = None
    router_config: Component | None = None
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
    """Accelerators of one replica of each role, such as "128"."""
    strategy: str | None = None
    """How each role divides the model, as far as its arguments say it, such as "TP32 DP32 EP + TP96 DP96 EP"."""
    users: int | None = None
    used_by: Users | None = None
    conditions: Conditions | None = None
    observed_generation: int | None = None


class Runtime(Object[RuntimeSpec]):
    """A parsed ClusterServingRuntime or ServingRuntime; `kind` says which."""

    KINDS = ("ClusterServingRuntime", "ServingRuntime")
    SPEC = RuntimeSpec
