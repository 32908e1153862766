"""ClusterBaseModel and BaseModel: the weights of a model, their source, and the known facts about the model."""

import re
from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, ATOMIC_MAP, Rule, Spec
from ome_operator.api.conditions import Conditions, Users, Waves
from ome_operator.api.learned import Facts
from ome_operator.api.objects import Object
from ome_operator.api.values import (
    ABOVE,
    STORE_RULES,
    Labels,
    Name,
    NodePath,
    Open,
    ParameterCount,
    ReleaseNumber,
    StorageUri,
)


class Version(Spec):
    """A file format or framework with its version, and how runtimes compare the version."""

    name: Name
    """Name, such as safetensors, transformers or gguf."""
    version: ReleaseNumber | None = None
    """Version, such as "1.0.0"; any version if unset."""
    operator: str | None = None
    """How the runtime's version has to compare with the model's: Equal (default), GreaterThan or GreaterThanOrEqual."""
    weight: int | None = None
    """Weight in the choice of a runtime; 1 if unset."""


class PipelinePart(Spec):
    """A part of a diffusion pipeline: a class and the library that provides it."""

    library: str | None = None
    """Library that provides the class."""
    type: str | None = None
    """Name of the class."""


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
    """Other parts of the pipeline by name."""


class Storage(Spec):
    """Source of the files and their location on the nodes."""

    RULES = (
        Rule(
            "!self.storageUri.startsWith('local://') || !has(self.path) || self.storageUri == 'local://' + self.path"
            " || self.storageUri + '/' == 'local://' + self.path || self.storageUri == 'local://' + self.path + '/'",
            "storageUri and path name different directories: write the same directory in both, or leave out path",
            lambda s: (
                s.path is None
                or not s.storage_uri.startswith("local://")
                or s.storage_uri.removeprefix("local://").rstrip("/") == s.path.rstrip("/")
            ),
            message_cel="'storageUri names ' + self.storageUri.replace('local://', '') + ', but path is ' + self.path + "
            "': write the same directory in both, or leave out path'",
            compute_message=lambda s: (
                f"storageUri names {s.storage_uri.removeprefix('local://')}, but path is {s.path}: write "
                "the same directory in both, or leave out path"
            ),
            new_only=True,
        ),
        Rule(
            f"!self.storageUri.startsWith('local://') || !self.storageUri.matches('{ABOVE}')",
            'storageUri contains "..", which Kubernetes refuses in the path of a volume: write the directory itself, for '
            "example local:///mnt/models/kimi-k2",
            lambda s: not s.storage_uri.startswith("local://") or re.search(ABOVE, s.storage_uri) is None,
            new_only=True,
        ),
        *STORE_RULES,
    )

    storage_uri: StorageUri
    """Source of the files: hf://org/model[@revision], s3://, gs://, az://, oci://, pvc://[namespace:]claim/path,
    local:///path, vendor:// or github://."""
    path: NodePath | None = None
    """Directory on the nodes. The containers of engines see the files under the same path. If unset: the path of a local://
    URI, otherwise /mnt/models/NAME."""
    schema_path: str | None = None
    """Has no effect."""
    key: str | None = None
    """Name of a Secret whose key `token` holds the credentials for the source."""
    parameters: Labels | None = None
    """Parameters for access to the source: endpoint, region, account, verify, anonymous."""
    node_selector: Labels | None = None
    """Labels of the nodes that shall hold the files."""
    node_affinity: Open | None = None
    """Nodes that shall hold the files, as a core/v1 NodeAffinity."""
    download_policy: Literal["AlwaysDownload", "ReuseIfExists"] | None = None
    """ReuseIfExists: complete and valid files are kept. AlwaysDownload has no effect."""


