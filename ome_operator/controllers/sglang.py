"""Reconcile the kinds of sglang.ai. For each edit of an object, a model or a service of ome.io is written once. The status
of the ome.io object is copied to the status of the sglang.ai object.
"""

from datetime import datetime

from ome_operator import keys
from ome_operator.api import Invalid
from ome_operator.cache.resources import MODELS, SERVICE, SHORT_MODEL, Resource
from ome_operator.controllers.base import Status, StatusReconciler
from ome_operator.core.observed.objects import Ref
from ome_operator.core.reasons import NOTHING, Reason, ReasonedMessage, ReasonRecord
from ome_operator.core.reconcile.sync import refuse_spec
from ome_operator.core.sglang import convert
from ome_operator.core.sglang.status import mirrored_status
from ome_operator.kube import errors


class SglangReconciler(StatusReconciler):
    """Reconciles the kinds of sglang.ai."""

    async def reconcile_resource(self, resource: Resource) -> float:
        """Write the ome.io object if necessary, and write the status. Return the seconds until the next reconciliation."""
        await self.write(resource, await self._status(resource))
        return self._resync

    def failed_status(self, resource: Resource, why: str) -> Status:
        """Return the status of an object whose reconciliation failed. Objects of ome.io that were created for it stay in the
        cluster.
        """
        return _refused(resource, Reason.INTERNAL_ERROR, why, self._wall())

    async def _status(self, resource: Resource) -> Status:
        """Write the ome.io object if necessary, and return the status of the sglang.ai object."""
        now = self._wall()
        if isinstance(resource.parsed, Invalid):
            return _refused(resource, Reason.INVALID_SPEC, resource.parsed.why, now)
        target = (
            Ref(MODELS[0], "", resource.ref.name) if resource.ref.kind == SHORT_MODEL else Ref(SERVICE, *resource.ref[1:])
        )
        made, why = self._cluster.find_resource(target), NOTHING
        if made is not None and made.owner != resource.uid:
            if resource.ref.kind != SHORT_MODEL:  # a model written by hand takes precedence
                return mirrored_status(resource.parsed, None, _taken(target), now)
        elif made is None or not made.deleting:
            why = await self._made(resource, made)
            made = self._cluster.find_resource(target)
        if made is None:
            return mirrored_status(resource.parsed, None, why, now)
        current = made.status.get("observedGeneration") == made.generation
        return mirrored_status(resource.parsed, dict(made.status), why, now, current=current)

    async def _made(self, resource: Resource, made: Resource | None) -> ReasonedMessage:
        """Write the ome.io object, unless it was already written for the present spec of the sglang.ai object. The values
        that the operator chooses for the ome.io object are thus chosen only once for each edit (decisions 2). Return why the
        object was not written, or `NOTHING`. `made` is the existing ome.io object; None if it does not exist.
        """
        source = convert.source(resource.parsed)
        if made is not None and made.annotations.get(keys.SOURCE_DIGEST) == source:
            return NOTHING
        manifest, why = convert.desired_object(resource.parsed, self._cluster.deps())
        if manifest is None:
            return why
        if (held := self._cluster.active_hold(resource)) is not None:
            verb, what = "create" if made is None else "change", f"{manifest['kind']} {manifest['metadata']['name']}"
            return ReasonedMessage(held.reason, f"{held.sentence}; would {verb} {what}; {held.ends}")
        try:
            applied = await self._client.apply(manifest, made.uid if made is not None else "")
        except errors.Invalid as error:
            return ReasonedMessage(Reason.INVALID, str(error))
        self._handler.handle_written(manifest["kind"], applied.body)
        return NOTHING


def _refused(resource: Resource, reason: ReasonRecord, why: str, now: datetime) -> Status:
    """Return the status of a sglang.ai object that cannot be read or handled. The ome.io object that was created for it
    stays in the cluster.
    """
    return refuse_spec(dict(resource.status), resource.generation, reason, why, now).status


def _taken(target: Ref) -> ReasonedMessage:
    where = f"{target.kind} {target.namespace}/{target.name}"
    return ReasonedMessage(
        Reason.NAME_TAKEN,
        f"{where} exists and was not created from this object: delete one of the two, or give this object another name",
    )
