"""Tests of the pages in a real browser: Debian's Chromium, controlled by Playwright. If either is missing, the tests are
skipped with the reason.

With OME_E2E=1 (`make e2e`) the browser is installed if it is missing. With OME_SCREENSHOTS=1 the pictures of docs/ui.md are
written again.
"""

import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ome_local.realnode import requirements
from ome_operator.cli.live.board import ClusterPoller
from ome_operator.cli.ui import server
from ome_operator.cli.ui.feed import Feed
from ome_operator.cli.ui.server import ClusterSite, serve_site
from ome_operator.describe.actions import CommandBuilder
from tests.support import console
from tests.support.bodies import Cluster
from tests.support.heard import hear
from tests.support.parts import ROOT
from tests.support.waiting import wait_until

playwright = pytest.importorskip("playwright.async_api", reason="the package playwright is not installed")
KIMI = "/service/kimi-k2-instruct/kimi-k2-instruct"
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


def program() -> str | None:
    """Return the path of the browser, or None if it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module", autouse=True)
def chromium() -> None:
    if program() is None and os.environ.get("OME_E2E") and shutil.which("apt-get"):
        requirements.install(["chromium", "fonts-dejavu-core"])
    if program() is None:
        pytest.skip("there is no chromium on PATH (Debian: apt install chromium)")


class Browser:
    """A browser window with the pages of a cluster, and the errors that occurred in it."""

    def __init__(self, page: Any, base: str, cluster: Cluster) -> None:
        self.page, self.base, self.cluster = page, base, cluster
        self.asked: list[str] = []
        self.wrong: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda line: self.wrong.append(line.text) if line.type == "error" else None)
        page.on("dialog", lambda dialog: self.wrong.append(dialog.message))

    async def painted(self) -> float:
        """Return the milliseconds from the start of the navigation until something was painted. The browser records this
        time after the expected element appears. `wait_for_function` cannot wait for it: it repeats `eval`, which the Content
        Security Policy of the pages forbids.
        """
        first: list[float] = []

        async def recorded() -> bool:
            entries = "performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)"
            first[:] = await self.page.evaluate(entries)
            return bool(first)

        await wait_until(recorded, within=10)
        return first[0]

    async def open(self, path: str) -> None:
        await self.page.goto(self.base + path)
        await self.page.wait_for_selector(".live.on")

    async def wide(self) -> int:
        """Return the width of the page's content in pixels."""
        return int(await self.page.evaluate("document.documentElement.scrollWidth"))

    async def shown(self) -> list[str]:
        """Return the names of the services on the page."""
        return list(await self.page.locator("tr[data-state]:visible .c-name a").all_inner_texts())

    async def picture(self, name: str, *, whole: bool = False) -> None:
        """Save a screenshot for docs/ui.md if it was requested."""
        if os.environ.get("OME_SCREENSHOTS"):
            await self.page.screenshot(path=ROOT / f"docs/img/{name}.png", full_page=whole)


@asynccontextmanager
async def looking(cluster: Cluster, size: Any = WIDE, scheme: str = "light", **more: Any) -> AsyncIterator[Browser]:
    api = cluster.api()
    looker = ClusterPoller(api, "")
    site = ClusterSite(api, cluster.reads(), Feed(looker.poll, pause=0.2), CommandBuilder(), "https://k8s.example:6443")
    await site.feed.poll_once()
    async with serve_site(site, 0) as address, playwright.async_playwright() as engine:
        window = await engine.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        context = await window.new_context(viewport=size, color_scheme=scheme, locale="en-GB", **more)
        found = Browser(await context.new_page(), address.open.partition("/?")[0], cluster)
        try:
            await found.page.goto(address.ticket)
            await found.page.wait_for_selector(".live.on")
            assert found.page.url == f"{found.base}/", "the token is removed from the address"
            yield found
        finally:
            await window.close()
    assert found.wrong == []
    assert {url.partition("//")[2].partition("/")[0] for url in found.asked} == {found.base.partition("//")[2]}


