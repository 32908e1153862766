"""Tests that a stored revision is read by its owner: anybody can write a ControllerRevision with a service's labels."""

import pytest

from ome_operator import keys
from ome_operator.cache.facts import revision_data
from ome_operator.core.observed import from_api

OWN, COPY = {"inputs": {"model": "own"}}, {"inputs": {"model": "copied"}}


def revision(name: str, owner: str, data: object) -> object:
    reference = [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": True}]
    metadata = {"namespace": "team", "name": name, "uid": name, "resourceVersion": "3", "labels": {keys.REVISION: "r"}}
    return from_api.child(
        "ControllerRevision",
        {"metadata": {**metadata, "ownerReferences": reference}, "revision": 1, "data": data},
    )


@pytest.mark.parametrize("first", [True, False])
def test_the_revision_of_the_owner_counts(first: bool) -> None:
    found = [revision("a", "svc", OWN), revision("b", "another", COPY)]
    children = found if first else found[::-1]
    assert revision_data(children, "r", {"svc"}) == OWN  # type: ignore[arg-type]
    assert revision_data(children[:1] if children[0].owner != "svc" else children[1:], "r", {"svc"}) == {}  # type: ignore


def test_pods_that_outlive_their_service_are_still_counted() -> None:
    assert revision_data([revision("a", "gone", OWN)], "r", set()) == OWN  # type: ignore[list-item]
