"""The agent's process: watch models, download and verify the models that belong on this node, and write the node's
NodeModels record.
"""

import asyncio
import contextlib
import logging
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from ome_operator import keys
from ome_operator.agent import compile_server, record
from ome_operator.agent.fair_queue import FairQueue
from ome_operator.agent.locations import normalized_path, path_conflict, uses_node_path
from ome_operator.agent.namespaces import Namespaces
from ome_operator.agent.parsing import PARSE, parse_model, path_priority, quota_entry, uid_of
from ome_operator.agent.prefetch import Prefetcher
from ome_operator.agent.unused_directories import UnusedDirectories
from ome_operator.agent.work import AgentSettings, Work
from ome_operator.api import Invalid
from ome_operator.core.observed import from_api
from ome_operator.core.weights.mount import LOCAL, AnyModel, Weights, root_of, weights
from ome_operator.core.weights.node_selection import UnreadableSelection, needs_agent, selects_node
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.kube.errors import AlreadyExists, KubeError, NotFound
from ome_operator.kube.resources import RESOURCES
from ome_operator.machinery.quota import Quota
from ome_operator.machinery.resync import Resync
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.util.wall_clock import WallClock, now
from ome_operator.watch.informer import Informer
from ome_operator.watch.sink import CannotWatch, WatchedKind

logger = logging.getLogger(__name__)

T = TypeVar("T")
KIND = "NodeModels"
TICK = 1.0
REFUSED_LAST = 30.0
"""Maximum number of seconds between two attempts to write a record that the API server rejects. The limit is high because
the agents of all nodes retry."""
PROGRESS_EVERY = 10.0
"""Seconds between two reports in which only the progress changed."""
AGAIN_EVERY = 30.0
"""Seconds after which the record is written again without a change. The agent has no permission to read records, so it
does not notice if the record was deleted, by a user or with its Node. Measured: writing an unchanged record costs the API
server 6 ms and creates no new version."""
LABELS_EVERY = 30.0
"""Seconds between two reads of the labels of the Node."""
AUDIT_EVERY = 300.0
"""Seconds between two complete lists of each kind of model, because a watch can lose deletions permanently (decisions 1)."""
AUDIT_DEBOUNCE = 1.0
"""Seconds from the restart of a watch with a new list until the known models of its kind are compared with a list."""


