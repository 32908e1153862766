"""The agent's process: watches models, works on those that this node is to hold, and keeps the node's record."""

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
from ome_operator.agent import record
from ome_operator.agent.leftovers import Leftovers
from ome_operator.agent.namespaces import Namespaces
from ome_operator.agent.nodes import Odd, belongs, concerns
from ome_operator.agent.places import LOCAL, conflict, spot, takes_path
from ome_operator.agent.reading import PARSE, place, rank, read, uid_of
from ome_operator.agent.record import Held
from ome_operator.agent.turns import Turns
from ome_operator.agent.work import AgentSettings, Work
from ome_operator.api import Invalid
from ome_operator.core.observed import from_api
from ome_operator.core.weights.mount import Weights, root_of, weights
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.kube.errors import AlreadyExists, KubeError, NotFound
from ome_operator.kube.resources import RESOURCES
from ome_operator.machinery.quota import Quota
from ome_operator.machinery.relist import Audit
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.util.wall_clock import WallClock, now
from ome_operator.watch.informer import Informer
from ome_operator.watch.sink import CannotWatch, Watched

logger = logging.getLogger(__name__)

T = TypeVar("T")
KIND = "NodeModels"
TICK = 1.0
REFUSED_LAST = 30.0
"""Seconds at most between two writes of a record that the API server does not take; an agent for each node asks."""
PROGRESS_EVERY = 10.0
"""Seconds between two reports of nothing but progress."""
AGAIN_EVERY = 30.0
"""Seconds after which the record is written again: somebody may delete it, and it goes with its Node, also where that is
registered anew. Nothing tells of it, for agents have no right to read records. Measured, writing what is there already costs
the API server 6 ms and makes no new version.
"""
LOOK_EVERY = 30.0
"""Seconds between two looks at the labels of the Node."""
AUDIT_EVERY = 300.0
"""Seconds between two lists of a kind of models: a watch may lose deletions for good (decisions 1)."""
AUDIT_DEBOUNCE = 1.0
"""Seconds from a list that began again to the audit of its kind."""


