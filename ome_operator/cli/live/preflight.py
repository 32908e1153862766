"""Checks nodes by pods that are created for the check, and are removed in every case (docs/preflight.md)."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ome_operator.cli.live.dry_run import CREATE_RIGHTS, NO_NAMESPACE
from ome_operator.cli.live.simulated import read_simulated_nodes
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.preflight.on_demand import Trial, check_time_limit, with_owner_reference
from ome_operator.describe.preflight import RankCheck, progress, rank
from ome_operator.errors import OmeError
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, NotServed, TooMany, Transient

PAUSE = 1.0
"""Seconds between two polls of the check pods."""
MANY = 64
"""Number of pods that one poll reads in about 0.1 s. For more pods, the pause between polls grows in proportion."""
SILENCE = 5.0
"""Seconds after which the command prints what it is waiting for."""
SLACK = 15
"""Seconds after the end of the check within which the last results have to arrive."""
UNREACHED = 60.0
"""Seconds without an answer of the API server after which the command ends the check."""
BUSY_ATTEMPTS, BUSY_WAIT = 8, 5.0
"""Number of attempts to create an object while the API server refuses requests because it has too many of them, and the
longest pause in seconds between two attempts."""
REMOVAL = 40.0
"""Seconds within which pods must be removed. A node that does not respond keeps its pods for longer."""
SILENT = "the API server does not respond"
ENDS = "because it is being terminated"
"""Part of the API server's message if the namespace of a new object is being deleted."""
NO_PROCESS = "the node is simulated by kwok, so no check runs there"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Say = Callable[[str], None]


