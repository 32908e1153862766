"""Tests of the registry's responses while no engine runs, and of which requests it counts."""

from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from ome_operator.registry.unserved import RETRY_AFTER, UnservedRequests, app

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def answer(
    method: str, path: str, *, key: str = "", shown: str = "", starting: bool = False, data: Any = None
) -> tuple[int, dict[str, str], dict[str, Any], int]:
    """Return status, headers and error of a response, and the number of requests that were counted."""
    requests = UnservedRequests()
    headers = {"Authorization": f"Bearer {shown}"} if shown else {}
    async with (
        TestServer(app(requests, key, lambda: starting)) as server,
        aiohttp.ClientSession() as session,
        session.request(method, server.make_url(path), headers=headers, data=data) as response,
    ):
        body = {} if method == "HEAD" else (await response.json())["error"]
        return response.status, dict(response.headers), body, requests.total


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/generate", "/v1/embeddings", "/v1/responses", "/any/path"]
)
async def test_a_request_gets_503_with_retry_after_and_is_counted(path: str) -> None:
    status, headers, error, counted = await answer("POST", path, data=b"{}")
    assert (status, headers["Retry-After"], headers["Connection"], counted) == (503, str(RETRY_AFTER), "close", 1)
    assert headers["Content-Type"].startswith("application/json")
    assert (error["type"], error["code"], error["param"]) == ("server_error", "no_engine", None)
    assert "it is scaled to zero" in error["message"]


async def test_response_says_that_engines_are_starting() -> None:
    _, _, error, _ = await answer("POST", "/generate", starting=True)
    assert "its engines are starting" in error["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"), ("GET", "/health_generate"), ("GET", "/v1/models"), ("HEAD", "/"), ("GET", "/readiness"),
        ("GET", "/v1/chat/completions"), ("OPTIONS", "/v1/chat/completions"), ("POST", "/health"),
        ("POST", "/health_generate/"), ("GET", "/liveness"), ("PUT", "/generate"), ("DELETE", "/workers"),
    ],
)  # fmt: skip
async def test_health_checks_and_other_paths_are_not_counted_as_requests(method: str, path: str) -> None:
    status, _, _, counted = await answer(method, path)
    assert (status, counted) == (503, 0)


@pytest.mark.parametrize(
    ("shown", "status", "counted"), [("", 401, 0), ("wrong", 401, 0), ("secret", 503, 1), ("ß", 401, 0)]
)
async def test_request_without_the_router_key_is_not_counted(shown: str, status: int, counted: int) -> None:
    found = await answer("POST", "/generate", key="secret", shown=shown)
    assert (found[0], found[3]) == (status, counted)


async def test_request_with_a_large_body_gets_its_response() -> None:
    status, _, _, counted = await answer("POST", "/v1/chat/completions", data=b"x" * 8_000_000)
    assert (status, counted) == (503, 1)


def test_the_age_is_that_of_the_last_request() -> None:
    clock = Clock()
    requests = UnservedRequests(clock)
    assert requests.age is None
    requests.count(0)
    requests.count(-3)
    assert requests.age is None
    requests.count(2)
    clock.now += 7
    assert (requests.total, requests.age) == (2, 7)
