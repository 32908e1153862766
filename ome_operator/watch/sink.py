"""The kinds to watch, and the receiver of their objects."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ome_operator.errors import OmeError

Body = Mapping[str, Any]


class Watched(NamedTuple):
    """A kind to watch."""

    kind: str
    group: str
    version: str
    plural: str
    selector: str = ""
    """Label selector; "" for all objects."""
    namespace: str = ""
    """The namespace to watch; "" for all, and for cluster-wide kinds."""

    @property
    def path(self) -> str:
        """The path of its lists and watches, below the server's address."""
        prefix = f"/apis/{self.group}" if self.group else "/api"
        where = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{prefix}/{self.version}{where}/{self.plural}"


class Sink(Protocol):
    """Receives the objects of watches. No method may raise, block, or keep the body."""

    def seen(self, kind: str, body: Body) -> None:
        """The object exists in this state. Called repeatedly with the same state."""

    def deleted(self, kind: str, body: Body) -> None:
        """The object was deleted."""

    def relisted(self, kind: str) -> None:
        """A list of this kind was repeated: objects that were delivered before may have been deleted since."""


class CannotWatch(OmeError):
    """A kind cannot be watched any more; the message states which, and why. A new process begins with new lists."""
