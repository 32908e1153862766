"""Tests that the incrementally updated occupancy of nodes equals a computation over all pods."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.cache.occupancy import Occupancy, PodOrigin
from ome_operator.core.observed.objects import Deps, Pod
from tests.unit.core.rollout.makers import pod

STATES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["", "n1", "n2"]),
        st.integers(0, 2),
        st.sampled_from(["engine", "decoder", keys.ROUTER]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=30,
)


@given(STATES)
def test_incremental_occupancy_equals_a_full_computation(states: list[Any]) -> None:
    occupancy, known = Occupancy(), dict[str, Pod]()
    for name, node, rank, component, over, gone in states:
        before = known.pop(name, None)
        if not gone:
            known[name] = pod(name, rank, component=component, node=node, over=over)
        occupancy.pod(before, known.get(name))
    for node in ("n1", "n2"):
        there = [each for each in known.values() if each.node == node and not each.over and each.component != keys.ROUTER]
        assert occupancy.pods_on(node) == Counter(
            PodOrigin("team", "svc", "r1", each.component, each.rank == 0) for each in there
        )


def test_only_nodes_with_moved_pods_are_reported_as_changed() -> None:
    occupancy, first = Occupancy(), pod("a", node="n1")
    occupancy.pod(None, first)
    assert occupancy.pop_changed_nodes() == {"n1"}
    occupancy.pod(first, first._replace(ready=False, restarts=3))
    occupancy.pod(None, pod("b", node="", component="engine"))
    assert occupancy.pop_changed_nodes() == set()
    occupancy.pod(first, None)
    assert occupancy.pop_changed_nodes() == {"n1"} and occupancy.pods_on("n1") == {}


@pytest.mark.parametrize(
    ("uid", "component", "manager", "namespaces", "counts"),
    [
        ("known", "engine", keys.MANAGER, ("other",), True),
        ("router", "engine", keys.MANAGER, (), False),
        ("", "engine", keys.MANAGER, (), True),
        ("", "engine", keys.MANAGER, ("other", "team"), True),
        ("", "engine", keys.MANAGER, ("other",), False),
        ("", "engine", "helm", (), False),
        ("", keys.ROUTER, keys.MANAGER, (), False),
    ],
)
def test_own_pod_with_pending_watch_event_is_not_foreign(
    uid: str, component: str, manager: str, namespaces: tuple[str, ...], counts: bool
) -> None:
    """A pod of the operator whose watch event has not arrived yet is not counted as another user's. Previously, such a pod
    was remembered as a foreign pod for five minutes: it was counted twice once its event arrived, and was still counted
    after it was deleted.
    """
    cluster = ClusterCache(Deps())
    for name, role in (("known", "engine"), ("router", keys.ROUTER)):
        cluster.pods.store_watched(pod(name, component=role)._replace(uid=name))
    labels = {keys.MANAGED_BY: manager, keys.COMPONENT: component, keys.SERVICE: "svc", keys.REVISION: "r1"}
    owner = {"kind": "StatefulSet", "name": f"svc-{component}-r1-0", "uid": "x", "controller": True}
    metadata = {"uid": uid or "new", "name": f"svc-{component}-r1-0-0", "namespace": "team", "labels": labels}
    assert cluster.occupies_node({"metadata": {**metadata, "ownerReferences": [owner]}}, namespaces) == counts
    if not uid:
        copy = {**metadata, "name": f"svc-{component}-r1-0-0-debug"}
        assert not cluster.occupies_node({"metadata": copy}, namespaces), "a copy of a pod, which has its labels"


def test_pod_without_metadata_is_foreign() -> None:
    assert not ClusterCache(Deps()).occupies_node({})
