"""Logs of many containers at once: merged by time, or followed as they grow and their containers restart."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ome_operator.describe.log_selection import sort_key
from ome_operator.kube import errors
from ome_operator.kube.podlogs import LogLine, Logs, LogWindow
from ome_operator.util.wording import count

PAUSE = 1.0
"""Seconds until a log that ended is requested again, and between two searches for new pods."""


class Source(NamedTuple):
    """One container of one pod."""

    label: str
    """Prefix of the container's lines in the output."""
    namespace: str
    pod: str
    container: str
    node: str = ""


Show = Callable[[str, LogLine], None]
"""A function that is called with a label and a line."""
Complain = Callable[[str], None]


async def show_merged(logs: Logs, sources: list[Source], wanted: LogWindow, show: Show, complain: Complain) -> int:
    """Show the lines of all logs in order of time, and return how many logs could not be read. If there is no line at all,
    `complain` is called with a sentence that states this, because the containers may not have started.
    """
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
    heads = [(sort_key(line.when), number, line) for number, line in enumerate(firsts) if line is not None]
    heapq.heapify(heads)
    if not heads and not failed:
        complain(f"no lines from {count(len(sources), 'pod')}: `ome status` shows whether the pods have started")
    while heads:
        _, number, line = heads[0]
        show(sources[number].label, line)
        after = await anext(streams[number], None)
        if after is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (sort_key(after.when), number, after))
    return failed


@dataclass
class _Followed:
    """The state of one log that is being followed."""

    last: str = ""
    """Time of the last line that was shown, as the kubelet wrote it; "" before the first line."""
    task: asyncio.Task[None] | None = None


async def follow_logs(
    logs: Logs, look: Callable[[], Awaitable[list[Source]]], wanted: LogWindow, show: Show, complain: Complain
) -> None:
    """Follow the log of every container, without end. If a container restarts, or its pod is replaced, the new log is
    followed. Logs of new pods are followed, too.
    """
    known: dict[tuple[str, str], _Followed] = {}
    first = True
    try:
        while True:
            try:
                sources = await look()
            except errors.Transient as error:
                complain(f"the API server does not respond: {error}")
                sources = []
            for source in sources:
                item = known.setdefault((source.pod, source.container), _Followed())
                if item.task is None or item.task.done():
                    # All lines of a container that appears later are shown, because none of them has been shown before.
                    part = wanted if first else LogWindow(follow=True)
                    item.task = asyncio.create_task(_until_gone(logs, source, part, item, show, complain))
            first = first and not sources
            await asyncio.sleep(PAUSE)
    finally:
        tasks = [item.task for item in known.values() if item.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_gone(
    logs: Logs, source: Source, wanted: LogWindow, item: _Followed, show: Show, complain: Complain
) -> None:
    """Follow the log of a container across restarts, until its pod is deleted."""
    said = ""
    while True:
        part = replace(wanted, tail=None, since_time=item.last) if item.last else wanted
        before = item.last
        try:
            async for line in logs.lines(source.namespace, source.pod, source.container, part):
                if sort_key(line.when) > sort_key(item.last):
                    item.last, said = line.when, ""
                    show(source.label, line)
        except errors.NotFound:
            complain(f"{source.label}: its pod {source.pod} was deleted")
            return
        except errors.KubeError as error:  # the container is waiting, or the connection broke
            why = str(error)
        else:
            why = "its container ended" if item.last != before else said
        if why and why != said:
            complain(f"{source.label}: {why}; waiting for more lines")
            said = why
        await asyncio.sleep(PAUSE)
