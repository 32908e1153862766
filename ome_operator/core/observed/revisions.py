"""What the ControllerRevisions of a service store."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Child
from ome_operator.core.observed.slices import ours


class Revision(NamedTuple):
    """One stored revision."""

    name: str
    """The value of the label `ome.io/revision`."""
    number: int
    """Order of creation; the largest is the newest."""
    data: Mapping[str, Any]
    child: Child


def stored(children: Iterable[Child], uid: str) -> list[Revision]:
    """Revisions of the service with this UID, oldest first, orphans that it may adopt included.

    StatefulSets make ControllerRevisions too: those are controlled by the StatefulSet.
    """
    found = [
        Revision(one.labels.get(keys.REVISION, ""), int(one.content["revision"]), one.content["data"], one)
        for one in children
        if one.kind == "ControllerRevision" and ours(one, uid) and one.content and not one.deleting
    ]
    return sorted((one for one in found if one.name), key=lambda one: one.number)


def inputs(known: Iterable[Revision]) -> dict[str, Mapping[str, Any]]:
    """Revision -> stored inputs, in the order of `known`."""
    return {one.name: one.data["inputs"] for one in known if one.data.get("inputs")}
