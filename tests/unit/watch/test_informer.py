"""Tests of what an informer reports to its sink, whatever the API server does."""

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from aiohttp import web

from ome_operator.cache.cluster_cache import KINDS, LABELLED
from ome_operator.controllers.watched_kinds import SELECTOR, SELECTORS, watches_of
from ome_operator.machinery.background import Pacer
from ome_operator.watch import informer as informers
from ome_operator.watch.informer import Informer
from ome_operator.watch.sink import CannotWatch, WatchedKind
from tests.support.answers import Handler, answers
from tests.support.deep import nested
from tests.support.sinks import Sink

THINGS = WatchedKind("Thing", "example.org", "v1", "things", "a=b")


def thing(name: str, version: str = "7") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": version}}


def page(*names: str, more: str = "") -> Handler:
    """Return a handler that sends a page of a list."""

    async def answer(_: web.Request) -> web.StreamResponse:
        metadata = {"resourceVersion": "9", "continue": more}
        return web.json_response({"metadata": metadata, "items": [thing(name) for name in names]})

    return answer


def refused(code: int) -> Handler:
    """Return a handler that refuses with this code, as for an expired token."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "code": code, "message": "no more"}, status=code)

    return answer


async def cut(request: web.Request) -> web.StreamResponse:
    """Close the connection in the middle of a page."""
    response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"items": [')
    assert request.transport is not None
    request.transport.close()
    return response


def event(what: str, body: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": what, "object": body}).encode() + b"\n"


def stream(*chunks: bytes, then: float = 0.0) -> Handler:
    """Return a handler of a watch that sends these chunks, stays silent for `then` seconds, and ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.01)
        await asyncio.sleep(then)
        return response

    return answer


class ServedInformer:
    """An informer, and a server that gives these responses to its lists and watches in turn."""

    def __init__(self, *lists: Handler, watches: tuple[Handler, ...] = (), silence: float = 60.0) -> None:
        self.lists, self.watches = list(lists), list(watches)
        self.silence = silence
        self.queries: list[dict[str, str]] = []
        self.sink = Sink()

    async def until(self, holds: Callable[["ServedInformer"], bool]) -> list[str]:
        """Return what the sink has received once the condition holds."""
        where = "/apis/example.org/v1/things"
        async with answers(self._serve, "GET", where) as connection, connection.session(limit=0, agent="") as session:
            self.informer = Informer(
                [THINGS], self.sink, session=session, server=connection.server, server_timeout=60, silence=self.silence
            )
            watching = asyncio.create_task(self.informer.run())
            try:
                async with asyncio.timeout(60):
                    while not (watching.done() or holds(self)):  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                if watching.done():
                    await watching
            finally:
                watching.cancel()
        return self.sink.said

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        left = self.watches if "watch" in request.query else self.lists
        if not left:
            await asyncio.Future()
        return await left.pop(0)(request)


def listed(run: ServedInformer) -> bool:
    """Return whether the last list was reported completely: a watch was requested after it."""
    return not run.lists and run.informer.complete.is_set() and "watch" in run.queries[-1]


async def test_paginated_list_misses_no_object_and_no_event() -> None:
    """A list of several pages misses no object and no event. All pages show the state at one moment, from which the watch
    continues. tests/controlplane/process tests this with a real API server.
    """
    run = ServedInformer(page("a", more="next"), page("b"))
    assert await run.until(lambda run: listed(run) and len(run.queries) == 3) == ["seen a", "seen b"]
    first, second, watch = run.queries
    assert first == {"limit": "500", "labelSelector": "a=b"}
    assert second == {**first, "continue": "next"}
    assert (watch["resourceVersion"], watch["labelSelector"], watch["allowWatchBookmarks"]) == ("9", "a=b", "true")


