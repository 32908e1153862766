"""What has to be written: the difference between what should exist and what does (decisions 13 and 19)."""

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.desired import Desired, selector
from ome_operator.core.observed.managed_fields import digest
from ome_operator.core.observed.objects import Manifest, Observed
from ome_operator.core.plan import Apply, Delete, Guard, Plan
from ome_operator.core.resolve.pinned import named
from ome_operator.core.rollout import revisions
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.slices import Slice, leftovers
from ome_operator.core.rollout.step import RolloutStep
from ome_operator.util.memoize import memoize_by_identity

HISTORY = 10
"""Revisions kept per service."""
PRUNED = frozenset(
    {
        "Service", "ServiceAccount", "Role", "RoleBinding", "HorizontalPodAutoscaler", "RoleScale",
        "PodDisruptionBudget", "Deployment",
    }
)  # fmt: skip
"""Kinds that are deleted as soon as they are not wanted; StatefulSets go by the steps of a rollout or of scaling down."""

ACCESS = frozenset({"ServiceAccount", "Role", "RoleBinding"})
"""What routers need to see pods: they keep it until the last of them is gone."""


def changes(
    service: InferenceService,
    choice: Intent,
    decision: RolloutStep,
    want: Desired,
    observed: Observed,
    present: dict[str, Slice],
) -> Plan:
    """Applies of what differs, creations, and deletions of what is not wanted any more."""
    comes = decision.keep[0] if len(decision.keep) == 1 else ""
    others = len(choice.known) > 1 or len(present) > 1
    alone = Guard(selector(choice.owner, comes)) if comes and decision.alone and others else None
    first = tuple(one for manifest in choice.record.write if (one := _apply(manifest, service.uid, observed, None)))
    apply = tuple(
        one
        for manifest in want.manifests
        if (one := _apply(manifest, service.uid, observed, _guard(manifest, comes, alone)))
    )
    deletes = [*decision.delete, *_scaled_down(service, want, present)]
    if want.complete:
        deletes += _prune(service, want, decision, observed, present)
    used = frozenset({*present, *decision.keep}) | choice.aim.used | named(service.spec)
    deletes += [
        Delete("ControllerRevision", one.child.name, one.child.uid)
        for one in revisions.surplus(list(choice.known), used, HISTORY)
    ]
    return Plan(
        first=first,
        apply=apply,
        create=want.create,
        ensure_secret=want.secrets,
        patch=tuple(patch for held in want.held.values() for patch in held.patch),
        delete=tuple(deletes),
        requeue_after=min((held.again for held in want.held.values() if held.again is not None), default=None),
    )


_digest = memoize_by_identity(8192)(digest)


def _guard(manifest: Manifest, comes: str, alone: Guard | None) -> Guard | None:
    """New engines start only where no engine pod of another revision is left (decisions 6)."""
    mine = manifest["kind"] == "StatefulSet" and manifest["metadata"]["labels"][keys.REVISION] == comes
    return alone if mine else None


def _apply(manifest: Manifest, uid: str, observed: Observed, guard: Guard | None) -> Apply | None:
    """The apply of one manifest with its hash, or None when the stored object is as we want it."""
    wanted = _digest(manifest)
    found = observed.children.get((manifest["kind"], manifest["metadata"]["name"]))
    if found is not None and found.deleting:
        return None  # its delete event brings us back
    if found is not None and found.owner == uid and found.owned:
        if found.hash == wanted and observed.intact(found):
            return None
        return Apply(_hashed(manifest, wanted), found.uid)
    return Apply(_hashed(manifest, wanted), "", guard)


def _hashed(manifest: Manifest, wanted: str) -> Manifest:
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), keys.HASH: wanted}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def _scaled_down(service: InferenceService, want: Desired, present: dict[str, Slice]) -> list[Delete]:
    """Workers of groups beyond those that are kept, once their leader is gone."""
    return [
        delete
        for (revision, component), held in want.held.items()
        if revision in present
        for delete in leftovers(service.name, component, held.groups, present[revision]).delete
    ]


def _prune(
    service: InferenceService, want: Desired, decision: RolloutStep, observed: Observed, present: dict[str, Slice]
) -> list[Delete]:
    """Our objects that nothing wants: those of no slice, or of a slice that is kept without them."""
    wanted = {(one["kind"], one["metadata"]["name"]) for one in want.manifests}
    wanted |= {("RoleScale", name) for name in want.scales}
    kept = {"", *decision.keep}
    draining = any(pod.component == keys.ROUTER for one in present.values() for pod in one.pods)
    return [
        Delete(child.kind, child.name, child.uid)
        for key, child in observed.children.items()
        if key not in wanted
        and child.kind in PRUNED
        and child.owner == service.uid
        and (child.owned or child.kind == "RoleScale")
        and not child.deleting
        and child.labels.get(keys.REVISION, "") in kept
        and not (draining and child.kind in ACCESS)
    ]
