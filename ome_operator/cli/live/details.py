"""Read the details that only the page of a single service shows: its events, and the last log lines of its pods that are not
ready.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ome_operator.cli.live.diagnosis import events_about
from ome_operator.describe.causes import Cause
from ome_operator.describe.diagnosis import SeenEvent, merge_events
from ome_operator.kube.client import Client, Manifest
from ome_operator.kube.errors import KubeError
from ome_operator.kube.podlogs import LogLine, LogWindow

LINES = 14
"""Number of last lines of a log that are shown."""
LOGS = 4
"""Maximum number of logs that are read. The logs of pods with the most severe causes are read first."""
EVENTS = 30
"""Number of newest events that are shown."""
PATIENCE = 5.0
"""Maximum number of seconds for which one log is read."""
LONGEST = 400
"""Maximum number of characters of a line. The rest of the line is left out."""

ReadLog = Callable[[str, str, str, LogWindow], AsyncIterator[LogLine]]
"""Function that yields the lines of a log. Its arguments are namespace, pod, container and the wanted part of the log."""
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


@dataclass(frozen=True)
class Log:
    """The end of a container's log."""

    pod: str
    container: str
    lines: tuple[str, ...]
    said: str
    """The reason why `lines` is empty; "" if there are lines."""


@dataclass(frozen=True)
class Details:
    """The events and logs of a service, as its page shows them."""

    events: tuple[SeenEvent, ...] = ()
    denied: str = ""
    """Why there are no events; "" if they could be read."""
    logs: Mapping[str, Log] | None = None
    """Maps the name of a pod to the end of its log."""


async def details(
    client: Client,
    read: ReadLog,
    namespace: str,
    uids: Container[str],
    causes: Iterable[Cause],
    pods: Mapping[str, Manifest],
    simulated: Container[str],
) -> Details:
    """Read the events and logs of a service. `uids` are the UIDs of the service's objects, and `pods` maps names to bodies.
    Never raises: an error becomes text in the result.
    """
    denied, found = "", list[Manifest]()
    try:
        found = await client.list_objects("Event", namespace)
    except KubeError as error:
        denied = str(error)
    seen = merge_events(events_about(found, uids))[:EVENTS]
    names = [cause.pods[0] for cause in causes if cause.pods][:LOGS]
    bodies = [pods[name] for name in dict.fromkeys(names) if name in pods]
    logs = await asyncio.gather(*(_log(read, namespace, body, simulated) for body in bodies))
    return Details(tuple(seen), denied, {log.pod: log for log in logs})


async def _log(read: ReadLog, namespace: str, pod: Mapping[str, Any], simulated: Container[str]) -> Log:
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    container = ((spec.get("containers") or [{}])[0]).get("name") or ""
    if not spec.get("nodeName"):
        return Log(name, container, (), "the pod is not scheduled yet, so nothing has run")
    if spec["nodeName"] in simulated:
        return Log(
            name, container, (), f"node {spec['nodeName']} is simulated, so no process runs there and there is no log"
        )
    why = "its log is empty"
    # The log of a container that has just restarted is empty. In this case, the log of the previous container is shown.
    for wanted in (LogWindow(tail=LINES), LogWindow(tail=LINES, previous=True)):
        try:
            async with asyncio.timeout(PATIENCE):
                lines = [_COLOUR.sub("", line.text)[:LONGEST] async for line in read(namespace, name, container, wanted)]
        except KubeError as error:
            if not wanted.previous:
                why = str(error)
            continue
        except TimeoutError:
            return Log(name, container, (), f"no response within {PATIENCE:.0f} s")
        if lines:
            return Log(name, container, tuple(lines[-LINES:]), "")
    return Log(name, container, (), why)
