"""Tests of the nodes that a group excludes, in its StatefulSets (docs/bad-nodes.md)."""

from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed.exclusions import MOST, exclusion
from ome_operator.core.placement.demand import demand
from ome_operator.core.render import meta, statefulsets
from ome_operator.core.render.exclusion import exclude_nodes
from tests.support.shapes import Shape

OTHER = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
ZONE = {"key": "zone", "operator": "In", "values": ["b"]}
ONLY = {"key": "metadata.name", "operator": "In", "values": ["n7"]}
OWNER = meta.Owner("svc", "ns", "uid")


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    """Return a pod spec with these terms of required node affinity."""
    return {
        "affinity": {
            "podAntiAffinity": {"x": 1},
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
            },
        }
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([{"matchExpressions": [ZONE]}], [{"matchExpressions": [ZONE], "matchFields": [OTHER]}]),
        ([{"matchFields": [ONLY]}], [{"matchFields": [ONLY, OTHER]}]),
        (
            [{"matchExpressions": [ZONE]}, {"matchFields": [ONLY]}],
            [{"matchExpressions": [ZONE], "matchFields": [OTHER]}, {"matchFields": [ONLY, OTHER]}],
        ),
        ([{}], [{}]),  # a term without expressions matches no node, and must not begin to match
        ([{"matchExpressions": [], "matchFields": []}], [{"matchExpressions": [], "matchFields": []}]),
    ],
)
def test_excluded_nodes_are_added_to_every_affinity_term(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    spec = required(*before)
    assert exclude_nodes(spec, ("n1",)) == required(*after)
    assert spec == required(*before), "the stored template is not changed"


@pytest.mark.parametrize("spec", [{}, {"affinity": None}, {"affinity": {}}, {"affinity": {"nodeAffinity": {}}}])
def test_exclusion_adds_a_term_to_pods_without_node_affinity(spec: dict[str, Any]) -> None:
    found = exclude_nodes({"hostNetwork": True, **spec}, ("n1", "n2"))["affinity"]["nodeAffinity"]
    other = {**OTHER, "values": ["n2"]}
    assert found == {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [OTHER, other]}]}
    }


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize(
    "terms", [[], [{"matchExpressions": [ZONE]}], [{}], [{"matchFields": [ONLY]}, {"matchExpressions": [ZONE]}]]
)
def test_demand_without_excluded_nodes_equals_that_of_the_rendered_pod(terms: list[dict[str, Any]], weights: bool) -> None:
    spec = required(*terms) if terms else {}
    plain, stamped = demand({"spec": spec}, weights), demand({"spec": exclude_nodes(spec, ("n1", "n2"))}, weights)
    for name in ("n1", "n2", "n7", "n8"):
        for labels in ({"zone": "b"}, {}):
            here = plain.without(("n1", "n2"))
            said, wanted = (any(term.is_met(name, labels) for term in each.terms) for each in (here, stamped))
            assert said == wanted, (name, labels)
            assert not (said and name in ("n1", "n2"))


def stored() -> statefulsets.StoredRole:
    """Return a stored role whose groups have two pods."""
    shape = Shape(size=2, engines=1, decoders=0)
    from tests.unit.core.passes import settled

    world = settled(shape)
    data = next(one.manifest["data"] for (kind, _), one in world.children.items() if kind == "ControllerRevision")
    return statefulsets.roles_by_component(data)[keys.ENGINE]


def test_only_the_statefulsets_of_a_group_contain_its_exclusion() -> None:
    role = stored()
    plain = statefulsets.stamp(OWNER, role, [0, 1])
    some = statefulsets.stamp(OWNER, role, [0, 1], {1: ("n1", "n2")})
    assert some[:2] == plain[:2], "group 0 excludes nothing"
    for one in some[2:]:
        assert one["metadata"]["annotations"] == {keys.EXCLUDED_NODES: "n1,n2"}
        assert exclusion(one["metadata"]["annotations"][keys.EXCLUDED_NODES]) == ("n1", "n2")
        assert '"values": ["n1"]' in repr(one["spec"]["template"]["spec"]["affinity"]).replace("'", '"')
        assert "annotations" not in one["spec"]["template"]["metadata"] or (
            keys.EXCLUDED_NODES not in one["spec"]["template"]["metadata"]["annotations"]
        )
    assert plain == statefulsets.stamp(OWNER, role, [0, 1], {}), "the stored role stays as it was"


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (None, ()),
        ("", ()),
        (7, ()),
        ("n2,n1,n1", ("n1", "n2")),
        ("gpu-3.example.com", ("gpu-3.example.com",)),
        ("a b,,UPPER,-x,ok", ("ok",)),
        ("n" * 254, ()),
        (",".join(f"n{number:03}" for number in range(500)), tuple(f"n{number:03}" for number in range(MOST))),
    ],
)
def test_malformed_exclusion_annotation_is_parsed_safely(text: object, nodes: tuple[str, ...]) -> None:
    assert exclusion(text) == nodes
