"""The invariants of the system: what must never happen, whatever is edited, lost, delayed or restarted.

`simulator.py` simulates a cluster and checks each law when it applies. A violated law raises AssertionError.

A reconciliation of a service
* a_pass_changes_no_input_and_decides_the_same_again
* a_service_that_is_held_is_only_told_of

Written objects
* a_change_meets_the_object_that_is_meant
* nothing_is_written_while_it_goes
* a_stored_revision_never_changes
* nothing_of_a_stateful_set_changes
* the_selector_of_a_deployment_never_changes

Deleted objects and groups
* nothing_of_somebody_else_is_deleted
* a_leader_that_routers_know_is_drained_before_it_stops
* leaders_go_before_their_workers

New groups
* a_number_is_given_again_only_when_nothing_of_its_group_is_left
* a_group_starts_beside_another_revision_only_within_the_surge

Requests from a Gateway (`routing.py`)
* a_route_leads_away_before_a_router_goes
* a_route_leads_to_what_serves
* requests_move_to_what_has_settled

`World.settle` also checks that every service becomes stable. Invariants of single stories (what serves during a rollout,
what stays during a fault) are in tests/property.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Manifest
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.rollout.drain import NOTICE
from tests.support.live import Key, Live, LivePod


def a_pass_changes_no_input_and_decides_the_same_again(before: Any, after: Any, plan: Plan, again: Plan) -> None:
    """A reconciliation is a pure computation: it changes none of its inputs, and the same inputs give the same plan."""
    assert after == before, "sync changed its inputs"
    assert again == plan, "sync is not deterministic"


def a_service_that_is_held_is_only_told_of(service: InferenceService, deps: Deps, plan: Plan) -> None:
    """While a service is frozen, no object that determines pods is created, changed or deleted. The only pod that is
    written is a leader that was being removed and serves again. While a service is observed, only its status is
    written.
    """
    observed = (
        deps.policy.observe or service.namespace in deps.policy.observe_namespaces or service.annotations.get(keys.OBSERVE)
    )
    if not observed and not deps.frozen and not service.annotations.get(keys.FREEZE):
        return
    changed = plan.first or plan.ensure_secret or plan.create or plan.delete or plan.recycle
    assert not changed, "pods or objects of a frozen or observed service are changed"
    assert {item.kind for item in plan.apply} <= {"Service", "ServiceAccount", "Role", "RoleBinding"}
    unmarked = {"metadata": {"annotations": {keys.DRAINING: None}}}
    assert all(item.body == unmarked for item in plan.patch), "a patch does more than to remove the mark of draining"
    assert not observed or not (plan.check or plan.apply or plan.apply_status or plan.patch or plan.events)
    told = [item["reason"] for item in plan.status["conditions"] if item["type"] == "Frozen"]
    assert told == ["Observed" if observed else "Frozen"], "the condition Frozen does not report the freeze or observation"


def a_change_meets_the_object_that_is_meant(key: Key, live: Live | None, uid: str) -> None:
    """Every change names the UID of its object, and an object with this UID exists. A change without a UID creates an
    object. `live` is the stored object; None if there is none.
    """
    if uid:
        assert live is not None, f"{key} was to be changed but does not exist"
        assert live.uid == uid, f"{key} is a different object now"


def nothing_is_written_while_it_goes(live: Live) -> None:
    """An object that is being deleted is not written."""
    assert not live.deleting, f"{live.key} is written while it is being deleted"


def a_stored_revision_never_changes(live: Live, new: Manifest) -> None:
    """The data of a ControllerRevision never change after it was stored, because running pods were created from them."""
    if live.key[0] == "ControllerRevision":
        assert live.manifest["data"] == new["data"], "the data of a revision must not change"


def nothing_of_a_stateful_set_changes(live: Live, new: Manifest) -> None:
    """The spec of an existing StatefulSet never changes, because a group has a fixed size. For another template or size,
    the operator creates another group, with StatefulSets of its own.
    """
    if live.key[0] == "StatefulSet":
        assert live.manifest["spec"] == new["spec"], f"{live.key}: a StatefulSet must not change"


def the_selector_of_a_deployment_never_changes(live: Live, new: Manifest) -> None:
    """The selector of a Deployment never changes. The API server refuses such a change, and every further write to the
    Deployment would fail.
    """
    if live.key[0] == "Deployment":
        assert live.manifest["spec"]["selector"] == new["spec"]["selector"], "selectors are immutable"


def nothing_of_somebody_else_is_deleted(service: InferenceService, live: Live) -> None:
    """Only objects that the service owns, or that have no owner any more, are deleted."""
    assert live.owner in ("", service.uid), f"{live.key} belongs to another owner and was deleted"


def a_leader_that_routers_know_is_drained_before_it_stops(
    pods: Iterable[LivePod], live: Live, now: datetime, roles: Collection[str] = (), empty: Collection[str] = ()
) -> None:
    """A ready leader in a slice with a router is marked some time before it stops, so that it receives no new requests
    (decisions 9). Only a leader whose UID is in `empty` may stop at once, because all routers report that it has no
    requests.

    If gangs release their nodes (docs/placement.md), a leader needs no mark if it cannot serve because another of the
    `roles` of its slice has no ready leader.

    When a whole slice is removed, its routers are removed first (decisions 6). The law is checked only if the reconciliation
    sees the current pods: in an older state the leader may not be ready yet, and such a leader needs no mark.
    """
    if not _leads(live):
        return
    pods = [pod for pod in pods if pod.labels[keys.REVISION] == live.labels[keys.REVISION]]
    routed = any(pod.labels[keys.COMPONENT] == keys.ROUTER for pod in pods)
    if {*roles} - _leading(pods):
        return
    for pod in pods:
        mine = pod.workload_uid == live.uid and pod.labels[keys.COMPONENT] != keys.ROUTER
        if routed and mine and pod.ready and not pod.deleting:
            assert pod.draining, f"{pod.name} is stopped before it is drained"
            assert pod.uid in empty or (now - datetime.fromisoformat(pod.draining)).total_seconds() >= NOTICE


def leaders_go_before_their_workers(pods: Iterable[LivePod], live: Live, roles: Collection[str] = ()) -> None:
    """The StatefulSet of a group's workers is deleted after the leader of this group is gone (decisions 9).

    There is an exception if gangs release their nodes (docs/placement.md): a group that cannot serve is deleted at once. A
    group cannot serve if its leader is not ready, or if another of the `roles` of its slice has no ready leader.
    """
    if live.key[0] != "StatefulSet" or _leads(live):
        return
    pods = [pod for pod in pods if pod.labels[keys.REVISION] == live.labels[keys.REVISION]]
    left = [pod for pod in pods if _same_group(pod.labels, live.labels) and keys.WORKER_INDEX in pod.labels]
    if roles:
        left = [] if {*roles} - _leading(pods) else [pod for pod in left if pod.ready]
    assert not left, f"workers of {[pod.name for pod in left]} are deleted before their leader"


def _leading(pods: Iterable[LivePod]) -> set[str]:
    """Return the roles that have a ready leader."""
    return {pod.labels[keys.COMPONENT] for pod in pods if pod.ready and keys.WORKER_INDEX in pod.labels}


def a_number_is_given_again_only_when_nothing_of_its_group_is_left(
    seen: Iterable[Live], objects: Iterable[Live], pods: Iterable[LivePod], new: Manifest
) -> None:
    """A new group gets a number only when no StatefulSet and no pod of an earlier group with that number exists, because
    otherwise pods of both groups could connect to each other.

    Pods of the earlier group are permitted if the reconciliation has `seen` no StatefulSet of the role, because the slice
    then starts again. A new StatefulSet creates a pod only when the earlier pod of the same name is gone.
    """
    labels = new["metadata"].get("labels") or {}
    if new["kind"] != "StatefulSet" or keys.WORKER_INDEX not in labels:
        return
    left = [live.key for live in objects if live.key[0] == "StatefulSet" and _same_group(live.labels, labels)]
    role = any(live.key[0] == "StatefulSet" and _same(live.labels, labels, keys.COMPONENT, keys.REVISION) for live in seen)
    left += [("Pod", pod.name) for pod in pods if role and _same_group(pod.labels, labels) and pod.workload_uid]
    assert not left, f"{new['metadata']['name']} is created while {left} exist"


def _leads(live: Live) -> bool:
    """Return whether the object is the StatefulSet of a leader."""
    return live.key[0] == "StatefulSet" and keys.WORKER_INDEX in live.labels


def _same_group(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether two sets of labels name the same group of the same slice."""
    return _same(one, other, keys.COMPONENT, keys.REVISION, keys.GROUP_INDEX)