class Agent:
    """The agent process of one node. Its watches deliver their events to this object."""

    def __init__(
        self, settings: AgentSettings, client: Client, wall: WallClock = now, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._node, self._settings, self._client = settings.node, settings, client
        self._wall, self._clock = wall, clock
        self._models: dict[str, AnyModel] = {}
        self._unparsed: dict[str, str] = {}
        """Maps a UID to the kind of a model that this agent cannot parse. The agent does not know the directories of
        these models."""
        self._broken: Mapping[str, str] = {}
        """Maps a UID to the error message of a model that this agent cannot handle. The agent reports this model as
        Failed; other models are not affected."""
        self._quota = Quota(settings.policy.models_per_namespace)
        self._audit = Resync(
            tuple(PARSE),
            known=self._known,
            listed=self._listed,
            gone=lambda _, uid: self._forget(uid),
            queue=WorkQueue(workers=1, first=5.0, last=60.0, jitter=random.random),
            interval=AUDIT_EVERY * random.uniform(0.9, 1.1),
            debounce=AUDIT_DEBOUNCE,
        )
        self._works: dict[str, Work] = {}
        self._unused_directories = UnusedDirectories(settings.roots, settings.policy.remove_after, wall=wall)
        self._prefetcher = Prefetcher(int(settings.policy.prefetch_gb * 1e9), settings.policy.prefetch_mbps * 1e6)
        self._namespaces = Namespaces(self._uid_of)
        self._compile_server = compile_server.of(settings.roots, settings.policy.compile_cache_gb, self._uid_of)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turns, self._looks = (FairQueue(settings.policy.models, settings.policy.turn) for _ in range(2))
        self._labels: Mapping[str, str] = {}
        self._written: Mapping[str, Any] | None = None
        self._written_at = self._looked_at = -1e9
        self._ticked_at, self._report_from = self._clock(), 0.0
        self._failure, self._failures = "", 0

    # --- the sink -----------------------------------------------------------------------------------------------------

    def handle_object(self, kind: str, body: Mapping[str, Any]) -> None:
        """Store a model that a watch has delivered as added or modified."""
        uid, parsed = parse_model(kind, body)
        self._forget(uid)
        if kind == "BaseModel":
            self._quota.update_member(*quota_entry(uid, body))
        if isinstance(parsed, Invalid):
            self._unparsed[uid] = kind
        elif not parsed.deleting:
            self._models[uid] = parsed

    def handle_deletion(self, kind: str, body: Mapping[str, Any]) -> None:
        """Forget a model whose deletion a watch has delivered."""
        self._forget(uid_of(body))

    def _forget(self, uid: str) -> None:
        self._models.pop(uid, None)
        self._unparsed.pop(uid, None)
        self._quota.remove_member(uid)

    def handle_relist(self, kind: str) -> None:
        """Record that a kind of models was listed again. Models from earlier lists may have been deleted."""
        self._audit.enqueue_kind(kind)

    def _known(self, kind: str) -> set[str]:
        read = {uid for uid, model in self._models.items() if model.kind == kind}
        return read | {uid for uid, other in self._unparsed.items() if other == kind}

    async def _listed(self, kind: str) -> set[str]:
        return await self._client.list_uids(kind)

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def run(self, complete: asyncio.Event) -> None:
        """Run forever. `complete` is set when all models were received. While the API server is not reachable, downloads
        continue, and are reported later.
        """
        await asyncio.gather(self._audit.run(), self._passes(complete), self._compile_server.run())

    async def _passes(self, complete: asyncio.Event) -> None:
        while True:
            self._ticked_at = self._clock()
            try:
                if self._ticked_at - self._looked_at > LABELS_EVERY:
                    await self._read_node()
                await self._namespaces.check_namespaces(self._settings.roots, self._namespaced())
                self._keep()
                # A record that contains only a part of the models would remove node labels.
                all_known = complete.is_set() and not self._namespaces.waiting
                if all_known and self._clock() >= self._report_from:
                    await self._report()
                    self._failures = 0
            except KubeError as error:
                self._failures += 1
                self._report_from = self._clock() + min(REFUSED_LAST, TICK * 2 ** min(self._failures, 10))
                logger.info("request to the API server failed: %s", error)
            except Exception as error:  # running downloads continue
                if repr(error) != self._failure:
                    logger.exception("a pass of the agent failed; passes are repeated every second")
                self._failure = repr(error)
            await asyncio.sleep(TICK)

    def alive(self) -> tuple[bool, str]:
        """Return whether the loop is running, and a text for the liveness probe."""
        age = self._clock() - self._ticked_at
        return age < 120, "ok" if age < 120 else f"the last pass was {age:.0f} s ago"

    async def _read_node(self) -> str:
        """Read the labels of this node, and return the UID of its Node."""
        node = await self._client.get("Node", "", self._node)
        self._labels, self._looked_at = node["metadata"].get("labels") or {}, self._clock()
        return from_api.uid(node)

    async def _uid_of(self, namespace: str) -> str:
        return from_api.uid(await self._client.get("Namespace", "", namespace))

    def _namespaced(self) -> dict[str, tuple[str, str]]:
        """Return the BaseModels that belong on this node, as a mapping from their UIDs to (namespace, root directory)."""
        namespaced = {uid: model for uid, model in self._models.items() if model.namespace}
        selected = {uid: model for uid, model in namespaced.items() if self._try({}, uid, partial(self._wanted, model))}
        roots, misplaced = self._settings.roots, self._settings.locations.misplaced_message
        root = {uid: "" if misplaced(model) else root_of(weights(model).path, roots) for uid, model in selected.items()}
        return {uid: (model.namespace, root[uid]) for uid, model in selected.items()}

    def _keep(self) -> None:
        """Start the passes over models that are due, and stop the work on models that no longer belong on this node."""
        broken: dict[str, str] = {}
        settled = self._namespaces.is_checked
        here = {uid: each for uid, each in self._models.items() if self._try(broken, uid, partial(self._wanted, each))}
        wanted = {uid: model for uid, model in here.items() if settled(uid) or not model.namespace}
        for uid in self._works.keys() - wanted.keys():
            self._stop_work(uid)
        taken: dict[str, Weights] = {}
        for uid, model in sorted(wanted.items(), key=lambda each: path_priority(each[1])):
            work = self._try(broken, uid, partial(self._work, uid, model))
            if work is None:
                self._stop_work(uid)
                continue
            if refusal := self._path_refusal(work, taken):
                work.owns_link = False
                work.refuse(refusal)
                if task := self._tasks.pop(uid, None):
                    task.cancel()
            elif uid not in self._tasks and work.due <= self._clock() and not self._is_downloading(work):
                self._tasks[uid] = asyncio.create_task(self._pass(uid, work))
        self._broken = broken

    def _try(self, broken: dict[str, str], uid: str, step: Callable[[], T]) -> T | None:
        """Return the result of `step`. After an error, record it for the model `uid` in `broken`, and return None."""
        try:
            return step()
        except UnreadableSelection as error:
            broken[uid] = str(error)
        except OSError as error:
            reason = error.strerror or error
            broken[uid] = f"cannot access spec.storage.path {weights(self._models[uid]).path[:100]}: {reason}"
        except Exception as error:
            broken[uid] = f"internal error of the agent ({type(error).__name__}): please report it with the agent's log"
            if self._broken.get(uid) != broken[uid]:
                logger.exception("%s %s", self._models[uid].kind, self._models[uid].name)
        if self._broken.get(uid) != broken[uid]:
            logger.warning("%s %s: %s", self._models[uid].kind, self._models[uid].name, broken[uid])
        return None

    def _path_refusal(self, work: Work, taken: dict[str, Weights]) -> str:
        """Return a message if a model cannot use its path, else "". `taken` maps paths to the models that use them, and that
        take precedence over this model. If the model can use its path, the path is added to `taken`.
        """
        identity = work.identity
        if not uses_node_path(identity):
            return ""
        message = path_conflict(identity, taken)
        if not message:
            work.owns_link = taken.setdefault(normalized_path(identity), identity) is identity
        return message

    def _is_downloading(self, work: Work) -> bool:
        """Return whether another model downloads the files of this model, so that this model waits and reuses the files."""
        return any(self._works[uid].shares_download(work) for uid in self._tasks if uid in self._works)

    def _wanted(self, model: AnyModel) -> bool:
        if self._quota.is_beyond_limit(model.uid):  # the operator states this in the model's status
            return False
        if not needs_agent(model) or not selects_node(model, self._node, self._labels):
            return False
        if model.spec.disabled and not self._settings.locations.has_files_of(model):
            return False
        local = model.spec.storage.storage_uri.startswith(LOCAL)
        # The agent cannot see files outside its roots; the administrator who put them there labels the nodes.
        return not (local and self._settings.locations.outside_message(model))

    def _work(self, uid: str, model: AnyModel) -> Work:
        work = self._works.get(uid)
        if work is None or work.identity != weights(model):
            self._stop_work(uid)
            work = self._works[uid] = Work(model, self._settings, self._wall)
        work.refresh(model)
        return work

    def _stop_work(self, uid: str) -> None:
        self._works.pop(uid, None)
        self._unused_directories.mark_outdated()
        if task := self._tasks.pop(uid, None):
            task.cancel()

    async def _pass(self, uid: str, work: Work) -> None:
        async with self._looks.turn(work.model.namespace):  # does not wait for downloads, which may take hours
            await work.look_up_revision()
        async with self._turns.turn(work.model.namespace) as over:
            await work.run(over)
        self._unused_directories.mark_outdated()
        if self._works.get(uid) is work:
            self._tasks.pop(uid, None)

    # --- the record ---------------------------------------------------------------------------------------------------

    async def _report(self) -> None:
        """Write the record if it changed. Changes that affect only the progress are written less often."""
        await self._unused_directories.scan()
        named_directories = {str(work.store.root) for work in self._works.values()}
        unused = self._unused_directories.unused_record(named_directories, offer=not self._unparsed and not self._broken)
        status = record.status(self._entries(), unused, self._prefetcher.status())
        tick = self._clock()
        # The response states which directories may be removed, and which the agent should read into the page cache.
        awaited = self._unused_directories.has_offer or self._prefetcher.is_listed
        age, every = tick - self._written_at, PROGRESS_EVERY if awaited else AGAIN_EVERY
        if status == self._written and age < every:
            return
        if self._written is not None and not record.essential_change(self._written, status) and age < PROGRESS_EVERY:
            return
        spec = (await self._write(status)).get("spec") or {}
        self._written, self._written_at = status, tick
        self._prefetcher.follow(spec.get("prefetch") or (), {work.mounted_directory() for work in self._works.values()})
        await self._unused_directories.remove(spec.get("remove") or ())

    def _entries(self) -> Iterator[Mapping[str, Any]]:
        """Yield the entry of each model in the record."""
        for work in self._works.values():
            yield record.entry(work.model, work.report())
        for uid, why in self._broken.items():
            if uid in self._models:
                yield record.entry(self._models[uid], record.Report(record.FAILED, message=why))

    async def _write(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write the record, and return the stored object, which includes the fields that the operator has written."""
        manifest = {"apiVersion": keys.API_VERSION, "kind": KIND, "metadata": {"name": self._node}}
        try:
            return (await self._client.apply({**manifest, "status": status}, subresource="status")).body
        except NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": await self._read_node()}
            with contextlib.suppress(AlreadyExists):
                await self._client.create({**manifest, "metadata": {"name": self._node, "ownerReferences": [owner]}})
            return (await self._client.apply({**manifest, "status": status}, subresource="status")).body

    async def close(self) -> None:
        """Stop all work; the files on the disk stay unchanged."""
        for task in (tasks := list(self._tasks.values())):
            task.cancel()
        await asyncio.gather(*tasks, self._prefetcher.close(), self._compile_server.close(), return_exceptions=True)


Serve = Callable[[Agent], Awaitable[None]]


async def run(settings: AgentSettings, connection: Connection, stop: asyncio.Event, serve: Serve) -> int:
    """Run an agent until `stop` is set, and return the exit code. `serve` is called once the agent can answer probes."""
    client = Client(connection, connections=4, manager=keys.AGENT)
    session = connection.session(limit=0, agent=keys.AGENT)
    agent = Agent(settings, client, wall=now)
    kinds = [WatchedKind(kind, RESOURCES[kind].group, RESOURCES[kind].version, RESOURCES[kind].plural) for kind in PARSE]
    informer = Informer(kinds, agent, session=session, server=connection.server, server_timeout=600)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(agent)
    tasks = {asyncio.create_task(job) for job in (informer.run(), agent.run(informer.complete))}
    stopped = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({*tasks, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for job in done - {stopped}:
            error = job.exception()
            logger.critical("stopping: %s", error, exc_info=None if isinstance(error, CannotWatch) else error)
        return 0 if done == {stopped} else 1
    finally:
        for task in (*tasks, stopped):
            task.cancel()
        await asyncio.wait({*tasks, stopped}, timeout=5)
        await agent.close()
        await session.close()
        await client.close()
