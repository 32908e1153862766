"""A headless browser for the pages of `ome ui`."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from ome_operator.cli.live.board import ClusterPoller
from ome_operator.cli.ui.feed import Feed
from ome_operator.cli.ui.server import Address, ClusterSite, serve_site
from ome_operator.describe.actions import CommandBuilder
from tests.support.bodies import Cluster
from tests.support.fake_api import FakeApi

KIMI = "/service/kimi-k2-instruct/kimi-k2-instruct"


class Visitor:
    """A headless browser."""

    def __init__(
        self, session: aiohttp.ClientSession, address: Address, site: ClusterSite, api: FakeApi, looker: ClusterPoller
    ) -> None:
        self.session, self.address, self.site, self.api, self.looker = session, address.open, site, api, looker
        self.ticket = address.ticket
        self.base, _, self.token = address.open.partition("/?token=")

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.get(self.base + path, headers=named, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def page(self, path: str) -> str:
        status, text = await self.get(path)
        assert status == 200, text
        return text

    async def enter(self) -> None:
        async with self.session.get(self.address) as answer:
            assert answer.status == 200

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator["Stream"]:
        async with self.session.get(f"{self.base}/live{path}") as answer:
            assert answer.status == 200 and answer.content_type == "text/event-stream"
            yield Stream(answer)


class Stream:
    """The server-sent events of a page, one by one."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.shown: dict[str, str] = {}
        """Section → its current HTML, as a page would show it."""

    async def wait_for_section(self, section: str, text: str) -> str:
        """Read events until the section contains this text, and return the HTML of the section."""
        while text not in self.shown.get(section, ""):
            await self.wait_for_poll()
        return self.shown[section]

    async def wait_for_poll(self) -> dict[str, Any]:
        """Read events until the page reports its next poll of the cluster, and return this report."""
        while True:
            async with asyncio.timeout(10):
                block = await self._answer.content.readuntil(b"\n\n")
            event, _, data = block.decode().strip().partition("\ndata: ")
            found = json.loads(data)
            if event == "event: look":
                return dict(found)
            self.shown[found["id"]] = found["html"]


@asynccontextmanager
async def visit_ui(cluster: Cluster, namespace: str = "", fallback: str = "", enter: bool = True) -> AsyncIterator[Visitor]:
    api = cluster.api()
    looker = ClusterPoller(api, namespace, fallback)
    site = ClusterSite(api, cluster.reads(), Feed(looker.poll, pause=0.05), CommandBuilder(), "https://cluster.example")
    await site.feed.poll_once()
    jar = aiohttp.CookieJar(unsafe=True)
    async with serve_site(site, 0) as address, aiohttp.ClientSession(cookie_jar=jar) as session:
        found = Visitor(session, address, site, api, looker)
        if enter:
            await found.enter()
        yield found
