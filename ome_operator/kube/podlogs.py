"""Read the logs of containers line by line, each line with its time."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp

from ome_operator.kube import errors
from ome_operator.kube.connection import Connection
from ome_operator.kube.resources import path

_PATIENCE = 30.0
"""Seconds without a received byte after which a stream that does not follow the log is considered broken."""


class LogLine(NamedTuple):
    """One line of a log."""

    when: str
    """Time of the line in RFC 3339 with nanoseconds, as the node has written it."""
    text: str


@dataclass(frozen=True)
class LogWindow:
    """The part of a log to read; None means no limit."""

    follow: bool = False
    previous: bool = False
    """Whether to read the log of the container before its last restart."""
    tail: int | None = None
    since: int | None = None
    """Maximum age of the lines in seconds."""
    since_time: str | None = None
    """Time of the oldest line in RFC 3339. The API server compares whole seconds, so the result also contains older lines
    of the same second."""

    def query(self, container: str) -> dict[str, str]:
        """Return the query parameters of the request."""
        asked = {
            "container": container,
            "timestamps": "true",
            "follow": "true" if self.follow else None,
            "previous": "true" if self.previous else None,
            "tailLines": self.tail,
            "sinceSeconds": None if self.since_time else self.since,
            "sinceTime": self.since_time,
        }
        return {name: str(value) for name, value in asked.items() if value is not None}


class Logs:
    """Reads logs over one connection, which the caller has to close at the end."""

    def __init__(self, connection: Connection) -> None:
        self._server = connection.server
        self._session = connection.session(limit=0, agent="ome")

    async def close(self) -> None:
        """End all streams."""
        await self._session.close()

    async def lines(self, namespace: str, pod: str, container: str, log_window: LogWindow) -> AsyncIterator[LogLine]:
        """Yield the lines of a container's log. Raises KubeError if the request fails, and NotFound if there is no such
        pod.
        """
        url = self._server + path("Pod", namespace, pod, "log")
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=None if log_window.follow else _PATIENCE)
        try:
            async with self._session.get(url, params=log_window.query(container), timeout=timeout) as response:
                if response.status >= 300:
                    is_json = response.content_type == "application/json"
                    status = await (response.json() if is_json else response.text())
                    raise errors.from_response(response.status, status, asked=("pods", pod))
                rest = b""
                async for chunk in response.content.iter_any():
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        yield _line(line)
                if rest:
                    yield _line(rest)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.unanswered(f"the log stream of {pod} ended", error) from error


def _line(raw: bytes) -> LogLine:
    when, _, text = raw.decode(errors="replace").rstrip("\r").partition(" ")
    return LogLine(when, text)
