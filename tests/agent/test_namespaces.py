"""Files of a namespace's models belong to that namespace, on the node and among its peers (docs/tenancy.md)."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from ome_operator.agent.peers import PeerServer, PeerSource, serve
from ome_operator.kube.errors import Forbidden, Transient
from ome_operator.storage.listing import Source
from tests.support.agent_node import BIG, GOOD, URI, Node, RepoHub, hubs, quickly, running, until
from tests.support.hub import served

__all__ = ["hubs", "quickly"]


class Secretive(RepoHub):
    """A hub that lists the files of a model but refuses to send them, as hubs do for models with a license agreement."""

    async def _bytes(self, request: web.Request, headers: dict[str, str] | None = None) -> web.StreamResponse:
        return web.Response(status=403)


@pytest.mark.parametrize("peers", [False, True], ids=["this disk", "another node"])
async def test_listing_the_hashes_of_another_tenant_gives_no_access_to_its_files(
    tmp_path: Path, hubs: tuple[RepoHub, RepoHub], peers: bool
) -> None:
    """A tenant lists the hashes of another tenant's model, and must not get its files. It may get the files of a
    cluster-wide model.
    """
    real, _ = hubs
    shared = {"shared.safetensors": b"for everybody" * 5_000}
    real.repositories |= {"org/shared": shared}
    first = Node(tmp_path / "first" / "raid", real.url)
    with served(Secretive({"org/model": GOOD, "org/shared": shared})) as liar:
        async with running(first):
            first.apply("BaseModel", "private", URI, f"{first.root}/private", namespace="team-b")
            first.apply("ClusterBaseModel", "shared", "hf://org/shared", f"{first.root}/shared")
            await first.wait_for_states(private="Ready", shared="Ready")
            runner, port = await serve(PeerServer(first.settings.roots, "t"), "127.0.0.1", 0)

            async def found() -> list[str]:
                return [f"http://127.0.0.1:{port}"]

            def among(source: Source, namespace: str) -> Source:
                return PeerSource(source, found, "t", namespace=namespace)

            second = Node(tmp_path / "two" / "raid", real.url, peers=among)
            node = second if peers else first
            async with running(*([second] if peers else [])):
                for name, repo in (("thief", "model"), ("honest", "shared")):
                    storage = {"parameters": {"endpoint": liar.url}}
                    path = f"{node.root}/{name}"
                    node.apply("BaseModel", name, f"hf://org/{repo}", path, namespace="team-a", **storage)
                await node.wait_for_states(thief="Failed", honest="Ready")
                if peers:  # The namespace that owns the model gets it from there.
                    storage = {"parameters": {"endpoint": liar.url}}
                    node.apply("BaseModel", "own", URI, f"{node.root}/own", namespace="team-b", **storage)
                    await node.wait_for_states(own="Ready")
            await runner.cleanup()
    assert not [files for files in node.downloaded_files("team-a") if BIG in files]


@pytest.mark.parametrize("seen", [True, False], ids=["it was seen to be gone", "the agent was down meanwhile"])
async def test_recreated_namespace_gets_nothing_of_its_predecessor(
    tmp_path: Path, hubs: tuple[RepoHub, RepoHub], seen: bool
) -> None:
    """A recreated namespace gets nothing from its predecessor, even for the same model. It gets no complete files, no files
    by their hashes, and nothing from the predecessor's directory.
    """
    real, _ = hubs
    node, place = Node(tmp_path / "raid", real.url), tmp_path / "raid" / ".namespaces" / "team-a"
    async with running(node):
        node.apply("BaseModel", "private", URI, f"{node.root}/private", namespace="team-a")
        await node.wait_for_states(private="Ready")
        if seen:
            node.delete("BaseModel", "private", "team-a")
            node.spaces["team-a"] = None
            await until(lambda: not place.exists())
    with served(Secretive({"org/model": GOOD})) as liar:
        again = Node(tmp_path / "raid", liar.url)
        again.spaces["team-a"] = "another"
        async with running(again):
            again.apply("BaseModel", "private", URI, f"{node.root}/private", namespace="team-a")
            await again.wait_for_states(private="Failed")
            assert not again.reported_model("private").get("directories")
            (unused,) = again.record["unused"]
            assert "/.namespaces/.former/team-a.uid-of-team-a/" in unused["directory"] and "models" not in unused
    assert not [files for files in node.downloaded_files("team-a") if BIG in files]


async def test_model_is_kept_while_its_namespace_cannot_be_read(tmp_path: Path, hubs: tuple[RepoHub, RepoHub]) -> None:
    """The agent restarts while the API server returns models, but no namespaces. The model stays on the disk. The agent
    reports it again when it can read the namespace, or when the API server denies the read.
    """
    real, _ = hubs
    node = Node(tmp_path / "raid", real.url)
    async with running(node):
        node.apply("BaseModel", "first", URI, f"{node.root}/first", namespace="team-a")
        await node.wait_for_states(first="Ready")
    again = Node(tmp_path / "raid", real.url)
    silent = Transient("no answer", 500)
    again.api.answers |= {"get Namespace": silent}
    async with running(again):
        again.apply("BaseModel", "first", URI, f"{node.root}/first", namespace="team-a")
        await asyncio.sleep(0.3)
        assert again.record == {}
        again.api.answers |= {"get Namespace": Forbidden("no such right", 403)}
        await again.wait_for_states(first="Ready")


async def test_models_of_a_namespace_share_files_by_verified_hash(tmp_path: Path, hubs: tuple[RepoHub, RepoHub]) -> None:
    real, _ = hubs
    node = Node(tmp_path / "raid", real.url)
    async with running(node):
        node.apply("BaseModel", "first", URI, f"{node.root}/first", namespace="team-a")
        node.apply("BaseModel", "two", f"{URI}@v1", f"{node.root}/two", namespace="team-a")
        node.apply("BaseModel", "three", URI, f"{node.root}/three", namespace="team-a")
        await node.wait_for_states(first="Ready", two="Ready", three="Ready")
    assert node.downloaded_files("team-a") == [GOOD] * 3
    assert len([sent for sent in real.sent if sent.name == BIG]) <= 2, "downloads of the same URI wait for each other"


@pytest.mark.parametrize(
    ("path", "state"), [("by-hand", "Ready"), (".namespaces/team-b/x", "Failed"), (".namespaces/team-a/x", "Ready")]
)
async def test_local_files_of_another_namespace_are_not_read(tmp_path: Path, path: str, state: str) -> None:
    node = Node(tmp_path / "raid", "http://127.0.0.1:9")
    folder = node.root / path
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"architectures": ["DeepseekV3ForCausalLM"]}')
    async with running(node):
        node.apply("BaseModel", "local", f"local://{folder}", str(folder), namespace="team-a")
        await node.wait_for_states(local=state)
        assert ("facts" in node.reported_model("local")) is (state == "Ready")
