"""The API server's audit log as numbers: who sent which request to what."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
START = b'{"kind":"Event"'
"""How a line begins. Bodies, which might begin so too, are not logged."""


@dataclass(frozen=True)
class Request:
    """One request at the API server, without its body."""

    user: str
    verb: str
    group: str
    resource: str
    """Empty for paths such as /version."""
    subresource: str
    namespace: str
    name: str
    code: int
    at: str
    """When it arrived, in RFC 3339."""
    uri: str

    @property
    def writes(self) -> bool:
        """True when the verb changes something, also when it was refused or changed nothing."""
        return self.verb in WRITES


def mark(log: Path) -> int:
    """The present end of the log: pass it to `read` to count from here."""
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def read(log: Path, since: int = 0) -> Iterator[Request]:
    """Every request from the mark on, once each: a watch when it starts to answer, any other when it is answered."""
    if not log.exists():
        return
    with log.open("rb") as file:
        file.seek(max(since - 1, 0))
        # The mark may be in the middle of a line, which is of an event before it, unless its server was killed there.
        cut = file.readline() if since else b""
        for line in chain([cut] if START in cut else [], file):
            if line.endswith(b"\n") and (request := _parse(json.loads(_unbroken(line)))):
                yield request


def _unbroken(line: bytes) -> bytes:
    """A line without the half event that an API server left before it when it was killed while it wrote."""
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
