"""NodeFaults: what the operator remembers about the failures on one node (docs/bad-nodes.md).

There is one object for each node about which anything is remembered. The operator writes the status. `ome nodes forgive`
writes an annotation.
"""

from typing import Annotated

from pydantic import Field

from ome_operator.api.base import ATOMIC, Spec
from ome_operator.api.objects import Object


class NodeFaultsSpec(Spec):
    """Nothing: people forgive a node with the annotation `ome.io/forgiven`."""


class NodeFault(Spec):
    """A fault of this node."""

    kind: str
    """The fault: one that the node reports itself, or the reason of a failure of a service."""
    namespace: str | None = None
    """Namespace of the service that failed on the node; unset for a fault that the node reports itself."""
    service: str | None = None
    """Service that failed on the node."""
    component: str | None = None
    """Component of the service that failed."""
    revision: str | None = None
    """Revision of the service that failed."""
    count: int
    """Number of failures."""
    first: str
    """Time of the first of these failures."""
    last: str
    """Time of the last of these failures."""
    message: Annotated[str | None, Field(max_length=1024)] = None
    """What is known about the last failure."""
    confirmed: bool | None = None
    """Whether the service has meanwhile worked on other nodes."""


class NodeAvoider(Spec):
    """Whose services do not use this node."""

    namespace: str | None = None
    """Namespace whose services do not use the node; unset if no service uses it."""
    reason: Annotated[str, Field(max_length=1024)]
    """Why they do not use it."""


class NodeFaultsStatus(Spec):
    """Everything that is remembered about this node."""

    node_uid: Annotated[str | None, Field(alias="nodeUID")] = None
    """UID of the Node object. Another node of the same name begins without faults."""
    avoided: str | None = None
    """Why new groups are not placed on this node, and of which services, as a text for people; unset if they are."""
    avoided_by: Annotated[list[NodeAvoider] | None, Field(max_length=64), ATOMIC] = None
    """The same for programs: whose services do not use this node."""
    faults: Annotated[list[NodeFault] | None, ATOMIC] = None
    """The faults that are remembered. A failure of a service expires after 24 hours."""


class NodeFaults(Object[NodeFaultsSpec]):
    """A parsed NodeFaults object."""

    KINDS = ("NodeFaults",)
    SPEC = NodeFaultsSpec
