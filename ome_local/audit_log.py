"""Parse the API server's audit log: the user, verb and object of each request."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
START = b'{"kind":"Event"'
"""Beginning of each complete line of the log. This text occurs nowhere else in the log, because the log does not contain
the bodies of requests."""


@dataclass(frozen=True)
class Request:
    """A request to the API server, without its body."""

    user: str
    verb: str
    group: str
    resource: str
    """Name of the resource; "" for paths such as /version."""
    subresource: str
    namespace: str
    name: str
    code: int
    at: str
    """Time of the request's arrival, in RFC 3339."""
    uri: str

    @property
    def is_write(self) -> bool:
        """Whether the verb is a write. Requests that were denied, or that changed nothing, are included."""
        return self.verb in WRITES


def log_position(log: Path) -> int:
    """Return the current end of the log, as a position that can be passed to `read` to skip all earlier requests."""
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def read(log: Path, since: int = 0) -> Iterator[Request]:
    """Yield every request after the position `since` once: a watch when its response begins, any other request when it is
    answered.
    """
    if not log.exists():
        return
    with log.open("rb") as file:
        file.seek(max(since - 1, 0))
        # The position may be in the middle of a line. That line belongs to an event before the position, unless the API
        # server
        # was killed while it was writing the line.
        cut = file.readline() if since else b""
        for line in chain([cut] if START in cut else [], file):
            if line.endswith(b"\n") and (request := _parse(json.loads(_unbroken(line)))):
                yield request


def _unbroken(line: bytes) -> bytes:
    """Return a line without the incomplete event at its beginning. An API server that is killed while writing leaves an
    incomplete event.
    """
    return line[max(line.rfind(START), 0) :]


def _parse(event: dict[str, Any]) -> Request | None:
    watch = event["verb"] == "watch"
    if event["stage"] != ("ResponseStarted" if watch else "ResponseComplete"):
        return None
    what = event.get("objectRef", {})
    return Request(
        user=event["user"].get("username", ""),
        verb=event["verb"],
        group=what.get("apiGroup", ""),
        resource=what.get("resource", ""),
        subresource=what.get("subresource", ""),
        namespace=what.get("namespace", ""),
        name=what.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        at=event["requestReceivedTimestamp"],
        uri=event.get("requestURI", ""),
    )
