"""NodeModels: what one node has of the models. Its agent writes it; the operator makes labels and statuses of all of them.

One object per node, so that no two agents ever write the same one, and an admission policy can hold each to its own.
"""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Spec
from ome_operator.api.learned import Facts
from ome_operator.api.objects import Object


class NodeModelsSpec(Spec):
    """Nothing: nobody tells a node what to hold but the models themselves."""


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
    """Digests of the model's revisions that are whole on this node, older ones too."""
    bytes: int | None = None
    total: int | None = None
    speed: int | None = None
    """Bytes per second."""
    message: str | None = None
    verified_at: str | None = None
    facts: Facts | None = None


class NodeModelsStatus(Spec):
    """Every model that this node has or is to have."""

    summary: str | None = None
    models: Annotated[list[NodeModel] | None, ATOMIC] = None


class NodeModels(Object[NodeModelsSpec]):
    """A parsed NodeModels."""

    KINDS = ("NodeModels",)
    SPEC = NodeModelsSpec