async def test_page_of_large_objects_is_requested_again_with_a_smaller_limit() -> None:
    async def large(_: web.Request) -> web.StreamResponse:
        items = [{**thing("a"), "spec": "x" * 1_500_000}] * 24
        return web.json_response({"metadata": {"resourceVersion": "9"}, "items": items})

    run = ServedInformer(page("a", more="next"), large, large, page("b", more="last"), page("c"))
    assert await run.until(lambda run: listed(run) and len(run.queries) == 6) == ["seen a", "seen b", "seen c"]
    assert [(query.get("limit"), query.get("continue")) for query in run.queries[:5]] == [
        ("500", None), ("500", "next"), ("125", "next"), ("31", "next"), ("31", "last"),
    ]  # fmt: skip


@pytest.mark.parametrize("fault", [cut, refused(401), refused(410)], ids=["cut", "401", "410"])
async def test_restarted_first_list_is_reported_as_relisted(fault: Handler) -> None:
    said = await ServedInformer(page("a", "b", more="next"), fault, page("b", more="next"), page("c")).until(listed)
    assert said[:4] == ["seen a", "seen b", "seen b", "seen c"]
    assert said[4:] == ["relisted"]


async def test_ended_watch_continues_at_the_last_reported_version() -> None:
    first = stream(event("ADDED", thing("b", "10")), event("DELETED", thing("a", "11")), event("BOOKMARK", thing("", "20")))
    run = ServedInformer(page("a"), watches=(first, stream(event("MODIFIED", thing("b", "21")))))
    said = await run.until(lambda run: len(run.queries) == 4)
    assert said == ["seen a", "seen b", "deleted a", "seen b"]
    assert [query.get("resourceVersion") for query in run.queries] == [None, "9", "20", "21"]


async def test_chunked_line_is_one_event_and_a_truncated_line_is_none() -> None:
    large = event("ADDED", {**thing("large", "10"), "spec": "x" * 3_000_000})
    pieces = [large[at : at + 500_000] for at in range(0, len(large), 500_000)]
    run = ServedInformer(page(), watches=(stream(*pieces, event("ADDED", thing("cut", "11"))[:-9]),))
    assert await run.until(lambda run: len(run.queries) == 3) == ["seen large"]
    assert run.queries[-1]["resourceVersion"] == "10", "the event that was cut is sent again"


async def test_silent_watch_is_restarted() -> None:
    run = ServedInformer(page("a"), watches=(stream(event("ADDED", thing("b", "10")), then=30),), silence=0.2)
    assert await run.until(lambda run: len(run.queries) == 3) == ["seen a", "seen b"]
    assert run.queries[-1]["resourceVersion"] == "10"


@pytest.mark.parametrize(
    "told",
    [
        event("ERROR", {"kind": "Status", "code": 410, "message": "too old"}),
        event("ERROR", {"kind": "Status", "code": 500, "message": "etcd"}),
        b"<html>no event</html>\n",
        b"[1]\n",
    ],
    ids=["410", "500", "a page of a proxy", "no object"],
)
async def test_watch_error_is_followed_by_a_new_list(told: bytes) -> None:
    run = ServedInformer(page("a"), page("b"), watches=(stream(told),))
    assert await run.until(listed) == ["seen a", "seen b", "relisted"]


@pytest.mark.parametrize("levels", [2_000, 9_000, 10_000])
async def test_deepest_accepted_object_is_reported_as_an_event(levels: int) -> None:
    """An object with the deepest nesting that the API server accepts is reported like any other. Python's own decoder
    refuses such an object, which once ended the process, and again after each restart.
    """
    deep = nested(thing("deep", "11"), levels)
    first = json.dumps({"metadata": {"resourceVersion": "9"}, "items": [thing("a"), "DEEP"]}).encode()

    async def listed_deep(_: web.Request) -> web.StreamResponse:
        return web.Response(body=first.replace(b'"DEEP"', deep), content_type="application/json")

    line = b'{"type": "ADDED", "object": ' + deep + b"}\n"
    run = ServedInformer(listed_deep, watches=(stream(line, event("ADDED", thing("b", "12"))),))
    assert await run.until(lambda run: len(run.queries) == 3) == ["seen a", "seen deep", "seen deep", "seen b"]
    assert run.queries[-1]["resourceVersion"] == "12"
    assert run.informer.unread == {}


