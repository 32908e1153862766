"""Tenants whose models share a node: findings of the security review, through the agent's real loop (docs/tenancy.md)."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ome_operator import names
from ome_operator.agent import loop, namespaces
from ome_operator.agent.download import Limits
from ome_operator.agent.loop import Agent
from ome_operator.agent.peers import Giver, Swarm, serve
from ome_operator.agent.work import AgentSettings
from ome_operator.kube.errors import Forbidden, NotFound, Transient
from ome_operator.storage.grants import Trust
from ome_operator.storage.listing import Source
from tests.support.fake_api import Call, FakeApi
from tests.support.hub import COMMIT, Hub, model, served

URI, API = "hf://org/model", "ome.io/v1beta1"
GOOD = model(1, [300_000, 40_000])
EVIL = {"config.json": b"{}", "evil.py": b"EVIL" * 10, "model-00001-of-00002.safetensors": b"EVIL" * 75_000}
BAD = "badbad" + "0" * 34


class Town(Hub):
    """A hub with several repositories, each of them at its own commit."""

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
        """Repositories that somebody asked for."""
        return {"/".join(path.split("/")[3:5]) for path, _ in self.tokens if path.startswith("/api/models/")}


class Node:
    """A node's disk and the loop of its agent; the operator's part, pins, says the test."""

    def __init__(self, root: Path, hub: str, **more: Any) -> None:
        self.root, self.record, self._made = root, dict[str, Any](), 0
        root.mkdir(parents=True, exist_ok=True)
        self._uids: dict[tuple[str, str], str] = {}
        self.spaces: dict[str, str | None] = {}
        """UIDs of namespaces that were made again; None for those that are not there."""
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
        """A model as the agent's watch shows it; a later model is younger."""
        self._made += 1
        known = self._uids.setdefault((namespace, name), f"uid-{self._made}")
        stamp = f"2026-01-01T00:00:{int(known[4:]):02}Z"
        own = {"namespace": namespace} if namespace else {}
        metadata = {"name": name, "uid": known, "creationTimestamp": stamp, **own}
        spec: dict[str, Any] = {"storage": {"storageUri": uri, "path": path, **storage}}
        if kind == "FineTunedWeight":
            spec |= {"baseModelRef": {"name": "x"}, "modelType": "LoRA", "hyperParameters": {}}
        status = {"weights": {"uri": uri, "revision": pin}} if pin else {}
        self.agent.seen(kind, {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec, "status": status})

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """The model is gone."""
        self.agent.deleted(kind, {"metadata": {"name": name, "uid": self._uids.pop((namespace, name))}})

    def said(self, name: str) -> dict[str, Any]:
        """The record's entry of a model."""
        return next((item for item in self.record.get("models") or () if item["name"] == name), {})

    async def settled(self, **states: str) -> None:
        """Wait until the record says so of each model, which may have dashes for its underscores."""
        await until(lambda: all(self.said(name.replace("_", "-")).get("state") == state for name, state in states.items()))

    def files(self, path: Path | str) -> dict[str, bytes]:
        """What lies below a path of the node."""
        below = self.root / path
        return {str(file.relative_to(below)): file.read_bytes() for file in below.rglob("*") if file.is_file()}

    def fetched(self, namespace: str) -> list[dict[str, bytes]]:
        """Files of every directory that was fetched for a namespace."""
        home = self.root / ".namespaces" / namespace / ".ome"
        return [self.files(file) for file in sorted(home.iterdir()) if file.is_dir()] if home.is_dir() else []


async def until(true: Callable[[], bool]) -> None:
    """Wait for it."""
    for _ in range(3000):
        if true():
            return
        await asyncio.sleep(0.02)
    raise TimeoutError


@asynccontextmanager
async def running(*nodes: Node) -> AsyncIterator[None]:
    """The loops of these nodes."""
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
    """A pass every few milliseconds, and records at once."""
    for name, seconds in (("TICK", 0.02), ("PROGRESS_EVERY", 0.02), ("AGAIN_EVERY", 0.1)):
        monkeypatch.setattr(loop, name, seconds)
    monkeypatch.setattr(namespaces, "UNUSED_EVERY", 0.05)


