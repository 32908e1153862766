"""Tests of the snapshot of a pass: it is read once, and contains only what belongs to the service."""

from datetime import UTC, datetime

from ome_operator.core.observed.objects import Child, Deps, Observed
from ome_operator.core.reconcile.snapshot import Snapshot
from tests.support import parts
from tests.unit.core.observed.test_revisions import stored
from tests.unit.core.rollout.makers import BUDGET, LEADERS, ROUTER, WORKERS, child, pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def snapshot(*children: Child) -> Snapshot:
    """Return the snapshot of a service with these objects, a pod of its own, and a pod of a workload that is gone."""
    mine = pod("mine", workload=LEADERS.name, workload_uid=LEADERS.uid)
    former = pod("former", workload="svc-engine-r0-0", workload_uid="gone", revision="r0")
    observed = Observed(children={(one.kind, one.name): one for one in children}, pods=(mine, former))
    return Snapshot(parts.service(engine={}), Deps(), observed, NOW)


def ours(found: Child) -> Child:
    return found._replace(owner=parts.UID)


def test_slices_contain_all_pods_but_counted_pods_are_only_own_ones() -> None:
    found = snapshot(ours(LEADERS), ours(WORKERS))
    assert list(found.slices) == ["r0", "r1"]
    assert [one.name for one in found.pods] == ["mine"]
    assert found.has_engines("r1") and not found.has_engines("r0") and not found.has_engines("never")


def test_revision_counts_as_created_while_it_has_a_statefulset() -> None:
    assert snapshot(ours(WORKERS)).has_statefulset("r1") and not snapshot(ours(ROUTER), ours(BUDGET)).has_statefulset("r1")
    assert not snapshot(ours(LEADERS)).has_statefulset("r0"), "pods alone do not make a revision"


def test_stored_revisions_and_their_inputs_are_ordered() -> None:
    found = snapshot(stored("b", 2, owner=parts.UID), stored("a", 1, owner=parts.UID), stored("x", 3))
    assert [one.name for one in found.revisions] == list(found.inputs) == ["a", "b"]


def test_snapshot_properties_are_computed_once() -> None:
    found = snapshot(ours(LEADERS))
    assert found.slices is found.slices and found.pods is found.pods and found.revisions is found.revisions


def test_object_of_another_owner_is_not_controlled() -> None:
    theirs = child("RoleScale", "theirs", owner="x")
    found = snapshot(ours(LEADERS), theirs)
    assert found.controlled("StatefulSet", LEADERS.name) == ours(LEADERS)
    assert found.controlled("RoleScale", "theirs") is None and found.controlled("RoleScale", "none") is None