class ModelSpec(Spec):
    """A model. Facts that the spec does not state are read from the model's files and shown in the status."""

    storage: Storage
    model_format: Version | None = None
    model_framework: Version | None = None
    model_architecture: str | None = None
    """Name of the model class in config.json, such as DeepseekV3ForCausalLM."""
    model_type: str | None = None
    """Value of `model_type` in config.json, such as kimi_k2."""
    model_parameter_size: ParameterCount | None = None
    """Number of parameters, such as "7B" or "1.04T"."""
    model_capabilities: list[str] | None = None
    """Capabilities of the model, such as TEXT_TO_TEXT."""
    api_capabilities: list[str] | None = None
    """APIs that the model offers. Informational only."""
    quantization: str | None = None
    """Quantization of the weights: fp8, int4, nvfp4, mxfp4, compressed-tensors, …; read from the files if unset."""
    max_tokens: int | None = None
    """Maximum context length in tokens."""
    diffusion_pipeline: DiffusionPipeline | None = None
    model_configuration: Open | None = None
    """Has no effect: the operator reads the configuration from the model's files."""
    serving_mode: list[str] | None = None
    """Has no effect."""
    distribution: Literal["PerNode", "Sharded"] | None = None
    """PerNode: every node holds all files. Sharded has no effect."""
    vendor: str | None = None
    """Vendor of the model, for printer columns."""
    version: str | None = None
    """Version of the model, for printer columns."""
    display_name: str | None = None
    """Display name of the model, for printer columns."""
    disabled: bool | None = None
    """If true, no new service can use the model and agents do not download it any more; existing services keep running."""
    compartment_id: Annotated[str | None, Field(alias="compartmentID")] = None
    """Informational only."""
    additional_metadata: Labels | None = None
    """Informational only."""


class NodeProgress(Spec):
    """Download progress of one node."""

    state: str | None = None
    """Ready, Updating or Failed."""
    bytes: int | None = None
    """Bytes that are on the node."""
    total: int | None = None
    """Bytes of the model."""
    speed: str | None = None
    """Download speed, such as "900 MB/s"."""
    eta: str | None = None
    """Estimated time until the download ends."""
    verified_at: str | None = None
    """Time at which the files were last compared with their digests."""
    message: str | None = None
    """Reason of the failure."""


class PinnedWeights(Spec):
    """The revision of the weights that all nodes hold."""

    uri: str
    """Source of the files."""
    revision: str
    """Revision of the URI that all nodes have to have, because it is confirmed. It stays the same until the URI changes."""
    directory: str | None = None
    """Name of the directory below `.ome` on the nodes."""


class ModelStatus(Spec):
    """Nodes that hold the files, and services that use the model."""

    state: Literal["Creating", "Importing", "In_Transit", "In_Training", "Ready", "Failed"] | None = None
    """State of the files, in the terms of OME."""
    lifecycle: str | None = None
    """Not written."""
    nodes_ready: Annotated[list[str] | None, ATOMIC] = None
    """Nodes that hold the files, at most 50."""
    nodes_failed: Annotated[list[str] | None, ATOMIC] = None
    """Nodes on which the last download attempt failed, at most 50."""
    weights: PinnedWeights | None = None
    nodes: dict[str, NodeProgress] | None = None
    """Download progress by node."""
    summary: str | None = None
    """Download progress as text, such as "11/16 nodes, 71 %, 9 min"."""
    architecture: str | None = None
    """Model class, from the spec or, if it is unset there, from the files."""
    size: str | None = None
    """Number of parameters, from the spec or the files."""
    format: str | None = None
    """Format of the files, from the spec or the files."""
    quantization: str | None = None
    """Quantization of the weights, from the spec or the files."""
    facts: Facts | None = None
    """Facts that the agents read from the model's files."""
    users: int | None = None
    """Number of services that use the model."""
    used_by: Users | None = None
    """Services that use the model, at most 50."""
    rollout: Annotated[Waves | None, ATOMIC_MAP] = None
    conditions: Conditions | None = None
    """The conditions Ready and Advice. Advice lists the fields that have no effect."""
    observed_generation: int | None = None
    """Generation of the spec that this status describes."""


class Model(Object[ModelSpec]):
    """A parsed ClusterBaseModel or BaseModel; the field `kind` contains the kind."""

    KINDS = ("ClusterBaseModel", "BaseModel")
    SPEC = ModelSpec
