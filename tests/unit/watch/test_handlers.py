"""Tests of kopf as the host of the process: its requests to the API server, and how it ends."""

import asyncio
import json
import re
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kopf
import pytest

import ome_operator
from ome_operator import app, keys, watch
from ome_operator.cache.cluster_cache import KINDS
from ome_operator.cache.resources import SHORT
from ome_operator.controllers.watched_kinds import WRITTEN
from ome_operator.kube.resources import RESOURCES
from ome_operator.settings import Settings
from ome_operator.watch import handlers, kopf_events
from ome_operator.watch.kopf_events import KopfEvents
from ome_operator.watch.sink import CannotWatch
from tests.support.deep import HERE, MOST
from tests.unit.watch.hosting import ALL, CUT, SERVICES, Process, Server, hosted, service, until

MARKER = "kopf.zalando.org/KopfFinalizerMarker"
OURS = [each for each in ALL if each.kind not in SHORT]


def test_no_private_name_of_kopf_is_used() -> None:
    """The operator uses no private name of kopf, because these may change with every version."""
    house = Path(ome_operator.__file__).parent
    private = re.compile(r"kopf\._|from kopf import _|getattr\(kopf")
    assert [str(path) for path in house.rglob("*.py") if private.search(path.read_text())] == []


def test_every_kind_is_watched_by_kopf_or_the_operator() -> None:
    assert {each.kind for each in OURS} == {
        kind for kind in KINDS if RESOURCES[kind].group == keys.GROUP and kind not in ("NodeModels", "RoleScale")
    }


async def test_kopf_sends_only_read_requests() -> None:
    """The kinds that users write are watched by kopf, which sends nothing but reads. The same holds for an object with a
    finalizer of kopf, which another operator has added.
    """
    mine = service("mine", finalizers=[MARKER])
    server = Server(mine, service("dying", finalizers=[MARKER], deletionTimestamp="2026-01-01T00:00:00Z"))
    async with hosted(server) as (process, operating):
        await until(lambda: set(server.watched) == {each.path for each in ALL})
        server.tell("MODIFIED", service("mine", finalizers=[MARKER, "example.org/x"], labels={"a": "b"}))
        server.tell("ADDED", service("new"))
        server.tell("BOOKMARK", {"metadata": {"resourceVersion": "20"}})
        server.tell("DELETED", service("dying", finalizers=[MARKER]))
        await until(lambda: len(process.said) == 5)
        assert not operating.done()
        assert process.coverage.events["InferenceService"] == 5
        assert set(process.coverage.last_event) == WRITTEN
    assert sorted(process.said) == ["deleted dying", "seen dying", "seen mine", "seen mine", "seen new"]
    assert {method for method, _ in server.requests} == {"GET"}
    asked = {path for _, path in server.requests if path.count("/") > 3 or path == SERVICES}
    assert asked == {each.path for each in ALL}, "no CRDs, no namespaces, no peers"
    assert operating.exception() is None
    assert process.stopped == 1


def test_reopened_watch_without_events_does_not_count_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that is opened again and again without any event does not count as working. A proxy may answer each watch at
    once, but hold back its events. The alert OmeWatchSilent has to detect this.
    """
    clock, kind = [0.0], "InferenceService"
    monkeypatch.setattr(kopf_events, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    made = KopfEvents(ALL, Process("", ALL), lambda _: asyncio.sleep(0, set()), interval=1.0)
    watches: list[Any] = [SimpleNamespace(total_bytes=0) for _ in range(3)]
    made.process_response(SERVICES, {}, watches[0])
    for clock[0], content in zip((10.0, 80.0, 150.0), watches, strict=True):
        made.process_response(SERVICES, {"watch": "true"}, content)
    assert made.last_event[kind] == 0.0
    watches[2].total_bytes, clock[0] = 7, 160.0
    assert made.last_event[kind] == 160.0
    watches[2].total_bytes, clock[0] = 9, 170.0
    made.process_response(SERVICES, {"watch": "true"}, watches[0])
    clock[0] = 180.0
    assert made.last_event[kind] == 170.0, "an event right before the next watch counts"


async def test_a_refused_token_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused token does not end a watch. The session renews its token itself. If the refusal reached kopf, kopf would
    close the session, which the watches of other kinds use, too.
    """
    monkeypatch.setattr(handlers, "REFUSED", 0.05)
    server = Server(service("a"))
    server.refuse = [(SERVICES, 401)] * 5
    async with hosted(server) as (process, operating):
        await until(lambda: server.watched[SERVICES])
        server.tell("ADDED", service("b"))
        await until(lambda: "seen b" in process.said)
        assert not operating.done()
        assert len(process.sessions) == 1
    memo = handlers.HandlerMemo(process, asyncio.Event(), kopf.OperatorRegistry())
    first, second = await handlers.login(memo), await handlers.login(memo)
    assert first != second, "kopf does not use a session twice"
    for session in process.sessions:
        await session.close()


