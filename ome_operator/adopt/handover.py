"""Hand a service over from OME's workloads to the operator's workloads. The old workloads serve requests until the new
slice is complete; then the operator takes the object names over.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ome_operator import keys, names
from ome_operator.adopt import takeover
from ome_operator.adopt.steps import StepReporter
from ome_operator.core.observed.from_api import controller, status_writers
from ome_operator.core.observed.managed_fields import applied_fields
from ome_operator.kube.client import Client
from ome_operator.kube.errors import NotFound
from ome_operator.kube.resources import RESOURCES

SCALERS = ("ScaledObject", "HorizontalPodAutoscaler")
WORKLOADS = ("Deployment", "LeaderWorkerSet", "StatefulSet")
REST = ("PodDisruptionBudget", "Service", "ServiceAccount", "RoleBinding", "Role", "ConfigMap")
OPTIONAL = ("ScaledObject", "LeaderWorkerSet")
"""Kinds whose CRDs may be missing in a cluster."""

POLL_SECONDS = 1.0
"""Seconds between two checks while waiting."""
SETTLE = 330.0
"""Two times in seconds: until the operator has to have written the objects that it took over, and until old routers have
to have completed their requests."""


@dataclass(frozen=True)
class OldObject:
    """An object that OME created for a service."""

    kind: str
    metadata: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.metadata["name"])

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


async def old_objects(client: Client) -> dict[tuple[str, str], list[OldObject]]:
    """Return a mapping from (namespace, UID of an InferenceService) to the objects that the service controls and that this
    operator did not create. An object of another namespace may name a service as its owner, too, but does not belong to the
    service.
    """
    result: dict[tuple[str, str], list[OldObject]] = {}
    for kind in (*SCALERS, *WORKLOADS, *REST):
        resource = RESOURCES[kind]
        if kind in OPTIONAL and resource.plural not in await client.served_plurals(resource.api_version):
            continue
        for metadata in await client.list_metadata(kind):
            owner = controller(metadata)
            if owner is not None and is_service(owner) and not _is_own(metadata):
                result.setdefault((metadata["namespace"], str(owner.get("uid"))), []).append(OldObject(kind, metadata))
    return result


def is_service(owner: Mapping[str, Any]) -> bool:
    """Return whether an owner reference names an InferenceService of OME. KServe has a kind of the same name."""
    group, _, _ = str(owner.get("apiVersion")).partition("/")
    return (group, owner.get("kind")) == (keys.GROUP, "InferenceService")


def _is_own(metadata: Mapping[str, Any]) -> bool:
    labelled = (metadata.get("labels") or {}).get(keys.MANAGED_BY) == keys.MANAGER
    return labelled or applied_fields({"metadata": metadata}) is not None


def is_taken_over(service: str, old: OldObject) -> bool:
    """Return whether the operator itself manages an object with the kind and name of `old` for the service `service`. Such
    an object is taken over instead of removed.

    Taking over is necessary because a new ServiceAccount with the same name would invalidate the tokens of running routers,
    and a new Service would have another address.
    """
    component = {names.component(service, role) for role in (keys.ENGINE, keys.DECODER, keys.ROUTER)}
    router = names.component(service, keys.ROUTER)
    return {
        "Service": old.name == service or old.name in component,
        "HorizontalPodAutoscaler": old.name in component,
        "ServiceAccount": old.name == router,
        "Role": old.name == router,
        "RoleBinding": old.name == router,
    }.get(old.kind, False)


class Handover:
    """The handover of one service."""

    def __init__(self, client: Client, steps: StepReporter, metadata: Mapping[str, Any], old: list[OldObject]) -> None:
        self._client, self._steps, self._poll = client, steps, POLL_SECONDS
        self._namespace, self._service, self._uid = metadata["namespace"], metadata["name"], metadata["uid"]
        self._writers = sorted({name for name, _ in status_writers({"metadata": metadata})})
        self._moving = [object_ for object_ in old if is_taken_over(self._service, object_)]
        self._going = [object_ for object_ in old if not is_taken_over(self._service, object_)]
        self.where = f"{self._namespace}/{self._service}"
        """Namespace and name of the service."""

    async def run(self, *, replace: bool, patience: float, poll: float = POLL_SECONDS) -> None:
        """Wait for the new slice, take over the names, and remove the old workloads. If `replace` is true, the old
        workloads are removed first, before the new slice is ready. `patience` is the maximum wait in seconds, `poll` the
        seconds between two checks.
        """
        steps, self._poll = self._steps, poll
        if not self._moving and not self._going and not self._writers:
            steps.report_unchanged(f"{self.where}: no objects of OME are left")
            return
        if replace:
            steps.report_note(f"{self.where}: the service is down until its new pods are ready")
        elif not await self._wait_until_ready(patience):
            return
        for object_ in self._moving:
            await steps.change(f"{self.where}: take over {object_} without recreating it", partial(self._take, object_))
        if not replace and not steps.dry_run and not await self._services_select_new_pods():
            steps.report_open_problem(
                f"{self.where}: the operator did not update Service {self._service}, so the old workloads are kept"
            )
            return
        await self._remove(drain=not replace)
        if self._writers:
            description = f"{self.where}: mark the status fields of {', '.join(self._writers)} for removal"
            await steps.change(description, self._take_status)

    async def _wait_until_ready(self, patience: float) -> bool:
        """Wait at most `patience` seconds until the new slice is complete, and report each change of the pending reason.
        Return whether the slice is complete.
        """
        end, reported = time.monotonic() + patience, ""
        while True:
            reason = pending_reason(await self._client.get("InferenceService", self._namespace, self._service))
            if not reason:
                self._steps.report_unchanged(f"{self.where}: the new pods are ready")
                return True
            if self._steps.dry_run:
                self._steps.report_note(f"{self.where}: would wait until its new pods are ready ({reason})")
                return True
            if reason != reported:
                self._steps.report_note(f"{self.where}: {reason}")
                reported = reason
            if time.monotonic() >= end:
                self._steps.report_open_problem(
                    f"{self.where}: not ready within {patience:.0f} s, and nothing was removed. If the cluster has no "
                    "capacity for old and new pods at the same time, pass --replace to remove the old pods first"
                )
                return False
            await asyncio.sleep(self._poll)

    async def _take(self, object_: OldObject) -> None:
        """Take an object over. The object is read again immediately before the write, because controllers write its status
        all the time.
        """
        live = await self._client.get(object_.kind, self._namespace, object_.name)
        change = takeover.patch(live["metadata"])
        await self._client.patch_merge(object_.kind, self._namespace, object_.name, object_.metadata["uid"], change)

    async def _take_status(self) -> None:
        live = await self._client.get("InferenceService", self._namespace, self._service)
        change = takeover.status_patch(live["metadata"], self._writers)
        await self._client.patch_merge("InferenceService", self._namespace, self._service, self._uid, change)

    async def _services_select_new_pods(self) -> bool:
        """Wait until the Services select the new pods, including Services that an earlier run took over. Return whether they
        select the new pods in time.
        """
        for name in {self._service, *(object_.name for object_ in self._moving if object_.kind == "Service")}:
            if not await self._until(partial(self._selects, name)):
                return False
        return True

    async def _selects(self, name: str) -> bool:
        try:
            live = await self._client.get("Service", self._namespace, name)
        except NotFound:  # the operator needs no such Service
            return True
        return (live["spec"].get("selector") or {}).get(keys.MANAGED_BY) == keys.MANAGER

    async def _remove(self, *, drain: bool) -> None:
        """Remove the old workloads in this order: autoscalers, so that they start no pods again; routers, so that their
        requests can complete; engines and the other objects. `drain` states whether to wait for the routers' requests.
        """
        router = names.component(self._service, keys.ROUTER)
        order = {kind: number for number, kind in enumerate((*SCALERS, *WORKLOADS, *REST))}
        ordered = sorted(self._going, key=lambda object_: (order[object_.kind], object_.name != router, object_.name))
        for object_ in ordered:
            delete = partial(self._client.delete, object_.kind, self._namespace, object_.name, object_.metadata["uid"])
            done = await self._steps.change(f"{self.where}: remove {object_}", delete)
            if done and drain and (object_.kind, object_.name) == ("Deployment", router):
                await self._until(self._drained)

    async def _drained(self) -> bool:
        selector = f"{keys.SERVICE}={self._service},{keys.COMPONENT}={keys.ROUTER},{keys.MANAGED_BY}!={keys.MANAGER}"
        return not await self._client.list_objects("Pod", self._namespace, label_selector=selector, limit=1)

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> bool:
        end = time.monotonic() + SETTLE
        while not await condition():
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(self._poll / 4)
        return True


def pending_reason(service: Mapping[str, Any]) -> str:
    """Return why the old workloads must stay; "" if every pod of the new slice (the operator's workloads) is ready.

    The function evaluates the condition RolledOut of the current generation. The condition Ready is not suitable, because it
    is False while old objects use the names that are to be taken over.
    """
    conditions = {condition["type"]: condition for condition in (service.get("status") or {}).get("conditions") or ()}
    rolled, generation = conditions.get("RolledOut") or {}, service["metadata"]["generation"]
    if rolled.get("status") == "True" and rolled.get("observedGeneration") == generation:
        return ""
    if (frozen := conditions.get("Frozen")) and frozen.get("status") == "True":
        return str(frozen.get("message"))
    if "AnotherOperator" in conditions and conditions["AnotherOperator"].get("status") == "True":
        return str(conditions["AnotherOperator"].get("message"))
    parts = [
        str(condition.get("message"))
        for name in ("ModelReady", "RuntimeReady", "EngineReady", "DecoderReady", "RouterReady")
        if (condition := conditions.get(name))
        and condition.get("status") == "False"
        and condition.get("observedGeneration") == generation
        and "`ome adopt service" not in str(condition.get("message"))  # these names are in use until the end of the handover
    ]
    return "; ".join(parts) or str(
        rolled.get("message") or "the operator has not reconciled the service yet: check that the operator runs"
    )
