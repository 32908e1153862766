"""Tests of tenants whose models share a node: findings of the security review, checked with the agent's real loop
(docs/tenancy.md).
"""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from aiohttp import web

from ome_operator import names
from ome_operator.settings.agent import AgentPolicy
from tests.support.agent_node import BAD, BIG, EVIL, GOOD, URI, Node, RepoHub, hubs, quickly, running, until
from tests.support.hub import COMMIT, served

__all__ = ["hubs", "quickly"]


async def test_s1a_tenant_model_does_not_fill_the_directory_of_a_cluster_model(
    tmp_path: Path, hubs: tuple[RepoHub, RepoHub]
) -> None:
    real, evil = hubs
    node = Node(tmp_path / "raid", real.url)
    path = f"{node.root}/moonshotai"
    async with running(node):
        storage = {"parameters": {"endpoint": evil.url}}
        node.apply("BaseModel", "anything", URI, f"{path}/anything", namespace="team-a", **storage)
        await node.wait_for_states(anything="Ready")
        node.apply("ClusterBaseModel", "kimi-k2", URI, f"{path}/Kimi-K2-Instruct")
        await node.wait_for_states(kimi_k2="Ready")
    assert node.files("moonshotai/Kimi-K2-Instruct") == GOOD and real.asked() == {"org/model"}
    assert node.downloaded_files("team-a") == [EVIL]
    assert not (node.root / "moonshotai/anything").exists(), "the model of a namespace has no link on the node"


async def test_s1b_pin_of_a_tenant_does_not_replace_mounted_files(tmp_path: Path, hubs: tuple[RepoHub, RepoHub]) -> None:
    real, evil = hubs
    evil.commit = BAD
    node = Node(tmp_path / "raid", real.url, policy=AgentPolicy(verify_every=0.2))
    async with running(node):
        node.apply("ClusterBaseModel", "victim", URI, f"{node.root}/victim")
        await node.wait_for_states(victim="Ready")
        node.apply("ClusterBaseModel", "victim", URI, f"{node.root}/victim", pin=COMMIT)
        mounted = (node.root / "victim").resolve()
        before = {file.name: file.stat().st_ino for file in mounted.iterdir()}
        storage = {"parameters": {"endpoint": evil.url}}
        node.apply("BaseModel", "anything", URI, f"{node.root}/anything", namespace="team-a", pin=BAD, **storage)
        await node.wait_for_states(anything="Ready", victim="Ready")
        await asyncio.sleep(0.6)  # Every model is checked again.
        assert node.reported_model("victim")["revision"] == COMMIT and node.reported_model("victim")["state"] == "Ready"
    assert node.files("victim") == GOOD and (node.root / "victim").resolve() == mounted
    assert {file.name: file.stat().st_ino for file in mounted.iterdir()} == before, "nothing was written there"


@pytest.mark.parametrize("kind", ["ClusterBaseModel", "BaseModel"])
async def test_models_of_one_source_with_different_pins_keep_their_own_files(tmp_path: Path, kind: str) -> None:
    """Two models of one source name different revisions. Each keeps its own files, even if both belong to the same namespace
    or to the cluster. If they shared a directory, each would treat the other's revision as damage, and overwrite files that
    pods mount.
    """
    later = {**GOOD, "model-00001-of-00002.safetensors": b"later" * 60_000}
    where = {"namespace": "team-a"} if kind == "BaseModel" else {}

    class Moving(RepoHub):
        def _repository(self, request: web.Request) -> tuple[dict[str, bytes], str]:
            old = request.match_info.get("revision") == COMMIT
            return (GOOD, COMMIT) if old else (later, BAD)

        async def _bytes(self, request: web.Request, headers: dict[str, str] | None = None) -> web.StreamResponse:
            large = request.path.startswith("/cdn/")
            if large:  # The commit depends on the order of the requests in this test.
                request.match_info["revision"] = COMMIT if not first.is_set() else BAD
            return await super()._bytes(request, headers)

    first = asyncio.Event()
    with served(Moving({"org/model": GOOD})) as hub:
        node = Node(tmp_path / "raid", hub.url, policy=AgentPolicy(verify_every=0.2))
        async with running(node):
            node.apply(kind, "old", URI, f"{node.root}/old", pin=COMMIT, **where)
            await node.wait_for_states(old="Ready")
            first.set()
            node.apply(kind, "new", URI, f"{node.root}/new", pin=BAD, **where)
            await node.wait_for_states(new="Ready", old="Ready")
            await asyncio.sleep(0.6)
            assert (node.reported_model("old")["revision"], node.reported_model("new")["revision"]) == (COMMIT, BAD)
    places = node.downloaded_files("team-a") if where else [node.files("old"), node.files("new")]
    assert GOOD in places and later in places


