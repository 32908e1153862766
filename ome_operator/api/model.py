"""ClusterBaseModel and BaseModel: the weights, where they come from, and what is known about them."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, ATOMIC_MAP, Spec
from ome_operator.api.conditions import Conditions, Users, Waves
from ome_operator.api.learned import Facts
from ome_operator.api.objects import Object
from ome_operator.api.values import Labels, Name, NodePath, Open, ParameterCount, ReleaseNumber, StorageUri


class Version(Spec):
    """A format or framework with a version, and how runtimes compare it."""

    name: Name
    """Such as safetensors, transformers, gguf."""
    version: ReleaseNumber | None = None
    """Such as "1.0.0"; any when unset."""
    operator: str | None = None
    """How a runtime's version has to compare with the model's: Equal (also when unset), GreaterThan, GreaterThanOrEqual."""
    weight: int | None = None
    """Weight in the choice of a runtime; 1 when unset."""


class PipelinePart(Spec):
    """A class and the library that has it."""

    library: str | None = None
    """Library that has the class."""
    type: str | None = None
    """Class."""


class DiffusionPipeline(Spec):
    """The parts of a diffusion model."""

    class_name: str | None = None
    """Class of the pipeline, such as FluxPipeline."""
    scheduler: PipelinePart | None = None
    text_encoder: PipelinePart | None = None
    tokenizer: PipelinePart | None = None
    transformer: PipelinePart | None = None
    vae: PipelinePart | None = None
    additional_components: dict[str, PipelinePart] | None = None
    """Other parts by their names."""


class Storage(Spec):
    """Where files come from and where nodes keep them."""

    storage_uri: StorageUri
    """hf://org/model[@revision], s3://, gs://, az://, oci://, pvc://[namespace:]claim/path, local:///path, vendor://, github://."""
    path: NodePath | None = None
    """Directory on the nodes; engines see the files under this path."""
    schema_path: str | None = None
    """Has no effect."""
    key: str | None = None
    """Name of a Secret whose `token` opens the source."""
    parameters: Labels | None = None
    """What opens the source: endpoint, region, account, verify, anonymous."""
    node_selector: Labels | None = None
    """Nodes that shall hold the files."""
    node_affinity: Open | None = None
    """Nodes that shall hold the files, as a core/v1 NodeAffinity."""
    download_policy: Literal["AlwaysDownload", "ReuseIfExists"] | None = None
    """ReuseIfExists: files that are there and right are kept. AlwaysDownload has no effect."""


class ModelSpec(Spec):
    """A model. What is not written is learned from its files and stands in the status."""

    storage: Storage
    model_format: Version | None = None
    model_framework: Version | None = None
    model_architecture: str | None = None
    """Class name in config.json, such as DeepseekV3ForCausalLM."""
    model_type: str | None = None
    """Family in config.json, such as kimi_k2."""
    model_parameter_size: ParameterCount | None = None
    """Number of parameters, such as "7B" or "1.04T"."""
    model_capabilities: list[str] | None = None
    """What it does, such as TEXT_TO_TEXT."""
    api_capabilities: list[str] | None = None
    """What its API offers; it describes only."""
    quantization: str | None = None
    """How weights are stored: fp8, int4, nvfp4, mxfp4, compressed-tensors, …; from the files when unset."""
    max_tokens: int | None = None
    """Context length."""
    diffusion_pipeline: DiffusionPipeline | None = None
    model_configuration: Open | None = None
    """Has no effect: the model's own files say it."""
    serving_mode: list[str] | None = None
    """Has no effect."""
    distribution: Literal["PerNode", "Sharded"] | None = None
    """PerNode: every node holds all files. Sharded has no effect."""
    vendor: str | None = None
    """Who made it, for tables."""
    version: str | None = None
    """Version of the model, for tables."""
    display_name: str | None = None
    """Name for people, for tables."""
    disabled: bool | None = None
    """No new service may use it, and agents fetch it no more; services that run stay."""
    compartment_id: Annotated[str | None, Field(alias="compartmentID")] = None
    """It describes only."""
    additional_metadata: Labels | None = None
    """It describes only."""


class NodeProgress(Spec):
    """How far a node is with the files."""

    state: str | None = None
    """Ready, Updating or Failed."""
    bytes: int | None = None
    """Bytes that are there."""
    total: int | None = None
    """Bytes of the model."""
    speed: str | None = None
    """Such as "900 MB/s"."""
    eta: str | None = None
    """Time that is left."""
    verified_at: str | None = None
    """When the files were compared with their digests last."""
    message: str | None = None
    """Why it failed."""


class PinnedWeights(Spec):
    """What all nodes hold."""

    uri: str
    """Where the files come from."""
    revision: str
    """What the URI stood for when the first node looked; it stays until the URI is another."""
    directory: str | None = None
    """Name of its directory on the nodes, below `.ome`."""


class ModelStatus(Spec):
    """Where the files are, and who uses the model."""

    state: Literal["Creating", "Importing", "In_Transit", "In_Training", "Ready", "Failed"] | None = None
    """How far the files are, in OME's words."""
    lifecycle: str | None = None
    """Not written."""
    nodes_ready: Annotated[list[str] | None, ATOMIC] = None
    """Nodes that hold the files, at most 50."""
    nodes_failed: Annotated[list[str] | None, ATOMIC] = None
    """Nodes where the last try failed, at most 50."""
    weights: PinnedWeights | None = None
    nodes: dict[str, NodeProgress] | None = None
    """Progress per node."""
    summary: str | None = None
    """Progress in a few words, such as "11/16 nodes, 71 %, 9 min"."""
    architecture: str | None = None
    """From the spec, else from the files; the same for the next three."""
    size: str | None = None
    """Number of parameters."""
    format: str | None = None
    """Format of the files."""
    quantization: str | None = None
    """How weights are stored."""
    facts: Facts | None = None
    """What the model's files say, as the agents read them."""
    users: int | None = None
    """Number of services that use the model."""
    used_by: Users | None = None
    """Services that use the model, at most 50."""
    rollout: Annotated[Waves | None, ATOMIC_MAP] = None
    conditions: Conditions | None = None
    """Ready, and Advice where something has no effect."""
    observed_generation: int | None = None
    """Generation of the spec that this is about."""


class Model(Object[ModelSpec]):
    """A parsed ClusterBaseModel or BaseModel; `kind` says which."""

    KINDS = ("ClusterBaseModel", "BaseModel")
    SPEC = ModelSpec
