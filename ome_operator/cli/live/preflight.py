"""Checks nodes by pods that are created for the check, and are removed in every case (docs/preflight.md)."""

import asyncio
import signal
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ome_operator.api import InferenceService, Invalid
from ome_operator.cache.cluster_cache import RECORD, ClusterCache
from ome_operator.cache.resources import CATALOG, SERVICE, SHORT, Resource
from ome_operator.cli.live.cluster_from_manifests import build_cluster
from ome_operator.cli.live.simulated import read_simulated_nodes
from ome_operator.cli.live.trees import read_service_object, selector
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.preflight.on_demand import Trial, check_time_limit, trial, with_owner_reference
from ome_operator.describe.outcome import SURVIVES, TargetOutcome, compute_outcome
from ome_operator.describe.preflight import RankCheck, progress, rank
from ome_operator.errors import OmeError, QuestionUnanswered
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Conflict, Forbidden, KubeError, NotFound, Transient
from ome_operator.kube.listing import list_all, listed_around
from ome_operator.kube.resources import RESOURCES

PAUSE = 1.0
"""Seconds between two polls of the check pods."""
MANY = 64
"""Number of pods that one poll reads in about 0.1 s. For more pods, the pause between polls grows in proportion."""
SILENCE = 5.0
"""Seconds after which the command prints what it is waiting for."""
SLACK = 15
"""Extra seconds for the results at the end of a check to arrive."""
REMOVAL = 40.0
"""Seconds within which pods must be removed. A node that does not respond keeps its pods."""
NO_PROCESS = "the node is simulated by kwok, so no check runs there"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Say = Callable[[str], None]


