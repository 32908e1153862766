"""The operator as kopf runs it: kopf hosts the process, and tells of the kinds that people write (decisions 34).

Nothing is watched before `startup` returns, so a standby waits in it. No handler writes, returns anything, or reads the
object: a pass of ours reads everything that is there. kopf therefore writes nothing either; tests/controlplane/process holds
that. Pods, workloads, nodes and records are not for kopf: for each event it makes a task, three loggers and a dozen views.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import aiohttp
import kopf

from ome_operator.watch import tuning
from ome_operator.watch.coverage import Coverage
from ome_operator.watch.lines import Shallow
from ome_operator.watch.sink import Watched

PERMANENT = kopf.ErrorsMode.PERMANENT
"""An error is not tried again after a minute, as kopf does by default: it ends the process."""
REFUSED = 1.0
"""Seconds until a request is sent again whose token was refused."""


class Process(Protocol):
    """What kopf hosts."""

    @property
    def told(self) -> Coverage:
        """Who is told; asked for once `start` has returned."""

    @property
    def server(self) -> str:
        """Address of the API server."""

    async def start(self) -> Sequence[Watched]:
        """Wait until we may work, and start what is ours; the kinds that kopf is to watch."""

    async def stop(self) -> None:
        """End what `start` has begun."""

    def session(self, trace: aiohttp.TraceConfig, middleware: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        """A new session, which kopf will close."""


class Memo:
    """What handlers are given."""

    def __init__(self, process: Process, stop: asyncio.Event, registry: kopf.OperatorRegistry) -> None:
        self.process, self.stop, self.registry = process, stop, registry

    def __copy__(self) -> "Memo":
        """Itself: kopf copies it for each object."""
        return self


async def startup(memo: Memo, **_: Any) -> None:
    """Wait for CRDs and the Lease, and start the manager."""
    try:
        kinds = await memo.process.start()
    except asyncio.CancelledError:
        tuning.expect_an_early_end()
        raise
    for group, version, plural in {(each.group, each.version, each.plural): None for each in kinds}:
        kopf.on.event(group, version, plural, registry=memo.registry)(event)


async def cleanup(memo: Memo, **_: Any) -> None:
    """Let running passes end, and end the manager."""
    await memo.process.stop()
    memo.stop.set()  # whatever ended it: kopf waits 5 s for its own task that waits for this


async def login(memo: Memo, **_: Any) -> kopf.AiohttpSession:
    """A new session each time: kopf closes the one whose token was refused, and takes none that it has seen."""
    process = memo.process
    return kopf.AiohttpSession(
        server=process.server, aiohttp_session=process.session(process.told.trace(), patient(process.told))
    )


def patient(told: Coverage) -> aiohttp.ClientMiddlewareType:
    """What stands between kopf and the API server.

    A token that is refused, although it was renewed, is not for kopf to know: it would close the session, and watches of
    other kinds would end by that. The time-out of the request ends this. Nor is a namespace that is absent: kopf would end
    after two minutes. Of the errors that a request can have, only of a payload that was cut kopf says nothing,
    counts it nowhere, and begins again after it. Nor is an object for kopf that its decoder does not bear
    (tests/unit/watch/test_handlers.py).
    """

    async def sent(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        path = request.url.path
        if not await told.there(path):
            raise aiohttp.ClientPayloadError(f"{path} cannot be watched now")
        while (response := await handler(request)).status == 401:
            response.release()
            await asyncio.sleep(REFUSED)
        if response.status == 403 and not await told.there(path, refused=True):
            response.release()
            raise aiohttp.ClientPayloadError(f"{path} cannot be watched any more")
        response.content = Shallow(response.content)  # type: ignore[assignment]
        return response

    return sent


async def event(memo: Memo, event: kopf.RawEvent, resource: kopf.Resource, **_: Any) -> None:
    """Tell of an object that is there or was deleted. Those of sglang.ai come to these where they are served."""
    memo.process.told.event(resource.group, resource.plural, event["type"], event["object"])


async def operate(process: Process, stop: asyncio.Event, server_timeout: int = 600, namespaces: Sequence[str] = ()) -> None:
    """Run until `stop` is set or a signal says so; raises what made it impossible to watch. `namespaces`: () for all."""
    tuning.quiet()
    registry = kopf.OperatorRegistry()
    kopf.on.startup(registry=registry, errors=PERMANENT)(startup)
    kopf.on.cleanup(registry=registry, errors=PERMANENT)(cleanup)
    kopf.on.login(registry=registry, errors=PERMANENT)(login)
    where: dict[str, Any] = {"namespaces": list(namespaces)} if namespaces else {"clusterwide": True}
    await kopf.operator(
        registry=registry,
        settings=tuning.tuned(server_timeout),
        memo=Memo(process, stop, registry),
        standalone=True,  # it neither looks for peers nor tells them anything: the Lease decides
        stop_flag=stop,
        **where,
    )