async def test_s3_repository_with_the_same_short_digest_is_a_different_model(tmp_path: Path) -> None:
    """Two repositories with the same short digest are different models, and each is downloaded. The names are those of the
    security review: one core found the first collision after 107 million attempts.
    """
    found, wanted = "evil/m1rlo8g", "Qwen/Qwen3-30B-A3B-Instruct-2507"
    assert names.digest(f"hf://{found}") == names.digest(f"hf://{wanted}") == "75a7b9a9"
    good = {"config.json": b'{"a": 1}', "good.safetensors": b"GOOD" * 50_000}
    with served(RepoHub({found: EVIL, wanted: good})) as hub:
        node = Node(tmp_path / "raid", hub.url)
        async with running(node):
            node.apply("BaseModel", "anything", f"hf://{found}", f"{node.root}/qwen/anything", namespace="team-a")
            await node.wait_for_states(anything="Ready")
            node.apply("ClusterBaseModel", "qwen", f"hf://{wanted}", f"{node.root}/qwen/qwen")
            await node.wait_for_states(qwen="Ready")
    assert node.files("qwen/qwen") == good and hub.asked() == {found, wanted}


def forged(name: str, data: bytes) -> dict[str, bytes]:
    """Return the files of a repository that imitates an unfinished download: a file with these bytes, and a journal that
    marks the file as verified with the real hash.
    """
    real = GOOD[name]
    proof = f"sha256:{hashlib.sha256(real).hexdigest()}"
    line = {"name": name, "size": len(real), "hash": proof, "blocks": [0]}
    return {f"files/{name}": data, "journal": json.dumps(line).encode() + b"\n"}