class CheckStopped(OmeError):
    """A signal ended the check; everything that it created has been removed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


# --- what is looked at --------------------------------------------------------------------------------------------------


async def of_files(
    client: Client, given: Sequence[Manifest], roles: Collection[str], within: int
) -> tuple[list[Trial], list[str]]:
    """Return a trial for all groups of the services in these files, together with the other objects of the cluster, and a
    sentence for each service that has no pods. Raises KubeError.
    """
    spaces = {body["metadata"].get("namespace", "") for body in given if body["kind"] in (SERVICE, *SHORT)} - {""}
    cluster = await _cluster(client, spaces, given)
    made, problems = list[Trial](), list[str]()
    for resource in cluster.services():
        try:
            comes_to = _outcome(resource, cluster)
            groups = {each.component: max(1, each.groups) for each in comes_to.roles}
            made.append(_trial(resource, comes_to, groups, roles, within))
        except QuestionUnanswered as error:
            problems.append(str(error).rstrip("."))
    return made, problems


async def of_service(client: Client, namespace: str, name: str, roles: Collection[str], within: int) -> Trial:
    """Return a trial for one more group of each role of a service. Raises KubeError, NotFound for the name of the service,
    and Unanswered.
    """
    body = await read_service_object(client, namespace, name)
    kept = await list_all(client, sorted(SURVIVES), namespace, selector(name))
    cluster = await _cluster(client, {namespace}, [*kept, body])
    resource = next((each for each in cluster.services() if each.ref[1:] == (namespace, name)), None)
    if resource is None:
        raise QuestionUnanswered(
            f"no InferenceService can be derived from {namespace}/{name} yet: `ome explain {name} -n {namespace}` shows why."
        )
    comes_to = _outcome(resource, cluster)
    return _trial(resource, comes_to, {each.component: 1 for each in comes_to.roles}, roles, within)


async def _cluster(client: Client, namespaces: Collection[str], given: Sequence[Manifest]) -> ClusterCache:
    """Return the objects that services may refer to, with the given objects, which replace those of the cluster."""
    # Namespaced objects of sglang.ai are left out: services would be derived from them, and would be checked, too.
    kinds = (*CATALOG, *(kind for kind in SHORT if not RESOURCES[kind].namespaced), "Node", RECORD)
    there = await listed_around(client, kinds, sorted(namespaces), optional=("Node", RECORD))
    agent = any(body["kind"] == RECORD for body in there)
    return build_cluster([*there, *given], model_agent=agent)


def _outcome(resource: Resource, cluster: ClusterCache) -> TargetOutcome:
    """Return the objects that the operator would create for a service. Raises Unanswered if they cannot be computed or
    contain no pods.
    """
    which, service = resource.ref, resource.parsed
    if not isinstance(service, InferenceService):
        why = service.why if isinstance(service, Invalid) else "the object is not an InferenceService"
        raise QuestionUnanswered(f"the InferenceService {which.name} in namespace {which.namespace} cannot be read: {why}.")
    comes_to = compute_outcome(service, cluster.deps(), cluster.children_of(which.namespace, which.name).values())
    if not comes_to.workloads:
        raise QuestionUnanswered(
            f"{which.namespace}/{which.name} has no pods: {'; '.join(comes_to.problems) or 'nothing to run'}"
        )
    return comes_to


def _trial(
    resource: Resource, comes_to: TargetOutcome, groups: dict[str, int], roles: Collection[str], within: int
) -> Trial:
    which = resource.ref
    wanted = {name: number for name, number in groups.items() if not roles or name in roles}
    if not wanted:
        has = ", ".join(each.title for each in comes_to.roles)
        raise QuestionUnanswered(f"{which.namespace}/{which.name} has no such role: set --role to one of {has}.")
    return trial(which.name, which.namespace, comes_to.workloads, wanted, uuid.uuid4().hex[:8], within)


# --- the look -----------------------------------------------------------------------------------------------------------


class PreflightRun:
    """The check pods of a command, from their creation to their removal."""

    def __init__(self, client: Client, trials: Sequence[Trial], within: int, say: Say) -> None:
        self._client, self._trials, self._within, self._say = client, trials, within, say
        self._posts: list[asyncio.Future[Manifest]] = []
        """Create requests, which are never cancelled: an object whose response was lost would not be removed."""
        self._begun = 0.0
        self._simulated: frozenset[str] | None = None
        """Names of simulated nodes; None until a rank has a node."""

    async def run(self, before: Callable[[], Awaitable[None]] | None = None) -> tuple[list[RankCheck], float]:
        """Return the result of each rank, and the duration in seconds. `before` is awaited before the pods are removed.

        Raises KubeError if a pod cannot be created, and Stopped after a signal. In both cases everything created is removed.
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
        for each in self._trials:  # without the right to list, nothing must be created, because it could not be removed
            for kind in ("Service", "Pod"):
                await self._client.list_objects(kind, each.namespace, label_selector=each.selector)
        self._begun = loop.time()
        for each in self._trials:
            headless = await self._post(each.headless)
            await asyncio.gather(*(self._post(with_owner_reference(pod, headless)) for pod in each.pods.values()))
        ranks = await self._ended()
        seconds = loop.time() - self._begun
        if before is not None:
            await before()
        return ranks, seconds

    async def _post(self, manifest: Manifest) -> Manifest:
        post = asyncio.ensure_future(self._client.create(manifest))
        self._posts.append(post)
        return await asyncio.shield(post)

    async def _ended(self) -> list[RankCheck]:
        """Wait until all ranks are done, or the time is up, and return their results."""
        sizes = [max(place.rank for place in each.pods) + 1 for each in self._trials]
        longest = self._within + check_time_limit(max(sizes), self._within) + SLACK
        told, ranks = "", list[RankCheck]()
        while True:
            now = asyncio.get_running_loop().time() - self._begun
            try:
                ranks = await self._without_process([each for trial in self._trials for each in await self._looked(trial)])
            except Transient as error:
                if now > longest:
                    raise
                now_told = f"the API server does not respond: {error}"
            else:
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
        """Return the ranks. Ranks without a result on simulated nodes are marked as ended, because no check runs on such
        nodes.
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
                    f"some objects of the check may not have been deleted ({why}). Their pods end by themselves. To "
                    f"delete them:  kubectl delete service,pod -n {each.namespace} -l {each.selector}"
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
                for kind, metadata in there:
                    if metadata["uid"] not in asked:
                        await self._delete(kind, each.namespace, metadata)
                        asked.add(metadata["uid"])
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
