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
    offer: str
    """The offer that this answers: it allows nothing after the agent has started again or changed its mind."""


class NodeModelsSpec(Spec):
    """What the operator allows the agent. What a node is to hold say the models alone."""

    remove: Annotated[list[Removal] | None, ATOMIC] = None
    """Directories of those that the agent offers to which nothing refers."""


class NodeModel(Spec):
    """One model on this node."""

    kind: str
    namespace: str | None = None
    name: str
    uri: Annotated[str, Field(max_length=2048)]
    revision: str | None = None
    """Commit, or digest of the listing, that the files are of."""
    state: Literal["Ready", "Updating", "Failed"]
    directories: Annotated[list[str] | None, ATOMIC] = None
    """Digest of the model's revision, once it is whole on this node."""
    bytes: int | None = None
    total: int | None = None
    speed: int | None = None
    """Bytes per second."""
    message: str | None = None
    verified_at: str | None = None
    facts: Facts | None = None


class UnusedDirectory(Spec):
    """A directory of weights that no model names for this node any more."""

    directory: str
    models: Annotated[list[str] | None, ATOMIC] = None
    """Node labels of the models that it was fetched for; absent when it is not whole."""
    paths: Annotated[list[str] | None, ATOMIC] = None
    """Paths of models that were symlinks to it."""
    bytes: int | None = None
    offer: str | None = None
    """Since when the agent would remove it; absent where its policy is to keep."""


class NodeModelsStatus(Spec):
    """Every model that this node has or is to have."""

    summary: str | None = None
    models: Annotated[list[NodeModel] | None, ATOMIC] = None
    unused: Annotated[list[UnusedDirectory] | None, ATOMIC] = None


class NodeModels(Object[NodeModelsSpec]):
    """A parsed NodeModels."""

    KINDS = ("NodeModels",)
    SPEC = NodeModelsSpec
