"""The short kinds of group sglang.ai/v1: a model by its hub name, and a service in two lines."""

from ome_operator.api.base import Spec
from ome_operator.api.conditions import Conditions
from ome_operator.api.objects import Object
from ome_operator.api.values import Name, StorageUri

API_VERSION = "sglang.ai/v1"


class HuggingFace(Spec):
    """A repository of the Hugging Face hub."""

    repo: Name
    """owner/name."""
    revision: str | None = None
    """Branch, tag or commit; main when unset."""


class Source(Spec):
    """Where the model comes from."""

    huggingface: HuggingFace | None = None
    storage_uri: StorageUri | None = None
    """Any place that a ClusterBaseModel of ome.io can name."""


class SglangModelSpec(Spec):
    """A model by its source."""

    source: Source
    path: str | None = None
    """Directory on the nodes; /mnt/models/<name> when unset."""


class ShortModelStatus(Spec):
    """Copied from the model that was made of it."""

    state: str | None = None
    """How far the files are."""
    conditions: Conditions | None = None
    """Those of the model that was made."""
    observed_generation: int | None = None
    """Generation of the spec that this is about."""


class ServingSpec(Spec):
    """A model and the engine that serves it; the rest is chosen."""

    base_model: Name
    """Name of a BaseModel of the namespace, or of a ClusterBaseModel."""
    runtime: Name | None = None
    """An engine, such as sglang, or the name of a runtime."""


class ServingStatus(Spec):
    """Copied from the service that was made of it."""

    url: str | None = None
    """Where it answers inside the cluster."""
    runtime: str | None = None
    """Name of the runtime that serves."""
    conditions: Conditions | None = None
    """Those of the service that was made."""
    observed_generation: int | None = None
    """Generation of the spec that this is about."""


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
