"""Tests of reading pages of pods through the API server."""

import pytest
from aiohttp import web

from ome_operator.kube import podproxy
from ome_operator.kube.errors import Forbidden, KubeError, NotServed, TooLong, Transient
from ome_operator.kube.podproxy import PodPages
from tests.support.answers import answers


async def read(response: web.StreamResponse) -> str:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.path == "/api/v1/namespaces/team/pods/p-0:30000/proxy/metrics" and request.method == "GET"
        return response

    async with answers(answer) as connection:
        pages = PodPages(connection)
        try:
            return await pages.text("team", "p-0", 30000, "metrics")
        finally:
            await pages.close()


async def test_pod_proxy_returns_text_of_page() -> None:
    assert await read(web.Response(text="sglang:x 1\n")) == "sglang:x 1\n"
    assert await read(web.Response(body=b"\xff")) == "\ufffd"


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (lambda: web.json_response({"kind": "Status", "message": "no"}, status=403), Forbidden),
        (lambda: web.Response(status=404, text="no such page"), NotServed),
        (lambda: web.Response(status=302, headers={"Location": "http://elsewhere.example/"}), KubeError),
        (lambda: web.Response(status=500, text="{", content_type="application/json"), Transient),
        (lambda: web.Response(body=b"x" * (podproxy.LARGEST + 1)), TooLong),
    ],
)
async def test_pod_proxy_raises_error_without_page(response: "type[web.Response]", error: type[KubeError]) -> None:
    with pytest.raises(error):
        await read(response())
