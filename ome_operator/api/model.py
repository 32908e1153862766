"""ClusterBaseModel and BaseModel: the weights, where they come from, and what is known about them."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Spec
from ome_operator.api.conditions import Conditions, Users
from ome_operator.api.learned import Facts
from ome_operator.api.objects import Object
from ome_operator.api.values import Labels, Name, NodePath, Open, ParameterCount, ReleaseNumber, StorageUri


class Version(Spec):
    """A format or framework with a version, and how runtimes compare it."""

    name: Name
    """Such as safetensors, transformers, gguf."""
    version: ReleaseNumber | None = None
    operator: str | None = None
    """Equal, GreaterThan or GreaterThanOrEqual; Equal when unset."""
    weight: int | None = None
    """Weight in the choice of a runtime; 1 when unset."""


class PipelinePart(Spec):
    """A class and the library that has it."""

    library: str | None = None
    type: str | None = None


class DiffusionPipeline(Spec):
    """The parts of a diffusion model."""

    class_name: str | None = None
    scheduler: PipelinePart | None = None
    text_encoder: PipelinePart | None = None
    tokenizer: PipelinePart | None = None
    transformer: PipelinePart | None = None
    vae: PipelinePart | None = None
    additional_components: dict[str, PipelinePart] | None = None


class Storage(Spec):
    """Where files come from and where nodes keep them."""

    storage_uri: StorageUri
    """hf://org/model[@revision], s3://, gs://, az://, oci://, pvc://[namespace:]claim/path, local:///path, vendor://, github://."""
    path: NodePath | None = None
    """Directory on the nodes; engines see the files under this path."""
    schema_path: str | None = None
    key: str | None = None
    """Name of a Secret whose `token` opens the source."""
    parameters: Labels | None = None
    node_selector: Labels | None = None
    """Nodes that shall hold the files."""
    node_affinity: Open | None = None
    download_policy: Literal["AlwaysDownload", "ReuseIfExists"] | None = None


class ModelSpec(Spec):
    """A model. What is not written is learned from its files and stands in the status."""

    storage: Storage
    model_format: Version | None = None
    model_framework: Version | None = None
    model_architecture: str | None = None
    """Class name in config.json, such as DeepseekV3ForCausalLM."""
    model_type: str | None = None
    model_parameter_size: ParameterCount | None = None
    """Number of parameters, such as "7B" or "1.04T"."""
    model_capabilities: list[str] | None = None
    api_capabilities: list[str] | None = None
    quantization: str | None = None
    max_tokens: int | None = None
    """Context length."""
    diffusion_pipeline: DiffusionPipeline | None = None
    model_configuration: Open | None = None
    serving_mode: list[str] | None = None
    distribution: Literal["PerNode", "Sharded"] | None = None
    vendor: str | None = None
    version: str | None = None
    display_name: str | None = None
    disabled: bool | None = None
    """No new service may use it; those that run stay."""
    compartment_id: Annotated[str | None, Field(alias="compartmentID")] = None
    additional_metadata: Labels | None = None


class NodeProgress(Spec):
    """How far one node is with the files."""

    state: str | None = None
    bytes: int | None = None
    total: int | None = None
    speed: str | None = None
    eta: str | None = None
    verified_at: str | None = None
    message: str | None = None


class PinnedWeights(Spec):
    """What all nodes hold."""

    uri: str
    revision: str
    """What the URI stood for when the first node looked; it stays until the URI is another."""
    directory: str | None = None
    """Name of the directory below `.ome`, beside the model's path."""


class ModelStatus(Spec):
    """Where the files are, and who uses the model."""

    state: Literal["Creating", "Importing", "In_Transit", "In_Training", "Ready", "Failed"] | None = None
    lifecycle: str | None = None
    nodes_ready: Annotated[list[str] | None, ATOMIC] = None
    nodes_failed: Annotated[list[str] | None, ATOMIC] = None
    weights: PinnedWeights | None = None
    nodes: dict[str, NodeProgress] | None = None
    """Progress per node."""
    summary: str | None = None
    """Progress in a few words, such as "11/16 nodes, 71 %, 9 min"."""
    architecture: str | None = None
    """From the spec, else from the files; the same for the next three."""
    size: str | None = None
    format: str | None = None
    quantization: str | None = None
    facts: Facts | None = None
    """What the model's files say, as the agents read them."""
    users: int | None = None
    """Number of services that use the model."""
    used_by: Users | None = None
    conditions: Conditions | None = None
    observed_generation: int | None = None


class Model(Object[ModelSpec]):
    """A parsed ClusterBaseModel or BaseModel; `kind` says which."""

    KINDS = ("ClusterBaseModel", "BaseModel")
    SPEC = ModelSpec
