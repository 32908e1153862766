"""Parses the API server's audit log: the user, verb and object of each request."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
START = b'{"kind":"Event"'
"""Beginning of each line. Request bodies, which might begin the same, are not logged."""


@dataclass(frozen=True)
class Request:
    """A request to the API server, without its body."""

    user: str
    verb: str
    group: str
    resource: str
    """Resource name; empty for paths such as /version."""
    subresource: str
    namespace: str
    name: str
    code: int
    at: str
    """Time of arrival, in RFC 3339."""
    uri: str

    @property
    def writes(self) -> bool:
        """Whether the verb is a write, even if the request was denied or changed nothing."""
        return self.verb in WRITES


def mark(log: Path) -> int:
    """Return the current end of the log. Pass it to `read` to start from there."""
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def read(log: Path, since: int = 0) -> Iterator[Request]:
    """Yield every request since the mark once: a watch when its response starts, any other request when it is answered."""
    if not log.exists():
        return
    with log.open("rb") as file:
        file.seek(max(since - 1, 0))
        # The mark may be in the middle of a line. That line belongs to an event before the mark, unless the API server was
        # killed while it wrote it.
        cut = file.readline() if since else b""
        for line in chain([cut] if START in cut else [], file):
            if line.endswith(b"\n") and (request := _parse(json.loads(_unbroken(line)))):
                yield request


def _unbroken(line: bytes) -> bytes:
    """Return a line without the incomplete event before it, which an API server leaves if it is killed while writing."""
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
