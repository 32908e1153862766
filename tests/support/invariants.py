"""What must never happen, whatever is edited, lost, late or started anew: the laws of the system.

`simulator.py` plays a cluster and asks each law at the moment that it is about. A broken law raises AssertionError.

A pass over a service
* a_pass_changes_no_input_and_decides_the_same_again

Objects that are written
* a_change_meets_the_object_that_is_meant
* nothing_is_written_while_it_goes
* a_stored_revision_never_changes
* only_replicas_of_a_stateful_set_change
* the_selector_of_a_deployment_never_changes

Objects and groups that go
* nothing_of_somebody_else_is_deleted
* routers_go_before_leaders_and_leaders_before_workers
* a_leader_is_drained_before_it_stops

Groups that come
* a_group_starts_beside_another_revision_only_within_the_surge

`World.settle` adds that every service comes to rest. What single stories add (what serves during a rollout, what stays while
something is wrong) stands beside them in tests/property.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.plan import Plan
from ome_operator.core.rollout.drain import NOTICE
from tests.support.live import Key, Live, LivePod


def a_pass_changes_no_input_and_decides_the_same_again(before: Any, after: Any, plan: Plan, again: Plan) -> None:
    """A pass only computes: its inputs are afterwards what they were, and the same inputs give the same plan."""
    assert after == before, "sync changed its inputs"
    assert again == plan, "sync is not deterministic"


def a_change_meets_the_object_that_is_meant(key: Key, found: Live | None, uid: str) -> None:
    """Who changes an object names its UID, and an object with this UID is there. Without a UID an object is created."""
    if uid:
        assert found is not None, f"{key} was to be changed but does not exist"
        assert found.uid == uid, f"{key} is another object by now"


def nothing_is_written_while_it_goes(found: Live) -> None:
    """An object that is being deleted is left alone until it is gone."""
    assert not found.deleting, f"{found.key} is written while it goes"


def a_stored_revision_never_changes(found: Live, new: Manifest) -> None:
    """The data of a ControllerRevision stays as it was stored first: running pods were made from it."""
    if found.key[0] == "ControllerRevision":
        assert found.manifest["data"] == new["data"], "the data of a revision never changes"


def only_replicas_of_a_stateful_set_change(found: Live, new: Manifest) -> None:
    """A StatefulSet keeps its templates and labels for life. Other templates are another revision with other sets."""
    if found.key[0] == "StatefulSet":
        kept = {**found.manifest["spec"], "replicas": new["spec"]["replicas"]}
        assert kept == new["spec"], f"{found.key}: only replicas of a StatefulSet ever change"


def the_selector_of_a_deployment_never_changes(found: Live, new: Manifest) -> None:
    """The API server refuses another selector, and nothing could ever be written to that Deployment again."""
    if found.key[0] == "Deployment":
        assert found.manifest["spec"]["selector"] == new["spec"]["selector"], "selectors are immutable"


def nothing_of_somebody_else_is_deleted(service: InferenceService, found: Live) -> None:
    """Only objects that the service owns, or that nobody owns any more, are deleted."""
    assert found.owner in ("", service.uid), f"{found.key} belongs to somebody else and was deleted"


def routers_go_before_leaders_and_leaders_before_workers(pods: Iterable[LivePod], found: Live) -> None:
    """A slice goes from its front to its back, so that no request reaches a group that is half gone.

    The leaders' StatefulSet is deleted when no router pod of its revision is left. The StatefulSet of a group's workers is
    deleted when the leader of this group is gone (decisions 6 and 9).
    """
    if found.key[0] != "StatefulSet":
        return
    slice_ = [pod for pod in pods if pod.labels[keys.REVISION] == found.labels[keys.REVISION]]
    if keys.WORKER_INDEX in found.labels:
        assert not [pod.name for pod in slice_ if pod.labels[keys.COMPONENT] == keys.ROUTER], "a router is left"
        return
    role, group = found.labels[keys.COMPONENT], found.labels[keys.GROUP_INDEX]
    leaders = [pod for pod in slice_ if keys.WORKER_INDEX in pod.labels and pod.labels[keys.COMPONENT] == role]
    left = [pod.name for pod in leaders if pod.labels[keys.POD_INDEX] == group]
    assert not left, f"workers of {left} go before their leader"


def a_leader_is_drained_before_it_stops(
    service: InferenceService, pods: Iterable[LivePod], found: Live, new: Manifest, now: datetime
) -> None:
    """A ready leader that a router knows is marked some time before it is stopped: it gets no new requests (decisions 9).

    Asked where a pass sees the pods as they are. In an older picture a leader may not be ready yet, which needs no mark.
    """
    if found.key[0] != "StatefulSet" or keys.WORKER_INDEX not in found.labels or service.spec.router is None:
        return
    for pod in pods:
        surplus = pod.workload_uid == found.uid and int(pod.labels[keys.POD_INDEX]) >= new["spec"]["replicas"]
        if surplus and pod.ready and not pod.deleting:
            assert pod.draining, f"{pod.name} is stopped before it was drained"
            assert (now - datetime.fromisoformat(pod.draining)).total_seconds() >= NOTICE


def a_group_starts_beside_another_revision_only_within_the_surge(
    service: InferenceService, pods: Iterable[LivePod], labels: Mapping[str, str], *, current: bool
) -> None:
    """While two revisions exist, a role has no more groups in all than its replicas and the surge that the user allows.

    With `recreate` no pod starts beside one of another revision at all (decisions 6). `labels` are those of the pod that
    starts. The number of groups is counted where a pass sees the pods as they are (`current`).
    """
    role, revision = labels[keys.COMPONENT], labels[keys.REVISION]
    engines = [pod for pod in pods if pod.labels[keys.COMPONENT] != keys.ROUTER]
    if all(pod.labels[keys.REVISION] == revision for pod in engines):
        return
    rollout = service.spec.rollout
    assert not (rollout and rollout.recreate is not None), f"{role} of {revision} starts beside another revision"
    groups = {(pod.labels[keys.REVISION], pod.group) for pod in engines if pod.labels[keys.COMPONENT] == role}
    new = (revision, int(labels.get(keys.GROUP_INDEX, labels[keys.POD_INDEX]))) not in groups
    if new and current:
        assert len(groups) < _most(service, role), f"{role} of {revision} starts beside {sorted(groups)}"


def _most(service: InferenceService, role: str) -> int:
    """Groups of a role that the user allows over all revisions."""
    part, rollout = getattr(service.spec, role), service.spec.rollout
    wanted = part.min_replicas if part and part.min_replicas is not None else 1
    if rollout and rollout.blue_green is not None:
        return 2 * int(wanted)
    return int(wanted) + int((rollout and rollout.rolling_update and rollout.rolling_update.max_surge) or 0)