async def test_browser_shows_services_service_and_nodes() -> None:
    async with looking(console.fleet(hostile=False)) as browser:
        assert (await browser.shown())[0] == "kimi-k2-instruct"
        await browser.picture("ui-services")
        await browser.page.click("text=kimi-k2-instruct >> nth=0")
        await browser.page.wait_for_selector("text=memory_pool.py")
        assert await browser.page.title() == "kimi-k2-instruct · ome"
        await browser.picture("ui-service")
        await browser.page.keyboard.press("n")
        await browser.page.wait_for_selector("text=GPUs on 24 nodes")
        await browser.picture("ui-nodes")


async def test_rollout_page_is_shown_in_dark_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FRESH", 0.0)
    async with looking(hear(console.fleet(hostile=False)), scheme="dark") as browser:
        ground = await browser.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert max(map(int, ground[4:-1].split(", "))) < 60
        await browser.open("/service/code/qwen3-coder")
        await browser.page.wait_for_selector("polyline >> nth=3", state="attached")  # a plot of zeros has a height of 0
        await browser.page.wait_for_timeout(6000 if os.environ.get("OME_SCREENSHOTS") else 0)
        await browser.picture("ui-rollout-dark")


DEMAND: dict[str, Any] = {
    "mode": "Recommend", "wanted": {"prefill": 2, "decode": 3, "routers": 1}, "hold": "NoRoom",
    "why": "9 requests/s arrive <i>",
    "decisions": [
        {"time": f"2026-11-28T10:0{at}:00Z", "prefill": 1 + at % 2, "decode": 1 + at // 3, "routers": 1} for at in range(10)
    ],
    "days": [
        {"day": f"2026-11-2{at}", "gpuHours": 384, "gpuHoursWanted": 300 + 20 * at, "requests": 100, "met": 60 + 5 * at,
         "metWanted": 100} for at in range(8)
    ],
}  # fmt: skip


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_the_demand_of_a_service_is_drawn(size: Any) -> None:
    fleet = console.fleet(hostile=False)
    body = next(one for one in fleet.objects["InferenceService"] if one["metadata"]["name"] == "deepseek-v3")
    body["status"]["scaling"] = DEMAND
    async with looking(fleet, size) as browser:
        await browser.open("/service/prod/deepseek-v3")
        section = browser.page.locator("#s-demand")
        decided = section.locator("figure", has_not_text="ready")
        assert await decided.count() == await decided.locator("polyline.other").count() == 5
        third = section.locator("figure", has_text="ready").locator("polyline.other").nth(2)
        await third.wait_for(state="attached")  # a horizontal line has no height, so it does not count as visible
        said = await section.inner_text()
        assert "0 (3)" in said and "NoRoom: The cluster has no nodes" in said and "9 requests/s arrive <i>" in said
        assert await browser.wide() <= size["width"]


@pytest.mark.parametrize("path", ["/", KIMI, "/nodes", "/service/zz-evil/hostile", "/service/code/qwen3-coder"])
async def test_phone_layout_scrolls_in_one_direction(path: str) -> None:
    async with looking(console.fleet(), PHONE) as browser:
        await browser.open(path)
        assert await browser.wide() <= PHONE["width"]


async def test_phone_page_screenshot_is_taken() -> None:
    async with looking(console.fleet(hostile=False), PHONE) as browser:
        await browser.picture("ui-phone")


async def test_texts_of_other_users_run_no_script() -> None:
    """Texts of other users run no script and load no address. The content security policy has to block nothing, so the
    browser's console is empty.
    """
    async with looking(console.fleet(kimi=False)) as browser:
        for path in ("/", "/service/zz-evil/hostile", "/nodes"):
            await browser.open(path)
            await browser.page.wait_for_timeout(500)
            assert "owned" not in await browser.page.title()
            assert await browser.page.locator("main img, main script").count() == 0
            assert await browser.page.get_by_text('<script>document.title="owned"</script>').count() > 0


async def test_pages_are_reached_by_keyboard() -> None:
    async with looking(console.fleet(hostile=False)) as browser:
        press = browser.page.keyboard.press
        await press("/")
        await browser.page.keyboard.type("minimax")
        assert await browser.shown() == ["minimax-m2"]
        await press("Escape")
        assert len(await browser.shown()) == 8
        await press("j")
        await press("j")
        assert await browser.page.evaluate("document.activeElement.textContent") == "glm-4-6"
        await press("k")
        await press("Enter")
        await browser.page.wait_for_url(f"**{KIMI}")
        await press("s")
        await browser.page.wait_for_url(f"{browser.base}/")
        await press("?")
        assert await browser.page.locator("#help").is_visible()
        await press("Escape")
        assert not await browser.page.locator("#help").is_visible()


async def test_state_filter_selects_services() -> None:
    async with looking(console.fleet(hostile=False)) as browser:
        await browser.page.click(".chip.ready")
        assert await browser.shown() == ["gpt-oss-120b", "llama-scout", "embedder"]
        await browser.page.click(".chip.ready")
        assert len(await browser.shown()) == 8


async def test_key_y_copies_command_to_clipboard() -> None:
    allowed = ["clipboard-read", "clipboard-write"]
    async with looking(console.fleet(hostile=False), permissions=allowed) as browser:
        await browser.open(KIMI)
        await browser.page.click(".actions .copy >> nth=0")
        await browser.page.wait_for_selector(".said.shown")
        said = await browser.page.evaluate("navigator.clipboard.readText()")
        assert said == "ome status kimi-k2-instruct -n kimi-k2-instruct -w"
        await browser.page.focus(".cause .copy")
        await browser.page.keyboard.press("y")
        await browser.page.wait_for_timeout(200)
        assert "--role decode --group 0 --previous" in await browser.page.evaluate("navigator.clipboard.readText()")


async def test_page_updates_keep_focus_filter_and_open_sections() -> None:
    """The page updates by itself and keeps what the user is looking at: the focus, the text in the filter, and open
    sections. The row of a deleted object disappears.
    """
    async with looking(console.fleet(hostile=False)) as browser:
        await browser.page.fill("#filter", "a")
        await browser.page.focus("#filter")
        browser.cluster.vanish("search")
        await browser.page.wait_for_selector("#r-search\\/embedder", state="detached")
        assert await browser.page.evaluate("document.activeElement.id") == "filter"
        assert await browser.page.input_value("#filter") == "a"
        await browser.open(KIMI)
        await browser.page.click(".group summary >> nth=1")
        browser.cluster.objects["InferenceService"][0]["status"]["runtime"] = "another-runtime"
        await browser.page.wait_for_selector("text=another-runtime")
        assert await browser.page.locator("details.group[open]").count() == 1
        browser.cluster.vanish("kimi-k2-instruct")
        await browser.page.wait_for_selector("text=There is no InferenceService kimi-k2-instruct")
        assert await browser.page.locator("#s-left").count() == 0


async def test_suspended_page_shows_its_age() -> None:
    """A page that is shown again, or whose polls have stopped, shows the age of its data. It is not called live until it
    has read the cluster.
    """
    async with looking(console.fleet(hostile=False)) as browser:
        live = browser.page.locator("#live")
        await browser.page.evaluate("dispatchEvent(new Event('pagehide'))")
        assert re.fullmatch(r"paused, as of [\d:]+, \ds ago", await live.inner_text())
        await browser.page.evaluate(
            "const now = Date.now; Date.now = () => now() + 60000; dispatchEvent(new Event('pageshow'))"
        )
        await playwright.expect(live).to_have_text(re.compile(r"^as of [\d:]+, 6\ds ago$"))
        assert await live.get_attribute("class") == "live wait"


async def test_page_with_a_thousand_pods_is_drawn_within_a_second(tmp_path: Path) -> None:
    async with looking(console.many(100, 1000)) as browser:
        for path in ("/", "/nodes", "/service/team/service-003"):
            times = []
            for _ in range(3):  # other programs on this machine may need the CPU
                await browser.open(path)
                times.append(await browser.painted())
            size = await browser.page.evaluate(
                "performance.getEntriesByType('navigation')[0].transferSize"
                " + performance.getEntriesByType('resource').filter((r) => r.initiatorType !== 'other')"
                ".reduce((sum, r) => sum + r.transferSize, 0)"
            )
            print(
                f"{path}: first paint after {min(times):.0f} ms ({', '.join(f'{time:.0f}' for time in times)}), {size} bytes"
            )
            assert min(times) < 1000 and size < 1_000_000
        await browser.open("/")
        assert len(await browser.shown()) == 100
        await browser.page.click(".chip.broken")
        assert len(await browser.shown()) == 10
