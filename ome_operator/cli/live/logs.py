"""Logs of many containers at once: merged by time, or followed as they grow and restart."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ome_operator.describe.log_selection import moment
from ome_operator.kube import errors
from ome_operator.kube.podlogs import LogLine, Logs, Wanted

PAUSE = 1.0
"""Seconds until a log that ended is asked for again, and between two looks for new pods."""


class Source(NamedTuple):
    """One container of one pod."""

    label: str
    """What stands in front of its lines."""
    namespace: str
    pod: str
    container: str
    node: str = ""


Show = Callable[[str, LogLine], None]
"""Called with a label and a line."""
Complain = Callable[[str], None]


async def merged(logs: Logs, sources: list[Source], wanted: Wanted, show: Show, complain: Complain) -> int:
    """Show all logs in the order of time; how many could not be read."""
    failed = 0

    async def lines(source: Source) -> AsyncIterator[LogLine]:
        nonlocal failed
        try:
            async for line in logs.lines(source.namespace, source.pod, source.container, wanted):
                yield line
        except errors.KubeError as error:
            failed += 1
            complain(f"{source.label}: {error}")

    streams = [lines(source) for source in sources]
    firsts = await asyncio.gather(*(anext(stream, None) for stream in streams))
    heads = [(moment(line.when), number, line) for number, line in enumerate(firsts) if line is not None]
    heapq.heapify(heads)
    while heads:
        _, number, line = heads[0]
        show(sources[number].label, line)
        after = await anext(streams[number], None)
        if after is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (moment(after.when), number, after))
    return failed


@dataclass
class _Followed:
    """One log that is being followed."""

    last: str = ""
    """Time of the last line that was shown."""
    task: asyncio.Task[None] | None = None


async def follow(
    logs: Logs, look: Callable[[], Awaitable[list[Source]]], wanted: Wanted, show: Show, complain: Complain
) -> None:
    """Show every log as it grows, over restarts and replacements of its pod, and those of pods that come; for ever."""
    known: dict[tuple[str, str], _Followed] = {}
    first = True
    try:
        while True:
            try:
                sources = await look()
            except errors.Transient as error:
                complain(f"the cluster does not answer: {error}")
                sources = []
            for source in sources:
                one = known.setdefault((source.pod, source.container), _Followed())
                if one.task is None or one.task.done():
                    # Of what comes later everything is shown: nobody has seen it yet.
                    part = wanted if first else Wanted(follow=True)
                    one.task = asyncio.create_task(_until_gone(logs, source, part, one, show, complain))
            first = first and not sources
            await asyncio.sleep(PAUSE)
    finally:
        tasks = [one.task for one in known.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_gone(logs: Logs, source: Source, wanted: Wanted, one: _Followed, show: Show, complain: Complain) -> None:
    """Follow a container, and its next start after each end, until its pod is gone."""
    said = ""
    while True:
        part = replace(wanted, tail=None, since_time=one.last) if one.last else wanted
        before = one.last
        try:
            async for line in logs.lines(source.namespace, source.pod, source.container, part):
                if moment(line.when) > moment(one.last):
                    one.last, said = line.when, ""
                    show(source.label, line)
        except errors.NotFound:
            complain(f"{source.label}: its pod {source.pod} is gone")
            return
        except errors.KubeError as error:  # the container waits, or the connection broke
            why = str(error)
        else:
            why = "its container ended" if one.last != before else said
        if why and why != said:
            complain(f"{source.label}: {why}; going on when there is more")
            said = why
        await asyncio.sleep(PAUSE)
