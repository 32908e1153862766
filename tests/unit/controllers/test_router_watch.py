"""The operator asks the registries beside routers for two numbers, whatever else answers there."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.controllers.router_watch import PAGE, RouterWatch, read
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Pod, Ref, Strangers
from ome_operator.registry.metrics import RegistryMetrics
from tests.support.simulator import START

NOW = START.timestamp()
NAMES = st.sampled_from([f"{keys.STRANGERS}_total", keys.STRANGER_AT])
NUMBERS = st.floats() | st.integers() | st.from_regex(r"-?[0-9.e+-]{1,400}", fullmatch=True) | st.text(max_size=9)


def pod(ip: str = "127.0.0.1", component: str = "router", **metadata: Any) -> Pod:
    """Return a pod as the operator knows it."""
    labels = {"ome.io/inferenceservice": "svc", "component": component}
    return from_api.pod(
        {"metadata": {"namespace": "team", "name": "r", "uid": "u", "labels": labels, **metadata}, "status": {"podIP": ip}}
    )


class Page:
    """A server that stands in for the registry's port."""

    def __init__(self) -> None:
        self.answer = web.Response
        self.text, self.status, self.headers = "", 200, {}
        self.asked: list[dict[str, str]] = []
        self.news: list[Ref] = []
        self.pods = [pod()]
        self.watch: RouterWatch
        self.session: aiohttp.ClientSession

    async def handle(self, request: web.Request) -> web.Response:
        """Every path."""
        self.asked.append({"path": request.path, **request.headers})
        return web.Response(text=self.text, status=self.status, headers=self.headers)

    async def walk(self) -> dict[str, Strangers]:
        """Return what is known after a walk over all routers."""
        await self.watch.walk(self.session)
        return self.watch.of(self.pods)


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """Listening on loopback, on a free port."""
    item = Page()
    app = web.Application()
    app.router.add_get("/{path:.*}", item.handle)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        assert server.port is not None
        item.session = session
        item.watch = RouterWatch(lambda: item.pods, item.news.append, lambda: START, 60.0, server.port)
        yield item


def shown(count: int, at: float) -> str:
    """The page of a registry."""
    metrics = RegistryMetrics()
    metrics.count_foreign(count, at)
    return metrics.render(())


async def test_news_makes_the_service_dirty_once(page: Page) -> None:
    page.text = shown(0, NOW)
    assert await page.walk() == {} and not page.news
    page.text = shown(2, NOW - 5)
    assert await page.walk() == {"u": Strangers(2, NOW - 5)}
    assert page.news == [Ref("InferenceService", "team", "svc")] and page.watch.total == 2
    await page.walk()
    assert len(page.news) == 1
    page.text = shown(3, NOW)
    await page.walk()
    assert len(page.news) == 2 and page.watch.total == 3


async def test_it_asks_only_routers_that_have_an_address_and_shows_no_token(page: Page) -> None:
    page.pods = [pod(component="engine"), pod(ip=""), pod(deletionTimestamp="2026-01-01T00:00:00Z")]
    await page.walk()
    assert page.asked == []
    page.pods = [pod()]
    await page.walk()
    (asked,) = page.asked
    assert asked["path"] == "/metrics" and "Authorization" not in asked


HOSTILE: dict[str, tuple[int, str, dict[str, str]]] = {
    "no such page": (404, "", {}),
    "it wants a key": (401, "", {}),
    "elsewhere": (302, "", {"Location": "http://169.254.169.254/latest"}),
    "nothing": (200, "", {}),
    "another text": (200, "hello {{{ \n ome_registry_strangers_total", {}),
    "no number": (200, f"{keys.STRANGERS}_total NaN\n{keys.STRANGER_AT} NaN\n", {}),
    "an infinite number": (200, f"{keys.STRANGERS}_total +Inf\n{keys.STRANGER_AT} 1\n", {}),
    "a negative number": (200, f"{keys.STRANGERS}_total -4\n{keys.STRANGER_AT} 1\n", {}),
    "what the library's parser breaks at": (200, 'a{b="c",\t="d"} 1', {}),
    "a number without end": (200, f"{keys.STRANGERS}_total 1e{'9' * 5000}\n{keys.STRANGER_AT} {'9' * 9000}\n", {}),
    "without end": (200, "#" * (4 * PAGE) + "\n" + shown(5, NOW), {}),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_whatever_answers_costs_nothing(page: Page, case: str) -> None:
    page.status, page.text, page.headers = HOSTILE[case]
    assert await page.walk() == {} and not page.news and len(page.asked) == 1


async def test_a_pod_that_breaks_us_costs_itself_and_is_told_once(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever exception a pod causes, the other pods are asked, and the next walk begins."""
    page.text = shown(1, NOW)
    page.pods = [pod(ip=ip, uid=uid) for uid, ip in (("a", "127.0.0.1"), ("b", "127.0.0.1"))]
    heard = list[Ref]()

    def changed(ref: Ref) -> None:
        heard.append(ref)
        raise IndexError("string index out of range")

    watch = RouterWatch(lambda: page.pods, changed, lambda: START, 0.0, page.watch._port)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await watch.run()
    assert len(heard) == 2 and len(page.asked) > 4
    assert len([record for record in caplog.records if "cannot parse the response" in record.getMessage()]) == 1


@given(st.text() | st.builds("{} {}\n{} {}".format, NAMES, NUMBERS, NAMES, NUMBERS))
def test_any_text_is_two_numbers_or_nothing(text: str) -> None:
    found = read(text, NOW)
    assert found is None or (0 <= found.found < 2**53 and 0.0 <= found.at <= NOW)


async def test_what_is_gone_is_forgotten_and_who_does_not_answer_keeps_what_was_known(page: Page) -> None:
    page.text = shown(1, NOW)
    await page.walk()
    page.status = 500
    assert await page.walk() == {"u": Strangers(1, NOW)}
    page.pods = []
    await page.walk()
    assert page.watch.of([pod()]) == {}


def test_a_time_to_come_counts_as_now() -> None:
    assert read(shown(1, NOW + 1e12), NOW) == Strangers(1, NOW)
    assert read(shown(1, -1e300), NOW) == Strangers(1, 0.0)