async def test_undecodable_event_is_dropped_alone(caplog: pytest.LogCaptureFixture) -> None:
    """An event that can never be decoded is dropped alone, even if it arrives again and again. If each such event caused a
    list, the retries would be used up, which ended the process before.
    """
    broken = [b"{\n", b"[1]\n", b'{"type": "ADDED", "object": 5}\n', b'\xff{"type": "ADDED"}\n'] * 25
    run = ServedInformer(
        page("a"), page("b"), watches=(stream(broken[0]), stream(*broken, event("ADDED", thing("c", "12"))))
    )
    assert await run.until(lambda run: len(run.queries) == 5) == ["seen a", "seen b", "relisted", "seen c"]
    assert run.informer.unread == {"Thing": 101}
    assert len([one for one in caplog.records if one.levelname == "WARNING"]) == 1


async def test_list_item_that_is_no_object_is_dropped_alone() -> None:
    async def odd(_: web.Request) -> web.StreamResponse:
        items = [None, 5, [], thing("a"), "x"]
        return web.json_response({"apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": items})

    run = ServedInformer(odd)
    assert await run.until(listed) == ["seen a"]
    assert run.informer.unread == {"Thing": 4}


@pytest.mark.parametrize("code", [403, 404, 429, 500, 503])
async def test_transient_errors_are_retried_without_a_new_list(code: int) -> None:
    run = ServedInformer(refused(code), page("a"), watches=(refused(code),))
    assert await run.until(lambda run: len(run.queries) == 4) == ["seen a"], "no second list, because nothing was missed"


@pytest.mark.parametrize(("code", "answers"), [(404, 13), (503, 43), (400, 1)])
async def test_persistent_refusal_ends_with_an_error_message(
    monkeypatch: pytest.MonkeyPatch, code: int, answers: int
) -> None:
    monkeypatch.setattr(informers, "BACKOFFS", (0.0,) * 42)
    run = ServedInformer(*[refused(code)] * answers)
    with pytest.raises(CannotWatch, match="cannot watch things: no more"):
        await run.until(lambda _: False)
    assert not run.lists


async def test_persistently_broken_lists_end_with_an_error_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informers, "BACKOFFS", (0.0,) * 3)
    with pytest.raises(CannotWatch, match="cannot watch things: a page of the list is incomplete or unreadable"):
        await ServedInformer(*[cut] * 4).until(lambda _: False)


def test_exactly_the_common_kinds_are_watched_by_label() -> None:
    """Only the kinds that other programs also use are watched by label. Otherwise the operator would watch every pod of the
    cluster.
    """
    selectors = {each.kind: each.selector for each in watches_of()}
    assert selectors == {kind: SELECTORS[kind] if kind in LABELLED else "" for kind in KINDS}
    assert {kind: selector for kind, selector in SELECTORS.items() if selector != SELECTOR} == {
        "ControllerRevision": "ome.io/managed-by=ome-operator,!component"
    }


async def test_event_loop_responds_while_a_large_page_is_processed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop responds while a long page is reported. Previously, a page of 500 nodes blocked it for a third of a
    second, in which no probe was answered and the Lease was not renewed.
    """
    told, turns, now = 0, list[int](), 0.0

    class Slow(Sink):
        def handle_object(self, kind: str, body: Any) -> None:
            nonlocal told, now
            told, now = told + 1, now + 0.004

    async def beat() -> None:
        while told < 500:
            turns.append(told)
            await asyncio.sleep(0)

    monkeypatch.setattr(informers, "PACER", Pacer(clock=lambda: now))
    run = ServedInformer(page(*(f"thing-{number}" for number in range(500))))
    run.sink = Slow()
    beside = asyncio.create_task(beat())
    await run.until(lambda run: run.informer.complete.is_set())
    await beside
    steps = [after - before for before, after in itertools.pairwise(turns)]
    assert max(steps) <= 4 and told == 500
