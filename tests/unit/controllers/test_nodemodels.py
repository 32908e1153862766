"""Tests of which labels of a node are written."""

from ome_operator.cache.facts import NodeResource
from ome_operator.controllers.nodemodels import labels_differ, labels_to_apply
from ome_operator.core.observed.objects import Node

KEY = "models.ome.io/clusterbasemodel.k2"


def node(ours: bool = True, **labels: str) -> NodeResource:
    """Return a node with these labels, which belong to the operator or to a user."""
    found = {KEY if key == "k2" else key: value for key, value in labels.items()}
    return NodeResource("uid", 1, Node("n", 1, found, True, 8, frozenset(found) if ours else frozenset()))


def test_a_label_is_written_when_it_is_missing_or_wrong() -> None:
    assert labels_differ(node(), {KEY: "Ready"})
    assert labels_differ(node(k2="Updating"), {KEY: "Ready"})
    assert not labels_differ(node(k2="Ready"), {KEY: "Ready"})
    assert labels_differ(node(ours=False, k2="Ready"), {KEY: "Ready"}), "the operator takes over the label"


def test_a_label_of_ours_goes_with_its_model_and_a_persons_stays() -> None:
    assert labels_differ(node(k2="Ready"), {})
    assert not labels_differ(node(ours=False, k2="Ready"), {})
    assert not labels_differ(node(zone="a"), {}), "the label is not about a model"


def test_what_a_person_called_ready_stays_until_the_agent_says_so_too() -> None:
    theirs = node(ours=False, k2="Ready")
    assert labels_to_apply(theirs, {KEY: "Updating"}) == {} and labels_to_apply(theirs, {KEY: "Failed"}) == {}
    assert labels_to_apply(theirs, {KEY: "Ready"}) == {KEY: "Ready"}
    assert labels_to_apply(node(k2="Ready"), {KEY: "Failed"}) == {KEY: "Failed"}, (
        "the operator's own label shows the true state"
    )
    assert labels_to_apply(node(ours=False, k2="Failed"), {KEY: "Updating"}) == {KEY: "Updating"}
