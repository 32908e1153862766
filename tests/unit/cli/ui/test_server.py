"""The pages over HTTP: who may see them, and what they show of a cluster that changes, refuses, or has hostile words."""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any

import aiohttp
import pytest

from ome_operator.cli.live.board import Looker
from ome_operator.cli.ui import server
from ome_operator.cli.ui.feed import SHARE, Feed
from ome_operator.cli.ui.server import STREAMS, Site, served
from ome_operator.describe.actions import Shell
from ome_operator.kube.errors import Forbidden, Transient
from tests.support import console
from tests.support.console import HOSTILE, Cluster
from tests.support.fake_api import FakeApi

KIMI = "/service/kimi-k2-instruct/kimi-k2-instruct"


class Visitor:
    """A browser without a screen."""

    def __init__(self, session: aiohttp.ClientSession, address: str, site: Site, api: FakeApi, looker: Looker) -> None:
        self.session, self.address, self.site, self.api, self.looker = session, address, site, api, looker
        self.base, _, self.token = address.partition("/?token=")

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
    """What the server sends, event by event."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.shown: dict[str, str] = {}
        """Section → HTML, as a page would have it by now."""

    async def look(self) -> dict[str, Any]:
        """Read on until the next look was told."""
        while True:
            async with asyncio.timeout(10):
                block = await self._answer.content.readuntil(b"\n\n")
            event, _, data = block.decode().strip().partition("\ndata: ")
            found = json.loads(data)
            if event == "event: look":
                return dict(found)
            self.shown[found["id"]] = found["html"]


@asynccontextmanager
async def visiting(cluster: Cluster, namespace: str = "", fallback: str = "", enter: bool = True) -> AsyncIterator[Visitor]:
    api = cluster.api()
    looker = Looker(api, namespace, fallback)
    site = Site(api, cluster.reads(), Feed(looker.look, pause=0.05), Shell(), "https://cluster.example")
    await site.feed.once()
    jar = aiohttp.CookieJar(unsafe=True)
    async with served(site, 0) as address, aiohttp.ClientSession(cookie_jar=jar) as session:
        found = Visitor(session, address, site, api, looker)
        if enter:
            await found.enter()
        yield found


class Parsed(HTMLParser):
    """Elements and attributes of a page, as a browser understands it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


# --- who may see it ---------------------------------------------------------------------------------------------------


async def test_the_token_is_traded_for_a_cookie_that_scripts_do_not_see() -> None:
    async with visiting(console.fleet(kimi=False, hostile=False), enter=False) as visitor:
        assert (await visitor.get("/"))[0] == 401
        async with visitor.session.get(visitor.address, allow_redirects=False) as answer:
            cookie, text = answer.headers["Set-Cookie"], await answer.text()
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Domain" not in cookie
        assert visitor.token not in cookie and visitor.token not in text
        assert "url=/" in text and "Services" in await visitor.page("/")


@pytest.mark.parametrize("path", ["/", "/nodes", KIMI, "/live/", f"/live{KIMI}", "/static/ui.js", "/nothing"])
async def test_without_the_cookie_there_is_nothing(path: str) -> None:
    async with visiting(console.fleet(kimi=False, hostile=False), enter=False) as visitor:
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
async def test_other_names_and_other_sites_are_refused(headers: dict[str, str]) -> None:
    """Even with cookie and token: a name that leads here by DNS, and a page of somebody else."""
    async with visiting(console.fleet(kimi=False, hostile=False)) as visitor:
        for path in ("/", f"/?token={visitor.token}", "/live/", "/static/ui.js"):
            assert (await visitor.get(path, **headers))[0] in (400, 403)


async def test_its_own_origin_and_the_names_of_loopback_are_served() -> None:
    async with visiting(console.fleet(kimi=False, hostile=False)) as visitor:
        port = visitor.base.rpartition(":")[2]
        assert (await visitor.get("/", Origin=visitor.base))[0] == 200
        assert (await visitor.get("/", Host=f"localhost:{port}"))[0] == 200
        assert (await visitor.get("/", Host="localhost:9999"))[0] == 200, "through a tunnel"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_nothing_can_be_changed(method: str) -> None:
    async with visiting(console.fleet(kimi=False, hostile=False)) as visitor:
        assert (await visitor.session.request(method, f"{visitor.base}/")).status == 405


