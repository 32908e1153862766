"""Tests of the registry when its router has changed or restarted."""

import asyncio
import socket
from pathlib import Path

import aiohttp
import pytest

from ome_operator import keys
from ome_operator.registry import loop
from ome_operator.registry.loop import Registry
from ome_operator.registry.records import LeaderState, RegistrySettings, RoleSpec
from ome_operator.registry.settings import SidecarSettings
from tests.unit.registry.test_clients import Server, server, session
from tests.unit.registry.test_pods import leader, pods

__all__ = ["server", "session"]


async def test_worker_forgotten_by_a_restarted_router_is_sent_again(
    server: Server, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("t")
    server.answers |= {"/workers": (200, {"workers": [], "worker_id": "7"}), "/workers/7": (200, {})}
    server.answers["/api/v1/namespaces/team/pods"] = 200, pods(leader())
    settings = RegistrySettings((RoleSpec("engine", "regular", 30000, 1, "p"),))
    registry = Registry(
        SidecarSettings(
            router=server.url,
            server=server.url,
            namespace="team",
            selector="",
            registry=settings,
            account=tmp_path,
            interval=0.1,
        ),
        session,
    )

    async def passes(number: int) -> int:
        for _ in range(number):
            await registry._pass()
        return sum(one[0] == "POST" for one in server.sent)

    assert await asyncio.wait_for(passes(3), 10) == 1
    del server.answers["/workers/7"]
    assert await asyncio.wait_for(passes(1), 10) == 2
    assert registry.is_alive()[0] and '"state": "adding"' in registry.workers()[1]


async def test_foreign_worker_is_counted_once_although_its_removal_fails(
    server: Server, session: aiohttp.ClientSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "token").write_text("t")
    server.answers["/api/v1/namespaces/team/pods"] = 200, pods(leader())
    server.answers["/workers"] = 200, {"workers": []}
    settings = RegistrySettings((RoleSpec("engine", "regular", 30000, 1, "p"),))
    urls = {"router": server.url, "server": server.url, "namespace": "team", "selector": ""}
    registry = Registry(SidecarSettings(**urls, registry=settings, account=tmp_path), session, lambda: 1234.0)
    await registry._pass()
    thief = {"id": "9", "url": "http://thief:1", "worker_type": "regular"}
    server.answers |= {"/workers": (200, {"workers": [thief]}), "/workers/9": (500, {})}
    for _ in range(3):
        await registry._pass()
    page = registry.metrics()[1]
    assert f"{keys.FOREIGN_WORKERS}_total 1.0" in page and f"{keys.FOREIGN_WORKER_AT} 1234.0" in page
    assert (
        caplog.text.count(
            "found a foreign worker, which is not a pod of this router's revision, in the router's list: "
            "http://thief:1 (regular)"
        )
        == 1
    )
    server.answers["/workers"] = 200, {"workers": []}
    await registry._pass()
    server.answers["/workers"] = 200, {"workers": [thief]}
    await registry._pass()
    assert f"{keys.FOREIGN_WORKERS}_total 2.0" in registry.metrics()[1], "the foreign worker appeared again"
    assert "thief" not in registry.metrics()[1] and "p-3" not in registry.metrics()[1]


@pytest.mark.parametrize(
    ("kinds", "listed", "has"),
    [
        (("prefill", "decode"), ("prefill", "decode"), True),
        (("prefill", "decode"), ("prefill", "prefill"), False),
        (("prefill", "decode"), (), False),
        (("regular",), ("regular",), True),
        (("regular",), (), False),
    ],
)
async def test_router_has_engines_if_it_lists_one_of_each_role(
    session: aiohttp.ClientSession, tmp_path: Path, kinds: tuple[str, ...], listed: tuple[str, ...], has: bool
) -> None:
    settings = RegistrySettings(tuple(RoleSpec(kind, kind, 30000, 1, kind) for kind in kinds))
    nowhere = {"router": "http://127.0.0.1:1", "server": "http://127.0.0.1:1", "namespace": "team", "selector": ""}
    registry = Registry(SidecarSettings(**nowhere, registry=settings, account=tmp_path), session)
    assert registry.has_engines() is None and not registry.is_starting(), "the pods are not known yet"
    registry._known = ()
    waiting = LeaderState("w", "w", "", kinds[0], "waiting", "", False, None)
    draining = waiting._replace(uid="d", state="draining")
    serving = [LeaderState("p", str(number), "", kind, "serving", "", True, 0) for number, kind in enumerate(listed)]
    registry._leaders = (draining, *serving)
    assert (registry.has_engines(), registry.is_starting()) == (has, bool(listed))
    registry._leaders = (waiting, *serving)
    assert (registry.has_engines(), registry.is_starting()) == (has, True)


async def test_occupied_port_does_not_end_the_registry(
    session: aiohttp.ClientSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        nowhere = {"router": "http://127.0.0.1:1", "server": "http://127.0.0.1:1", "namespace": "team", "selector": ""}
        port = taken.getsockname()[1]
        settings = SidecarSettings(
            **nowhere, registry=RegistrySettings(()), account=tmp_path, address="127.0.0.1", answer_port=port
        )
        assert await loop._answer(settings, Registry(settings, session)) is None
    assert "no request is answered while no engine runs" in caplog.text


async def test_router_list_is_read_repeatedly_until_it_contains_the_change(
    server: Server, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """After the registry has sent a change, it reads the router's list again and again until the list contains the change.
    It does so only after the first request, and for a few seconds: a router that cannot reach a worker may never list it.
    """
    (tmp_path / "token").write_text("t")
    server.answers |= {"/workers": (200, {"workers": [], "worker_id": "7"}), "/workers/7": (200, {})}
    server.answers["/api/v1/namespaces/team/pods"] = 200, pods(leader())
    settings, now = RegistrySettings((RoleSpec("engine", "regular", 30000, 1, "p"),)), [1000.0]
    urls = {"router": server.url, "server": server.url, "namespace": "team", "selector": ""}
    registry = Registry(SidecarSettings(**urls, registry=settings, account=tmp_path), session, lambda: now[0])
    pauses = []
    for _ in range(3):
        pauses.append(await registry._pass())
        now[0] += loop.SOON_LISTED - 1
    assert pauses == [loop.RETRY_SECONDS, loop.RETRY_SECONDS, 3.0]
    now[0] = 1000.0 + settings.retry
    assert await registry._pass() == loop.RETRY_SECONDS, "it was sent again"
    now[0] += 1.0
    assert await registry._pass() == 3.0, "the router does not list it soon"
    server.answers["/workers"] = 200, {"workers": [{"id": "7", "url": "http://10.0.0.3:30000", "worker_type": "regular"}]}
    assert await registry._pass() == 3.0
    server.answers["/workers"] = 200, {"workers": [], "worker_id": "7"}
    assert await registry._pass() == loop.RETRY_SECONDS
    now[0] += 1.0
    assert await registry._pass() == loop.RETRY_SECONDS, "the router listed it meanwhile"
