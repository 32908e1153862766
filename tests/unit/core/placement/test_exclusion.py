"""Tests of complete passes over a service while nodes are avoided (docs/bad-nodes.md)."""

from dataclasses import replace

import pytest

from ome_operator import keys
from ome_operator.core.observed.exclusions import MOST
from ome_operator.core.reconcile.sync import sync
from tests.support.scheduler import Scheduler
from tests.support.shapes import Shape
from tests.support.simulator import World
from tests.unit.core.placement.test_capacity_check import deps, nodes, said

SHAPE = Shape(size=2, engines=2, decoders=0)
"""Four pods of a GPU each."""


def world(found: int, avoided: tuple[str, ...], shape: Shape = SHAPE) -> World:
    """Return the simulated world of a service on a cluster with `found` nodes."""
    made = World(shape.service(), deps(shape, nodes(found)), 5)
    made.avoided = dict.fromkeys(avoided, "is avoided")
    Scheduler(made)
    return made


def where(one: World) -> set[str]:
    """Return the nodes of the engines' pods."""
    return {pod.node for pod in one.pods.values() if pod.labels[keys.COMPONENT] != keys.ROUTER}


def excluded(one: World) -> dict[int, str]:
    """Return the nodes that each group excludes."""
    sets = [child.manifest["metadata"] for (kind, _), child in one.children.items() if kind == "StatefulSet"]
    return {
        int(each["labels"][keys.GROUP_INDEX]): (each.get("annotations") or {}).get(keys.EXCLUDED_NODES, "") for each in sets
    }


def test_new_groups_are_placed_on_nodes_that_are_not_avoided() -> None:
    one = world(6, ("n0", "n2"))
    one.settle()
    assert where(one) == {"n1", "n3", "n4", "n5"}
    assert excluded(one) == {0: "n0,n2", 1: "n0,n2"}


def test_group_keeps_its_nodes_and_exclusions_after_creation() -> None:
    one = world(8, ("n0",))
    one.settle()
    there, pods = where(one), one.living_pods()
    for avoided in ((), ("n1",), ("n5", "n6")):
        one.avoided = dict.fromkeys(avoided, "is avoided")
        one.settle()
        assert (excluded(one), where(one), one.living_pods()) == ({0: "n0", 1: "n0"}, there, pods)


def test_added_group_excludes_the_nodes_avoided_at_that_time() -> None:
    one = world(8, ("n0",))
    one.settle()
    one.avoided = {"n5": "is avoided"}
    one.edit(Shape(size=2, engines=3, decoders=0).service())
    one.settle()
    assert excluded(one) == {0: "n0", 1: "n0", 2: "n5"}
    assert where(one) == {"n0", "n1", "n2", "n3", "n4", "n6"}


def test_node_exclusion_does_not_change_the_revision() -> None:
    plain, avoiding = world(6, ()), world(6, ("n0",))
    plain.settle()
    avoiding.settle()
    names = [{name for (kind, name) in one.children if kind == "ControllerRevision"} for one in (plain, avoiding)]
    assert names[0] == names[1]
    data = [
        next(one.manifest["data"] for (kind, _), one in each.children.items() if kind == "ControllerRevision")
        for each in (plain, avoiding)
    ]
    assert data[0] == data[1]


@pytest.mark.parametrize("avoided", [("n0",), ("n0", "n3"), tuple(f"n{number}" for number in range(4))])
def test_service_without_alternative_uses_the_avoided_nodes(avoided: tuple[str, ...]) -> None:
    one = world(4, avoided)
    one.settle()
    assert where(one) == {"n0", "n1", "n2", "n3"}
    assert excluded(one) == {0: "", 1: ""}


def test_the_message_names_the_avoided_node_if_the_service_fits_in_no_case() -> None:
    one = world(5, ("n1",))
    one.deps = replace(one.deps, nodes={**one.deps.nodes, **nodes(2, first=3, ready=False, alive=False)})
    plan = sync(one.service, one.deps, one.observed(), one.now)
    assert said(plan, "EngineReady") == (
        "False",
        "DoesNotFit",
        "engine needs 4 nodes that report and are not cordoned: 2 of the 4 nodes with "
        "models.ome.io/clusterbasemodel.tiny=Ready and a name other than n1 do",
    )


def test_a_group_that_serves_on_an_avoided_node_counts_as_placed_there() -> None:
    one = world(4, ())
    one.settle()
    one.avoided = {"n0": "is avoided"}
    one.lose(next(pod.name for pod in one.pods.values() if pod.node == "n3"))
    plan = one.sync()
    assert not [each for each in plan.status["conditions"] if each["reason"] == "DoesNotFit"]
    one.settle()
    assert excluded(one) == {0: "", 1: ""}


def test_number_of_excluded_nodes_is_limited() -> None:
    many = tuple(f"n{number}" for number in range(100))
    one = world(160, many)
    one.settle()
    assert {len(text.split(",")) for text in excluded(one).values()} == {MOST}


def test_avoided_nodes_are_excluded_even_if_the_operator_cannot_read_nodes() -> None:
    one = world(6, ("n0",))
    one.deps = replace(one.deps, policy=replace(one.deps.policy, sees_cluster=False))
    one.settle()
    assert excluded(one) == {0: "n0", 1: "n0"}
