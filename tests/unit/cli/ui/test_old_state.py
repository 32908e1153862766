"""Tests of what the pages of `ome ui` say about a state that is old: after a pause of the page, or of a dead operator."""

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ome_operator.cli.ui import feed
from tests.support import console
from tests.support.visitor import Visitor, visit_ui
from tests.support.waiting import wait_until


async def paused(visitor: Visitor) -> None:
    """Wait until polling has stopped, because no page is open."""

    async def stopped() -> bool:
        return visitor.site.feed._paused

    await wait_until(stopped, within=10)


async def test_first_page_after_a_pause_shows_the_current_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PATIENCE", 30.0)  # a busy machine may need more than the default for a poll
    cluster = console.fleet(hostile=False)
    async with visit_ui(cluster) as visitor:
        await paused(visitor)
        cluster.vanish("search")
        assert "embedder" not in await visitor.page("/")
        await paused(visitor)
        cluster.vanish("code")
        async with visitor.stream("/") as stream:
            await stream.wait_for_poll()
            assert "qwen3-coder" not in stream.shown["services"]


async def test_page_that_times_out_shows_the_age_of_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PATIENCE", 0.1)
    async with visit_ui(console.fleet(hostile=False)) as visitor:
        await paused(visitor)
        board, hung = visitor.site.feed.board, asyncio.Event()
        assert board is not None
        visitor.site.feed.board = replace(board, at=board.at - timedelta(minutes=5))
        monkeypatch.setattr(visitor.site.feed, "_look", hung.wait)
        text = await visitor.page("/")
        assert "kimi-k2-instruct" in text and re.search(r"connecting, read <time [^>]*>5m</time> ago", text)


async def test_dead_operator_is_named_and_contradicted_services_are_outdated() -> None:
    """The page applies the rule of `ome status`: services whose pods contradict the condition Ready are Outdated."""
    cluster = console.fleet(kimi=False, hostile=False)
    renewed = datetime.now(UTC) - timedelta(minutes=10)
    lease = {"holderIdentity": "pod", "leaseDurationSeconds": 15, "renewTime": renewed.isoformat()}
    cluster.add("Lease", {"metadata": {"name": "ome-operator", "namespace": "ome"}, "spec": lease})
    for pod in cluster.objects["Pod"]:
        if pod["metadata"]["namespace"] == "search":
            pod["status"]["conditions"][-1]["status"] = "False"
    said = "No operator has renewed its Lease for 10 min, so the status may be outdated."
    async with visit_ui(cluster) as visitor:
        for path in ("/", "/nodes", "/service/search/embedder"):
            assert (await visitor.page(path)).count(said) == 1, path
        assert re.search(r'id="r-search/embedder" class="starting".*?<b>Outdated</b>', await visitor.page("/"), re.DOTALL)
        lease["renewTime"] = datetime.now(UTC).isoformat()
        visitor.looker.discard_cached_kinds()
        async with visitor.stream("/") as stream:
            await stream.wait_for_poll()
            while "operator" in (await stream.wait_for_poll())["sections"]:
                pass
            assert "Outdated" not in stream.shown["services"]
