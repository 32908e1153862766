"""Tests of several logs at once: lines are merged by time, and logs are followed across restarts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from ome_operator.cli.live import logs as asked
from ome_operator.cli.live.logs import Source, follow_logs, show_merged
from ome_operator.kube import errors
from ome_operator.kube.podlogs import LogLine, Logs, LogWindow

Script = list[LogLine | Exception]


def at(second: int, text: str) -> LogLine:
    return LogLine(f"2026-01-01T00:00:{second:02}.000000000Z", text)


def source(pod: str) -> Source:
    return Source(pod, "team", pod, "main")


class Played:
    """Logs that answer each request for a pod with the next of its scripts, and after the last script that the pod does not
    exist.
    """

    def __init__(self, **scripts: list[Script]) -> None:
        self.scripts = scripts
        self.asked: list[tuple[str, LogWindow]] = []

    async def lines(self, namespace: str, pod: str, container: str, wanted: LogWindow) -> AsyncIterator[LogLine]:
        self.asked.append((pod, wanted))
        script = self.scripts[pod].pop(0) if self.scripts[pod] else [errors.NotFound(f"no pod {pod}")]
        for one in script:
            await asyncio.sleep(0)
            if isinstance(one, Exception):
                raise one
            yield one


class Seen:
    """The lines that were shown, and the warnings."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []
        self.complaints: list[str] = []

    def show(self, label: str, line: LogLine) -> None:
        self.shown.append((label, line.text))


async def test_log_lines_of_all_ranks_are_merged_by_time() -> None:
    played, seen = Played(a=[[at(1, "a1"), at(4, "a4")]], b=[[at(2, "b2"), at(3, "b3"), at(5, "b5")]], c=[[]]), Seen()
    sources = [source(pod) for pod in "abc"]
    assert await show_merged(cast(Logs, played), sources, LogWindow(), seen.show, seen.complaints.append) == 0
    assert [text for _, text in seen.shown] == ["a1", "b2", "b3", "a4", "b5"]


async def test_unreadable_log_does_not_hide_others() -> None:
    waits = errors.Invalid("container main is waiting to start: ContainerCreating")
    played, seen = Played(a=[[waits]], b=[[at(1, "b1")]]), Seen()
    assert (
        await show_merged(cast(Logs, played), [source("a"), source("b")], LogWindow(), seen.show, seen.complaints.append)
        == 1
    )
    assert seen.shown == [("b", "b1")]
    assert seen.complaints == ["a: container main is waiting to start: ContainerCreating"]


async def test_pods_without_log_lines_are_counted() -> None:
    """If no pod has any log lines, a message counts these pods. A pod that is not scheduled has an empty log, which the API
    server returns without an error.
    """
    played, seen = Played(a=[[]], b=[[]]), Seen()
    assert (
        await show_merged(cast(Logs, played), [source("a"), source("b")], LogWindow(), seen.show, seen.complaints.append)
        == 0
    )
    assert seen.complaints == ["no lines from 2 pods: `ome status` shows whether the pods have started"]


async def followed(played: Played, pods: Callable[[int], list[str]], until: Callable[[Seen], bool]) -> Seen:
    """Follow logs until a condition holds. `pods` returns the pods that exist at each look."""
    seen, looks = Seen(), iter(range(10_000))

    async def look() -> list[Source]:
        return [source(pod) for pod in pods(next(looks))]

    wanted = LogWindow(follow=True, tail=5)
    task = asyncio.create_task(follow_logs(cast(Logs, played), look, wanted, seen.show, seen.complaints.append))
    async with asyncio.timeout(20):
        while not until(seen):
            assert not task.done(), task.result()
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return seen


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "PAUSE", 0)


async def test_log_is_followed_across_restarts_without_duplicate_lines() -> None:
    """After a restart of a container, the lines of the new container follow, and no line is shown twice. The API server
    selects lines by whole seconds, so it returns the last lines again before the new ones.
    """
    broken = errors.Transient("the connection broke")
    played = Played(a=[[at(1, "one"), at(2, "two")], [at(2, "two"), broken], [at(2, "two"), at(3, "three")]])
    seen = await followed(played, lambda _: ["a"], lambda seen: len(seen.shown) >= 3)
    assert [text for _, text in seen.shown] == ["one", "two", "three"]
    assert [(wanted.tail, wanted.since_time) for _, wanted in played.asked[:3]] == [
        (5, None),
        (None, at(2, "").when),
        (None, at(2, "").when),
    ]
    assert seen.complaints[:2] == [
        "a: its container ended; waiting for more lines",
        "a: the connection broke; waiting for more lines",
    ]


async def test_replaced_and_new_pods_are_followed_from_their_first_line() -> None:
    played = Played(a=[[at(1, "old")], [errors.NotFound("gone")], [at(5, "new")]], b=[[at(4, "b")]])
    seen = await followed(played, lambda look: ["a"] if look < 3 else ["a", "b"], lambda seen: len(seen.shown) >= 3)
    assert sorted(seen.shown) == [("a", "new"), ("a", "old"), ("b", "b")]
    assert "a: its pod a was deleted" in seen.complaints
    assert next(wanted for pod, wanted in played.asked if pod == "b").tail is None, "its first lines have not been shown yet"