WRONG = b"EVIL" * (len(GOOD[BIG]) // 4)


async def test_s10a_path_inside_agent_directories_is_refused(tmp_path: Path, hubs: tuple[RepoHub, RepoHub]) -> None:
    real, evil = hubs
    evil.repositories = {"evil/forger": forged(BIG, WRONG)}
    node = Node(tmp_path / "raid", real.url)
    victim = f"{node.root}/victim"
    identity = {"kind": "ClusterBaseModel", "namespace": "", "name": "victim", "uri": URI, "path": victim, "source": ""}
    digests = [names.digest(URI), names.digest(identity, 32)]  # the previous name of the directory, and its current name
    async with running(node):
        for number, digest in enumerate(digests):
            storage = {"parameters": {"endpoint": evil.url}}
            path = f"{node.root}/.ome/{digest}.partial"
            node.apply("BaseModel", f"forger-{number}", "hf://evil/forger", path, namespace="team-a", **storage)
        await node.wait_for_states(forger_0="Failed", forger_1="Failed")
        assert "has the component .ome" in node.reported_model("forger-0")["message"]
        assert evil.asked() == set() and list(node.root.iterdir()) == []
        node.apply("ClusterBaseModel", "victim", URI, victim)
        await node.wait_for_states(victim="Ready")
    assert node.files("victim") == GOOD


async def test_s10a_journal_is_trusted_after_a_restart_only_if_the_bytes_match(
    tmp_path: Path, hubs: tuple[RepoHub, RepoHub]
) -> None:
    """Finding S10 of docs/security-review.md: an attacker's journal marks wrong bytes as verified, and lies where the agent
    looks for an unfinished download. The agent checks the bytes after its restart, and downloads the right ones. The test
    writes the journal directly, because it does not matter how it got onto the disk.
    """
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
        await node.wait_for_states(victim="Ready")
    assert node.files("victim") == GOOD


async def test_s10b_tenant_cannot_use_the_path_of_a_cluster_model(tmp_path: Path, hubs: tuple[RepoHub, RepoHub]) -> None:
    real, evil = hubs
    node = Node(tmp_path / "raid", real.url)
    async with running(node):
        node.apply("ClusterBaseModel", "victim2", URI, f"{node.root}/v2")
        await node.wait_for_states(victim2="Ready")
        link = (node.root / "v2").readlink()
        storage = {"parameters": {"endpoint": evil.url}}
        node.apply("BaseModel", "squat", f"{URI}@v1", f"{node.root}/v2", namespace="team-a", **storage)
        await node.wait_for_states(squat="Ready", victim2="Ready")
        await asyncio.sleep(0.2)
        assert node.reported_model("victim2")["state"] == "Ready"
    assert (node.root / "v2").readlink() == link and node.files("v2") == GOOD


@pytest.mark.parametrize(
    ("kind", "said"), [("BaseModel", ""), ("ClusterBaseModel", "is inside PATH, which is in use by ClusterBaseModel v2")]
)
async def test_s10c_no_file_is_added_to_the_directory_of_another_model(
    tmp_path: Path, hubs: tuple[RepoHub, RepoHub], kind: str, said: str
) -> None:
    real, evil = hubs
    node = Node(tmp_path / "raid", real.url)
    async with running(node):
        node.apply("ClusterBaseModel", "v2", URI, f"{node.root}/v2")
        await node.wait_for_states(v2="Ready")
        where = {"namespace": "team-a"} if kind == "BaseModel" else {}
        storage = {"parameters": {"endpoint": evil.url}}
        node.apply(kind, "inside", f"{URI}@v1", f"{node.root}/v2/tokenizer", **where, **storage)
        await node.wait_for_states(inside="Failed" if said else "Ready", v2="Ready")
        assert said.replace("PATH", f"{node.root}/v2") in node.reported_model("inside").get("message", "")
    assert node.files("v2") == GOOD
    assert not [file for file in (node.root / "v2").resolve().rglob("*") if file.is_symlink() or file.name == ".ome"]


async def test_symlink_below_a_root_is_not_followed(tmp_path: Path, hubs: tuple[RepoHub, RepoHub]) -> None:
    real, _ = hubs
    node, elsewhere = Node(tmp_path / "raid", real.url), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (node.root / "linked").symlink_to(elsewhere)
    (node.root / ".namespaces").mkdir()
    (node.root / ".namespaces" / "team-a").symlink_to(elsewhere)
    async with running(node):
        node.apply("ClusterBaseModel", "first", URI, f"{node.root}/linked/first")
        node.apply("BaseModel", "two", URI, f"{node.root}/two", namespace="team-a")
        await node.wait_for_states(first="Failed", two="Failed")
        assert all("is a symbolic link" in node.reported_model(name)["message"] for name in ("first", "two"))
    assert list(elsewhere.iterdir()) == []


async def test_root_may_be_a_symlink_that_does_not_change(tmp_path: Path, hubs: tuple[RepoHub, RepoHub]) -> None:
    real, _ = hubs
    (tmp_path / "disk").mkdir()
    (tmp_path / "raid").symlink_to(tmp_path / "disk")
    node = Node(tmp_path / "raid", real.url, policy=AgentPolicy(verify_every=0.2))
    async with running(node):
        node.apply("ClusterBaseModel", "first", URI, f"{node.root}/first")
        await node.wait_for_states(first="Ready")
        (tmp_path / "raid").unlink()
        await node.wait_for_states(first="Failed")
        assert (
            "does not exist or is not a directory: check that its disk is mounted" in node.reported_model("first")["message"]
        )
        (tmp_path / "other").mkdir()
        (tmp_path / "raid").symlink_to(tmp_path / "other")
        said = "is no longer the directory that it was when the agent started"
        await until(lambda: said in node.reported_model("first").get("message", ""))
    assert list((tmp_path / "other").iterdir()) == []


async def test_first_cluster_model_keeps_its_path(tmp_path: Path, hubs: tuple[RepoHub, RepoHub]) -> None:
    real, _ = hubs
    node = Node(tmp_path / "raid", real.url)
    async with running(node):
        node.apply("FineTunedWeight", "trained", f"{URI}@v1", f"{node.root}/a")
        node.apply("ClusterBaseModel", "b-older", URI, f"{node.root}/b")
        await node.wait_for_states(trained="Ready", b_older="Ready")
        node.apply("ClusterBaseModel", "wins", URI, f"{node.root}/a")
        node.apply("ClusterBaseModel", "a-younger", f"{URI}@v1", f"{node.root}/b")
        node.apply("ClusterBaseModel", "alike", URI, f"{node.root}/b")
        await node.wait_for_states(trained="Failed", wins="Ready", a_younger="Failed", b_older="Ready", alike="Ready")
        assert "is in use by ClusterBaseModel wins" in node.reported_model("trained")["message"]
        assert (node.root / "b").readlink().name == node.reported_model("b-older")["directories"][0]
        node.delete("ClusterBaseModel", "b-older")
        await node.wait_for_states(a_younger="Ready", alike="Failed")


async def test_directory_with_a_foreign_manifest_is_not_changed(tmp_path: Path, hubs: tuple[RepoHub, RepoHub]) -> None:
    real, _ = hubs
    node = Node(tmp_path / "raid", real.url)
    async with running(node):
        node.apply("ClusterBaseModel", "first", URI, f"{node.root}/first")
        await node.wait_for_states(first="Ready")
    (manifest,) = (node.root / ".ome").glob("*.json")
    other = {"identity": {"uri": "hf://of/others", "name": "x"}}
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **other}))
    inodes = {file.name: file.stat().st_ino for file in manifest.with_suffix("").iterdir()}
    again = Node(tmp_path / "raid", real.url)
    async with running(again):
        again.apply("ClusterBaseModel", "first", URI, f"{node.root}/first")
        await again.wait_for_states(first="Failed")
        assert "names hf://of/others of x: move this directory" in again.reported_model("first")["message"]
    assert {file.name: file.stat().st_ino for file in manifest.with_suffix("").iterdir()} == inodes