class CheckStopped(OmeError):
    """Error: a signal ended the check. All objects that the check had created have been removed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class PreflightRun:
    """The check pods of a command, from their creation to their removal."""

    def __init__(self, client: Client, trials: Sequence[Trial], within: int, say: Say) -> None:
        self._client, self._trials, self._within, self._say = client, trials, within, say
        self._posts: list[asyncio.Future[Manifest]] = []
        """The running requests that create objects. They are never cancelled, because an object whose response was lost
        would not be removed.
        """
        self._begun = 0.0
        self._ends = False
        """Whether the command creates no further object, because it is about to end."""
        self._simulated: frozenset[str] | None = None
        """Names of simulated nodes; None until a rank has a node."""

    async def run(self, before: Callable[[], Awaitable[None]] | None = None) -> tuple[list[RankCheck], float]:
        """Return the result of each rank, and the duration in seconds. `before` is awaited before the pods are removed.

        Raises KubeError if a pod cannot be created, and CheckStopped after a signal. In both cases, all created objects are
        removed.
        """
        work = asyncio.ensure_future(self._work(before))
        with _signalled(work) as got:
            try:
                return await work
            except asyncio.CancelledError:
                if got:
                    raise CheckStopped(got[0]) from None
                raise
            finally:
                work.cancel()
                await self._remove()

    async def _work(self, before: Callable[[], Awaitable[None]] | None) -> tuple[list[RankCheck], float]:
        loop = asyncio.get_running_loop()
        for each in self._trials:  # without the right to list, created objects could not be removed
            for kind in ("Service", "Pod"):
                await self._client.list_objects(kind, each.namespace, label_selector=each.selector)
        self._begun = loop.time()
        for each in self._trials:
            try:
                headless = await self._post(each.headless)
                await asyncio.gather(*(self._post(with_owner_reference(pod, headless)) for pod in each.pods.values()))
            except (Forbidden, Invalid, NotServed) as error:
                raise type(error)(creation_refused(each, str(error)), error.code) from error
        ranks = await self._ended()
        seconds = loop.time() - self._begun
        if before is not None:
            await before()
        return ranks, seconds

    async def _post(self, manifest: Manifest) -> Manifest:
        post = asyncio.ensure_future(self._created(manifest))
        self._posts.append(post)
        return await asyncio.shield(post)

    async def _created(self, manifest: Manifest) -> Manifest:
        """Create an object, and try again while the API server has too many requests."""
        for _ in range(BUSY_ATTEMPTS - 1):
            try:
                return await self._client.create(manifest)
            except TooMany as busy:
                await asyncio.sleep(min(busy.retry_after, BUSY_WAIT))
                if self._ends:
                    raise
        return await self._client.create(manifest)

    async def _ended(self) -> list[RankCheck]:
        """Wait until all ranks are done, or the time is up, and return their results."""
        sizes = [max(place.rank for place in each.pods) + 1 for each in self._trials]
        longest = self._within + check_time_limit(max(sizes), self._within) + SLACK
        told, ranks, answered = "", list[RankCheck](), asyncio.get_running_loop().time() - self._begun
        while True:
            now = asyncio.get_running_loop().time() - self._begun
            try:
                ranks = await self._without_process([each for trial in self._trials for each in await self._looked(trial)])
            except (Transient, TooMany) as error:
                if now > longest or now - answered > UNREACHED:
                    raise
                now_told = told if told.startswith(SILENT) else f"{SILENT}: {error}"
            else:
                answered = now
                waits = [each for each in ranks if not each.over]
                if not waits or now > longest or (now > self._within and not any(each.runs for each in waits)):
                    return ranks
                now_told = progress(ranks) if now >= SILENCE else ""
            if now_told and now_told != told:
                self._say(now_told)
                told = now_told
            await asyncio.sleep(PAUSE * (1 + len(ranks) // MANY))

    async def _looked(self, each: Trial) -> list[RankCheck]:
        pods = await self._client.list_objects("Pod", each.namespace, label_selector=each.selector)
        bodies = {body["metadata"]["name"]: body for body in pods}
        return [rank(each, place, bodies.get(pod["metadata"]["name"])) for place, pod in each.pods.items()]

    async def _without_process(self, ranks: list[RankCheck]) -> list[RankCheck]:
        """Return the ranks. A rank without a result is marked as ended if it is on a simulated node, because no check runs
        there.
        """
        if self._simulated is None:
            if not any(each.node for each in ranks):
                return ranks
            self._simulated = await read_simulated_nodes(self._client)
        return [
            each._replace(runs=False, over=True, why=NO_PROCESS)
            if each.node in self._simulated and each.result is None
            else each
            for each in ranks
        ]

    async def _remove(self) -> None:
        """Remove all created objects. If that fails, print why and the command that removes them."""
        self._ends = True
        if not self._posts:
            return
        await asyncio.wait(self._posts)
        for post in self._posts:
            if not post.cancelled():
                post.exception()  # retrieve the exception, which has been reported already
        left = await asyncio.gather(*(self._removed(each) for each in self._trials))
        for each, why in zip(self._trials, left, strict=True):
            if why:
                self._say(
                    f"some objects of the check may not have been deleted ({why}). Their pods end without action. To "
                    f"delete the objects:  kubectl delete service,pod -n {each.namespace} -l {each.selector}"
                )

    async def _removed(self, each: Trial) -> str:
        """Remove the objects of one trial. Return why some of them still exist, or "" if all are removed."""
        until = asyncio.get_running_loop().time() + REMOVAL
        asked = set[str]()
        while True:
            try:
                there = [
                    (kind, body["metadata"])
                    for kind in ("Service", "Pod")
                    for body in await self._client.list_objects(kind, each.namespace, label_selector=each.selector)
                ]
                if not there:
                    return ""
                why = f"{len(there)} objects are still being deleted"
                left = [(kind, metadata) for kind, metadata in there if metadata["uid"] not in asked]
                await asyncio.gather(*(self._delete(kind, each.namespace, metadata) for kind, metadata in left))
                asked.update(metadata["uid"] for _, metadata in left)
            except Forbidden as error:
                return str(error)
            except KubeError as error:
                why = str(error)
            if asyncio.get_running_loop().time() > until:
                return why
            await asyncio.sleep(PAUSE)

    async def _delete(self, kind: str, namespace: str, metadata: Manifest) -> None:
        with suppress(NotFound, Conflict):
            await self._client.delete(kind, namespace, metadata["name"], metadata["uid"])


def creation_refused(each: Trial, message: str) -> str:
    """Return a sentence about a check pod or Service that the API server refuses to create. `message` is the message of the
    API server.
    """
    if CREATE_RIGHTS in message:
        return message
    service, namespace = f"{each.namespace}/{each.service}", each.namespace
    if NO_NAMESPACE.search(message):
        return f"{service}: namespace {namespace} does not exist: create it, or name another namespace"
    if ENDS in message:
        return (
            f"{service}: namespace {namespace} is being deleted: name another namespace, or create it again when it is gone"
        )
    of = "an object of the check, whose pods have the fields of the service's"
    return f"{service}: the API server refuses {of}: {message}"


@contextmanager
def _signalled(work: "asyncio.Future[Any]") -> Iterator[list[int]]:
    """Cancel the work on a signal, and yield the list of received signals. Further signals have no effect, so that the
    removal completes.
    """
    loop, got = asyncio.get_running_loop(), list[int]()

    def take(number: int) -> None:
        got.append(number)
        work.cancel()

    # nohup, and a script's &, ignore signals
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, take, number)
    try:
        yield got
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
