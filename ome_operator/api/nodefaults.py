"""NodeFaults: what the operator remembers about the failures on one node (docs/bad-nodes.md).

There is one object for each node about which anything is remembered. The operator writes the status. `ome nodes forgive`
writes an annotation.
"""

from typing import Annotated

from pydantic import Field

from ome_operator.api.base import ATOMIC, Spec
from ome_operator.api.objects import Object


class NodeFaultsSpec(Spec):
    """Has no fields. To forgive a node, set its annotation `ome.io/forgiven`."""


class NodeFault(Spec):
    """A fault of this node."""

    kind: str
    """The fault that the node reports, or the reason why a service failed on the node."""
    namespace: str | None = None
    """Namespace of the service that failed on the node; unset for a fault that the node reports."""
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
    """The services that avoid this node, and the reason."""

    namespace: str | None = None
    """Namespace of the services that avoid the node; unset if the services of all namespaces avoid it."""
    reason: Annotated[str, Field(max_length=1024)]
    """Why these services avoid the node."""


class NodeFaultsStatus(Spec):
    """Everything that is remembered about this node."""

    node_uid: Annotated[str | None, Field(alias="nodeUID")] = None
    """UID of the Node object. Another node of the same name begins without faults."""
    avoided: str | None = None
    """Which services place no new groups on this node, and why, as text; unset if no service avoids the node."""
    avoided_by: Annotated[list[NodeAvoider] | None, Field(max_length=64), ATOMIC] = None
    """The services that place no new groups on this node, and why, for programs."""
    faults: Annotated[list[NodeFault] | None, ATOMIC] = None
    """The faults that are remembered. A failure of a service expires after 24 hours."""


class NodeFaults(Object[NodeFaultsSpec]):
    """A parsed NodeFaults object."""

    KINDS = ("NodeFaults",)
    SPEC = NodeFaultsSpec
