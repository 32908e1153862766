"""The short kinds of the group sglang.ai/v1: a model by its repository name, and a service in two lines."""

from ome_operator.api.base import Spec
from ome_operator.api.conditions import Conditions
from ome_operator.api.objects import Object
from ome_operator.api.values import Name, StorageUri

API_VERSION = "sglang.ai/v1"


class HuggingFace(Spec):
    """A repository of the Hugging Face hub."""

    repo: Name
    """Repository as owner/name."""
    revision: str | None = None
    """Branch, tag or commit; main if unset."""


class Source(Spec):
    """Source of the model."""

    huggingface: HuggingFace | None = None
    storage_uri: StorageUri | None = None
    """Storage URI in any form that a ClusterBaseModel of ome.io accepts."""


class SglangModelSpec(Spec):
    """A model, described by its source."""

    source: Source
    path: str | None = None
    """Directory on the nodes; /mnt/models/<name> if unset."""


class ShortModelStatus(Spec):
    """Status of the ome.io model that was created from this object."""

    state: str | None = None
    """State of the files."""
    conditions: Conditions | None = None
    """Conditions of the ome.io model."""
    observed_generation: int | None = None
    """Generation of the spec that this status describes."""


class ServingSpec(Spec):
    """A model and the engine that serves it. All other settings are chosen by the operator."""

    base_model: Name
    """Name of a BaseModel of the namespace or of a ClusterBaseModel."""
    runtime: Name | None = None
    """Name of an engine, such as sglang, or of a runtime."""


class ServingStatus(Spec):
    """Status of the InferenceService that was created from this object."""

    url: str | None = None
    """URL of the service inside the cluster."""
    runtime: str | None = None
    """Name of the runtime that serves the model."""
    conditions: Conditions | None = None
    """Conditions of the InferenceService."""
    observed_generation: int | None = None
    """Generation of the spec that this status describes."""


class SglangModel(Object[SglangModelSpec]):
    """A parsed sglang.ai/v1 ClusterBaseModel."""

    API_VERSION = API_VERSION
    KINDS = ("ClusterBaseModel",)
    SPEC = SglangModelSpec


class Serving(Object[ServingSpec]):
    """A parsed sglang.ai/v1 Serving."""

    API_VERSION = API_VERSION
    KINDS = ("Serving",)
    SPEC = ServingSpec