@pytest.mark.parametrize("levels", [900, 1_000, 1_500, 2_000, 9_000, MOST])
async def test_deepest_accepted_object_does_not_end_the_process(levels: int) -> None:
    """An object with the deepest nesting that the API server accepts does not end the process. kopf itself decodes the
    object, in lists and in watches. An object that kopf could not decode once ended the process, and again after each
    restart.
    """
    server = Server({**service("listed"), "spec": {"engine": {"runner": {"z": HERE}}}})
    server.levels = levels
    async with hosted(server) as (process, operating):
        await until(lambda: server.watched[SERVICES])
        server.tell("ADDED", {**service("told"), "spec": {"model": HERE}})
        server.tell("ADDED", service("another"))
        await until(lambda: "seen another" in process.said)
        assert process.said == ["seen listed", "seen told", "seen another"]
        assert not operating.done()


LEFT_S = 5
"""Seconds for which kopf waits for tasks that are left after a failure."""
FAULTS = {
    "a watch is not served any more": (404, [], b""),
    "a 410 on a later page": (0, [410], b""),
    "an ERROR event": (0, [], b'{"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd"}}\n'),
    "a line that nobody can read": (0, [], b"<html>\n"),
}


@pytest.mark.parametrize(("code", "later", "told"), FAULTS.values(), ids=list(FAULTS))
async def test_fatal_error_ends_only_the_loop_of_kopf_with_an_exception(
    code: int, later: list[int], told: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error after which kopf cannot continue ends only kopf's loop, with an exception that the operator reports as a
    message, without a traceback.
    """
    server = Server(service("a"), service("b"))
    server.refuse = [(SERVICES, code)] if code else []
    server.page, server.later = 1, [*later]
    wait, waits = asyncio.wait, list[int]()

    async def counted(tasks: Any, **options: Any) -> Any:
        done, pending = await wait(tasks, **options)
        if options.get("timeout") == LEFT_S:
            waits.append(len(pending))
        return done, pending

    monkeypatch.setattr(asyncio, "wait", counted)
    async with hosted(server) as (process, operating):
        if told:
            await until(lambda: len(server.watched) == len(ALL))
            server.write(told)
        async with asyncio.timeout(60):
            await asyncio.wait({operating})
        assert operating.exception() is not None
        assert waits == [0], "kopf waits for no task that is left"
        assert process.stopped == 1
    theirs = "aiohttp.server"  # from the server of this test, whose responses are cut
    assert [record for record in caplog.records if record.exc_info and record.name != theirs] == []


async def test_paginated_list_counts_as_one_list() -> None:
    """A list that is read in several pages counts as a single list. If each page counted as a new list, it would cause an
    audit.
    """
    server = Server(*map(service, "abc"))
    server.page = 1
    async with hosted(server) as (process, _):
        await until(lambda: server.watched[SERVICES])
        await until(lambda: len(process.said) >= 3)
        assert process.said == ["seen a", "seen b", "seen c"]
        assert sum(path == SERVICES for _, path in server.requests) == 4


async def test_list_is_repeated_after_a_truncated_page() -> None:
    """If the connection ends in the middle of a page, the list is read again, and the second list is reported. No event
    reports objects that were deleted between the two lists.
    """
    server = Server(service("a"), service("b"))
    server.page, server.later = 1, [CUT, CUT]
    async with hosted(server) as (process, operating):
        await until(lambda: server.watched[SERVICES])
        await until(lambda: {"seen a", "seen b"} <= {*process.said})
        assert process.said.count("relisted InferenceService") == 2
        assert not operating.done()


@pytest.mark.parametrize("breaks", [False, True], ids=["the answer ends", "the connection breaks"])
async def test_watch_continues_after_the_last_complete_event(breaks: bool) -> None:
    """If a watch ends in the middle of a line, it continues after the last complete event. An incomplete line is not an
    event, and must not end kopf.
    """
    server = Server(service("a"))
    server.breaks = breaks
    async with hosted(server) as (process, operating):
        await until(lambda: server.watched[SERVICES])
        server.tell("ADDED", service("b", resourceVersion="12"))
        await until(lambda: "seen b" in process.said)
        server.write(json.dumps({"type": "ADDED", "object": service("c", resourceVersion="13")}).encode()[:-20])
        server.end()
        await until(lambda: server.watched[SERVICES] == 2)
        server.tell("ADDED", service("c", resourceVersion="13"))
        await until(lambda: "seen c" in process.said)
        assert process.said == ["seen a", "seen b", "seen c"], "no second list"
        assert server.since == ["9", "12"]
        assert not operating.done()


async def test_only_a_repeated_list_is_reported() -> None:
    """Only a repeated list is reported to the sink, and not the first one, because objects may have been deleted before it
    without an event.
    """
    server = Server(service("a"))
    async with hosted(server) as (process, _):
        await until(lambda: server.watched[SERVICES])
        await until(lambda: process.said == ["seen a"])
        server.services = []
        server.tell("ERROR", {"kind": "Status", "code": 410, "message": "too old"})
        await until(lambda: process.said == ["seen a", "relisted InferenceService"])


async def test_reconciliations_begin_when_every_existing_object_was_delivered() -> None:
    server = Server(service("a"))
    async with hosted(server) as (process, _):
        process.there["InferenceService"] = {"a", "late"}
        checking = asyncio.create_task(process.coverage.run())
        await until(lambda: server.watched[SERVICES])
        await asyncio.sleep(0.3)
        assert not process.coverage.complete.is_set(), "a list of metadata contains an object that kopf has not reported"
        server.tell("ADDED", service("late"))
        await until(process.coverage.complete.is_set)
        process.there["InferenceService"] = {"a"}
        await until(lambda: "relisted InferenceService" in process.said)
        checking.cancel()


async def test_object_that_is_never_delivered_ends_the_process() -> None:
    server = Server(service("a"))
    async with hosted(server) as (process, _):
        process.there["InferenceService"] = {"a"}
        checking = asyncio.create_task(process.coverage.run())
        await until(process.coverage.complete.is_set)
        process.coverage._patience = 0.3  # not before, because a busy machine needs longer to deliver the first objects
        process.there["InferenceService"] = {"a", "lost"}
        with pytest.raises(CannotWatch, match="kopf has delivered 1 of the 2 objects of InferenceService"):
            await checking


async def test_unlisted_kind_with_a_handler_is_detected() -> None:
    """If a handler exists for a version of a kind that is not listed, this is detected. The handler would receive no
    events, and nothing else would report that.
    """
    events = KopfEvents(
        OURS, Process("", ()), lambda _: asyncio.sleep(0, set()), interval=1.0, patience=0.1, list_every=0.05
    )
    with pytest.raises(CannotWatch, match="kopf does not list"):
        await events.run()


def nowhere(folder: Path) -> Settings:
    """Return the settings of an operator whose API server does not answer."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text("""
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
""")
    return Settings(kubeconfig=kubeconfig, address="127.0.0.1", health_port=0, metrics_port=0)


async def test_kopf_is_imported_outside_the_event_loop_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package kopf is imported in another thread, and not in the thread of the event loop. In the event loop, the
    import blocked a busy machine for a second at each start.
    """
    loaded: dict[str, int] = {}

    def load(name: str) -> None:
        loaded[name] = threading.get_ident()

    def begin(*_: Any, **__: Any) -> Any:
        assert loaded, "before stalls are measured"
        raise TimeoutError("this far")

    monkeypatch.setattr(app, "importlib", SimpleNamespace(import_module=load))
    monkeypatch.setattr(app, "watchdog", SimpleNamespace(begin=begin))
    with pytest.raises(TimeoutError, match="this far"):
        await app.run(nowhere(tmp_path))
    assert loaded.keys() == {"ome_operator.watch.handlers"} and threading.get_ident() not in loaded.values()


@pytest.mark.parametrize("changed", ["a name is gone", "an argument is gone"])
async def test_unsupported_kopf_version_is_reported_in_one_sentence(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if changed == "a name is gone":
        monkeypatch.setattr(watch, "handlers", None, raising=False)
        monkeypatch.delattr(watch, "handlers")
        monkeypatch.setitem(sys.modules, "ome_operator.watch.handlers", None)
    else:
        monkeypatch.setattr(kopf, "operator", lambda *, registry: None)
    assert await app.run(nowhere(tmp_path)) == 1
    (said,) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert said.getMessage().startswith("stopping: kopf: ")
    assert not said.exc_info