@pytest.mark.parametrize("path", ["/", "/nodes", "/service/code/qwen3-coder", "/live/", "/static/ui.css", "/nothing"])
async def test_every_answer_forbids_what_is_not_its_own(path: str) -> None:
    async with visiting(console.fleet(kimi=False, hostile=False)) as visitor:
        headers = (await visitor.session.get(visitor.base + path)).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/%2e%2e%2fserver.py", "/static/ui.css/..", "/static/page.html"]
)
async def test_only_its_own_files_are_served(path: str) -> None:
    async with visiting(console.fleet(kimi=False, hostile=False)) as visitor:
        assert (await visitor.get(path))[0] == 404


async def test_the_way_in_leads_to_no_other_site() -> None:
    async with visiting(console.fleet(kimi=False, hostile=False)) as visitor:
        for path in ("//evil.example/", "/%22%3E%3Cscript%3E", "/service/a'b/c"):
            _, text = await visitor.get(f"{path}?token={visitor.token}")
            assert "url=//" not in text and "<script" not in text and text.count('"') == 12


# --- what it shows ----------------------------------------------------------------------------------------------------


async def test_the_worst_service_stands_first_with_its_rank_and_reason() -> None:
    async with visiting(console.fleet(hostile=False)) as visitor:
        text = await visitor.page("/")
    rows = re.findall(r'<tr id="r-([^"]+)"', text)
    assert rows[:2] == ["kimi-k2-instruct/kimi-k2-instruct", "research/glm-4-6"]
    assert "decode group 0 rank 7" in text and "CUDA out of memory" in text
    assert "wave 2 of 4" in text and "ome status runtime srt-qwen3-coder" in text


async def test_a_service_has_its_chain_its_last_words_and_what_to_type() -> None:
    async with visiting(console.fleet(hostile=False)) as visitor, visitor.stream(KIMI) as stream:
        await stream.look()
        left, right = stream.shown["left"], stream.shown["right"]
    chain = re.findall(r'<span class="k">(\w+)</span><span class="v">([^<]+)', left)
    assert [kind for kind, _ in chain[:7]] == ["service", "revision", "role", "group", "rank", "node", "reason"]
    assert [name for _, name in chain[2:7]] == ["decode", "0", "7", "h200-07", "CrashLoopBackOff"]
    assert "memory_pool.py" in left and "Back-off restarting failed container" in left
    assert "--role decode --group 0 --previous" in left
    assert "ome explain kimi-k2-instruct -n kimi-k2-instruct" in right and "the oldest that is kept" in right


async def test_nodes_show_groups_weights_and_who_waits() -> None:
    async with visiting(console.fleet(hostile=False)) as visitor:
        text = await visitor.page("/nodes")
    assert "192</b> GPUs on 24 nodes" in text and "cordoned" in text and "lost" in text
    assert "no space left on /raid" in text and "16/19 nodes" in text and "1240 MB/s" in text
    assert "minimax-m2" in text and "20 nodes: Insufficient nvidia.com/gpu" in text


@pytest.mark.parametrize("path", ["/", "/nodes", "/service/zz-evil/hostile"])
async def test_what_users_write_is_text(path: str) -> None:
    """In annotations, labels, messages, reasons, events, log lines, names of models and times."""
    async with visiting(console.fleet(kimi=False)) as visitor, visitor.stream(path) as stream:
        whole = await visitor.page(path)
        await stream.look()
        await asyncio.sleep(0.1)
        await stream.look()
        parts = "".join(stream.shown.values())
    assert "&lt;script&gt;" in whole and "&lt;script&gt;" in parts, "it is shown"
    for text in (whole, parts):
        assert "\u202e" not in text and "\x1b" not in text, "nothing turns around what follows it"
        elements = Parsed(text).elements
        scripts = [named for tag, named in elements if tag == "script"]
        assert scripts == ([{"src": "/static/ui.js", "defer": None}] if text is whole else [])
        assert not [tag for tag, _ in elements if tag in ("img", "iframe", "object", "style", "base")]
        for _, named in elements:
            assert not [name for name in named if name.startswith("on") or name == "style"]
            assert (named.get("href") or "/").startswith(("/", "#")), "javascript: is no address of ours"
            assert (named.get("src") or "/").startswith("/")


async def test_a_page_asks_nobody_else() -> None:
    async with visiting(console.fleet(hostile=False)) as visitor:
        for path in ("/", "/nodes", KIMI):
            for _, named in Parsed(await visitor.page(path)).elements:
                for name in ("href", "src", "action"):
                    assert (named.get(name) or "/").startswith(("/", "#")) and not (named.get(name) or "").startswith("//")
        for file in ("ui.css", "ui.js"):
            text = await visitor.page(f"/static/{file}")
            assert "http" not in text and "@import" not in text and "url(" not in text


