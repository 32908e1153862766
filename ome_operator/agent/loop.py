"""The agent's process: watches models, works on those that this node is to hold, and keeps the node's record."""

import asyncio
import contextlib
import logging
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.agent import record
from ome_operator.agent.leftovers import Leftovers
from ome_operator.agent.nodes import LOCAL, belongs, concerns, misplaced, present
from ome_operator.agent.record import Held
from ome_operator.agent.work import AgentSettings, Work
from ome_operator.api import FineTunedWeight, Invalid, Model
from ome_operator.core.observed import from_api
from ome_operator.core.weights.mount import weights
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.kube.errors import AlreadyExists, KubeError, NotFound
from ome_operator.kube.resources import RESOURCES
from ome_operator.machinery.relist import Audit
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.watch.informer import Informer
from ome_operator.watch.sink import CannotWatch, Watched

logger = logging.getLogger(__name__)

KIND = "NodeModels"
PARSE: Mapping[str, Callable[[Mapping[str, Any]], Held | Invalid]] = {
    "ClusterBaseModel": Model.parse,
    "BaseModel": Model.parse,
    "FineTunedWeight": FineTunedWeight.parse,
}
TICK = 1.0
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

    def __init__(self, settings: AgentSettings, client: Client) -> None:
        self._node, self._settings, self._client = settings.node, settings, client
        self._models: dict[str, Held] = {}
        self._unread: dict[str, str] = {}
        """UID -> kind of models that this agent cannot read, so that it does not know what they name."""
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
        self._leftovers = Leftovers(settings.roots, settings.remove_after)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(settings.models)
        self._labels: Mapping[str, str] = {}
        self._written: Mapping[str, Any] | None = None
        self._written_at = self._looked_at = -1e9
        self._ticked_at = time.monotonic()

    # --- the sink -----------------------------------------------------------------------------------------------------

    def seen(self, kind: str, body: Mapping[str, Any]) -> None:
        """A model is there."""
        uid, parsed = from_api.uid(body), PARSE[kind]({**body, "kind": kind})
        self._forget(uid)
        if isinstance(parsed, Invalid):
            self._unread[uid] = kind
        elif not parsed.deleting:
            self._models[uid] = parsed

    def deleted(self, kind: str, body: Mapping[str, Any]) -> None:
        """A model was deleted."""
        self._forget(from_api.uid(body))

    def _forget(self, uid: str) -> None:
        self._models.pop(uid, None)
        self._unread.pop(uid, None)

    def relisted(self, kind: str) -> None:
        """A list of models was not the first to begin: what was known before may be gone."""
        self._audit.relisted(kind)

    def _known(self, kind: str) -> set[str]:
        read = {uid for uid, model in self._models.items() if model.kind == kind}
        return read | {uid for uid, other in self._unread.items() if other == kind}

    async def _listed(self, kind: str) -> set[str]:
        return {one["uid"] for one in await self._client.list_metadata(kind)}

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def run(self, complete: asyncio.Event) -> None:
        """For ever, `complete` being set when all models were seen. Without the API server the work goes on, and is reported
        later.
        """
        await asyncio.gather(self._audit.run(), self._passes(complete))

    async def _passes(self, complete: asyncio.Event) -> None:
        while True:
            self._ticked_at = time.monotonic()
            try:
                if self._ticked_at - self._looked_at > LOOK_EVERY:
                    await self._look()
                self._keep()
                if complete.is_set():  # a record with half of the models would take labels away
                    await self._report()
            except KubeError as error:
                logger.info("the API server: %s", error)
            await asyncio.sleep(TICK)

    def alive(self) -> tuple[bool, str]:
        """Whether the loop goes on."""
        age = time.monotonic() - self._ticked_at
        return age < 120, "ok" if age < 120 else f"no pass for {age:.0f} s"

    async def _look(self) -> str:
        """Learn the labels of this node; the UID of its Node."""
        node = await self._client.get("Node", "", self._node)
        self._labels, self._looked_at = node["metadata"].get("labels") or {}, time.monotonic()
        return from_api.uid(node)

    def _keep(self) -> None:
        """Start what is due, and leave what is not wanted here any more."""
        wanted = {uid: one for uid, one in self._models.items() if self._wanted(one)}
        for uid in self._works.keys() - wanted.keys():
            self._leave(uid)
        owners: dict[str, Work] = {}
        for uid, model in sorted(wanted.items(), key=lambda each: (each[1].kind, each[1].namespace, each[1].name)):
            work = self._work(uid, model)
            other = owners.setdefault(str(work.store.path), work)
            if other.key != work.key:
                first = f"{other.model.kind} {other.model.name}"
                said = f"spec.storage.path {work.store.path} is that of {first}, whose files are others: choose another"
                work.refuse(said)
            elif uid not in self._tasks and work.due <= time.monotonic():
                self._tasks[uid] = asyncio.create_task(self._pass(uid, work))

    def _wanted(self, model: Held) -> bool:
        if not concerns(model) or not belongs(model, self._node, self._labels):
            return False
        if model.spec.disabled and not present(model):
            return False
        local = model.spec.storage.storage_uri.startswith(LOCAL)
        return not (local and misplaced(model, self._settings.roots))  # we do not see it: whoever put it there says so

    def _work(self, uid: str, model: Held) -> Work:
        work = self._works.get(uid)
        if work is None or work.key != (weights(model).uri, weights(model).path):
            self._leave(uid)
            work = self._works[uid] = Work(model, self._settings)
        work.refresh(model)
        return work

    def _leave(self, uid: str) -> None:
        self._works.pop(uid, None)
        self._leftovers.changed()
        if task := self._tasks.pop(uid, None):
            task.cancel()

    async def _pass(self, uid: str, work: Work) -> None:
        async with self._slots:
            await work.run()
        self._leftovers.changed()
        if self._works.get(uid) is work:
            self._tasks.pop(uid, None)

    # --- the record ---------------------------------------------------------------------------------------------------

    async def _report(self) -> None:
        """Write the record when it says something new; plain progress not too often."""
        await self._leftovers.look()
        named = {str(one.store.root) for one in self._works.values()}
        unused = self._leftovers.unused(named, offer=not self._unread)
        said = record.status((record.entry(one.model, one.report()) for one in self._works.values()), unused)
        now = time.monotonic()
        # While we offer to remove something the record is written often: the answer says whether we may.
        if said == self._written and now - self._written_at < (PROGRESS_EVERY if self._leftovers.offers else AGAIN_EVERY):
            return
        if self._written is not None and not record.flips(self._written, said) and now - self._written_at < PROGRESS_EVERY:
            return
        answer = await self._write(said)
        self._written, self._written_at = said, now
        await self._leftovers.remove((answer.get("spec") or {}).get("remove") or ())

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
    agent = Agent(settings, client)
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
