"""The operator as kopf runs it: kopf hosts the process, and tells of the kinds that people write.

Nothing is watched before `startup` returns, so a standby waits in it. No handler writes, returns anything, or reads the
object: a pass of ours reads everything that is there. kopf therefore writes nothing either; tests/controlplane/process holds
that. Pods, workloads, nodes and records are not for kopf: for each event it makes a task, three loggers and a dozen views.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import aiohttp
import kopf

from ome_operator.keys import GROUP, VERSION
from ome_operator.watch import tuning
from ome_operator.watch.sink import Watched
from ome_operator.watch.told import Told

REGISTRY = kopf.OperatorRegistry()
PERMANENT = kopf.ErrorsMode.PERMANENT
"""An error is not tried again after a minute, as kopf does by default: it ends the process."""
REFUSED = 1.0
"""Seconds until a request is sent again whose token was refused."""


class Process(Protocol):
    """What kopf hosts."""

    @property
    def told(self) -> Told:
        """Who is told; asked for once `start` has returned."""

    @property
    def server(self) -> str:
        """Address of the API server."""

    async def start(self) -> Sequence[Watched]:
        """Wait until we may work, and start what is ours; further kinds that are to be watched."""

    async def stop(self) -> None:
        """End what `start` has begun."""

    def session(self, trace: aiohttp.TraceConfig, middleware: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        """A new session, which kopf will close."""


class Memo:
    """What handlers are given."""

    def __init__(self, process: Process, stop: asyncio.Event) -> None:
        self.process, self.stop = process, stop

    def __copy__(self) -> "Memo":
        """Itself: kopf copies it for each object."""
        return self


@kopf.on.startup(registry=REGISTRY, errors=PERMANENT)
async def startup(memo: Memo, **_: Any) -> None:
    """Wait for CRDs and the Lease, and start the manager."""
    try:
        more = await memo.process.start()
    except asyncio.CancelledError:
        tuning.expect_an_early_end()
        raise
    for kind in more:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=REGISTRY)(event)


@kopf.on.cleanup(registry=REGISTRY, errors=PERMANENT)
async def cleanup(memo: Memo, **_: Any) -> None:
    """Let running passes end, and end the manager."""
    await memo.process.stop()
    memo.stop.set()  # whatever ended it: kopf waits 5 s for its own task that waits for this


@kopf.on.login(registry=REGISTRY, errors=PERMANENT)
async def login(memo: Memo, **_: Any) -> kopf.AiohttpSession:
    """A new session each time: kopf closes the one whose token was refused, and takes none that it has seen."""
    process = memo.process
    return kopf.AiohttpSession(server=process.server, aiohttp_session=process.session(process.told.trace(), patient))


async def patient(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """A token that is refused, although it was renewed, is not for kopf to know: it would close the session, and watches
    of other kinds would end by that. The time-out of the request ends this.
    """
    while (response := await handler(request)).status == 401:
        response.release()
        await asyncio.sleep(REFUSED)
    return response


@kopf.on.event(GROUP, VERSION, "inferenceservices", registry=REGISTRY)
@kopf.on.event(GROUP, VERSION, "clusterbasemodels", registry=REGISTRY)
@kopf.on.event(GROUP, VERSION, "basemodels", registry=REGISTRY)
@kopf.on.event(GROUP, VERSION, "finetunedweights", registry=REGISTRY)
@kopf.on.event(GROUP, VERSION, "clusterservingruntimes", registry=REGISTRY)
@kopf.on.event(GROUP, VERSION, "servingruntimes", registry=REGISTRY)
@kopf.on.event(GROUP, VERSION, "acceleratorclasses", registry=REGISTRY)
@kopf.on.event(GROUP, VERSION, "benchmarkjobs", registry=REGISTRY)
async def event(memo: Memo, event: kopf.RawEvent, resource: kopf.Resource, **_: Any) -> None:
    """Tell of an object that is there or was deleted. Those of sglang.ai come to these where they are served."""
    memo.process.told.event(resource.group, resource.plural, event["type"], event["object"])


async def operate(process: Process, stop: asyncio.Event, server_timeout: int = 600) -> None:
    """Run until `stop` is set or a signal says so; raises what made it impossible to watch."""
    tuning.quiet()
    await kopf.operator(
        registry=REGISTRY,
        settings=tuning.tuned(server_timeout),
        memo=Memo(process, stop),
        clusterwide=True,
        standalone=True,  # it neither looks for peers nor tells them anything: the Lease decides
        stop_flag=stop,
    )
