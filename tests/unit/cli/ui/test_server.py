"""Tests of the pages over HTTP, with a cluster that changes, that refuses requests, or that contains hostile texts."""

import asyncio
import itertools
import re
import time
from html.parser import HTMLParser
from typing import Any

import pytest

from ome_operator.cli.live.board import ClusterPoller
from ome_operator.cli.ui import server
from ome_operator.cli.ui.feed import SHARE, Feed
from ome_operator.cli.ui.server import STREAMS
from ome_operator.kube.errors import Forbidden, Transient
from tests.support import console
from tests.support.bodies import Cluster, ago
from tests.support.console import HOSTILE
from tests.support.heard import hear
from tests.support.visitor import KIMI, visit_ui
from tests.support.waiting import wait_until


class Parsed(HTMLParser):
    """The elements and attributes of a page, as a browser parses it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


# --- what it shows ----------------------------------------------------------------------------------------------------


async def test_services_are_sorted_by_severity_with_rank_and_reason() -> None:
    async with visit_ui(console.fleet(hostile=False)) as visitor:
        text = await visitor.page("/")
    rows = re.findall(r'<tr id="r-([^"]+)"', text)
    assert rows[:2] == ["kimi-k2-instruct/kimi-k2-instruct", "research/glm-4-6"]
    assert "decode group 0 rank 7" in text and "CUDA out of memory" in text
    assert "wave 2 of 4" in text and "ome status runtime srt-qwen3-coder" in text


async def test_service_page_shows_causes_last_log_lines_and_commands() -> None:
    async with visit_ui(console.fleet(hostile=False)) as visitor, visitor.stream(KIMI) as stream:
        left = await stream.wait_for_section("left", "memory_pool.py")
        right = stream.shown["right"]
    chain = re.findall(r'<span class="k">(\w+)</span><span class="v">([^<]+)', left)
    assert [kind for kind, _ in chain[:7]] == ["service", "revision", "role", "group", "rank", "node", "reason"]
    assert [name for _, name in chain[2:7]] == ["decode", "0", "7", "h200-07", "CrashLoopBackOff"]
    assert "memory_pool.py" in left and "Back-off restarting failed container" in left
    assert "--role decode --group 0 --previous" in left
    assert "ome explain kimi-k2-instruct -n kimi-k2-instruct" in right and "the oldest stored revision" in right


async def test_nodes_page_shows_groups_weights_and_waiting_services() -> None:
    async with visit_ui(console.fleet(hostile=False)) as visitor:
        text = await visitor.page("/nodes")
    assert "192</b> GPUs on 24 nodes" in text and "cordoned" in text and "lost" in text
    assert "no space left on /raid" in text and "16/19 nodes" in text and "1240 MB/s" in text
    assert "minimax-m2" in text and "20 nodes: Insufficient nvidia.com/gpu" in text
    assert "Free GPUs are those that no pod of these services uses" in text and "replaces" not in text


async def test_nodes_page_shows_leaving_and_arriving_groups() -> None:
    cluster = console.fleet(kimi=False, hostile=False)
    body = next(each for each in cluster.objects["InferenceService"] if each["metadata"]["name"] == "llama-scout")
    revision = body["status"]["revision"].rpartition("→")[2]
    move = {"component": "engine", "revision": revision, "group": 0, "phase": "Replacing", "replacement": "1"}
    body["status"]["moves"] = [{**move, "since": ago(minutes=1), "node": "h200-19", "cause": "taint <b>x"}]
    body["spec"]["moves"] = {}
    async with visit_ui(cluster) as visitor:
        text = await visitor.page("/nodes")
    assert "leaves</span>" in text and "replaces engine 0</span>" in text
    assert "taint &lt;b&gt;x), Replacing: its replacement, engine 1, is starting on h200-" in text


@pytest.mark.parametrize("path", ["/", "/nodes", "/service/zz-evil/hostile"])
async def test_user_texts_are_never_interpreted_as_html(path: str) -> None:
    """Texts that users write are shown as text and never interpreted: annotations, labels, messages, reasons, events, log
    lines, names of models, and times.
    """
    async with visit_ui(console.fleet(kimi=False)) as visitor, visitor.stream(path) as stream:
        whole = await visitor.page(path)
        await stream.wait_for_poll()
        await asyncio.sleep(0.1)
        await stream.wait_for_poll()
        parts = "".join(stream.shown.values())
    assert "&lt;script&gt;" in whole and "&lt;script&gt;" in parts, "the text is shown"
    for text in (whole, parts):
        assert "\u202e" not in text and "\x1b" not in text, "no control character reverses the following text"
        elements = Parsed(text).elements
        scripts = [named for tag, named in elements if tag == "script"]
        assert scripts == ([{"src": "/static/ui.js", "defer": None}] if text is whole else [])
        assert not [tag for tag, _ in elements if tag in ("img", "iframe", "object", "style", "base")]
        for _, named in elements:
            assert not [name for name in named if name.startswith("on") or name == "style"]
            assert (named.get("href") or "/").startswith(("/", "#")), "links with javascript: are removed"
            assert (named.get("src") or "/").startswith("/")


async def test_pages_load_no_external_resources() -> None:
    async with visit_ui(console.fleet(hostile=False)) as visitor:
        for path in ("/", "/nodes", KIMI):
            for _, named in Parsed(await visitor.page(path)).elements:
                for name in ("href", "src", "action"):
                    assert (named.get(name) or "/").startswith(("/", "#")) and not (named.get(name) or "").startswith("//")
        for file in ("ui.css", "ui.js"):
            text = await visitor.page(f"/static/{file}")
            assert "http" not in text and "@import" not in text and "url(" not in text


async def test_names_in_displayed_commands_are_quoted() -> None:
    cluster = console.fleet(kimi=False, hostile=False)
    cluster.objects["InferenceService"][0]["metadata"]["name"] = "x; rm -rf ~"
    async with visit_ui(cluster) as visitor:
        text = await visitor.page("/service/code/x%3B%20rm%20-rf%20~")
    assert "ome explain &#39;x; rm -rf ~&#39; -n code" in text


# --- what changes -----------------------------------------------------------------------------------------------------


async def test_only_changed_sections_are_sent_again() -> None:
    cluster = console.fleet(hostile=False)
    async with visit_ui(cluster) as visitor, visitor.stream("/") as stream:
        await stream.wait_for_poll()
        assert set(stream.shown) == {"summary", "waves", "services", "rights"}
        stream.shown.clear()
        await stream.wait_for_poll()
        assert stream.shown == {}
        cluster.objects["ClusterServingRuntime"][0]["status"]["rollout"]["done"] = 5
        visitor.looker.discard_cached_kinds()
        await stream.wait_for_poll()
        await stream.wait_for_poll()
        assert set(stream.shown) == {"waves"} and "5 have the edit" in stream.shown["waves"]


async def test_deletion_of_the_viewed_namespace_is_shown() -> None:
    cluster = console.fleet(hostile=False)
    async with visit_ui(cluster) as visitor, visitor.stream(KIMI) as stream:
        looked = await stream.wait_for_poll()
        assert looked["sections"] == ["head", "left", "right", "plots", "rights"]
        cluster.vanish("kimi-k2-instruct")
        while looked["sections"] != ["missing"]:
            looked = await stream.wait_for_poll()
        assert "There is no InferenceService kimi-k2-instruct in namespace kimi-k2-instruct" in stream.shown["missing"]
        assert looked["problem"] == ""
        assert (await visitor.get(KIMI))[0] == 404
        assert "kimi-k2" not in await visitor.page("/")


async def test_last_view_is_kept_while_the_cluster_does_not_respond() -> None:
    cluster = console.fleet(hostile=False)
    async with visit_ui(cluster) as visitor, visitor.stream("/") as stream:
        before = (await stream.wait_for_poll())["at"]
        cluster.refused["InferenceService"] = Transient("connection refused <b>")
        looked = await stream.wait_for_poll()
        while not looked["problem"]:
            looked = await stream.wait_for_poll()
        assert looked["problem"] == "connection refused <b>" and looked["at"] >= before
        assert "kimi-k2-instruct" in await visitor.page("/") and "refused &lt;b&gt;" in await visitor.page("/")
        cluster.refused.clear()
        while looked["problem"]:
            looked = await stream.wait_for_poll()


async def test_unexpected_object_body_does_not_end_the_page() -> None:
    cluster = console.fleet(kimi=False, hostile=False)
    async with visit_ui(cluster) as visitor, visitor.stream("/") as stream:
        await stream.wait_for_poll()
        cluster.objects["Pod"][0]["metadata"] = "no map"  # type: ignore[assignment]
        looked = await stream.wait_for_poll()
        while not looked["problem"]:
            looked = await stream.wait_for_poll()
        assert "qwen3-coder" in await visitor.page("/")


async def test_missing_permissions_are_shown_as_sentences() -> None:
    """A user who may not read nodes or events still sees the services, and a message that says what cannot be read."""
    cluster = console.fleet(hostile=False)
    for kind in ("Node", "NodeModels", "Event", "ClusterServingRuntime", "ControllerRevision"):
        cluster.refused[kind] = Forbidden(f'{kind} is forbidden: User "eve" cannot list resource', 403)
    async with visit_ui(cluster) as visitor:
        assert "You may not read controllerrevisions, nodes" in await visitor.page("/")
        assert "Nodes cannot be read" in await visitor.page("/nodes") and "decode 0" in await visitor.page("/nodes")
        async with visitor.stream(KIMI) as stream:
            await stream.wait_for_section("left", "Events cannot be read: Event is forbidden")


async def test_user_with_access_to_one_namespace_sees_that_namespace() -> None:
    cluster = console.fleet(hostile=False)
    api = cluster.api()
    everything = api.answers["list_objects"]

    def only(call: Any) -> Any:
        return everything(call) if call.namespace == "code" else Forbidden("services at the cluster scope", 403)

    api.answers["list_objects"] = only
    board = await ClusterPoller(api, "", fallback="code").poll()
    assert [name for _, name in board.trees] == ["qwen3-coder"] and board.namespace == "code"
    with pytest.raises(Forbidden):
        await ClusterPoller(api, "", fallback="chat").poll()


async def test_page_reports_that_services_cannot_be_read() -> None:
    cluster = console.fleet(kimi=False, hostile=False)
    cluster.refused["InferenceService"] = Forbidden('inferenceservices.ome.io is forbidden: User "eve"', 403)
    async with visit_ui(cluster) as visitor:
        text = await visitor.page("/")
    assert "User &#34;eve&#34;" in text and "tries again" in text


async def test_empty_cluster_page_states_next_steps() -> None:
    async with visit_ui(Cluster()) as visitor:
        assert "There is no InferenceService in this cluster" in await visitor.page("/")
        assert "No node has GPUs" in await visitor.page("/nodes")


async def test_ui_only_reads_and_only_while_a_page_is_open() -> None:
    async with visit_ui(console.fleet(hostile=False)) as visitor:
        async with visitor.stream(KIMI) as stream:
            for _ in range(3):
                await stream.wait_for_poll()

        feed, seen = visitor.site.feed, 0

        async def is_paused() -> bool:
            return feed.viewers == 0 and feed._paused

        async def has_polled() -> bool:
            return feed.number > seen

        await wait_until(is_paused, within=30)
        seen = feed.number
        await asyncio.sleep(0.3)
        assert feed.number == seen, "no page is open"
        await visitor.page("/")
        await wait_until(has_polled, within=30)
        assert {call.verb for call in visitor.api.calls} == {"list_objects"}


async def test_rarely_changing_objects_are_read_rarely() -> None:
    cluster = console.fleet(hostile=False)
    api = cluster.api()
    looker = ClusterPoller(api, "")
    for _ in range(5):
        await looker.poll()
    # The pods of the agents are read as seldom as nodes.
    assert (api.kinds("list_objects").count("Pod"), api.kinds("list_objects").count("Node")) == (6, 1)


async def test_number_of_open_pages_is_limited() -> None:
    async with visit_ui(console.fleet(kimi=False, hostile=False)) as visitor:
        visitor.site.feed.viewers = STREAMS
        assert (await visitor.get("/live/"))[0] == 503


async def test_traffic_is_plotted_if_permissions_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FRESH", 0.0)
    cluster = hear(console.fleet(hostile=False))
    async with visit_ui(cluster) as visitor, visitor.stream("/service/code/qwen3-coder") as stream:
        await stream.wait_for_section("plots", "<polyline")
        assert "Tokens generated <b>" in stream.shown["plots"] and "<b>0.4-0.6s</b>" in stream.shown["plots"]


async def test_services_page_shows_stored_numbers_with_their_time() -> None:
    cluster = console.fleet(hostile=False)
    roles = [{"name": "engine", "leaders": 3, "withLoad": 3, "withWork": 3, "running": 7, "waiting": 2}]
    for body in cluster.objects["InferenceService"]:
        if body["metadata"]["name"] == "gpt-oss-120b":
            body["status"]["traffic"] = {"time": ago(minutes=5), "requestsPerSecond": 2.4, "roles": roles}
        elif body["metadata"]["name"] == "embedder":
            body["status"]["traffic"] = {"time": HOSTILE, "requestsPerSecond": HOSTILE, "roles": HOSTILE}
    async with visit_ui(cluster) as visitor:
        text = await visitor.page("/")
    assert re.search(r"2\.4 req/s, 7 running, 2 waiting<small><time [^>]*>\d+m</time> ago", text)
    assert "req/s" not in text.replace("2.4 req/s", "") and "<script>document" not in text


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            Forbidden('pods "x" is forbidden: cannot get resource "pods/proxy" <i>', 403),
            "you have no right to `get pods/proxy`",
        ),
        (Transient("summary of x: HTTP 404"), "HTTP 404"),
        (None, "connection refused"),
    ],
    ids=("forbidden", "none", "refused"),
)
async def test_unreadable_metrics_are_reported_in_one_sentence(answer: Exception | None, said: str) -> None:
    cluster = console.fleet(hostile=False)
    if answer is not None:
        cluster.summaries = dict.fromkeys(hear(cluster).summaries, answer)
    async with visit_ui(cluster) as visitor, visitor.stream("/service/code/qwen3-coder") as stream:
        await stream.wait_for_section("plots", said)
        assert "<svg" not in stream.shown["plots"] and "<i>" not in stream.shown["plots"]


# --- how large it is --------------------------------------------------------------------------------------------------


async def test_page_with_a_thousand_pods_is_small_and_fast() -> None:
    """The page with a hundred services and a thousand pods is smaller than 1 MB, and the server needs only a fraction of a
    second to send it first.
    """
    cluster = console.many(100, 1000)
    async with visit_ui(cluster) as visitor:
        for path in ("/", "/nodes", "/service/team/service-003"):
            before = time.process_time()
            text = await visitor.page(path)
            assert len(text.encode()) < 500_000 and time.process_time() - before < 2.0, path
        assert (await visitor.page("/")).count('<tr id="r-') == 100
        assert re.search(r"<b>10</b> broken", await visitor.page("/"))


async def test_page_of_a_service_with_a_thousand_pods_is_small() -> None:
    cluster = console.many(1, 1000)
    async with visit_ui(cluster) as visitor:
        assert 100_000 < len((await visitor.page("/service/team/service-000")).encode()) < 1_000_000


@pytest.mark.looptime
async def test_slow_poll_is_followed_by_a_longer_pause() -> None:
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


def test_hostile_test_texts_contain_markup() -> None:
    assert "<script>" in HOSTILE and "\u202e" in HOSTILE and "\x1b" in HOSTILE