class Agent:
    """One process on one node; the sink of its watches."""

    def __init__(
        self, settings: AgentSettings, client: Client, wall: WallClock = now, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._node, self._settings, self._client = settings.node, settings, client
        self._wall, self._clock = wall, clock
        self._models: dict[str, Held] = {}
        self._unread: dict[str, str] = {}
        """UID -> kind of models that this agent cannot read, so that it does not know what they name."""
        self._broken: Mapping[str, str] = {}
        """UID -> what is wrong with a model that this agent can do nothing for: it is Failed, and all others go on."""
        self._failure = ""
        self._quota = Quota(settings.models_per_namespace)
        self._audit = Audit(
            tuple(PARSE),
            known=self._known,
            listed=self._listed,
            gone=lambda _, uid: self._forget(uid),
            queue=WorkQueue(workers=1, first=5.0, last=60.0, jitter=random.random),
            interval=AUDIT_EVERY * random.uniform(0.9, 1.1),
            debounce=AUDIT_DEBOUNCE,
        )
        self._works: dict[str, Work] = {}
        self._leftovers = Leftovers(settings.roots, settings.remove_after, wall=wall)
        self._namespaces = Namespaces(self._uid_of)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turns = Turns(settings.models, settings.turn)
        self._labels: Mapping[str, str] = {}
        self._written: Mapping[str, Any] | None = None
        self._written_at = self._looked_at = -1e9
        self._ticked_at = self._clock()
        self._failures, self._report_from = 0, 0.0

    # --- the sink -----------------------------------------------------------------------------------------------------

    def seen(self, kind: str, body: Mapping[str, Any]) -> None:
        """A model is there."""
        uid, parsed = read(kind, body)
        self._forget(uid)
        if kind == "BaseModel":
            self._quota.see(*place(uid, body))
        if isinstance(parsed, Invalid):
            self._unread[uid] = kind
        elif not parsed.deleting:
            self._models[uid] = parsed

    def deleted(self, kind: str, body: Mapping[str, Any]) -> None:
        """A model was deleted."""
        self._forget(uid_of(body))

    def _forget(self, uid: str) -> None:
        self._models.pop(uid, None)
        self._unread.pop(uid, None)
        self._quota.gone(uid)

    def relisted(self, kind: str) -> None:
        """A list of models was not the first to begin: what was known before may be gone."""
        self._audit.relisted(kind)

    def _known(self, kind: str) -> set[str]:
        read = {uid for uid, model in self._models.items() if model.kind == kind}
        return read | {uid for uid, other in self._unread.items() if other == kind}

    async def _listed(self, kind: str) -> set[str]:
        return await self._client.list_uids(kind)

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def run(self, complete: asyncio.Event) -> None:
        """For ever, `complete` being set when all models were seen. Without the API server the work goes on, and is reported
        later.
        """
        await asyncio.gather(self._audit.run(), self._passes(complete))

    async def _passes(self, complete: asyncio.Event) -> None:
        while True:
            self._ticked_at = self._clock()
            try:
                if self._ticked_at - self._looked_at > LOOK_EVERY:
                    await self._look()
                await self._namespaces.look(self._settings.roots, self._namespaced())
                self._keep()
                # A record with half of the models would take labels away.
                whole = complete.is_set() and not self._namespaces.waiting
                if whole and self._clock() >= self._report_from:
                    await self._report()
                    self._failures = 0
            except KubeError as error:
                self._failures += 1
                self._report_from = self._clock() + min(REFUSED_LAST, TICK * 2 ** min(self._failures, 10))
                logger.info("the API server: %s", error)
            except Exception as error:  # what is fetched goes on
                if repr(error) != self._failure:
                    logger.exception("a pass failed, and is tried again every second")
                self._failure = repr(error)
            await asyncio.sleep(TICK)

    def alive(self) -> tuple[bool, str]:
        """Whether the loop goes on."""
        age = self._clock() - self._ticked_at
        return age < 120, "ok" if age < 120 else f"no pass for {age:.0f} s"

    async def _look(self) -> str:
        """Learn the labels of this node; the UID of its Node."""
        node = await self._client.get("Node", "", self._node)
        self._labels, self._looked_at = node["metadata"].get("labels") or {}, self._clock()
        return from_api.uid(node)

    async def _uid_of(self, namespace: str) -> str:
        return from_api.uid(await self._client.get("Namespace", "", namespace))

    def _namespaced(self) -> dict[str, tuple[str, str]]:
        """Namespace of each BaseModel that is to be here, and the root that it is to be below."""
        tried = {uid: model for uid, model in self._models.items() if model.namespace}
        mine = {uid: model for uid, model in tried.items() if self._try({}, uid, partial(self._wanted, model))}
        roots, wrong = self._settings.roots, self._settings.places.misplaced
        where = {uid: "" if wrong(model) else root_of(weights(model).path, roots) for uid, model in mine.items()}
        return {uid: (model.namespace, where[uid]) for uid, model in mine.items()}

    def _keep(self) -> None:
        """Start what is due, and leave what is not wanted here any more."""
        broken: dict[str, str] = {}
        settled = self._namespaces.settled
        mine = {uid: model for uid, model in self._models.items() if self._try(broken, uid, partial(self._wanted, model))}
        wanted = {uid: model for uid, model in mine.items() if settled(uid) or not model.namespace}
        for uid in self._works.keys() - wanted.keys():
            self._leave(uid)
        taken: dict[str, Weights] = {}
        for uid, model in sorted(wanted.items(), key=lambda each: rank(each[1])):
            work = self._try(broken, uid, partial(self._work, uid, model))
            if work is None:
                self._leave(uid)
                continue
            if said := self._refused(work, taken):
                work.points = False
                work.refuse(said)
                if task := self._tasks.pop(uid, None):
                    task.cancel()
            elif uid not in self._tasks and work.due <= self._clock() and not self._comes(work):
                self._tasks[uid] = asyncio.create_task(self._pass(uid, work))
        self._broken = broken

    def _try(self, broken: dict[str, str], uid: str, step: Callable[[], T]) -> T | None:
        """What a step says of a model; None where the model breaks it, which costs this model alone."""
        try:
            return step()
        except Odd as error:
            broken[uid] = str(error)
        except OSError as error:
            said = error.strerror or error
            broken[uid] = f"the disk refuses spec.storage.path {weights(self._models[uid]).path[:100]}: {said}"
        except Exception as error:
            broken[uid] = f"the agent failed ({type(error).__name__}): please report this with its log"
            if self._broken.get(uid) != broken[uid]:
                logger.exception("%s %s", self._models[uid].kind, self._models[uid].name)
        if self._broken.get(uid) != broken[uid]:
            logger.warning("%s %s: %s", self._models[uid].kind, self._models[uid].name, broken[uid])
        return None

    def _refused(self, work: Work, taken: dict[str, Weights]) -> str:
        """Why a model cannot have its path, "" where it can: those that came before it have theirs."""
        mine = work.identity
        if not takes_path(mine):
            return ""
        said = conflict(mine, taken)
        if not said:
            work.points = taken.setdefault(spot(mine), mine) is mine
        return said

    def _comes(self, work: Work) -> bool:
        """Whether another model's files are on their way, which this work can take then."""
        others = (self._works[uid] for uid in self._tasks if uid in self._works)
        return any(other.lends(work) for other in others)

    def _wanted(self, model: Held) -> bool:
        if self._quota.beyond(model.uid):  # its status says so
            return False
        if not concerns(model) or not belongs(model, self._node, self._labels):
            return False
        if model.spec.disabled and not self._settings.places.present(model):
            return False
        local = model.spec.storage.storage_uri.startswith(LOCAL)
        return not (local and self._settings.places.outside(model))  # we do not see it: whoever put it there says so

    def _work(self, uid: str, model: Held) -> Work:
        work = self._works.get(uid)
        if work is None or work.identity != weights(model):
            self._leave(uid)
            work = self._works[uid] = Work(model, self._settings, self._wall)
        work.refresh(model)
        return work

    def _leave(self, uid: str) -> None:
        self._works.pop(uid, None)
        self._leftovers.changed()
        if task := self._tasks.pop(uid, None):
            task.cancel()

    async def _pass(self, uid: str, work: Work) -> None:
        async with self._turns.turn(work.model.namespace) as over:
            await work.run(over)
        self._leftovers.changed()
        if self._works.get(uid) is work:
            self._tasks.pop(uid, None)

    # --- the record ---------------------------------------------------------------------------------------------------

    async def _report(self) -> None:
        """Write the record when it says something new; plain progress not too often."""
        await self._leftovers.look()
        named = {str(one.store.root) for one in self._works.values()}
        unused = self._leftovers.unused(named, offer=not self._unread and not self._broken)
        said = record.status(self._entries(), unused)
        tick = self._clock()
        # While we offer to remove something the record is written often: the answer says whether we may.
        if said == self._written and tick - self._written_at < (PROGRESS_EVERY if self._leftovers.offers else AGAIN_EVERY):
            return
        if self._written is not None and not record.flips(self._written, said) and tick - self._written_at < PROGRESS_EVERY:
            return
        answer = await self._write(said)
        self._written, self._written_at = said, tick
        await self._leftovers.remove((answer.get("spec") or {}).get("remove") or ())

    def _entries(self) -> Iterator[Mapping[str, Any]]:
        """What is told of each model."""
        for work in self._works.values():
            yield record.entry(work.model, work.report())
        for uid, why in self._broken.items():
            if uid in self._models:
                yield record.entry(self._models[uid], record.Report(record.FAILED, message=why))

    async def _write(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write the record; what it is then, with what the operator has written into it."""
        manifest = {"apiVersion": keys.API_VERSION, "kind": KIND, "metadata": {"name": self._node}}
        try:
            return (await self._client.apply({**manifest, "status": said}, subresource="status")).body
        except NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": await self._look()}
            with contextlib.suppress(AlreadyExists):
                await self._client.create({**manifest, "metadata": {"name": self._node, "ownerReferences": [owner]}})
            return (await self._client.apply({**manifest, "status": said}, subresource="status")).body

    async def close(self) -> None:
        """Stop working; what is on the disk stays as it is."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


Serve = Callable[[Agent], Awaitable[None]]


async def run(settings: AgentSettings, connection: Connection, stop: asyncio.Event, serve: Serve) -> int:
    """Run an agent until it is stopped; the exit code. `serve` is given the agent once it can answer probes."""
    client = Client(connection, connections=4, manager=keys.AGENT)
    session = connection.session(limit=0, agent=keys.AGENT)
    agent = Agent(settings, client, wall=now)
    kinds = [Watched(kind, RESOURCES[kind].group, RESOURCES[kind].version, RESOURCES[kind].plural) for kind in PARSE]
    informer = Informer(kinds, agent, session=session, server=connection.server, server_timeout=600)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(agent)
    tasks = {asyncio.create_task(one) for one in (informer.run(), agent.run(informer.complete))}
    stopped = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({*tasks, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for one in done - {stopped}:
            error = one.exception()
            logger.critical("stopping: %s", error, exc_info=None if isinstance(error, CannotWatch) else error)
        return 0 if done == {stopped} else 1
    finally:
        for task in (*tasks, stopped):
            task.cancel()
        await asyncio.wait({*tasks, stopped}, timeout=5)
        await agent.close()
        await session.close()
        await client.close()