@pytest.fixture
def hubs() -> Iterator[tuple[Town, Town]]:
    """The real hub, and the tenant's, which has other files under the same name and commit."""
    with ExitStack() as stack:
        yield (
            stack.enter_context(served(Town({"org/model": GOOD}))),
            stack.enter_context(served(Town({"org/model": EVIL}))),
        )


async def test_s1a_a_tenant_that_comes_first_does_not_fill_the_directory_of_a_cluster_wide_model(
    tmp_path: Path, hubs: tuple[Town, Town]
) -> None:
    real, evil = hubs
    node = Node(tmp_path / "raid", real.url)
    path = f"{node.root}/moonshotai"
    async with running(node):
        storage = {"parameters": {"endpoint": evil.url}}
        node.apply("BaseModel", "anything", URI, f"{path}/anything", namespace="team-a", **storage)
        await node.settled(anything="Ready")
        node.apply("ClusterBaseModel", "kimi-k2", URI, f"{path}/Kimi-K2-Instruct")
        await node.settled(kimi_k2="Ready")
    assert node.files("moonshotai/Kimi-K2-Instruct") == GOOD and real.asked() == {"org/model"}
    assert node.fetched("team-a") == [EVIL]
    assert not (node.root / "moonshotai/anything").exists(), "a namespace's model has no link on the node"


async def test_s1b_another_pin_of_a_tenant_does_not_replace_files_that_pods_mount(
    tmp_path: Path, hubs: tuple[Town, Town]
) -> None:
    real, evil = hubs
    evil.commit = BAD
    node = Node(tmp_path / "raid", real.url, verify_every=0.2)
    async with running(node):
        node.apply("ClusterBaseModel", "victim", URI, f"{node.root}/victim")
        await node.settled(victim="Ready")
        node.apply("ClusterBaseModel", "victim", URI, f"{node.root}/victim", pin=COMMIT)
        mounted = (node.root / "victim").resolve()
        before = {file.name: file.stat().st_ino for file in mounted.iterdir()}
        storage = {"parameters": {"endpoint": evil.url}}
        node.apply("BaseModel", "anything", URI, f"{node.root}/anything", namespace="team-a", pin=BAD, **storage)
        await node.settled(anything="Ready", victim="Ready")
        await asyncio.sleep(0.6)  # every model is looked at again
        assert node.said("victim")["revision"] == COMMIT and node.said("victim")["state"] == "Ready"
    assert node.files("victim") == GOOD and (node.root / "victim").resolve() == mounted
    assert {file.name: file.stat().st_ino for file in mounted.iterdir()} == before, "nothing was written there"


@pytest.mark.parametrize("kind", ["ClusterBaseModel", "BaseModel"])
async def test_two_models_of_one_source_that_were_pinned_apart_keep_their_own_files(tmp_path: Path, kind: str) -> None:
    """Also of the same owner: each would take the other's revision for damage, and write its own over what pods mount."""
    later = {**GOOD, "model-00001-of-00002.safetensors": b"later" * 60_000}
    where = {"namespace": "team-a"} if kind == "BaseModel" else {}

    class Moving(Town):
        def _repository(self, request: web.Request) -> tuple[dict[str, bytes], str]:
            old = request.match_info.get("revision") == COMMIT
            return (GOOD, COMMIT) if old else (later, BAD)

        async def _bytes(self, request: web.Request, headers: dict[str, str] | None = None) -> web.StreamResponse:
            large = request.path.startswith("/cdn/")
            if large:  # which commit it is of says the order of the requests in this test
                request.match_info["revision"] = COMMIT if not first.is_set() else BAD
            return await super()._bytes(request, headers)

    first = asyncio.Event()
    with served(Moving({"org/model": GOOD})) as hub:
        node = Node(tmp_path / "raid", hub.url, verify_every=0.2)
        async with running(node):
            node.apply(kind, "old", URI, f"{node.root}/old", pin=COMMIT, **where)
            await node.settled(old="Ready")
            first.set()
            node.apply(kind, "new", URI, f"{node.root}/new", pin=BAD, **where)
            await node.settled(new="Ready", old="Ready")
            await asyncio.sleep(0.6)
            assert (node.said("old")["revision"], node.said("new")["revision"]) == (COMMIT, BAD)
    places = node.fetched("team-a") if where else [node.files("old"), node.files("new")]
    assert GOOD in places and later in places


