"""The benchmark's own minimal client, so that the measured floor does not depend on the operator's client."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp

from ome_operator.kube.connection import Connection
from ome_operator.kube.resources import path

Manifest = dict[str, Any]
T = TypeVar("T")
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


class RequestRefused(Exception):
    """Error: the API server refused a request, because the benchmark is wrong or the machine is overloaded."""


class Api:
    """Requests with the administrator's identity."""

    def __init__(self, connection: Connection) -> None:
        self._server = connection.server
        self._session = connection.session(limit=0, agent="ome-bench")

    @classmethod
    async def open(cls, kubeconfig: Path) -> Self:
        """Open a client for the server and identity of this kubeconfig."""
        return cls(await Connection.open(kubeconfig))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._session.close()

    async def apply(self, manifest: Manifest) -> Manifest:
        """Send a server-side apply."""
        metadata = manifest["metadata"]
        where = path(manifest["kind"], metadata["namespace"], metadata["name"])
        return await self._send("PATCH", where + "?fieldManager=ome-operator&force=true", manifest, APPLY)

    async def create(self, manifest: Manifest) -> Manifest:
        """Send a POST request."""
        return await self._send("POST", path(manifest["kind"], manifest["metadata"]["namespace"]), manifest)

    async def merge_status(self, kind: str, namespace: str, name: str, status: Manifest) -> Manifest:
        """Change the status of an object by a merge patch."""
        return await self._send("PATCH", path(kind, namespace, name, "status"), {"status": status}, MERGE)

    async def merge(self, kind: str, namespace: str, name: str, change: Manifest) -> Manifest:
        """Change an object, except its status, by a merge patch."""
        return await self._send("PATCH", path(kind, namespace, name), change, MERGE)

    async def delete(self, kind: str, namespace: str, name: str) -> Manifest:
        """Delete an object in the background, as `kubectl delete` does."""
        return await self._send("DELETE", path(kind, namespace, name), {"propagationPolicy": "Background"})

    async def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return the current object."""
        return await self._send("GET", path(kind, namespace, name), None)

    async def names(self, kind: str, namespace: str, selector: str = "", limit: int = 0) -> list[str]:
        """Return the names of the objects that match the label selector; at most `limit` names unless `limit` is 0."""
        query = {"labelSelector": selector, "limit": str(limit)}
        found = await self._send("GET", path(kind, namespace), None, query=query)
        return [entry["metadata"]["name"] for entry in found["items"]]

    async def pages(self, kind: str, selector: str, limit: int) -> None:
        """List and decode all objects of a kind in all namespaces, `limit` objects per page."""
        query = {"labelSelector": selector, "limit": str(limit)}
        while True:
            found = await self._send("GET", path(kind, ""), None, query=query)
            if not found["metadata"].get("continue"):
                return
            query["continue"] = found["metadata"]["continue"]

    async def watch(self, kind: str, namespace: str) -> AsyncIterator[Manifest]:
        """Yield the existing objects, an event of the type LISTED, and then changes until cancelled. The watch is renewed
        when the server ends it.
        """
        listed = await self._send("GET", path(kind, namespace), None)
        for item in listed["items"]:
            yield {"type": "ADDED", "object": item}
        yield {"type": "LISTED"}
        version = listed["metadata"]["resourceVersion"]
        while True:
            async for event in self._stream(path(kind, namespace), version):
                if event["type"] == "ERROR":
                    raise RequestRefused(f"watch {kind}: {event['object']}")
                version = event["object"]["metadata"]["resourceVersion"]
                yield event
            await asyncio.sleep(0.05)

    async def _stream(self, location: str, version: str) -> AsyncIterator[Manifest]:
        query = {"watch": "1", "timeoutSeconds": "3600", "resourceVersion": version}
        no_limit = aiohttp.ClientTimeout(total=None)
        async with self._session.get(self._server + location, params=query, timeout=no_limit) as answer:
            if answer.status != 200:
                raise RequestRefused(f"watch {location}: {answer.status} {await answer.text()}")
            buffer = b""
            async for chunk in answer.content.iter_any():
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)

    async def _send(
        self,
        method: str,
        location: str,
        body: Manifest | None,
        content: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Manifest:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = {} if data is None else {"Content-Type": content}
        async with self._session.request(
            method, self._server + location, data=data, headers=headers, params=query
        ) as answer:
            text = await answer.read()
        if answer.status >= 300:
            raise RequestRefused(f"{method} {location}: {answer.status} {text.decode(errors='replace')[:500]}")
        parsed: Manifest = json.loads(text)
        return parsed


async def run_in_lanes(items: Iterable[T], lanes: int, work: Callable[[T], Awaitable[object]]) -> None:
    """Call `work` for every item, in order and for `lanes` items at the same time. The first error cancels all other
    calls.
    """
    waiting = iter(items)

    async def lane() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(lanes):
            group.create_task(lane())
