"""Tests of who may see the pages: a browser on this machine that has the token, and no other website. No request changes the
cluster.
"""

import re

import aiohttp
import pytest

from tests.support import console
from tests.support.visitor import KIMI, visit_ui


async def test_token_is_exchanged_for_an_http_only_cookie() -> None:
    async with visit_ui(console.fleet(kimi=False, hostile=False), enter=False) as visitor:
        assert (await visitor.get("/"))[0] == 401
        async with visitor.session.get(visitor.address, allow_redirects=False) as answer:
            cookie, text = answer.headers["Set-Cookie"], await answer.text()
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Domain" not in cookie
        assert visitor.token not in cookie and visitor.token not in text
        assert "url=/" in text and "Services" in await visitor.page("/")


async def test_start_address_admits_a_single_browser(caplog: pytest.LogCaptureFixture) -> None:
    """The address with which the browser is started admits a single browser. If another user of the machine uses it first,
    the user is warned, and the other user loses access.
    """
    async with visit_ui(console.fleet(kimi=False, hostile=False), enter=False) as visitor:
        path = visitor.ticket.removeprefix(visitor.base)
        assert [(await visitor.get(path))[0] for _ in range(2)] == [200, 200], "the same browser may go back"
        assert (await visitor.get("/"))[0] == 200 and not caplog.text
        async with visitor.stream("/") as stream:
            await stream.wait_for_poll()
            async with aiohttp.ClientSession() as another, another.get(visitor.ticket) as answer:
                assert answer.status == 401
            assert "used the address of the started browser a second time" in caplog.text
            with pytest.raises(ValueError, match="Expecting value"):  # the stream has ended, so there is no JSON
                while True:
                    await stream.wait_for_poll()
        assert (await visitor.get("/"))[0] == (await visitor.get(path))[0] == 401
        await visitor.enter()
        assert (await visitor.get("/"))[0] == 200, "the printed address still works"


async def test_each_browser_has_its_own_session() -> None:
    async with visit_ui(console.fleet(kimi=False, hostile=False), enter=False) as visitor:
        cookies = set()
        for _ in range(2):
            async with aiohttp.ClientSession() as browser, browser.get(visitor.address) as answer:
                cookies.add(answer.headers["Set-Cookie"])
        assert len(cookies) == 2


@pytest.mark.parametrize("path", ["/", "/nodes", KIMI, "/live/", f"/live{KIMI}", "/static/ui.js", "/nothing"])
async def test_pages_without_the_cookie_are_refused(path: str) -> None:
    async with visit_ui(console.fleet(kimi=False, hostile=False), enter=False) as visitor:
        for asked in (path, f"{path}?token=", f"{path}?token=wrong"):
            status, text = await visitor.get(asked)
            assert status == 401 and "qwen" not in text
        port = visitor.base.rpartition(":")[2]
        status, _ = await visitor.get(path, Cookie=f"ome-ui-{port}={visitor.token}")
        assert status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost@evil.example"},
        {"Host": "[::2]"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://localhost:1"},
    ],
    ids=str,
)
async def test_foreign_host_names_and_origins_are_refused(headers: dict[str, str]) -> None:
    """A request is refused if it was sent to another name that resolves to this machine, or from a page of another website,
    even with the cookie and the token.
    """
    async with visit_ui(console.fleet(kimi=False, hostile=False)) as visitor:
        for path in ("/", f"/?token={visitor.token}", "/live/", "/static/ui.js"):
            assert (await visitor.get(path, **headers))[0] in (400, 403)


async def test_own_origin_and_loopback_names_are_accepted() -> None:
    async with visit_ui(console.fleet(kimi=False, hostile=False)) as visitor:
        port = visitor.base.rpartition(":")[2]
        assert (await visitor.get("/", Origin=visitor.base))[0] == 200
        assert (await visitor.get("/", Host=f"localhost:{port}"))[0] == 200
        assert (await visitor.get("/", Host="localhost:9999"))[0] == 200, "through a tunnel"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_ui_refuses_methods_that_write(method: str) -> None:
    async with visit_ui(console.fleet(kimi=False, hostile=False)) as visitor:
        assert (await visitor.session.request(method, f"{visitor.base}/")).status == 405


@pytest.mark.parametrize("path", ["/", "/nodes", "/service/code/qwen3-coder", "/live/", "/static/ui.css", "/nothing"])
async def test_every_response_has_a_strict_content_security_policy(path: str) -> None:
    async with visit_ui(console.fleet(kimi=False, hostile=False)) as visitor:
        headers = (await visitor.session.get(visitor.base + path)).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/%2e%2e%2fserver.py", "/static/ui.css/..", "/static/page.html"]
)
async def test_only_its_own_files_are_served(path: str) -> None:
    async with visit_ui(console.fleet(kimi=False, hostile=False)) as visitor:
        assert (await visitor.get(path))[0] == 404


async def test_login_redirect_leads_to_no_other_site() -> None:
    async with visit_ui(console.fleet(kimi=False, hostile=False)) as visitor:
        for path in ("//evil.example/", "/\\evil.example/", "/\\/evil.example/", "/%22%3E%3Cscript%3E", "/service/a'b/c"):
            _, text = await visitor.get(f"{path}?token={visitor.token}")
            assert not re.search(r"url=[/\\]{2}", text) and "<script" not in text and text.count('"') == 12
