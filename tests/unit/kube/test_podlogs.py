"""Tests of logs over HTTP, with a server that sends lines in pieces of any length."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from ome_operator.kube import errors
from ome_operator.kube.podlogs import LogLine, Logs, LogWindow
from tests.support.answers import Handler, answers

AT = "2026-01-01T00:00:00Z"


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[Logs]:
    """Yield the logs of an API server that answers with this handler."""
    async with answers(handler, "GET", "/api/v1/namespaces/team/pods/{pod}/log") as connection:
        logs = Logs(connection)
        try:
            yield logs
        finally:
            await logs.close()


async def lines(logs: Logs, wanted: LogWindow) -> list[LogLine]:
    return [line async for line in logs.lines("team", "p", "main", wanted)]


async def test_log_lines_are_complete_however_they_are_chunked() -> None:
    parts = b"2026-01-01T00:00:00.1Z on", b"e\n2026-01-01T00:00:00.2Z tw\xc3", b"\xb6\r\n2026-01-01T00:00:00.3Z \n", b"x end"

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        return response

    async with serving(handler) as logs:
        found = await lines(logs, LogWindow())
    assert [line.text for line in found] == ["one", "twö", "", "end"]
    assert found[0].when == "2026-01-01T00:00:00.1Z"


@pytest.mark.parametrize(
    ("wanted", "query"),
    [
        (LogWindow(tail=5, since=60), {"tailLines": "5", "sinceSeconds": "60"}),
        (LogWindow(follow=True, since=60, since_time=AT), {"follow": "true", "sinceTime": AT}),
        (LogWindow(previous=True), {"previous": "true"}),
    ],
)
async def test_pod_log_request_contains_wanted_limits(wanted: LogWindow, query: dict[str, str]) -> None:
    asked: list[dict[str, str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(dict(request.query))
        return web.Response()

    async with serving(handler) as logs:
        assert await lines(logs, wanted) == []
    assert asked == [{"container": "main", "timestamps": "true", **query}]


GONE = {"reason": "NotFound", "details": {"name": "p", "kind": "pods"}}
KUBELET = {"reason": "NotFound", "details": {"name": "p", "kind": "pods/log"}}


@pytest.mark.parametrize(
    ("code", "more", "kind"),
    [
        (404, GONE, errors.NotFound),
        (404, KUBELET, errors.NotFound),
        (404, {}, errors.NotServed),
        (400, {}, errors.Invalid),
        (403, {}, errors.Forbidden),
    ],
)
async def test_log_refusal_contains_the_message_of_the_server(
    code: int, more: dict[str, Any], kind: type[errors.KubeError]
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": "container main is waiting to start", **more}, status=code)

    async with serving(handler) as logs:
        with pytest.raises(kind, match="waiting to start"):
            await lines(logs, LogWindow())


async def test_broken_log_stream_is_a_transient_error() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"2026-01-01T00:00:00Z one\n")
        assert request.transport is not None
        request.transport.close()
        return response

    async with serving(handler) as logs:
        with pytest.raises(errors.Transient, match="the log stream of p ended"):
            await lines(logs, LogWindow(follow=True))