async def test_s3_a_repository_whose_name_has_the_same_short_digest_is_another_model(tmp_path: Path) -> None:
    """The two URIs of the review: 107 million tries of a single core found the first."""
    found, wanted = "evil/m1rlo8g", "Qwen/Qwen3-30B-A3B-Instruct-2507"
    assert names.digest(f"hf://{found}") == names.digest(f"hf://{wanted}") == "75a7b9a9"
    good = {"config.json": b'{"a": 1}', "good.safetensors": b"GOOD" * 50_000}
    with served(Town({found: EVIL, wanted: good})) as hub:
        node = Node(tmp_path / "raid", hub.url)
        async with running(node):
            node.apply("BaseModel", "anything", f"hf://{found}", f"{node.root}/qwen/anything", namespace="team-a")
            await node.settled(anything="Ready")
            node.apply("ClusterBaseModel", "qwen", f"hf://{wanted}", f"{node.root}/qwen/qwen")
            await node.settled(qwen="Ready")
    assert node.files("qwen/qwen") == good and hub.asked() == {found, wanted}


def forged(name: str, data: bytes) -> dict[str, bytes]:
    """A repository that looks like a download on its way: a file, and a journal that calls it proven by the real hash."""
    real = GOOD[name]
    proof = f"sha256:{hashlib.sha256(real).hexdigest()}"
    line = {"name": name, "size": len(real), "hash": proof, "blocks": [0]}
    return {f"files/{name}": data, "journal": json.dumps(line).encode() + b"\n"}


