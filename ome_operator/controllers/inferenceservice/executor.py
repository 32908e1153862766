"""Execute the plan of `sync`. Every guard is checked by a live read, only the service's own objects are changed, and refused
writes are remembered.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from ome_operator import keys
from ome_operator.cache.event_handler import EventHandler
from ome_operator.controllers.inferenceservice import controller_ref, dry_run, guards, secret_data
from ome_operator.controllers.inferenceservice.execution import Execution
from ome_operator.controllers.inferenceservice.journal import DELETED
from ome_operator.controllers.inferenceservice.memory import PATIENCE, Key
from ome_operator.controllers.pod_dry_runs import PodDryRuns
from ome_operator.core.observed import from_api, managed_fields
from ome_operator.core.observed.objects import Child, Manifest, Refusal
from ome_operator.core.reasons import Reason
from ome_operator.core.reconcile.plan import (
    Apply,
    ApplyStatus,
    Create,
    Delete,
    EnsureSecret,
    GroupRecycle,
    Guard,
    NodeLost,
    Patch,
    Plan,
)
from ome_operator.kube.client import ApplyResult, Client
from ome_operator.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound, ServerError

logger = logging.getLogger(__name__)

SECRET_AGAIN = 60.0
"""Seconds between two attempts to create a Secret while the pods that mount it are not ready. The attempts are necessary
because the name may still belong to a Secret of a deleted service."""
REFUSED = (Invalid, Forbidden, ServerError)
"""Errors with which the API server refuses a single object, while it may accept other objects. A failing webhook causes a
ServerError only for the objects that it selects."""
AT_ONCE = 8
"""Maximum number of requests of one service's plan that run at the same time: a quarter of the client's connections. A
service may have 2,000 StatefulSets. Without this limit, the requests of all other services would wait for the requests of
this service (10 s at 212 applies a second)."""
FEW = 16
"""A plan with at most this number of requests runs all of them at the same time; they end within a tenth of a second. With a
lower limit, the requests of several new services would alternate. The pods of each service would then start at more
different times, each of which causes a pass (docs/decisions.md, 44, has the measurement)."""
LATER = "Service"
"""Kind of objects that are applied after the workloads. The creation of pods then does not wait for cluster IPs, because
the API server assigns them to one Service at a time. The endpoint controllers also write fewer updates, because most pods
have reached their final state (docs/decisions.md, 17, has the measurement)."""


class Executor:
    """Executes plans. It has no state except the client, the cache, and whether pods may be created in dry runs."""

    def __init__(self, client: Client, handler: EventHandler, guard_delay: float, pods: PodDryRuns) -> None:
        self._client, self._guard_delay, self._pods = client, guard_delay, pods
        self._handler, self._cluster = handler, handler.cache

    async def execute_effects(self, plan: Plan, execution: Execution) -> None:
        """Execute all effects except the status and Events, in the plan's order."""
        for check in plan.check:
            await self._try(execution, dry_run.ask(self._client, self._pods, execution, check))
        for apply in plan.first:
            await self._try(execution, self._apply(execution, apply))
        stored = all(self._stored(execution, apply.manifest) for apply in plan.first)
        if not stored or (plan.first and execution.result.error is not None):
            return  # slices are created from stored revisions, so the revision has to exist first
        await self._together(execution, (self._secret(execution, secret) for secret in plan.ensure_secret))
        if not all(_settled(execution, secret) for secret in plan.ensure_secret):
            return  # otherwise the kubelet would try again only after minutes
        first, later = _stages(plan.apply)
        await self._together(execution, (self._apply(execution, apply) for apply in first))
        possible = [apply for apply in later if not apply.after or self._exists(execution, apply.after)]
        execution.result.has_written |= execution.result.created and len(possible) < len(later)
        await self._together(execution, (self._apply(execution, apply) for apply in possible))
        await self._together(execution, (self._create(execution, create) for create in plan.create))
        await self._together(execution, (self._status(execution, status) for status in plan.apply_status))
        await self._together(execution, (self._patch(execution, patch) for patch in plan.patch))
        await self._together(execution, (self._patch(execution, scale, keys.SCALE_MANAGER) for scale in plan.scale))
        await self._together(execution, (self._delete(execution, delete) for delete in plan.delete))
        await self._together(execution, (self._recycle(execution, recycle) for recycle in plan.recycle))

    def _stored(self, execution: Execution, manifest: Manifest) -> bool:
        """Return whether the API server stores the ControllerRevision `manifest` with the wanted content."""
        child = self._own(execution, _key(manifest))
        return child is not None and child.hash == _hash(manifest)

    def _exists(self, execution: Execution, key: Key) -> bool:
        """Return whether an object of the service exists and is not being deleted."""
        found = self._own(execution, key)
        return found is not None and not found.deleting

    def _own(self, execution: Execution, key: Key) -> Child | None:
        """Return the object with the kind and name `key` if the service controls it; None if it does not exist or belongs to
        another owner.
        """
        found = self._cluster.children_of(execution.namespace, execution.service.ref.name).get(key)
        return found if found is not None and found.owner == execution.service.uid else None

    async def _together(self, execution: Execution, effects: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Execute effects at the same time: all of them if they are at most `FEW`, otherwise `AT_ONCE` at a time."""
        execution.guards.clear()
        if not (several := [*effects]):
            return
        slots = asyncio.Semaphore(AT_ONCE if len(several) > FEW else FEW)

        async def limited(effect: Coroutine[Any, Any, None]) -> None:
            async with slots:
                await self._try(execution, effect)

        async with asyncio.TaskGroup() as group:
            for effect in several:
                group.create_task(limited(effect))

    async def _try(self, execution: Execution, effect: Coroutine[Any, Any, None]) -> None:
        """Execute one effect, unless the service is now frozen. An API error ends this effect, but not the other effects."""
        if execution.held():
            effect.close()
            return
        try:
            await effect
        except KubeError as error:
            logger.info("%s/%s: %s", execution.namespace, execution.service.ref.name, error)
            if isinstance(error, Conflict):
                execution.result.requeue_within(self._guard_delay)  # the next pass reads the other client's write
            else:
                execution.result.error = error

    # --- applies ----------------------------------------------------------------------------------------------------

    async def _apply(self, execution: Execution, apply: Apply) -> None:
        # The hash contains the UID. So a write that was refused because of a foreign object is attempted at once when
        # the object belongs to the service.
        key, hash_ = _key(apply.manifest), _hash(apply.manifest) + apply.uid
        if not execution.is_due(key, hash_) or (not apply.uid and execution.exceeds_quota(key, hash_)):
            return
        if await self._blocked(execution, apply.guard) or not await self._may_bind(execution, apply):
            return
        try:
            applied = await self._claimed(execution, apply, key, hash_)
        except REFUSED as error:
            execution.record_refusal(key, Refusal(type(error).__name__, str(error)), hash_)
            return
        if applied is None:
            return
        child = self._handler.handle_written(key[0], applied.body, apply.manifest)
        execution.result.has_written |= bool(apply.uid)
        execution.result.created |= not apply.uid
        execution.record_applied(key, applied, child if isinstance(child, Child) else None, new=not apply.uid)

    async def _may_bind(self, execution: Execution, apply: Apply) -> bool:
        """Return whether `apply` may be executed. A RoleBinding may be applied only if its Role, read live, belongs to the
        service, because the binding grants the rights of any Role with that name. The result is True for all other objects.
        """
        if apply.after is None or apply.after[0] != "Role":
            return True
        try:
            live = await self._client.get("Role", execution.namespace, apply.after[1])
        except NotFound:
            live = {}
        if controller_ref.may_be_bound(live, execution.service.uid):
            return True
        execution.result.requeue_within(self._guard_delay)
        return False

    async def _claimed(self, execution: Execution, apply: Apply, key: Key, hash_: str) -> ApplyResult | None:
        """Apply a manifest to an absent object, or to the service's own object. Return None if an object of that name exists
        and must not be changed.
        """
        try:
            return await self._client.apply(apply.manifest, apply.uid)
        except (Conflict, NotFound) as error:
            if apply.uid:
                await self._conflict(execution, key, apply.uid, Refusal(type(error).__name__, str(error)), hash_)
                return None
        live = await self._client.get(key[0], execution.namespace, key[1])
        claim = controller_ref.claim_object(live, execution.service.ref.name, execution.service.uid)
        if claim.refusal is not None:
            execution.record_refusal(key, claim.refusal, hash_)
            return None
        return await self._client.apply(apply.manifest, claim.uid)

    async def _conflict(self, execution: Execution, key: Key, uid: str, refusal: Refusal, hash_: str) -> None:
        """Handle a conflict. If the object with the UID `uid` was replaced or deleted, the next reconciliation decides
        again. Otherwise `refusal` is stored.
        """
        try:
            live = await self._client.get(key[0], execution.namespace, key[1])
        except NotFound:
            live = {}
        if live.get("metadata", {}).get("uid") == uid:
            execution.record_refusal(key, refusal, hash_)
        else:
            self._handler.handle_deleted(key[0], uid)
            execution.result.requeue_within(self._guard_delay)

    # --- other effects ----------------------------------------------------------------------------------------------

    async def _create(self, execution: Execution, create: Create) -> None:
        key, hash_ = _key(create.manifest), managed_fields.digest(create.manifest)
        if not execution.is_due(key, hash_):
            return
        try:
            body = await self._client.create(create.manifest, keys.SCALE_MANAGER)
            execution.result.has_written = True
        except AlreadyExists:
            body = await self._client.get(key[0], execution.namespace, key[1])
            claim = controller_ref.scale(body, execution.service.ref.name, execution.service.uid)
            if claim.refusal is not None:
                execution.record_refusal(key, claim.refusal, hash_)
                return
            if lacks := _lacks(body["metadata"], create.manifest["metadata"]):
                body = await self._client.patch_merge(key[0], execution.namespace, key[1], claim.uid, {"metadata": lacks})
            execution.result.status_changed = True
        except REFUSED as error:
            execution.record_refusal(key, Refusal(type(error).__name__, str(error)), hash_)
            return
        self._handler.handle_written(key[0], body)
        execution.result.status_changed |= execution.memory.refused.pop(key, None) is not None

    async def _secret(self, execution: Execution, secret: EnsureSecret) -> None:
        """Create a Secret with new content. If the Secret exists already, the effect counts as successful."""
        key, hash_, now = _key(secret.manifest), managed_fields.digest(secret.manifest), execution.clock()
        if now < execution.memory.secrets.get(key[1], now) or not execution.is_due(key, hash_):
            return
        try:
            data = secret_data.GENERATORS[secret.manifest["type"]]()
            await self._client.create({**secret.manifest, "stringData": data, "immutable": True})
            execution.result.created = True
        except AlreadyExists:
            pass
        except REFUSED as error:
            execution.record_refusal(key, Refusal(type(error).__name__, str(error)), hash_)
            return
        execution.memory.secrets[key[1]] = now + SECRET_AGAIN
        execution.result.requeue_within(SECRET_AGAIN)
        execution.result.status_changed |= execution.memory.refused.pop(key, None) is not None

    async def _status(self, execution: Execution, status: ApplyStatus) -> None:
        kind, name = _key(status.manifest)
        child = self._own(execution, (kind, name))
        if child is None or child.content == status.manifest.get("status"):
            return
        applied = await self._client.apply(status.manifest, child.uid, subresource="status")
        written = self._handler.handle_written(kind, applied.body)
        if isinstance(written, Child) and written.replicas != child.replicas:
            execution.result.has_written = True  # somebody has just scaled it, and the event of that write will be stale

    async def _patch(self, execution: Execution, patch: Patch, manager: str = "") -> None:
        where = patch.kind, execution.namespace, patch.name
        try:
            body = await self._client.patch_merge(*where, patch.uid, patch.body, manager)
        except NotFound:
            self._handler.handle_deleted(patch.kind, patch.uid)
            return
        self._handler.handle_written(patch.kind, body)
        execution.result.has_written = True

    async def _delete(self, execution: Execution, delete: Delete) -> None:
        key = delete.kind, delete.name
        if not execution.is_due(key, delete.uid) or await self._blocked(execution, delete.guard):
            return
        try:
            body = await self._client.delete(delete.kind, execution.namespace, delete.name, delete.uid, delete.grace)
        except NotFound:
            body = {}
        except Conflict as error:
            # This does not prove that the object is gone. The object stays in the cache, because a removed object would
            # not be added again.
            await self._conflict(execution, key, delete.uid, Refusal(Reason.CONFLICT, str(error), delete.uid), delete.uid)
            return
        except REFUSED as error:
            execution.record_refusal(key, Refusal(type(error).__name__, str(error), delete.uid), delete.uid)
            return
        execution.result.status_changed |= execution.memory.refused.pop(key, None) is not None
        if (body.get("metadata") or {}).get("uid") == delete.uid:
            self._handler.handle_written(delete.kind, body)  # the object is terminating
        else:
            self._handler.handle_deleted(delete.kind, delete.uid)
        execution.result.has_written = True
        execution.result.write_counts[DELETED, delete.kind] += 1

    async def _recycle(self, execution: Execution, recycle: GroupRecycle) -> None:
        if await guards.as_seen(self._client, self._handler, execution.namespace, recycle):
            await self._together(execution, (self._delete(execution, delete) for delete in recycle.delete))
        else:
            execution.result.requeue_within(self._guard_delay)

    async def _blocked(self, execution: Execution, guard: Guard | NodeLost | None) -> bool:
        """Return whether a guard forbids an effect: a live read finds a pod that must not exist, or a node that is alive
        although it was considered lost.

        Effects that are executed together and have the same guard share one read, because a slice may have a hundred groups.
        """
        if guard is None:
            return False
        if guard not in execution.guards:
            execution.guards[guard] = asyncio.create_task(guards.guard_applies(self._client, execution.namespace, guard))
        stands = await execution.guards[guard]
        if stands and isinstance(guard, Guard):
            execution.result.requeue_within(self._guard_delay)
        return stands


def _stages(applies: Iterable[Apply]) -> tuple[list[Apply], list[Apply]]:
    """Split applies into two stages. Services, and objects that need another object, are in the second stage."""
    first, later = list[Apply](), list[Apply]()
    for apply in applies:
        (later if apply.after or apply.kind == LATER else first).append(apply)
    return first, later


def _lacks(metadata: Manifest, manifest: Manifest) -> Manifest:
    """Return the metadata that has to be added to an existing RoleScale so that it belongs to the service. Metadata can be
    missing because the owner was recreated with another UID, or because somebody removed labels.
    """
    lacks = {} if from_api.controller(metadata) else {"ownerReferences": manifest["ownerReferences"]}
    labelled = manifest["labels"].items() <= (metadata.get("labels") or {}).items()
    return lacks if labelled else {**lacks, "labels": manifest["labels"]}


def _settled(execution: Execution, secret: EnsureSecret) -> bool:
    """Return whether a Secret no longer delays the pods that mount it: the Secret exists, or the status reports why the
    Secret was refused.
    """
    key = _key(secret.manifest)
    refused = execution.memory.refused.get(key)
    return key[1] in execution.memory.secrets or (refused is not None and refused.tries >= PATIENCE)


def _key(manifest: Manifest) -> Key:
    return manifest["kind"], manifest["metadata"]["name"]


def _hash(manifest: Manifest) -> str:
    annotations = manifest["metadata"].get("annotations") or {}
    return str(annotations.get(keys.HASH) or managed_fields.digest(manifest))
