"""Tests of the agent and of the programs in pods together, over real sockets: later starts get what an earlier start
compiled, and nobody gets anything else.
"""

import asyncio
import contextlib
import json
import os
import time
from pathlib import Path

import pytest

from ome_operator.agent import compile_server
from ome_operator.agent.compile_store import PLACES
from ome_operator.agent.namespaces import mark
from ome_operator.core.weights.compile_caches import SOCKET
from tests.support.compile_caches import CPU, Node, Pod, serving

LONG = "n" * 63
"""The longest name that a namespace may have. The path of a socket in this namespace is longer than the address of a socket
can be.
"""


async def sealed(node: Node, name: str = "first", namespace: str = "team") -> Pod:
    """Return a pod that has compiled something, and whose cache the agent has received."""
    pod = node.pod(name, namespace)
    await node.look()
    await pod.load()
    assert (await pod.compile(triton__k=b"code").seal()).startswith("compile cache: sealed 1 files")
    return pod


async def test_later_pod_loads_the_cache_that_the_first_pod_sealed(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        first = node.pod("first")
        await node.look()
        assert await first.load() == "no compile cache: the node has no sealed compile cache of this engine yet"
        await first.compile(triton__k=b"code", lock=b"", jit__x=b"\0" * 100_000).seal()
        later = node.pod("later")
        assert (await later.load()).startswith("compile cache: copied 2 files")
        assert later.files == {"triton/k": b"code", "jit/x": b"\0" * 100_000}
        assert await later.seal() == "compile cache: the agent of this node has this cache already"


async def test_restarted_agent_serves_the_same_caches(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        await sealed(node)
        await node.server.close()
        waiting = asyncio.create_task(node.pod("later").load(attempts=200))
        await asyncio.sleep(0.1)
        await node.restart()
        assert (await waiting).startswith("compile cache: copied 1 files"), "the pod waits for an agent that starts again"


async def test_engine_that_starts_before_the_socket_exists_still_seals_its_cache(tmp_path: Path) -> None:
    """An engine that starts before the agent's socket exists still hands over its cache. The kubelet creates the directory
    of the socket when the first pod starts, and the agent finds the directory a few seconds later.
    """
    async with serving(tmp_path) as node:
        first = node.pod("first")
        assert "no agent of this node keeps compile caches of this engine yet" in await first.load(attempts=1000)
        waiting = asyncio.create_task(first.compile(k=b"code").seal(attempts=1000))
        await asyncio.sleep(0.1)
        await node.look()
        assert (await waiting).startswith("compile cache: sealed 1 files")


async def test_socket_path_of_the_longest_namespace_name_works(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        node.uids[LONG] = "uid-3"
        assert len(str((await sealed(node, namespace=LONG)).place.path / SOCKET)) > 107


async def test_other_namespaces_digests_and_hardware_get_no_cache(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        await sealed(node)
        others = node.pod("a", "other"), node.pod("b", digest="1" * 32)
        await node.look()
        for pod in others:
            assert (
                await pod.load() == "no compile cache: the node has no sealed compile cache of this engine yet"
                and pod.files == {}
            )
        (node.proc / "cpuinfo").write_text(CPU.replace("avx2", "avx512"))
        assert await node.pod("c").load() == "no compile cache: the node has no sealed compile cache of this engine yet"


async def test_recreated_namespace_gets_no_cache(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        await sealed(node)
        node.uids["team"] = "uid-of-another-owner"
        pod = node.pod("later")
        assert await pod.load() == "no compile cache: the namespace was created again" and pod.files == {}
        assert await pod.compile(k=b"x").seal() == "no compile cache: the namespace was created again"


async def test_no_cache_is_served_while_the_namespace_cannot_be_verified(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        await sealed(node)
        del node.uids["team"]
        assert "could not verify" in await node.pod("later").load()
        node.uids["team"] = "uid-1"
        assert "copied" in await node.pod("later").load()


async def test_simultaneous_seals_leave_one_complete_cache(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        pods = [node.pod(str(number)) for number in range(4)]
        await node.look()
        for number, pod in enumerate(pods):
            await pod.load()
            pod.compile(**{f"of__{number}": bytes([number]) * 50_000, f"more__{number}": b"x"})
        said = await asyncio.gather(*(pod.seal(attempts=50) for pod in pods))
        assert all(each.startswith("compile cache") for each in said)
        later = node.pod("later")
        await later.load()
        assert later.files in [pod.files for pod in pods]


async def test_pod_killed_while_sealing_leaves_no_cache(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        pod = node.pod("first")
        await node.look()
        await pod.load()
        digest = (pod.volume / ".hardware").read_text()
        reader, writer = await asyncio.open_unix_connection(pod.config["agent"])
        writer.write(json.dumps({"op": "served", "hardware": digest}).encode() + b"\n")
        assert json.loads(await reader.readline()) == {"send": node.store.limit}
        writer.write(b"OME compile cache 1\n" + b"x" * 1000)
        writer.write_eof()
        async with asyncio.timeout(60):
            await reader.read()  # until the agent has closed the connection, too
        writer.close()
        assert await node.pod("later").load() == "no compile cache: the node has no sealed compile cache of this engine yet"
        assert {path.name for path in pod.place.path.iterdir()} == {SOCKET}


REQUESTS = {
    "no JSON": b"load\n",
    "no line": b"{" * 2000,
    "nothing": b"",
    "a list": b"[]\n",
    "deep": b"[" * 900 + b"\n",
    "another operation": b'{"op": "remove", "hardware": "' + b"a" * 32 + b'"}\n',
    "no hardware": b'{"op": "load"}\n',
    "a path": b'{"op": "load", "hardware": "../../other"}\n',
    "a number": b'{"op": "served", "hardware": 1}\n',
}


@pytest.mark.parametrize("text", REQUESTS.values(), ids=list(REQUESTS))
async def test_malformed_request_is_refused_with_a_reason(text: bytes, tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        pod = await sealed(node)
        assert (await pod.ask(text)).keys() == {"none"}
        assert "copied" in await node.pod("later").load(), "the agent goes on"


async def silent(pod: Pod) -> list[asyncio.StreamWriter]:
    """Open connections that send nothing. They reach the agent before any later connection of the pod."""
    return [(await asyncio.open_unix_connection(pod.config["agent"]))[1] for _ in range(20)]


async def test_silent_connections_block_only_their_own_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_server, "SILENCE", 60.0)  # longer than a busy machine needs for the next lines
    async with serving(tmp_path) as node:
        pod, other = await sealed(node), await sealed(node, "other", "other")
        held = await silent(pod)
        assert (await pod.load(attempts=1)).startswith("no compile cache: the agent of this node")
        assert "copied" in await other.load(attempts=1000)
        for writer in held:
            writer.close()
        monkeypatch.setattr(compile_server, "SILENCE", 0.5)
        assert "copied" in await pod.load(attempts=1000), "closed connections end"
        held = await silent(pod)
        assert "copied" in await pod.load(attempts=1000), "silent connections end"
        for writer in held:
            writer.close()


async def test_agent_without_a_budget_serves_no_cache(tmp_path: Path) -> None:
    async with serving(tmp_path, budget=0) as node:
        pod = node.pod("first")
        await node.look()
        assert "no agent of this node keeps compile caches" in await pod.load()


async def test_directory_without_a_usable_socket_does_not_affect_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as node:
        odd = node.pod("odd", digest="1" * 32)
        (odd.place.path / f".{SOCKET}").mkdir()
        await sealed(node)
        assert "cannot keep compile caches" in caplog.text


async def test_cache_is_not_served_after_three_starts_that_did_not_serve(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        await sealed(node)
        said = []
        for _ in range(4):
            for counter in node.pod("x").place.path.glob("*.loads"):
                os.utime(counter, (1, 1))  # the attempts are minutes apart
            said.append(await node.pod("later").load())
        assert [each.startswith("compile cache: copied") for each in said] == [True, True, True, False]
        assert "did not serve" in said[-1]


async def test_empty_linked_or_oversized_cache_is_not_sealed(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        pod = node.pod("first")
        await node.look()
        await pod.load()
        assert await pod.seal() == "no compile cache: the engine has compiled nothing"
        pod.compile(k=b"code")
        (pod.volume / "cache/link").symlink_to("/etc/shadow")
        assert "neither a folder nor a regular file" in await pod.seal()
        (pod.volume / "cache/link").unlink()
        pod.compile(large=b"x" * (2 << 20))
        assert "more than" in await pod.seal()
        assert not list(pod.place.path.glob("*.cache"))


async def test_restarted_pod_discards_a_partly_written_cache(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        pod = await sealed(node)
        (pod.volume / ".new").mkdir()
        pod.compile(torn=b"")
        await pod.load()
        assert pod.files == {"triton/k": b"code"} and not (pod.volume / ".new").exists()


async def test_recreated_namespace_gets_its_own_sockets(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        former = await sealed(node)
        moved = node.root / ".namespaces/.former/team.uid-1"
        moved.parent.mkdir()
        (node.root / ".namespaces/team").rename(moved)
        agent = Path(former.config["agent"]).parent
        agent.unlink()
        agent.symlink_to(moved / ".compile" / former.place.digest)  # the mount of a pod that still runs
        node.uids["team"] = "uid-of-another-owner"
        pod = node.pod("later")
        mark("team", "uid-of-another-owner", {node.root})
        assert await former.load() == "no compile cache: the namespace was created again"
        assert await former.compile(k=b"x").seal() == "no compile cache: the namespace was created again"
        await node.look()
        assert await pod.load() == "no compile cache: the node has no sealed compile cache of this engine yet"
        assert (await former.load()).startswith("no compile cache: the agent of this node does not answer")


async def test_number_of_sockets_per_namespace_is_limited(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        await node.look()  # removes what is beyond the bound, and does so again only after minutes
        for number in range(PLACES + 20):
            node.pod(str(number), digest=f"{number:032x}")
        other = node.pod("other", "other")
        await node.look()
        assert len(list((node.root / ".namespaces/team").rglob(SOCKET))) == PLACES
        assert await other.load() == "no compile cache: the node has no sealed compile cache of this engine yet"


async def test_repeated_requests_of_a_pod_cause_few_api_requests(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        pod = await sealed(node)
        asked = node.asked
        ends = time.monotonic() + 1.0
        while time.monotonic() < ends:
            with contextlib.suppress(ConnectionError):
                reader, writer = await asyncio.open_unix_connection(pod.config["agent"])
                writer.write(b"no request\n")
                await reader.read()
                writer.close()
        assert node.asked - asked <= compile_server.OF_NAMESPACE * (1.0 / compile_server.SLOT + 2)


async def test_namespace_with_an_unrecordable_uid_does_not_affect_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as node:
        node.pod("odd", "team")
        (node.root / ".namespaces/team").chmod(0o755)
        (node.root / ".namespaces/team/uid").symlink_to(node.root / "nowhere/uid")
        (node.root / ".namespaces/team/uid.new").mkdir()
        assert (await sealed(node, "other", "other")).files


async def test_unexpected_error_in_the_disk_scan_does_not_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as node:
        monkeypatch.setattr(node.server, "_found", lambda: 1 / 0)
        monkeypatch.setattr(compile_server, "MARK_EVERY", 0.01)
        running = asyncio.create_task(node.server.run())
        await asyncio.sleep(0.1)
        assert not running.done(), "an unexpected error ends nothing"
        running.cancel()