async def test_commands_of_hostile_names_are_quoted() -> None:
    cluster = console.fleet(kimi=False, hostile=False)
    cluster.objects["InferenceService"][0]["metadata"]["name"] = "x; rm -rf ~"
    async with visiting(cluster) as visitor:
        text = await visitor.page("/service/code/x%3B%20rm%20-rf%20~")
    assert "ome explain &#39;x; rm -rf ~&#39; -n code" in text


# --- what changes -----------------------------------------------------------------------------------------------------


async def test_only_what_changed_is_sent_again() -> None:
    cluster = console.fleet(hostile=False)
    async with visiting(cluster) as visitor, visitor.stream("/") as stream:
        await stream.look()
        assert set(stream.shown) == {"summary", "waves", "services", "rights"}
        stream.shown.clear()
        await stream.look()
        assert stream.shown == {}
        cluster.objects["ClusterServingRuntime"][0]["status"]["rollout"]["done"] = 5
        visitor.looker.forget()
        await stream.look()
        await stream.look()
        assert set(stream.shown) == {"waves"} and "5 have it" in stream.shown["waves"]


async def test_a_namespace_that_vanishes_while_it_is_looked_at() -> None:
    cluster = console.fleet(hostile=False)
    async with visiting(cluster) as visitor, visitor.stream(KIMI) as stream:
        looked = await stream.look()
        assert looked["sections"] == ["head", "left", "right", "plots", "rights"]
        cluster.vanish("kimi-k2-instruct")
        while looked["sections"] != ["missing"]:
            looked = await stream.look()
        assert "There is no InferenceService kimi-k2-instruct in namespace kimi-k2-instruct" in stream.shown["missing"]
        assert looked["problem"] == ""
        assert (await visitor.get(KIMI))[0] == 404
        assert "kimi-k2" not in await visitor.page("/")


async def test_a_cluster_that_does_not_answer_keeps_the_last_view() -> None:
    cluster = console.fleet(hostile=False)
    async with visiting(cluster) as visitor, visitor.stream("/") as stream:
        before = (await stream.look())["at"]
        cluster.refused["InferenceService"] = Transient("connection refused <b>")
        looked = await stream.look()
        while not looked["problem"]:
            looked = await stream.look()
        assert looked["problem"] == "connection refused <b>" and looked["at"] >= before
        assert "kimi-k2-instruct" in await visitor.page("/") and "refused &lt;b&gt;" in await visitor.page("/")
        cluster.refused.clear()
        while looked["problem"]:
            looked = await stream.look()


async def test_a_body_that_nobody_expected_ends_nothing() -> None:
    cluster = console.fleet(kimi=False, hostile=False)
    async with visiting(cluster) as visitor, visitor.stream("/") as stream:
        await stream.look()
        cluster.objects["Pod"][0]["metadata"] = "no map"  # type: ignore[assignment]
        looked = await stream.look()
        while not looked["problem"]:
            looked = await stream.look()
        assert "qwen3-coder" in await visitor.page("/")


async def test_a_kubeconfig_without_rights_gets_sentences() -> None:
    """Nodes, records, events and what is cluster-wide are missing; services are shown."""
    cluster = console.fleet(hostile=False)
    for kind in ("Node", "NodeModels", "Event", "ClusterServingRuntime", "ControllerRevision"):
        cluster.refused[kind] = Forbidden(f'{kind} is forbidden: User "eve" cannot list resource', 403)
    async with visiting(cluster) as visitor:
        assert "Your rights do not reach controllerrevisions, nodes" in await visitor.page("/")
        assert "Nodes cannot be read" in await visitor.page("/nodes") and "decode 0" in await visitor.page("/nodes")
        async with visitor.stream(KIMI) as stream:
            await stream.look()
            assert "Events cannot be read: Event is forbidden" in stream.shown["left"]


async def test_who_may_read_a_single_namespace_sees_that() -> None:
    cluster = console.fleet(hostile=False)
    api = cluster.api()
    everything = api.answers["list_objects"]

    def only(call: Any) -> Any:
        return everything(call) if call.namespace == "code" else Forbidden("services at the cluster scope", 403)

    api.answers["list_objects"] = only
    board = await Looker(api, "", fallback="code").look()
    assert [name for _, name in board.trees] == ["qwen3-coder"] and board.namespace == "code"
    with pytest.raises(Forbidden):
        await Looker(api, "", fallback="chat").look()


