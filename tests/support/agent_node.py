"""A hub with several repositories, and a node whose agent's loop runs, for tests of models of several tenants."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ome_operator.agent import loop, namespaces
from ome_operator.agent.download import Limits
from ome_operator.agent.loop import Agent
from ome_operator.agent.work import AgentSettings
from ome_operator.kube.errors import NotFound
from ome_operator.storage.grants import Trust
from tests.support.fake_api import Call, FakeApi
from tests.support.hub import COMMIT, Hub, model, served

URI, API = "hf://org/model", "ome.io/v1beta1"
GOOD = model(1, [300_000, 40_000])
EVIL = {"config.json": b"{}", "evil.py": b"EVIL" * 10, "model-00001-of-00002.safetensors": b"EVIL" * 75_000}
BAD = "badbad" + "0" * 34


class RepoHub(Hub):
    """A hub with several repositories, each with its own commit."""

    def __init__(self, repositories: dict[str, dict[str, bytes]], commit: str = COMMIT) -> None:
        super().__init__({})
        self.repositories, self.commit = repositories, commit

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._seen])
        app.router.add_get("/api/models/{owner}/{repo}/revision/{revision}", self._model)
        app.router.add_get("/{owner}/{repo}/resolve/{revision}/{name:.+}", self._resolve)
        app.router.add_get("/cdn/{name:.+}", self._bytes)
        return app

    def _repository(self, request: web.Request) -> tuple[dict[str, bytes], str]:
        every = {name: data for files in self.repositories.values() for name, data in files.items()}
        named = f"{request.match_info.get('owner')}/{request.match_info.get('repo')}"
        return self.repositories.get(named, every), self.commit

    def asked(self) -> set[str]:
        """Return the repositories that were requested."""
        return {"/".join(path.split("/")[3:5]) for path, _ in self.tokens if path.startswith("/api/models/")}


class Node:
    """The disk of a node and the loop of its agent. The test sets the pinned revisions instead of the operator."""

    def __init__(self, root: Path, hub: str, **more: Any) -> None:
        self.root, self.record, self._made = root, dict[str, Any](), 0
        root.mkdir(parents=True, exist_ok=True)
        self._uids: dict[tuple[str, str], str] = {}
        self.spaces: dict[str, str | None] = {}
        """Name of a namespace -> its UID, or None if the namespace does not exist. All other namespaces exist, with the UID
        `uid-of-NAME`.
        """
        limits = Limits(first=0.001, last=0.01, tries=2, wrong=2)
        self.settings = AgentSettings(
            roots=(str(root),), secrets=root.parent / "secrets", endpoint=hub, limits=limits, node="n", again=0.2,
            trust=Trust(private_hosts=frozenset({"127.0.0.1", "localhost"})), **more,
        )  # fmt: skip
        self.api = self._api()
        self.agent = Agent(self.settings, self.api)

    def _api(self) -> FakeApi:
        def applied(call: Call) -> None:
            self.record = dict(call.body.get("status") or {})

        node = {"metadata": {"uid": "uid-of-n", "labels": {}}}
        listed = [{"uid": uid} for uid in self._uids.values()]

        def space(call: Call) -> Any:
            uid = self.spaces.get(call.name, f"uid-of-{call.name}")
            return {"metadata": {"uid": uid}} if uid else NotFound("no such namespace", 404)

        return FakeApi({"get": node, "get Namespace": space, "apply": applied, "list_metadata": lambda _: listed})

    def apply(
        self, kind: str, name: str, uri: str, path: str, *, namespace: str = "", pin: str = "", **storage: Any
    ) -> None:
        """Add a model as the agent's watch reports it. Models that are added later are younger."""
        self._made += 1
        known = self._uids.setdefault((namespace, name), f"uid-{self._made}")
        stamp = f"2026-01-01T00:00:{int(known[4:]):02}Z"
        own = {"namespace": namespace} if namespace else {}
        metadata = {"name": name, "uid": known, "creationTimestamp": stamp, **own}
        spec: dict[str, Any] = {"storage": {"storageUri": uri, "path": path, **storage}}
        if kind == "FineTunedWeight":
            spec |= {"baseModelRef": {"name": "x"}, "modelType": "LoRA", "hyperParameters": {}}
        status = {"weights": {"uri": uri, "revision": pin}} if pin else {}
        self.agent.handle_object(
            kind, {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec, "status": status}
        )

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete the model from what the agent's watch reports."""
        self.agent.handle_deletion(kind, {"metadata": {"name": name, "uid": self._uids.pop((namespace, name))}})

    def reported_model(self, name: str) -> dict[str, Any]:
        """Return what the node's NodeModels object reports about the model with this name; {} if it reports nothing."""
        return next((item for item in self.record.get("models") or () if item["name"] == name), {})

    async def wait_for_states(self, **states: str) -> None:
        """Wait until the NodeModels object of the node reports these states, by the name of the model. An underscore in a
        name stands for a dash.
        """
        await until(
            lambda: all(self.reported_model(name.replace("_", "-")).get("state") == state for name, state in states.items())
        )

    def files(self, path: Path | str) -> dict[str, bytes]:
        """Return the files below a path of the node."""
        below = self.root / path
        return {str(file.relative_to(below)): file.read_bytes() for file in below.rglob("*") if file.is_file()}

    def downloaded_files(self, namespace: str) -> list[dict[str, bytes]]:
        """Return the files of every directory that was downloaded for a namespace."""
        home = self.root / ".namespaces" / namespace / ".ome"
        return [self.files(file) for file in sorted(home.iterdir()) if file.is_dir()] if home.is_dir() else []


async def until(true: Callable[[], bool]) -> None:
    """Wait until the condition is true."""
    for _ in range(3000):
        if true():
            return
        await asyncio.sleep(0.02)
    raise TimeoutError


@asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    """Run the loops of these nodes."""
    complete = asyncio.Event()
    complete.set()
    tasks = [asyncio.create_task(node.agent.run(complete)) for node in nodes]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for node in nodes:
            await node.agent.close()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let agents reconcile every few milliseconds, and write their records at once."""
    for name, seconds in (("TICK", 0.02), ("PROGRESS_EVERY", 0.02), ("AGAIN_EVERY", 0.1)):
        monkeypatch.setattr(loop, name, seconds)
    monkeypatch.setattr(namespaces, "UNUSED_EVERY", 0.05)


@pytest.fixture
def hubs() -> Iterator[tuple[RepoHub, RepoHub]]:
    """Run the real hub and the tenant's hub, which has other files under the same name and commit."""
    with ExitStack() as stack:
        yield (
            stack.enter_context(served(RepoHub({"org/model": GOOD}))),
            stack.enter_context(served(RepoHub({"org/model": EVIL}))),
        )


BIG = "model-00001-of-00002.safetensors"


async def settled(agent: Agent, done: Callable[[], bool], state: Callable[[], object] = lambda: None) -> None:
    """Run an agent that has seen every model, until `done` returns True. Fail if the value of `state` has not changed for
    90 s. There is no limit for the total time, because it depends on the other load on the machine.
    """
    complete = asyncio.Event()
    complete.set()
    running = asyncio.create_task(agent.run(complete))
    clock = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(90) as limit:
            last = state()
            while not done():
                assert not running.done()
                await asyncio.sleep(0.02)
                if (now := state()) != last:
                    last = now
                    limit.reschedule(clock() + 90)
    finally:
        running.cancel()
        await agent.close()
