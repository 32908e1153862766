"""Tests that StatefulSets made from stored templates share their equal parts. A fleet has tens of thousands of them."""

from ome_operator import keys
from ome_operator.core.render.statefulsets import roles_by_component, stamp
from tests.unit.core.render.test_pod_groups import OWNER, data


def test_statefulsets_share_owner_references_and_equal_labels() -> None:
    role = roles_by_component(data(2))[keys.ENGINE]
    found = stamp(OWNER, role, (0, 1))
    assert len(found) == 4
    for one in found:
        assert one["metadata"]["ownerReferences"] is found[0]["metadata"]["ownerReferences"]
        assert one["spec"]["selector"]["matchLabels"] is one["metadata"]["labels"]


def test_labels_that_differ_from_the_selector_are_kept_apart() -> None:
    made = data(1)
    role = roles_by_component(made)[keys.ENGINE]
    template = {
        **role.leader,
        "metadata": {**role.leader["metadata"], "labels": {**role.leader["metadata"]["labels"], "a": "b"}},
    }
    (one,) = stamp(OWNER, role._replace(leader=template), (3,))
    assert one["metadata"]["labels"]["a"] == "b" and "a" not in one["spec"]["selector"]["matchLabels"]
    assert one["spec"]["selector"]["matchLabels"][keys.GROUP_INDEX] == "3"
