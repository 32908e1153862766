"""One service from OME's workloads to ours: the old ones serve until the new slice is complete, then the names move."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ome_operator import keys, names
from ome_operator.adopt import takeover
from ome_operator.adopt.steps import Steps
from ome_operator.core.observed.from_api import controller, status_writers
from ome_operator.core.observed.managed_fields import applied_fields
from ome_operator.kube.client import Client
from ome_operator.kube.errors import NotFound
from ome_operator.kube.resources import RESOURCES

SCALERS = ("ScaledObject", "HorizontalPodAutoscaler")
WORKLOADS = ("Deployment", "LeaderWorkerSet", "StatefulSet")
REST = ("PodDisruptionBudget", "Service", "ServiceAccount", "RoleBinding", "Role", "ConfigMap")
OPTIONAL = ("ScaledObject", "LeaderWorkerSet")
"""Kinds that a cluster need not have."""

LOOK = 1.0
"""Seconds between two looks at what we wait for."""
SETTLE = 330.0
"""Seconds for the operator to write what it took over, and for old routers to end their requests."""


@dataclass(frozen=True)
class Old:
    """An object that OME made for a service."""

    kind: str
    metadata: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.metadata["name"])

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


async def olds(client: Client) -> dict[str, list[Old]]:
    """What InferenceServices control and our operator did not make, by the UID of the service."""
    found: dict[str, list[Old]] = {}
    for kind in (*SCALERS, *WORKLOADS, *REST):
        resource = RESOURCES[kind]
        if kind in OPTIONAL and resource.plural not in await client.served(resource.api_version):
            continue
        for metadata in await client.list_metadata(kind):
            owner = controller(metadata)
            if owner is not None and owner.get("kind") == "InferenceService" and not _ours(metadata):
                found.setdefault(str(owner.get("uid")), []).append(Old(kind, metadata))
    return found


def _ours(metadata: Mapping[str, Any]) -> bool:
    labelled = (metadata.get("labels") or {}).get(keys.MANAGED_BY) == keys.MANAGER
    return labelled or applied_fields({"metadata": metadata}) is not None


def moves(service: str, old: Old) -> bool:
    """Whether our operator wants an object of this kind and name, or prunes it when it does not: then it changes hands.

    A new ServiceAccount of the same name would void the tokens of running routers, a new Service its address.
    """
    component = {names.component(service, one) for one in (keys.ENGINE, keys.DECODER, keys.ROUTER)}
    router = names.component(service, keys.ROUTER)
    return {
        "Service": old.name == service or old.name in component,
        "HorizontalPodAutoscaler": old.name in component,
        "ServiceAccount": old.name == router,
        "Role": old.name == router,
        "RoleBinding": old.name == router,
    }.get(old.kind, False)


class Handover:
    """One service."""

    def __init__(self, client: Client, steps: Steps, metadata: Mapping[str, Any], old: list[Old]) -> None:
        self._client, self._steps = client, steps
        self._namespace, self._service, self._uid = metadata["namespace"], metadata["name"], metadata["uid"]
        self._writers = sorted({name for name, _ in status_writers({"metadata": metadata})})
        self._moving = [one for one in old if moves(self._service, one)]
        self._going = [one for one in old if not moves(self._service, one)]
        self._where = f"{self._namespace}/{self._service}"

    async def run(self, *, replace: bool, patience: float) -> None:
        """Wait for the new slice, unless the old one is to go first; then move the names and remove the old one."""
        steps = self._steps
        if not self._moving and not self._going and not self._writers:
            steps.fine(f"{self._where}: nothing of OME's is left")
            return
        if replace:
            steps.note(f"{self._where}: does not serve from now until its new pods are ready")
        elif not await self._serves(patience):
            return
        for one in self._moving:
            await steps.change(f"{self._where}: {one} becomes ours in place", partial(self._take, one))
        if not replace and not steps.dry_run and not await self._pointed():
            steps.leave(f"{self._where}: the operator did not take Service {self._service} over; the old workloads stay")
            return
        await self._remove(drain=not replace)
        if self._writers:
            what = f"{self._where}: what {', '.join(self._writers)} wrote into its status goes with our next one"
            await steps.change(what, self._take_status)

    async def _serves(self, patience: float) -> bool:
        """Wait until the new slice is complete; says what it waits for whenever that changes."""
        end, said = time.monotonic() + patience, ""
        while True:
            why = waits_for(await self._client.get("InferenceService", self._namespace, self._service))
            if not why:
                self._steps.fine(f"{self._where}: the new pods are ready")
                return True
            if self._steps.dry_run:
                self._steps.note(f"{self._where}: would wait for its new pods ({why})")
                return True
            if why != said:
                self._steps.note(f"{self._where}: {why}")
                said = why
            if time.monotonic() >= end:
                self._steps.leave(
                    f"{self._where}: not ready within {patience:.0f} s, and nothing was removed. If there is no room for "
                    "old and new pods at the same time, --replace removes the old ones first"
                )
                return False
            await asyncio.sleep(LOOK)

    async def _take(self, one: Old) -> None:
        """From what is stored now: controllers write statuses all the time."""
        live = await self._client.get(one.kind, self._namespace, one.name)
        change = takeover.patch(live["metadata"])
        await self._client.patch_merge(one.kind, self._namespace, one.name, one.metadata["uid"], change)

    async def _take_status(self) -> None:
        live = await self._client.get("InferenceService", self._namespace, self._service)
        change = takeover.status_patch(live["metadata"], self._writers)
        await self._client.patch_merge("InferenceService", self._namespace, self._service, self._uid, change)

    async def _pointed(self) -> bool:
        """Wait until the Services select our pods; also that of the URL which an earlier call may have moved."""
        for name in {self._service, *(one.name for one in self._moving if one.kind == "Service")}:
            if not await self._until(partial(self._selects, name)):
                return False
        return True

    async def _selects(self, name: str) -> bool:
        try:
            live = await self._client.get("Service", self._namespace, name)
        except NotFound:  # the operator does not want it
            return True
        return (live["spec"].get("selector") or {}).get(keys.MANAGED_BY) == keys.MANAGER

    async def _remove(self, *, drain: bool) -> None:
        """Autoscalers first, lest they start pods again; routers before engines, so that requests end well; the rest."""
        router = names.component(self._service, keys.ROUTER)
        order = {kind: number for number, kind in enumerate((*SCALERS, *WORKLOADS, *REST))}
        going = sorted(self._going, key=lambda one: (order[one.kind], one.name != router, one.name))
        for one in going:
            delete = partial(self._client.delete, one.kind, self._namespace, one.name, one.metadata["uid"])
            done = await self._steps.change(f"{self._where}: remove {one}", delete)
            if done and drain and (one.kind, one.name) == ("Deployment", router):
                await self._until(self._drained)

    async def _drained(self) -> bool:
        selector = f"{keys.SERVICE}={self._service},{keys.COMPONENT}={keys.ROUTER},{keys.MANAGED_BY}!={keys.MANAGER}"
        return not await self._client.list_objects("Pod", self._namespace, label_selector=selector, limit=1)

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> bool:
        end = time.monotonic() + SETTLE
        while not await holds():
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(LOOK / 4)
        return True


def waits_for(service: Mapping[str, Any]) -> str:
    """Why the old workloads must stay, "" when every pod of the new slice is ready: RolledOut tells, for this generation.

    Not Ready: that is False while names are taken by the very objects that are to change hands.
    """
    told = {one["type"]: one for one in (service.get("status") or {}).get("conditions") or ()}
    rolled, generation = told.get("RolledOut") or {}, service["metadata"]["generation"]
    if rolled.get("status") == "True" and rolled.get("observedGeneration") == generation:
        return ""
    if (held := told.get("Frozen")) and held.get("status") == "True":
        return str(held.get("message"))
    if "AnotherOperator" in told and told["AnotherOperator"].get("status") == "True":
        return str(told["AnotherOperator"].get("message"))
    parts = [
        str(one.get("message"))
        for name in ("ModelReady", "RuntimeReady", "EngineReady", "DecoderReady", "RouterReady")
        if (one := told.get(name))
        and one.get("status") == "False"
        and one.get("observedGeneration") == generation
        and "`ome adopt service" not in str(one.get("message"))  # names that are taken until the end of this
    ]
    return "; ".join(parts) or str(rolled.get("message") or "the operator has not looked at it yet: does it run?")
