"""Runs the part of the operator that works while it leads (`Manager` and its watches) in the test's process, against a
real API server. Instead of the operator's pure functions, it calls functions of a test.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.controllers.base import CORE, Sync
from ome_operator.controllers.manager import Manager
from ome_operator.controllers.watched_kinds import watches_of
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.reconcile.plan import Plan
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.machinery.metrics import Metrics
from ome_operator.settings import Settings
from ome_operator.watch.informer import Informer

_NUMBER = itertools.count()


def refuse(before: dict[str, object], generation: int, reason: str, why: str, now: datetime, **_: bool) -> Plan:
    """Return the status of a service whose spec is refused, as sync.refuse_spec does, without times."""
    return Plan(status=status("False", reason, why))


def status(ready: str, reason: str, message: str = "") -> dict[str, Any]:
    """Return a status that contains only this condition."""
    since = "2026-01-01T00:00:00Z"
    one = {"type": "Ready", "status": ready, "reason": reason, "message": message, "lastTransitionTime": since}
    return {"conditions": [one]}


def silent(*_: Any) -> dict[str, Any]:
    """Return an empty status, for catalog objects about which nothing has to be reported."""
    return {}


def wall() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def idle(service: InferenceService, deps: Deps, observed: Observed, now: datetime) -> Plan:
    """Return a plan without any write."""
    return Plan(status=dict(service.status))


class Counted:
    """Counts the requests of a client by verb and kind."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, int]] = []

    def __call__(self, verb: str, kind: str, code: int, seconds: float) -> None:
        self.requests.append((verb, kind, code))

    def writes(self) -> list[tuple[str, str, int]]:
        """Return (verb, kind, status code) of all requests except reads."""
        return [one for one in self.requests if one[0] not in ("get", "list")]


@asynccontextmanager
async def leading(
    connection: Connection, sync: Sync = idle, settings: Settings | None = None
) -> AsyncIterator[tuple[Manager, Informer, Counted]]:
    """Run a leader until the `with` block ends."""
    settings, counted = settings or Settings(), Counted()
    client, session = Client(connection, count=counted), connection.session(limit=0, agent="test")
    quiet = replace(CORE, model_status=silent, runtime_status=silent, accelerator_status=silent)
    core = replace(quiet, sync=sync, refuse=refuse, models_of=lambda _: (), runtimes_of=lambda _: ())
    leader = Manager(settings, core, client, Metrics(), wall)
    informer = Informer(watches_of(), leader, session=session, server=connection.server, server_timeout=600)
    watching = asyncio.create_task(informer.run())

    async def work() -> None:
        await informer.complete.wait()
        await leader.run()

    working = asyncio.create_task(work())
    try:
        async with asyncio.timeout(30):
            await informer.complete.wait()
        yield leader, informer, counted
        assert not watching.done(), watching
        assert not working.done(), working
    finally:
        await leader.stop(5)
        for task in (working, watching):
            task.cancel()
        await asyncio.wait([working, watching], timeout=10)
        await client.close()
        await session.close()


async def until(description: str, holds: Callable[[], bool], seconds: float = 15.0) -> None:
    """Poll until `holds` returns True. Fail with the description `description` after `seconds` seconds."""
    try:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {description}") from None


def service(**spec: Any) -> dict[str, Any]:
    """Return a service with a unique name."""
    name = {"name": f"s{next(_NUMBER)}", "namespace": "default"}
    return {"apiVersion": keys.API_VERSION, "kind": "InferenceService", "metadata": name, "spec": {"engine": {}, **spec}}


def labels(owner: str) -> dict[str, str]:
    """Return the labels of a child object."""
    return {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: owner}


def small_role(name: str, owner: str, uid: str = "") -> dict[str, Any]:
    """Return a Role with the labels of a child of the InferenceService `owner`, whose controller is this service if `uid` is
    given.
    """
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "labels": labels(owner)}
    if uid:
        reference = {"apiVersion": keys.API_VERSION, "kind": "InferenceService", "name": owner, "uid": uid}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules}
