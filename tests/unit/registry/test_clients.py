"""Tests of how the registry reads responses, and of the requests that it sends to the router."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from ome_operator.registry.clients import PodLister, RouterClient, api_server
from ome_operator.registry.pods import UnexpectedAnswer
from ome_operator.registry.records import WantedWorker, Worker


class Server:
    """A server that returns the given answers and stores the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.sent: list[tuple[str, str, str, Any]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request for any path."""
        body = await request.json() if request.can_read_body else None
        self.sent.append((request.method, request.path, request.headers.get("Authorization", ""), body))
        status, answer = self.answers.get(request.path, (404, {"error": "no"}))
        return web.json_response(answer, status=status) if not isinstance(answer, str) else web.Response(text=answer)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Yield a server that listens on loopback."""
    one = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", one.handle)
    async with TestServer(app) as running:
        one.url = str(running.make_url("/"))
        yield one


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session, and close it afterwards."""
    async with aiohttp.ClientSession() as one:
        yield one


WORKER = {"id": "1", "url": "http://a:1", "worker_type": "prefill", "load": 2, "bootstrap_port": 8998}


async def test_router_client_lists_workers(server: Server, session: aiohttp.ClientSession) -> None:
    server.answers["/workers"] = 200, {"workers": [WORKER, {"id": "2", "url": "http://b:1", "worker_type": "decode"}]}
    assert await RouterClient(session, server.url, "").workers() == (
        Worker("1", "http://a:1", "prefill", 8998, 2),
        Worker("2", "http://b:1", "decode", None, 0),
    )


@pytest.mark.parametrize("answer", [(404, {}), (401, {}), (200, {}), (200, []), (200, {"workers": [{}]}), (200, "no JSON")])
async def test_invalid_worker_list_is_refused(
    server: Server, session: aiohttp.ClientSession, answer: tuple[int, Any]
) -> None:
    server.answers["/workers"] = answer
    with pytest.raises(UnexpectedAnswer):
        await RouterClient(session, server.url, "").workers()


async def test_router_client_adds_and_removes_workers(server: Server, session: aiohttp.ClientSession) -> None:
    server.answers |= {"/workers": (202, {"worker_id": "7"}), "/workers/7": (202, {})}
    router = RouterClient(session, server.url, "key", "for workers")
    await router.add(WantedWorker("http://a:1", "prefill", 8998, "p", "u"))
    await router.add(WantedWorker("http://b:1", "decode", None, "d", "v"))
    await router.remove(Worker("7", "http://c:1", "decode", None, 0))
    await router.remove(Worker("8", "http://d:1", "decode", None, 0))  # 404: the worker is gone
    first = {"url": "http://a:1", "worker_type": "prefill", "bootstrap_port": 8998, "api_key": "for workers"}
    second = {"url": "http://b:1", "worker_type": "decode", "api_key": "for workers"}
    assert server.sent[:3] == [
        ("POST", "/workers", "Bearer key", first),
        ("POST", "/workers", "Bearer key", second),
        ("DELETE", "/workers/7", "Bearer key", None),
    ]
    server.answers["/workers"] = 400, {"error": "bad"}
    with pytest.raises(UnexpectedAnswer, match="bad"):
        await router.add(WantedWorker("http://a:1", "prefill", 8998, "p", "u"))


async def test_worker_that_is_already_being_added_is_no_error(server: Server, session: aiohttp.ClientSession) -> None:
    """If the router is already adding a worker, adding it again is no error. For a URL that it already lists or is adding,
    smg 1.13.0 answers 409, and sglang-router 0.3.2 answers 202.
    """
    router = RouterClient(session, server.url, "")
    target = WantedWorker("http://a:1", "decode", None, "p", "u")
    server.answers["/workers"] = 202, {"worker_id": "7"}
    assert await router.add(target)
    server.answers["/workers"] = 409, {"error": {"code": "WORKER_CREATE_IN_PROGRESS"}}
    assert not await router.add(target)


async def test_response_without_worker_id_is_refused(server: Server, session: aiohttp.ClientSession) -> None:
    server.answers["/workers"] = 202, ["7"]
    with pytest.raises(UnexpectedAnswer, match="about http://a:1 contains no worker ID"):
        await RouterClient(session, server.url, "").add(WantedWorker("http://a:1", "decode", None, "p", "u"))


async def test_workers_do_not_get_the_key_of_the_control_plane(server: Server, session: aiohttp.ClientSession) -> None:
    """The registry never gives workers the key of the router's control plane as their API key. The router sends a worker's
    key with every prompt, and an engine, or anyone with its address, could redirect prompts with it.
    """
    server.answers["/workers"] = 202, {"worker_id": "7"}
    await RouterClient(session, server.url, "key").add(WantedWorker("http://a:1", "decode", None, "p", "u"))
    assert server.sent == [("POST", "/workers", "Bearer key", {"url": "http://a:1", "worker_type": "decode"})]


async def test_rejected_api_key_is_reported_as_such(server: Server, session: aiohttp.ClientSession) -> None:
    server.answers["/workers"] = 401, {}
    with pytest.raises(
        UnexpectedAnswer, match=r"rejects the registry's API key .if the Secret was replaced, delete this pod"
    ):
        await RouterClient(session, server.url, "old").workers()


async def test_restarted_router_has_forgotten_the_added_worker(server: Server, session: aiohttp.ClientSession) -> None:
    server.answers |= {"/workers": (202, {"worker_id": "7"}), "/workers/7": (200, {"job_status": {}})}
    router = RouterClient(session, server.url, "")
    await router.add(WantedWorker("http://a:1", "decode", None, "p", "u"))
    assert not await router.has_forgotten("http://a:1")
    del server.answers["/workers/7"]
    assert await router.has_forgotten("http://a:1")


async def test_token_is_read_again_for_each_request(server: Server, session: aiohttp.ClientSession, tmp_path: Path) -> None:
    server.answers["/api/v1/namespaces/team/pods"] = 200, {"kind": "PodList", "metadata": {}, "items": []}
    pods = PodLister(session, server.url, "team", "a=b", tmp_path, {})
    with pytest.raises(OSError, match="token"):
        await pods.list()
    for token in ("one", "two"):
        (tmp_path / "token").write_text(f"{token}\n")
        assert await pods.list() == ()
    assert [one[2] for one in server.sent] == ["Bearer one", "Bearer two"]
    server.answers.clear()
    with pytest.raises(UnexpectedAnswer, match="404"):
        await pods.list()


def test_api_server_address_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert api_server() == ""
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    for host, url in (("10.0.0.1", "https://10.0.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        assert api_server() == url