def _same(one: Mapping[str, str], other: Mapping[str, str], *labels: str) -> bool:
    return all(one.get(label) == other.get(label) for label in labels)


def a_group_starts_beside_another_revision_only_within_the_surge(
    service: InferenceService,
    objects: Iterable[Live],
    pods: Iterable[LivePod],
    labels: Mapping[str, str],
    *,
    current: bool,
) -> None:
    """While two revisions exist, the number of groups of a role does not exceed its replicas plus the surge that the user
    allows.

    An autoscaler sets the number of replicas within the limits of the user.

    With `recreate` no pod starts while a pod of another revision exists (decisions 6). `labels` are the labels of the pod
    that starts. The number of groups is checked only if `current` is true: the reconciliation has seen the pods as they are
    now.
    """
    role, revision = labels[keys.COMPONENT], labels[keys.REVISION]
    engines = [pod for pod in pods if pod.labels[keys.COMPONENT] != keys.ROUTER]
    if all(pod.labels[keys.REVISION] == revision for pod in engines):
        return
    rollout = service.spec.rollout
    assert not (rollout and rollout.recreate is not None), f"{role} of {revision} starts beside another revision"
    groups = {(pod.labels[keys.REVISION], pod.group) for pod in engines if pod.labels[keys.COMPONENT] == role}
    new = (revision, int(labels[keys.GROUP_INDEX])) not in groups
    if new and current:
        assert len(groups) < _most(service, objects, role), f"{role} of {revision} starts beside {sorted(groups)}"


def _most(service: InferenceService, objects: Iterable[Live], role: str) -> int:
    """Return the maximum number of groups of a role over all revisions that the user permits."""
    part, rollout = getattr(service.spec, role), service.spec.rollout
    wanted = int(part.min_replicas) if part and part.min_replicas is not None else 1
    scales = [live for live in objects if live.key[0] == "RoleScale" and live.labels[keys.COMPONENT] == role]
    if scales and part and part.max_replicas:
        wanted = max(wanted, min(part.max_replicas, scales[0].manifest["spec"]["replicas"]))
    if rollout and rollout.blue_green is not None:
        return 2 * wanted
    return wanted + int((rollout and rollout.rolling_update and rollout.rolling_update.max_surge) or 0)