async def test_without_any_rights_the_page_says_so() -> None:
    cluster = console.fleet(kimi=False, hostile=False)
    cluster.refused["InferenceService"] = Forbidden('inferenceservices.ome.io is forbidden: User "eve"', 403)
    async with visiting(cluster) as visitor:
        text = await visitor.page("/")
    assert "User &#34;eve&#34;" in text and "asked again" in text


async def test_an_empty_cluster_says_what_to_do() -> None:
    async with visiting(Cluster()) as visitor:
        assert "There is no InferenceService in this cluster" in await visitor.page("/")
        assert "No node has GPUs" in await visitor.page("/nodes")


async def test_it_writes_nothing_and_looks_only_while_somebody_does() -> None:
    async with visiting(console.fleet(hostile=False)) as visitor:
        async with visitor.stream(KIMI) as stream:
            for _ in range(3):
                await stream.look()
        await asyncio.sleep(0.5)
        assert visitor.site.feed.viewers == 0
        seen = visitor.site.feed.number
        await asyncio.sleep(0.3)
        assert visitor.site.feed.number == seen, "nobody looks"
        await visitor.page("/")
        await asyncio.sleep(0.2)
        assert visitor.site.feed.number > seen
        assert {call.verb for call in visitor.api.calls} == {"list_objects"}


async def test_what_changes_seldom_is_read_seldom() -> None:
    cluster = console.fleet(hostile=False)
    api = cluster.api()
    looker = Looker(api, "")
    for _ in range(5):
        await looker.look()
    assert (api.kinds("list_objects").count("Pod"), api.kinds("list_objects").count("Node")) == (5, 1)


async def test_open_pages_are_bounded() -> None:
    async with visiting(console.fleet(kimi=False, hostile=False)) as visitor:
        visitor.site.feed.viewers = STREAMS
        assert (await visitor.get("/live/"))[0] == 503


async def test_traffic_is_plotted_where_rights_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FRESH", 0.0)
    async with visiting(console.fleet(hostile=False)) as visitor, visitor.stream("/service/code/qwen3-coder") as stream:
        for _ in range(4):
            await stream.look()
        assert "<polyline" in stream.shown["plots"] and "Tokens generated <b>" in stream.shown["plots"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            Forbidden('pods "x" is forbidden: cannot get resource "pods/proxy" <i>', 403),
            "rights do not reach pods&#39; metrics",
        ),
        (Transient("metrics of x: HTTP 404"), "--enable-metrics"),
        (None, "connection refused"),
    ],
    ids=("forbidden", "none", "refused"),
)
async def test_where_metrics_cannot_be_read_a_sentence_says_so(answer: Exception | None, said: str) -> None:
    cluster = console.fleet(hostile=False)
    cluster.metrics = {} if answer is None else dict.fromkeys(cluster.metrics, answer)
    async with visiting(cluster) as visitor, visitor.stream("/service/code/qwen3-coder") as stream:
        await stream.look()
        assert said in stream.shown["plots"] and "<svg" not in stream.shown["plots"] and "<i>" not in stream.shown["plots"]


# --- how large it is --------------------------------------------------------------------------------------------------


async def test_a_hundred_services_with_a_thousand_pods_fit_and_come_quickly() -> None:
    """Below 1 MB; the server's part of the first paint is a fraction of a second."""
    cluster = console.many(100, 1000)
    async with visiting(cluster) as visitor:
        loop = asyncio.get_running_loop()
        for path in ("/", "/nodes", "/service/team/service-003"):
            before = loop.time()
            text = await visitor.page(path)
            assert len(text.encode()) < 500_000 and loop.time() - before < 2.0, path
        assert (await visitor.page("/")).count('<tr id="r-') == 100
        assert re.search(r"<b>10</b> broken", await visitor.page("/"))


async def test_a_service_of_a_thousand_pods_fits() -> None:
    cluster = console.many(1, 1000)
    async with visiting(cluster) as visitor:
        assert 100_000 < len((await visitor.page("/service/team/service-000")).encode()) < 1_000_000


async def test_a_look_that_takes_long_makes_a_longer_pause() -> None:
    looks = list[float]()

    async def look() -> Any:
        looks.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.1)
        raise Transient("slow")

    feed = Feed(look, pause=0.0)
    feed.viewers = 1
    running = asyncio.create_task(feed.run())
    await asyncio.sleep(1.3)
    running.cancel()
    assert all(later - sooner >= 0.1 * (1 + SHARE) for sooner, later in itertools.pairwise(looks)) and len(looks) > 1


def test_the_hostile_words_are_hostile() -> None:
    assert "<script>" in HOSTILE and "\u202e" in HOSTILE and "\x1b" in HOSTILE