BIG = "model-00001-of-00002.safetensors"
WRONG = b"EVIL" * (len(GOOD[BIG]) // 4)


async def test_s10a_a_path_inside_of_what_agents_keep_is_refused(tmp_path: Path, hubs: tuple[Town, Town]) -> None:
    real, evil = hubs
    evil.repositories = {"evil/forger": forged(BIG, WRONG)}
    node = Node(tmp_path / "raid", real.url)
    victim = f"{node.root}/victim"
    identity = {"kind": "ClusterBaseModel", "namespace": "", "name": "victim", "uri": URI, "path": victim, "source": ""}
    digests = [names.digest(URI), names.digest(identity, 32)]  # what a directory was called, and what it is called
    async with running(node):
        for number, digest in enumerate(digests):
            storage = {"parameters": {"endpoint": evil.url}}
            path = f"{node.root}/.ome/{digest}.partial"
            node.apply("BaseModel", f"forger-{number}", "hf://evil/forger", path, namespace="team-a", **storage)
        await node.settled(forger_0="Failed", forger_1="Failed")
        assert "has the component .ome" in node.said("forger-0")["message"]
        assert evil.asked() == set() and list(node.root.iterdir()) == []
        node.apply("ClusterBaseModel", "victim", URI, victim)
        await node.settled(victim="Ready")
    assert node.files("victim") == GOOD


async def test_s10a_what_a_journal_says_counts_after_a_restart_when_the_bytes_do(
    tmp_path: Path, hubs: tuple[Town, Town]
) -> None:
    """Whoever wrote it: the lines and files of the forger, in the very place."""
    real, _ = hubs
    node = Node(tmp_path / "raid", real.url)
    victim = f"{node.root}/victim"
    identity = {"kind": "ClusterBaseModel", "namespace": "", "name": "victim", "uri": URI, "path": victim, "source": ""}
    for digest in (names.digest(URI), names.digest(identity, 32)):
        for name, data in forged(BIG, WRONG).items():
            place = node.root / ".ome" / f"{digest}.partial" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    async with running(node):
        node.apply("ClusterBaseModel", "victim", URI, victim)
        await node.settled(victim="Ready")
    assert node.files("victim") == GOOD


async def test_s10b_a_tenant_cannot_take_the_path_of_a_cluster_wide_model(tmp_path: Path, hubs: tuple[Town, Town]) -> None:
    real, evil = hubs
    node = Node(tmp_path / "raid", real.url)
    async with running(node):
        node.apply("ClusterBaseModel", "victim2", URI, f"{node.root}/v2")
        await node.settled(victim2="Ready")
        link = (node.root / "v2").readlink()
        storage = {"parameters": {"endpoint": evil.url}}
        node.apply("BaseModel", "squat", f"{URI}@v1", f"{node.root}/v2", namespace="team-a", **storage)
        await node.settled(squat="Ready", victim2="Ready")
        await asyncio.sleep(0.2)
        assert node.said("victim2")["state"] == "Ready"
    assert (node.root / "v2").readlink() == link and node.files("v2") == GOOD


@pytest.mark.parametrize(
    ("kind", "said"), [("BaseModel", ""), ("ClusterBaseModel", "lies in PATH, which is that of ClusterBaseModel v2")]
)
async def test_s10c_nothing_is_laid_into_the_directory_of_another_model(
    tmp_path: Path, hubs: tuple[Town, Town], kind: str, said: str
) -> None:
    real, evil = hubs
    node = Node(tmp_path / "raid", real.url)
    async with running(node):
        node.apply("ClusterBaseModel", "v2", URI, f"{node.root}/v2")
        await node.settled(v2="Ready")
        where = {"namespace": "team-a"} if kind == "BaseModel" else {}
        storage = {"parameters": {"endpoint": evil.url}}
        node.apply(kind, "inside", f"{URI}@v1", f"{node.root}/v2/tokenizer", **where, **storage)
        await node.settled(inside="Failed" if said else "Ready", v2="Ready")
        assert said.replace("PATH", f"{node.root}/v2") in node.said("inside").get("message", "")
    assert node.files("v2") == GOOD
    assert not [file for file in (node.root / "v2").resolve().rglob("*") if file.is_symlink() or file.name == ".ome"]


async def test_nothing_goes_through_a_link_below_a_root(tmp_path: Path, hubs: tuple[Town, Town]) -> None:
    real, _ = hubs
    node, elsewhere = Node(tmp_path / "raid", real.url), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (node.root / "linked").symlink_to(elsewhere)
    (node.root / ".namespaces").mkdir()
    (node.root / ".namespaces" / "team-a").symlink_to(elsewhere)
    async with running(node):
        node.apply("ClusterBaseModel", "first", URI, f"{node.root}/linked/first")
        node.apply("BaseModel", "two", URI, f"{node.root}/two", namespace="team-a")
        await node.settled(first="Failed", two="Failed")
        assert all("is a symbolic link" in node.said(name)["message"] for name in ("first", "two"))
    assert list(elsewhere.iterdir()) == []


async def test_a_root_may_be_a_link_and_must_not_become_another(tmp_path: Path, hubs: tuple[Town, Town]) -> None:
    real, _ = hubs
    (tmp_path / "disk").mkdir()
    (tmp_path / "raid").symlink_to(tmp_path / "disk")
    node = Node(tmp_path / "raid", real.url, verify_every=0.2)
    async with running(node):
        node.apply("ClusterBaseModel", "first", URI, f"{node.root}/first")
        await node.settled(first="Ready")
        (tmp_path / "raid").unlink()
        await node.settled(first="Failed")
        assert "is not there, or no directory: is its disk mounted?" in node.said("first")["message"]
        (tmp_path / "other").mkdir()
        (tmp_path / "raid").symlink_to(tmp_path / "other")
        said = "another directory than when the agent started"
        await until(lambda: said in node.said("first").get("message", ""))
    assert list((tmp_path / "other").iterdir()) == []


async def test_the_first_of_the_administrators_models_has_its_path(tmp_path: Path, hubs: tuple[Town, Town]) -> None:
    real, _ = hubs
    node = Node(tmp_path / "raid", real.url)
    async with running(node):
        node.apply("FineTunedWeight", "trained", f"{URI}@v1", f"{node.root}/a")
        node.apply("ClusterBaseModel", "b-older", URI, f"{node.root}/b")
        await node.settled(trained="Ready", b_older="Ready")
        node.apply("ClusterBaseModel", "wins", URI, f"{node.root}/a")
        node.apply("ClusterBaseModel", "a-younger", f"{URI}@v1", f"{node.root}/b")
        node.apply("ClusterBaseModel", "alike", URI, f"{node.root}/b")
        await node.settled(trained="Failed", wins="Ready", a_younger="Failed", b_older="Ready", alike="Ready")
        assert "is that of ClusterBaseModel wins" in node.said("trained")["message"]
        assert (node.root / "b").readlink().name == node.said("b-older")["directories"][0]
        node.delete("ClusterBaseModel", "b-older")
        await node.settled(a_younger="Ready", alike="Failed")


class Secretive(Town):
    """Says what a model consists of, and gives nobody its files: as a hub does with models that ask for a licence."""

    async def _bytes(self, request: web.Request, headers: dict[str, str] | None = None) -> web.StreamResponse:
        return web.Response(status=403)


@pytest.mark.parametrize("peers", [False, True], ids=["this disk", "another node"])
async def test_a_hash_is_no_proof_of_possession(tmp_path: Path, hubs: tuple[Town, Town], peers: bool) -> None:
    """A tenant lists the hashes of another tenant's model; of a cluster-wide model it may have the bytes."""
    real, _ = hubs
    shared = {"shared.safetensors": b"for everybody" * 5_000}
    real.repositories |= {"org/shared": shared}
    first = Node(tmp_path / "first" / "raid", real.url)
    with served(Secretive({"org/model": GOOD, "org/shared": shared})) as liar:
        async with running(first):
            first.apply("BaseModel", "private", URI, f"{first.root}/private", namespace="team-b")
            first.apply("ClusterBaseModel", "shared", "hf://org/shared", f"{first.root}/shared")
            await first.settled(private="Ready", shared="Ready")
            runner, port = await serve(Giver(first.settings.roots, "t"), "127.0.0.1", 0)

            async def found() -> list[str]:
                return [f"http://127.0.0.1:{port}"]

            def among(source: Source, namespace: str) -> Source:
                return Swarm(source, found, "t", namespace=namespace)

            second = Node(tmp_path / "two" / "raid", real.url, peers=among)
            node = second if peers else first
            async with running(*([second] if peers else [])):
                for name, repo in (("thief", "model"), ("honest", "shared")):
                    storage = {"parameters": {"endpoint": liar.url}}
                    path = f"{node.root}/{name}"
                    node.apply("BaseModel", name, f"hf://org/{repo}", path, namespace="team-a", **storage)
                await node.settled(thief="Failed", honest="Ready")
                if peers:  # whose own it is gets it from there
                    storage = {"parameters": {"endpoint": liar.url}}
                    node.apply("BaseModel", "own", URI, f"{node.root}/own", namespace="team-b", **storage)
                    await node.settled(own="Ready")
            await runner.cleanup()
    assert not [files for files in node.fetched("team-a") if BIG in files]


@pytest.mark.parametrize("seen", [True, False], ids=["it was seen to be gone", "the agent was down meanwhile"])
async def test_a_namespace_that_was_made_again_gets_nothing_of_the_former(
    tmp_path: Path, hubs: tuple[Town, Town], seen: bool
) -> None:
    """By the very same model: neither as files that are whole, nor by their hashes, nor in the namespace's folder."""
    real, _ = hubs
    node, place = Node(tmp_path / "raid", real.url), tmp_path / "raid" / ".namespaces" / "team-a"
    async with running(node):
        node.apply("BaseModel", "private", URI, f"{node.root}/private", namespace="team-a")
        await node.settled(private="Ready")
        if seen:
            node.delete("BaseModel", "private", "team-a")
            node.spaces["team-a"] = None
            await until(lambda: not place.exists())
    with served(Secretive({"org/model": GOOD})) as liar:
        again = Node(tmp_path / "raid", liar.url)
        again.spaces["team-a"] = "another"
        async with running(again):
            again.apply("BaseModel", "private", URI, f"{node.root}/private", namespace="team-a")
            await again.settled(private="Failed")
            assert not again.said("private").get("directories")
            (unused,) = again.record["unused"]
            assert "/.namespaces/.former/team-a.uid-of-team-a/" in unused["directory"] and "models" not in unused
    assert not [files for files in node.fetched("team-a") if BIG in files]


async def test_what_cannot_be_told_about_a_namespace_takes_no_model_away(tmp_path: Path, hubs: tuple[Town, Town]) -> None:
    """A restart of the agent while the API server answers about models and not about namespaces."""
    real, _ = hubs
    node = Node(tmp_path / "raid", real.url)
    async with running(node):
        node.apply("BaseModel", "first", URI, f"{node.root}/first", namespace="team-a")
        await node.settled(first="Ready")
    again = Node(tmp_path / "raid", real.url)
    silent = Transient("no answer", 500)
    again.api.answers |= {"get Namespace": silent}
    async with running(again):
        again.apply("BaseModel", "first", URI, f"{node.root}/first", namespace="team-a")
        await asyncio.sleep(0.3)
        assert again.record == {}
        again.api.answers |= {"get Namespace": Forbidden("no such right", 403)}
        await again.settled(first="Ready")


async def test_models_of_a_namespace_share_bytes_through_proven_hashes(tmp_path: Path, hubs: tuple[Town, Town]) -> None:
    real, _ = hubs
    node = Node(tmp_path / "raid", real.url)
    async with running(node):
        node.apply("BaseModel", "first", URI, f"{node.root}/first", namespace="team-a")
        node.apply("BaseModel", "two", f"{URI}@v1", f"{node.root}/two", namespace="team-a")
        node.apply("BaseModel", "three", URI, f"{node.root}/three", namespace="team-a")
        await node.settled(first="Ready", two="Ready", three="Ready")
    assert node.fetched("team-a") == [GOOD] * 3
    assert len([sent for sent in real.sent if sent.name == BIG]) <= 2, "URIs that are equal wait for each other"


async def test_a_directory_with_another_manifest_is_left_alone(tmp_path: Path, hubs: tuple[Town, Town]) -> None:
    real, _ = hubs
    node = Node(tmp_path / "raid", real.url)
    async with running(node):
        node.apply("ClusterBaseModel", "first", URI, f"{node.root}/first")
        await node.settled(first="Ready")
    (manifest,) = (node.root / ".ome").glob("*.json")
    other = {"identity": {"uri": "hf://of/others", "name": "x"}}
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **other}))
    inodes = {file.name: file.stat().st_ino for file in manifest.with_suffix("").iterdir()}
    again = Node(tmp_path / "raid", real.url)
    async with running(again):
        again.apply("ClusterBaseModel", "first", URI, f"{node.root}/first")
        await again.settled(first="Failed")
        assert "says that it holds hf://of/others of x: move it away" in again.said("first")["message"]
    assert {file.name: file.stat().st_ino for file in manifest.with_suffix("").iterdir()} == inodes


@pytest.mark.parametrize(
    ("path", "state"), [("by-hand", "Ready"), (".namespaces/team-b/x", "Failed"), (".namespaces/team-a/x", "Ready")]
)
async def test_local_files_of_another_namespace_are_not_looked_at(tmp_path: Path, path: str, state: str) -> None:
    node = Node(tmp_path / "raid", "http://127.0.0.1:9")
    folder = node.root / path
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"architectures": ["DeepseekV3ForCausalLM"]}')
    async with running(node):
        node.apply("BaseModel", "local", f"local://{folder}", str(folder), namespace="team-a")
        await node.settled(local=state)
        assert ("facts" in node.said("local")) is (state == "Ready")
