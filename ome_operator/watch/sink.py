"""The kinds to watch, and the receiver of their objects."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ome_operator.errors import OmeError
from ome_operator.util.json_limits import FULL_DECODERS, Decoders

Body = Mapping[str, Any]


class WatchedKind(NamedTuple):
    """A kind to watch, with its location in the API."""

    kind: str
    group: str
    version: str
    plural: str
    selector: str = ""
    """Label selector; "" for all objects."""
    namespace: str = ""
    """The namespace to watch; "" for all, and for cluster-wide kinds."""
    decoders: Decoders = FULL_DECODERS
    """Decoders of the fields that the receiver reads. All other fields may be missing."""

    @property
    def path(self) -> str:
        """Path of the kind's lists and watches, below the server's address."""
        prefix = f"/apis/{self.group}" if self.group else "/api"
        where = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{prefix}/{self.version}{where}/{self.plural}"


class Sink(Protocol):
    """Receives the objects of watches. No method may raise, block, or keep a reference to the body."""

    def handle_object(self, kind: str, body: Body) -> None:
        """Called when an object exists in this state. May be called repeatedly with the same state."""

    def handle_deletion(self, kind: str, body: Body) -> None:
        """Called when an object was deleted."""

    def handle_relist(self, kind: str) -> None:
        """Called when the list of the kind `kind` was repeated. Objects that were delivered before may have been deleted
        since.
        """


class CannotWatch(OmeError):
    """Raised if a kind cannot be watched any more; the message states the kind and the reason. A new process begins with
    new lists.
    """
