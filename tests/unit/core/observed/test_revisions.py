"""Tests of which ControllerRevisions belong to a service, and in which order."""

from typing import Any

from ome_operator.core.observed import slices
from ome_operator.core.observed.objects import Child
from ome_operator.core.render import meta


def stored(name: str, number: int, inputs: Any = None, owner: str = "u", deleting: bool = False, owned: str = "h") -> Child:
    """Return a ControllerRevision."""
    labels = meta.labels("svc", revision=name)
    content = {"revision": number, "data": {"inputs": inputs or {"n": name}}}
    return Child(
        "ControllerRevision", "team", f"svc-{name}", f"uid-{name}", 1, owner, labels, "h", owned, deleting, 0, "", content
    )


def test_own_revisions_are_sorted_by_number_and_include_adoptable_orphans() -> None:
    children = [
        stored("c", 3), stored("a", 1), stored("b", 2, owner=""), stored("x", 9, owner="StatefulSet"),
        stored("y", 9, owner="", owned=""), stored("z", 9, deleting=True), stored("", 9),
    ]  # fmt: skip
    assert [one.name for one in slices.stored_revisions(children, "u")] == ["a", "b", "c"]
