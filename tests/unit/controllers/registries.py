"""Registries of routers that a test makes answer in any way, and a `Telemetry` that asks them directly or through a server
that stands in for the API server.
"""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from ome_operator.controllers.router_pages import PAGE, DirectPages, Opened, ProxiedPages, RouterPages
from ome_operator.controllers.telemetry import Telemetry
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Pod, Ref
from ome_operator.core.observed.telemetry import DrainReport, ForeignWorkers
from ome_operator.kube.connection import Connection
from ome_operator.names import public_digest, slice_mark
from tests.support.simulator import START

TOKEN = "of-the-operator"
PROXY = "/api/v1/namespaces/team/pods/r:29001/proxy"
"""Path of the pages of the router `r` at an API server."""
NOW = START.timestamp()
SERVICE = Ref("InferenceService", "team", "svc")
SELECTOR = "ome.io/managed-by=ome-operator,ome.io/inferenceservice=svc,ome.io/revision=r1"
SLICE = slice_mark("team", SELECTOR)


def pod(ip: str = "127.0.0.1", component: str = "router", **metadata: Any) -> Pod:
    """Return a pod as the operator knows it."""
    labels = {"ome.io/inferenceservice": "svc", "component": component, "ome.io/revision": "r1"}
    return from_api.pod(
        {"metadata": {"namespace": "team", "name": "r", "uid": "u", "labels": labels, **metadata}, "status": {"podIP": ip}}
    )


GOING = pod(component="engine", name="e", uid="leader", annotations={"ome.io/draining": "2026-01-01T00:00:00+00:00"})


def summary(found: int = 0, age: float | None = None, running: float = 1, empty: int = 0, **more: Any) -> dict[str, Any]:
    """Return a router's summary about one leader, which is being drained. `found` is the number of foreign workers that the
    router lists, and `age` the seconds since the last foreign worker was found; None if none was found. `running` and
    `empty` are the leader's running requests and consecutive empty readings.
    """
    load = {"age": 4, "running": running, "waiting": 0, "emptyReadings": empty}
    leader = {"id": public_digest("leader"), "role": "decode", "state": "draining", "listed": False, "load": load}
    strangers = {"found": found, "age": age}
    return {"version": 1, "slice": SLICE, "strangers": strangers, "router": {}, "leaders": [leader], "omitted": 0, **more}


class Registry:
    """A server that stands in for the registries of all routers."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, str | bytes, dict[str, str]]] = {}
        self.asked: list[dict[str, str]] = []
        self.news: list[Ref] = []
        self.pods = [pod()]
        self.now: datetime = START
        self.delay = 0.0
        self.busy = self.most = 0
        self.port = 0
        self.telemetry: Telemetry
        self.through: RouterPages

    def answers(self, body: Any = None, status: int = 200, text: str = "", **headers: str) -> None:
        """Set the response to requests for the summary."""
        self.pages["/summary"] = status, text if body is None else json.dumps(body), headers

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request for any path."""
        self.asked.append({"path": request.path, **request.headers})
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(self.delay)
        self.busy -= 1
        status, text, headers = self.pages.get(request.path.partition("/proxy")[2] or request.path, (404, "", {}))
        body = text if isinstance(text, bytes) else text.encode()
        return web.Response(body=body, status=status, headers=headers)

    async def walk(self) -> dict[str, ForeignWorkers]:
        """Read the summary of every router once, and return the workers of other users that the routers list."""
        await self.telemetry.walk(self.through)
        return self.telemetry.strangers(self.pods)

    def drains(self) -> dict[str, tuple[DrainReport, ...]]:
        """Return the reported state of the leader that is being drained."""
        return self.telemetry.drains([*self.pods, GOING])


@asynccontextmanager
async def registries(proxied: Path | None = None) -> AsyncIterator[Registry]:
    """Run the server on loopback, on a free port. With `proxied`, a directory for a kubeconfig, the server stands in for the
    API server, and the routers are asked through it; otherwise they are asked directly.
    """
    item = Registry()
    app = web.Application()
    app.router.add_get("/{path:.*}", item.handle)
    async with TestServer(app) as server:
        assert server.port is not None
        item.port = server.port
        opened: Opened = partial(DirectPages, server.port)
        if proxied is not None:
            opened = partial(ProxiedPages, await Connection.open(_kubeconfig(proxied, f"http://localhost:{server.port}")))
        item.telemetry = Telemetry(lambda: item.pods, item.news.append, lambda: item.now, 60.0, opened)
        async with opened() as item.through:
            yield item


def _kubeconfig(directory: Path, server: str) -> Path:
    path, named = directory / "kubeconfig", {"name": "here"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{**named, "cluster": {"server": server}}],
        "users": [{**named, "user": {"token": TOKEN}}],
        "contexts": [{**named, "context": {"cluster": "here", "user": "here"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


BOMB = gzip.compress(b" " * 50_000_000)
HOSTILE: dict[str, tuple[int, str | bytes, dict[str, str]]] = {
    "it wants a key": (401, "", {}),
    "it is broken": (500, "", {}),
    "elsewhere": (302, "", {"Location": "http://169.254.169.254/latest"}),
    "nothing": (200, "", {}),
    "another text": (200, "hello {{{", {}),
    "a list": (200, "[]", {}),
    "no number": (200, json.dumps(summary(running=float("nan"))), {}),
    "a negative number": (200, json.dumps(summary(running=-1)), {}),
    "text": (200, json.dumps(summary(version="1")), {}),
    "of another slice": (200, json.dumps(summary(slice=public_digest("other"))), {}),
    "nested too deep": (200, "[" * 100_000, {}),
    "more values than memory": (200, "[" + "{}," * 80_000 + "0]", {}),
    "without end": (200, json.dumps(summary()) + " " * PAGE, {}),
    "compressed, and large": (200, BOMB, {"Content-Encoding": "gzip"}),
    "not text": (200, b"\xff\xfe\x00", {}),
}
