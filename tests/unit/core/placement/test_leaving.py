"""Tests of groups that are replaced under another number, because they failed on a node that is avoided now, or because they
exclude a free node.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed.objects import Taint
from ome_operator.core.reconcile.plan import Plan
from tests.support import parts
from tests.support.simulator import World
from tests.unit.core.placement.test_exclusion import SHAPE, excluded, where, world


def failed(recycles: int = 1, ready: bool = False, group: int = 0) -> World:
    """Return a service on eight nodes, one of whose two groups has been recycled."""
    one = world(8, ())
    one.settle()
    status = dict(one.service.status)
    groups = [dict(each) for each in status["groups"]]
    groups[group] |= {"recyclesInARow": recycles, "recycles": recycles}
    one.service = replace(one.service, status={**status, "groups": groups})
    for pod in one.pods.values():
        if pod.labels[keys.COMPONENT] == keys.ENGINE and pod.group == group and pod.rank == 0:
            pod.ready = ready
    return one


def own(one: World) -> list[str]:
    """Return the nodes of group 0."""
    return sorted(pod.node for pod in one.pods.values() if pod.labels[keys.COMPONENT] == keys.ENGINE and pod.group == 0)


def replaced(plan: Plan) -> tuple[set[str], set[str]]:
    """Return the numbers of the groups that the plan creates, and the names of the StatefulSets that it deletes."""
    made = {apply.manifest["metadata"]["labels"][keys.GROUP_INDEX] for apply in plan.apply if apply.kind == "StatefulSet"}
    return made, {delete.name[-8:] for delete in plan.delete if delete.kind == "StatefulSet"}


def test_group_that_failed_on_an_avoided_node_is_replaced_under_a_new_number() -> None:
    one = failed()
    bad, _ = own(one)
    one.avoided = {bad: "failed three times"}
    made, _ = replaced(one.sync())
    assert made == {"2"}
    one.settle()
    assert excluded(one) == {1: "", 2: bad}
    assert bad not in where(one)
    assert one.condition("Ready")["status"] == "True"
    assert f"node {bad} is avoided for new groups: failed three times" in one.condition("Advice")["message"]


@pytest.mark.parametrize(
    ("recycles", "ready", "avoided"), [(0, False, "own"), (1, True, "own"), (1, False, "another"), (1, False, "")]
)
def test_group_without_bad_node_is_not_replaced(recycles: int, ready: bool, avoided: str) -> None:
    one = failed(recycles, ready)
    free = sorted(one.deps.nodes.keys() - where(one))
    one.avoided = {"own": {own(one)[0]: "it failed"}, "another": {free[0]: "it failed"}, "": dict[str, str]()}[avoided]
    made, gone = replaced(one.sync())
    assert made == gone == set()


@pytest.mark.parametrize("by", ["service", "everything"])
def test_no_group_is_replaced_while_the_service_is_frozen(by: str) -> None:
    one = failed()
    one.avoided = dict.fromkeys(own(one), "it failed")
    when = "2026-11-24T15:40:00Z by alice"
    if by == "service":
        one.service = replace(one.service, annotations={**one.service.annotations, keys.FREEZE: when})
    else:
        one.deps = replace(one.deps, frozen=when)
    assert replaced(one.sync()) == (set(), set())


def test_group_that_already_excludes_the_node_is_not_replaced() -> None:
    one = failed()
    for (kind, _), child in one.children.items():
        if kind == "StatefulSet":
            child.manifest["metadata"].setdefault("annotations", {})[keys.EXCLUDED_NODES] = ",".join(own(one))
    one.avoided = dict.fromkeys(own(one), "it failed")
    made, _ = replaced(one.sync())
    assert "2" not in made


def test_one_group_at_a_time_is_replaced() -> None:
    one = failed()
    groups = [{**each, "recyclesInARow": 2} for each in one.service.status["groups"]]
    one.service = replace(one.service, status={**one.service.status, "groups": groups})
    for pod in one.pods.values():
        pod.ready = pod.labels[keys.COMPONENT] == keys.ROUTER
    one.avoided = dict.fromkeys(where(one), "it failed")
    made, _ = replaced(one.sync())
    assert made == {"2"}


def test_a_group_stays_if_it_would_fit_on_no_other_node() -> None:
    one = failed()
    one.deps = replace(one.deps, nodes={name: node for name, node in one.deps.nodes.items() if name in where(one)})
    one.avoided = {own(one)[0]: "failed three times"}
    assert replaced(one.sync()) == (set(), set())


def test_a_rollout_does_not_replace_groups_of_the_revision_that_it_removes() -> None:
    """A rollout keeps the groups of the old revision until the new ones serve. One of them failed on an avoided node. It is
    replaced before the rollout starts new groups, but not in each pass of the rollout, while it is being drained.
    """
    one = failed()
    sick = {pod.uid for pod in one.pods.values() if pod.labels[keys.COMPONENT] == keys.ENGINE and pod.group == 0}
    one.avoided = {own(one)[0]: "failed three times"}
    one.healthy = lambda pod: pod.uid not in sick
    rollout = {"rollingUpdate": {"maxSurge": 5, "maxUnavailable": 0}}
    shape = replace(SHAPE, image="b")
    edited = parts.service(engine={"minReplicas": 2}, router={}, rollout=rollout)
    one.edit(edited, replace(shape.deps(), nodes=one.deps.nodes, policy=one.deps.policy))
    for _ in range(5):
        one.carry_out(one.sync())
    leaders = [child for (kind, name), child in one.children.items() if kind == "StatefulSet" and not name.endswith("-w")]
    groups = Counter(child.manifest["metadata"]["labels"][keys.REVISION] for child in leaders)
    assert sorted(groups.values()) == [2, 3]


@pytest.mark.parametrize(
    ("passes", "change", "stays"),
    [
        (20, {}, True),  # the group waits for less than five minutes
        (50, {}, False),
        (40, {"ready": False}, True),  # the node accepts no pods
        (40, {"taints": (Taint("ToBeDeletedByClusterAutoscaler", "", "NoSchedule"),)}, True),
    ],
)
def test_a_group_that_waits_for_nodes_is_replaced_if_it_excludes_a_free_node(
    passes: int, change: dict[str, Any], stays: bool
) -> None:
    """A group was created while two nodes were avoided, and has no node since all other nodes are in use. Then the two nodes
    are forgiven. The group would exclude them for as long as it exists.
    """
    one = world(6, ("n0", "n1"))
    one.settle()
    one.deps = replace(one.deps, nodes={name: node._replace(ready=name < "n2") for name, node in one.deps.nodes.items()})
    for pod in [pod for pod in one.pods.values() if pod.group == 1]:
        one.lose(pod.name)
    one.avoided = {}
    for name in ("n0", "n1"):
        one.deps = replace(one.deps, nodes={**one.deps.nodes, name: one.deps.nodes[name]._replace(**change)})
    one.run(passes)
    assert excluded(one) == ({0: "n0,n1", 1: "n0,n1"} if stays else {0: "n0,n1", 2: ""})
    assert {"n0", "n1"}.isdisjoint(where(one)) == stays
