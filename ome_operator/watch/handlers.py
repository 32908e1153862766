"""Run the operator under kopf, which hosts the process and watches the kinds that people write (decisions 34).

kopf watches nothing before the handler `startup` returns, so a standby process waits in that handler. No handler writes,
returns a value, or keeps the object: a reconciliation reads the cache. kopf therefore writes nothing either, which
tests/controlplane/process checks. Pods, workloads, nodes and records are not watched by kopf: for each event it creates a
task, three loggers and a dozen views.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import aiohttp
import kopf

from ome_operator.util.json_limits import truncate_depth
from ome_operator.util.large_objects import reduce_large_objects
from ome_operator.watch import tuning
from ome_operator.watch.coverage import Coverage
from ome_operator.watch.informer import lines
from ome_operator.watch.sink import WatchedKind

PERMANENT = kopf.ErrorsMode.PERMANENT
"""Setting with which an error in a handler ends the process. By default kopf would try the handler again after a minute."""
REFUSED = 1.0
"""Seconds after which a request whose token was refused is sent again."""


class Process(Protocol):
    """The part of the operator's process that kopf hosts."""

    @property
    def coverage(self) -> Coverage:
        """The watches that receive kopf's events; available once `start` has returned."""

    @property
    def server(self) -> str:
        """The address of the API server."""

    async def start(self) -> Sequence[WatchedKind]:
        """Wait until this process may work, start its tasks, and return the kinds that kopf has to watch."""

    async def stop(self) -> None:
        """End the tasks that `start` has begun."""

    def session(self, trace: aiohttp.TraceConfig, middleware: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        """Return a new session, which kopf will close."""


class HandlerMemo:
    """The object that kopf passes to handlers."""

    def __init__(self, process: Process, stop: asyncio.Event, registry: kopf.OperatorRegistry) -> None:
        self.process, self.stop, self.registry = process, stop, registry

    def __copy__(self) -> "HandlerMemo":
        """Return the object itself, because kopf copies it for each object that it watches."""
        return self


async def startup(memo: HandlerMemo, **_: Any) -> None:
    """Wait for the CRDs and the Lease, and start the manager."""
    try:
        kinds = await memo.process.start()
    except asyncio.CancelledError:
        tuning.expect_an_early_end()
        raise
    for group, version, plural in {(each.group, each.version, each.plural): None for each in kinds}:
        kopf.on.event(group, version, plural, registry=memo.registry)(event)


async def cleanup(memo: HandlerMemo, **_: Any) -> None:
    """Wait until running reconciliations have ended, and stop the manager."""
    await memo.process.stop()
    memo.stop.set()  # in any case: kopf waits 5 s for its own task that waits for this flag


async def login(memo: HandlerMemo, **_: Any) -> kopf.AiohttpSession:
    """Return a new session each time: kopf closes a session whose token was refused, and accepts no session that it had
    before.
    """
    process = memo.process
    return kopf.AiohttpSession(
        server=process.server, aiohttp_session=process.session(process.coverage.trace(), shield(process.coverage))
    )


def shield(coverage: Coverage) -> aiohttp.ClientMiddlewareType:
    """Return a middleware that hides temporary failures of the API server from kopf.

    * A token that is refused although it was renewed would make kopf close the session, and so end the watches of other
      kinds. The middleware sends the request again until the timeout of the request.
    * An absent namespace would end kopf after two minutes. The middleware raises a payload error instead: of all errors of a
      request, this is the only one that kopf neither logs nor counts, and after which it begins again.
    * Values that are nested too deep for kopf's decoder are removed from the answer (tests/unit/watch/test_handlers.py).
    """

    async def sent(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        path = request.url.path
        if not await coverage.can_watch(path):
            raise aiohttp.ClientPayloadError(f"{path} cannot be watched at present")
        while (response := await handler(request)).status == 401:
            response.release()
            await asyncio.sleep(REFUSED)
        if response.status == 403 and not await coverage.can_watch(path, refused=True):
            response.release()
            raise aiohttp.ClientPayloadError(f"{path} can no longer be watched")
        response.content = DepthLimitedContent(response.content)  # type: ignore[assignment]
        return response

    return sent


async def event(memo: HandlerMemo, event: kopf.RawEvent, resource: kopf.Resource, **_: Any) -> None:
    """Deliver an object that exists or was deleted. Objects of group sglang.ai are included if the cluster serves them."""
    memo.process.coverage.event(resource.group, resource.plural, event["type"], event["object"])


async def run_operator(
    process: Process, stop: asyncio.Event, server_timeout: int = 600, namespaces: Sequence[str] = ()
) -> None:
    """Run the operator under kopf until `stop` is set or a signal arrives. `namespaces` are the namespaces to watch; () for
    all. Raises the error if a kind cannot be watched any more.
    """
    tuning.suppress_tracebacks()
    registry = kopf.OperatorRegistry()
    kopf.on.startup(registry=registry, errors=PERMANENT)(startup)
    kopf.on.cleanup(registry=registry, errors=PERMANENT)(cleanup)
    kopf.on.login(registry=registry, errors=PERMANENT)(login)
    where: dict[str, Any] = {"namespaces": list(namespaces)} if namespaces else {"clusterwide": True}
    await kopf.operator(
        registry=registry,
        settings=tuning.kopf_settings(server_timeout),
        memo=HandlerMemo(process, stop, registry),
        standalone=True,  # kopf neither looks for peers nor announces itself: the Lease decides which process works
        stop_flag=stop,
        **where,
    )


class DepthLimitedContent:
    """The content of a response without JSON that is nested too deep, because kopf's decoder would fail on such JSON and
    end the process.
    """

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def read(self, n: int = -1) -> bytes:
        """Return the content of a list response. Its large objects are reduced in a thread, because reducing a page of
        large objects takes seconds.
        """
        return truncate_depth(await asyncio.to_thread(reduce_large_objects, await self._content.read(n)))

    async def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        """Yield the lines of a watch."""
        async for line in lines(self._content):
            yield truncate_depth(reduce_large_objects(line)) + b"\n"
