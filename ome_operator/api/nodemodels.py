"""NodeModels: the models on one node. The agent of the node writes the status; the operator calculates node labels and
the statuses of models from all NodeModels.

There is one object for each node, so that no two agents write the same object, and an admission policy can restrict each
agent to its own object.
"""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Spec
from ome_operator.api.learned import Facts
from ome_operator.api.objects import Object


class Removal(Spec):
    """An unused directory that the agent may remove."""

    directory: str
    """Path of the directory on the node."""
    offer: str
    """Value of the agent's offer that this removal answers. It is void after the agent has restarted or withdrawn the
    offer."""


class NodeModelsSpec(Spec):
    """The directories that the agent of a node may remove, or should read ahead of an engine. This object does not state
    which models the node has to hold: the models state it.
    """

    remove: Annotated[list[Removal] | None, ATOMIC] = None
    """Directories that the agent has offered for removal and that nothing refers to."""
    prefetch: Annotated[list[str] | None, ATOMIC] = None
    """Directories that pods of this node mount and whose engines do not serve yet. An agent that reports
    `status.prefetch` reads their weights into the page cache."""


class NodeModel(Spec):
    """A model on this node."""

    kind: str
    """Kind of the model."""
    namespace: str | None = None
    """Namespace of the model; unset for cluster-scoped kinds."""
    name: str
    """Name of the model."""
    uri: Annotated[str, Field(max_length=2048)]
    """Source of the files."""
    revision: str | None = None
    """Revision of the files: a commit, or a digest of the file listing."""
    state: Literal["Ready", "Updating", "Failed"]
    """State of the files."""
    directories: Annotated[list[str] | None, ATOMIC] = None
    """Directories that hold the complete revision on this node: a digest next to the model's path, or a path."""
    bytes: int | None = None
    """Bytes that are on the node."""
    total: int | None = None
    """Bytes of the model."""
    speed: int | None = None
    """Download speed in bytes per second."""
    message: str | None = None
    """Reason of the failure."""
    verified_at: str | None = None
    """Time at which the files were last compared with their digests."""
    facts: Facts | None = None


class UnusedDirectory(Spec):
    """A directory of weights that no model refers to on this node any more."""

    directory: str
    """Path of the directory on the node."""
    models: Annotated[list[str] | None, ATOMIC] = None
    """Node labels of the models that the directory was downloaded for; unset if the directory is incomplete."""
    paths: Annotated[list[str] | None, ATOMIC] = None
    """Paths of models that were symlinks to the directory."""
    bytes: int | None = None
    """Bytes of the files in the directory."""
    offer: str | None = None
    """Time since which the agent has offered to remove the directory; unset if the agent's policy is to keep it."""


class PrefetchedDirectory(Spec):
    """A directory of `spec.prefetch` that the agent has read."""

    directory: str
    """Path of the directory on the node."""
    bytes: int | None = None
    """Bytes of the weights that were in the page cache afterwards."""
    total: int | None = None
    """Bytes of the files that engines read."""
    message: str | None = None
    """Reason why the directory was not read completely."""


class Prefetch(Spec):
    """What the agent reads into the page cache for pods that start."""

    limit: int | None = None
    """Maximum number of bytes that the agent reads."""
    directories: Annotated[list[PrefetchedDirectory] | None, ATOMIC] = None
    """Directories that were read."""


class NodeModelsStatus(Spec):
    """All models that this node holds or has to hold."""

    summary: str | None = None
    """Summary for a printer column."""
    models: Annotated[list[NodeModel] | None, ATOMIC] = None
    """Models that this node holds or has to hold."""
    unused: Annotated[list[UnusedDirectory] | None, ATOMIC] = None
    """Directories that no model refers to."""
    prefetch: Prefetch | None = None
    """What the agent reads into the page cache for pods that start; unset if it reads nothing."""


class NodeModels(Object[NodeModelsSpec]):
    """A parsed NodeModels object."""

    KINDS = ("NodeModels",)
    SPEC = NodeModelsSpec
