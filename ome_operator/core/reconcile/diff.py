"""Compute the writes and deletions of a pass: the differences between the objects that should exist and the objects that
exist (decisions 13 and 19).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed.managed_fields import digest_of_rendered
from ome_operator.core.observed.objects import Child, Manifest
from ome_operator.core.placement.gangs import PLACED, GangPlan, give_back
from ome_operator.core.reasons import Reason
from ome_operator.core.reconcile.desired import Desired, selector
from ome_operator.core.reconcile.plan import Apply, Delete, Guard, Plan
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.resolve.pinned import pinned_revisions
from ome_operator.core.rollout import node_scale_down
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.retire import discard, remove_extra_groups
from ome_operator.core.rollout.revisions import revisions_beyond_limit
from ome_operator.core.rollout.step import RolloutStep
from ome_operator.core.rollout.traffic import allowed_deletions
from ome_operator.util.memoize import memoize_by_identity

HISTORY = 10
"""Maximum number of stored revisions of a service. If there are more, the oldest revisions that are not in use are
deleted."""
PRUNED = frozenset(
    {
        "Service", "ServiceAccount", "Role", "RoleBinding", "HorizontalPodAutoscaler", "RoleScale",
        "PodDisruptionBudget", "Deployment", "Ingress", "HTTPRoute", "NetworkPolicy", "ScaledObject",
    }
)  # fmt: skip
"""Kinds whose objects are deleted as soon as they are not desired. StatefulSets are deleted by the steps of a rollout or
of scaling down."""

ACCESS = frozenset({"ServiceAccount", "Role", "RoleBinding"})
"""Kinds that give routers access to pods. Their objects are kept until the last router is gone."""


def changes(snapshot: Snapshot, intent: Intent, step: RolloutStep, want: Desired, placing: GangPlan = PLACED) -> Plan:
    """Return the plan that applies objects that differ, creates objects that are missing, and deletes objects that are
    not desired any more.
    """
    unwanted = (*step.delete, *(_prune(snapshot, step, want) if want.is_complete else ()))
    gone = allowed_deletions(snapshot, want.traffic, unwanted)
    waits = (gone.again, want.traffic.again if want.traffic else None, *(held.again for held in want.held.values()))
    return Plan(
        first=_applies(snapshot, intent.ledger.write),
        apply=_applies(snapshot, (*want.manifests, *intent.pulls.create), _alone(snapshot, intent, step)),
        create=want.create,
        ensure_secret=want.secrets,
        patch=(
            *(patch for held in want.held.values() for patch in held.patch),
            *node_scale_down.patches(snapshot, intent.policies),
        ),
        delete=(
            *gone.delete,
            *_fewer(snapshot, intent, want, placing),
            *_forgotten(snapshot, intent, step),
            *_strayed(snapshot),
            *(delete for found in snapshot.unusable_slices for delete in discard(found)),
        ),
        requeue_after=min((wait for wait in waits if wait is not None), default=None),
    )


class ExclusiveRevision(NamedTuple):
    """A revision whose StatefulSets are created only when no engine pod of another revision exists any more (decisions
    6).
    """

    revision: str
    guard: Guard

    def is_guarded(self, manifest: Manifest) -> bool:
        """Return whether this manifest is a StatefulSet of the revision, so that its creation has to be guarded."""
        mine: bool = manifest["kind"] == "StatefulSet" and manifest["metadata"]["labels"][keys.REVISION] == self.revision
        return mine


def _alone(snapshot: Snapshot, intent: Intent, step: RolloutStep) -> ExclusiveRevision | None:
    others = len(snapshot.revisions) > 1 or len(snapshot.slices) > 1 or snapshot.unusable_slices
    if len(step.keep) != 1 or not step.alone or not others:
        return None
    (revision,) = step.keep
    return ExclusiveRevision(revision, Guard(selector(intent.owner, revision)))


_digest = memoize_by_identity(32768)(digest_of_rendered)


def _applies(snapshot: Snapshot, manifests: Iterable[Manifest], alone: ExclusiveRevision | None = None) -> tuple[Apply, ...]:
    """Return a server-side apply for each manifest that differs from its stored object. `alone` is the parameter of
    `_apply`.
    """
    found = (_apply(snapshot, manifest, alone) for manifest in manifests)
    return tuple(apply for apply in found if apply is not None)


def _apply(snapshot: Snapshot, manifest: Manifest, alone: ExclusiveRevision | None) -> Apply | None:
    """Return the apply of a manifest, with its digest as an annotation; None if the stored object is equal or is being
    deleted. The creation of a StatefulSet of the revision `alone` is guarded; `alone` is None if no revision has to be
    alone.
    """
    wanted = _digest(manifest)
    found = snapshot.observed.children.get((manifest["kind"], manifest["metadata"]["name"]))
    if found is not None and found.deleting:
        return None  # its deletion event triggers the next pass
    if found is not None and found.owner == snapshot.service.uid and found.owned:
        if found.hash == wanted and snapshot.observed.is_intact(found):
            return None
        return Apply(_hashed(manifest, wanted), found.uid, after=_role(manifest))
    guard = alone.guard if alone is not None and alone.is_guarded(manifest) else None
    return Apply(_hashed(manifest, wanted), "", guard, _before(manifest))


def _before(manifest: Manifest) -> tuple[str, str] | None:
    """Return the kind and name of the object that has to be stored before `manifest`; None if no object has to be stored
    before. For a StatefulSet of workers, it is the StatefulSet of their leader. For a RoleBinding, it is its Role, without
    which the API server refuses the RoleBinding.
    """
    if role := _role(manifest):
        return role
    leader = names.leader_of(manifest["metadata"]["name"]) if manifest["kind"] == "StatefulSet" else ""
    return ("StatefulSet", leader) if leader else None


def _role(manifest: Manifest) -> tuple[str, str] | None:
    """Return the kind and name of the Role that a RoleBinding refers to; None for manifests of other kinds."""
    return ("Role", manifest["roleRef"]["name"]) if manifest["kind"] == "RoleBinding" else None


def _hashed(manifest: Manifest, wanted: str) -> Manifest:
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), keys.HASH: wanted}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def _fewer(snapshot: Snapshot, intent: Intent, want: Desired, placing: GangPlan) -> Iterable[Delete]:
    """Return the deletions of groups that exist and are not kept. Groups that release nodes are deleted at once; all other
    groups are deleted step by step.
    """
    back: list[Delete] = []
    for (revision, component), held in want.held.items():
        if revision == intent.target and revision in snapshot.slices:
            back += give_back(placing, component, held.numbers, snapshot.slices[revision])
    meant = {delete.uid for delete in back}
    return (*back, *(delete for delete in _scaled_down(snapshot, want) if delete.uid not in meant))


def _scaled_down(snapshot: Snapshot, want: Desired) -> Iterator[Delete]:
    """Yield the next deletions of groups that are not kept: their leaders, and the workers of leaders that are gone."""
    for (revision, component), held in want.held.items():
        if revision in snapshot.slices:
            found = snapshot.slices[revision]
            abandoned = frozenset(pod.uid for pod in found.pods if snapshot.is_abandoned(pod))
            yield from remove_extra_groups(snapshot.service.name, component, held.numbers, found, abandoned)


def _prune(snapshot: Snapshot, step: RolloutStep, want: Desired) -> list[Delete]:
    """Return the deletions of the objects of the service that are not desired and whose kind is in `PRUNED`: objects that
    belong to no revision, objects of a kept revision that the revision no longer needs, and Services of revisions whose pods
    and workloads no longer exist.
    """
    wanted = {(one["kind"], one["metadata"]["name"]) for one in want.manifests}
    wanted |= {("RoleScale", name) for name in want.scales}
    kept = {"", *step.keep}
    draining = any(pod.component == keys.ROUTER for found in snapshot.slices.values() for pod in found.pods)
    return [
        Delete(child.kind, child.name, child.uid)
        for key, child in snapshot.observed.children.items()
        if key not in wanted
        and child.kind in PRUNED
        and child.owner == snapshot.service.uid
        and (child.owned or child.kind == "RoleScale")
        and not child.deleting
        and (child.labels.get(keys.REVISION, "") in kept or _left_behind(snapshot, child))
        and not (draining and child.kind in ACCESS)
    ]


def _left_behind(snapshot: Snapshot, child: Child) -> bool:
    """Return whether the child is the Service of a revision whose pods and workloads no longer exist."""
    return child.kind == "Service" and child.labels.get(keys.REVISION, "") not in snapshot.slices


def _strayed(snapshot: Snapshot) -> Iterator[Delete]:
    """Yield the deletion of the operator's RoleBinding if the Role to which it refers has another owner. The RoleBinding
    would otherwise grant the permissions of that Role to routers.
    """
    for (kind, name), refusal in snapshot.observed.refusals.items():
        binding = snapshot.observed.children.get(("RoleBinding", name))
        if kind != "Role" or refusal.reason != Reason.NAME_TAKEN or binding is None or binding.deleting:
            continue
        if binding.owner == snapshot.service.uid and binding.owned:
            yield Delete(binding.kind, binding.name, binding.uid)


def _forgotten(snapshot: Snapshot, intent: Intent, step: RolloutStep) -> list[Delete]:
    """Return the deletions of stored revisions that are beyond the history limit and that nothing uses."""
    present = (*snapshot.slices, *(found.revision for found in snapshot.unusable_slices))
    used = frozenset({*present, *step.keep}) | intent.aim.used_revisions | pinned_revisions(snapshot.service.spec)
    return [
        Delete("ControllerRevision", revision.child.name, revision.child.uid)
        for revision in revisions_beyond_limit(snapshot.revisions, used, HISTORY)
    ]
