"""Tests of which labels of a node are written."""

from ome_operator.cache.facts import NodeResource
from ome_operator.controllers.nodemodels import labels_differ, labels_to_apply
from ome_operator.core.observed.objects import Node

KEY = "models.ome.io/clusterbasemodel.k2"


def node(ours: bool = True, **labels: str) -> NodeResource:
    """Return a node with these labels, which belong to the operator or to a user."""
    found = {KEY if key == "k2" else key: value for key, value in labels.items()}
    return NodeResource("uid", 1, Node("n", 1, found, True, 8, frozenset(found) if ours else frozenset()))


def test_missing_or_wrong_node_label_is_written() -> None:
    assert labels_differ(node(), {KEY: "Ready"})
    assert labels_differ(node(k2="Updating"), {KEY: "Ready"})
    assert not labels_differ(node(k2="Ready"), {KEY: "Ready"})
    assert labels_differ(node(ours=False, k2="Ready"), {KEY: "Ready"}), "the operator takes over the label"


def test_own_label_is_removed_with_its_model_and_manual_label_kept() -> None:
    assert labels_differ(node(k2="Ready"), {})
    assert not labels_differ(node(ours=False, k2="Ready"), {})
    assert not labels_differ(node(zone="a"), {}), "the label is not about a model"


def test_manual_ready_label_is_kept_until_the_agent_reports_ready() -> None:
    theirs = node(ours=False, k2="Ready")
    assert labels_to_apply(theirs, {KEY: "Updating"}) == {} and labels_to_apply(theirs, {KEY: "Failed"}) == {}
    assert labels_to_apply(theirs, {KEY: "Ready"}) == {KEY: "Ready"}
    assert labels_to_apply(node(k2="Ready"), {KEY: "Failed"}) == {KEY: "Failed"}, (
        "the operator's own label shows the true state"
    )
    assert labels_to_apply(node(ours=False, k2="Failed"), {KEY: "Updating"}) == {KEY: "Updating"}
