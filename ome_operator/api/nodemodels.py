"""NodeModels: what one node has of the models. Its agent writes it; the operator makes labels and statuses of all of them.

One object per node, so that no two agents ever write the same one, and an admission policy can hold each to its own.
"""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Spec
from ome_operator.api.learned import Facts
from ome_operator.api.objects import Object


class Removal(Spec):
    """An unused directory that the agent may remove."""

    directory: str
    """Path on the node."""
    offer: str
    """The offer that this answers: it allows nothing after the agent has started again or changed its mind."""


class NodeModelsSpec(Spec):
    """What the operator allows the agent. What a node is to hold say the models alone."""

    remove: Annotated[list[Removal] | None, ATOMIC] = None
    """Directories of those that the agent offers to which nothing refers."""


class NodeModel(Spec):
    """One model on this node."""

    kind: str
    """Kind of the model."""
    namespace: str | None = None
    """Its namespace; none for kinds of the whole cluster."""
    name: str
    """Its name."""
    uri: Annotated[str, Field(max_length=2048)]
    """Where the files come from."""
    revision: str | None = None
    """Commit, or digest of the listing, that the files are of."""
    state: Literal["Ready", "Updating", "Failed"]
    """How far the files are."""
    directories: Annotated[list[str] | None, ATOMIC] = None
    """Directory of the model's revision, once it is whole on this node: a digest beside the model's path, or a path."""
    bytes: int | None = None
    """Bytes that are there."""
    total: int | None = None
    """Bytes of the model."""
    speed: int | None = None
    """Bytes per second."""
    message: str | None = None
    """Why it failed."""
    verified_at: str | None = None
    """When the files were compared with their digests last."""
    facts: Facts | None = None


class UnusedDirectory(Spec):
    """A directory of weights that no model names for this node any more."""

    directory: str
    """Path on the node."""
    models: Annotated[list[str] | None, ATOMIC] = None
    """Node labels of the models that it was fetched for; absent when it is not whole."""
    paths: Annotated[list[str] | None, ATOMIC] = None
    """Paths of models that were symlinks to it."""
    bytes: int | None = None
    """Bytes that it holds."""
    offer: str | None = None
    """Since when the agent would remove it; absent where its policy is to keep."""


class NodeModelsStatus(Spec):
    """Every model that this node has or is to have."""

    summary: str | None = None
    """In a few words, for a table."""
    models: Annotated[list[NodeModel] | None, ATOMIC] = None
    """Models."""
    unused: Annotated[list[UnusedDirectory] | None, ATOMIC] = None
    """Directories that no model names."""


class NodeModels(Object[NodeModelsSpec]):
    """A parsed NodeModels."""

    KINDS = ("NodeModels",)
    SPEC = NodeModelsSpec
