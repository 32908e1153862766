"""Index of the node directories that stored revisions mount. The index is updated with each change. A check of the
directories that an agent offers to remove is therefore a look-up.

Every stored revision is included, whoever owns it, because a directory that is kept without need costs disk space, and a
directory that is removed under a pod costs the service.
"""

from collections import Counter
from collections.abc import Iterable
from posixpath import dirname, normpath
from typing import Any

from ome_operator.core.observed.objects import Child, Manifest
from ome_operator.core.weights.mount import host_directories


class MountIndex:
    """Maps each directory that stored revisions (ControllerRevisions) mount, and each parent of such a directory, to the
    number of these revisions.
    """

    def __init__(self) -> None:
        self._within: Counter[str] = Counter()

    def update_revision(self, old: Child | None, new: Child | None) -> None:
        """Update the index; `old` or `new` is None for a ControllerRevision that appeared or is gone."""
        before, after = (child.content if child is not None else None for child in (old, new))
        if before == after:
            return
        gone = _all(before)
        self._within.update(_all(after))
        self._within.subtract(gone)
        for place in gone:
            if not self._within[place]:
                del self._within[place]

    def is_mounted(self, places: Iterable[str]) -> bool:
        """Return whether a stored revision mounts one of the directories `places`, or a path within one of them."""
        return any(normpath(place) in self._within for place in places)


def _all(content: Manifest | None) -> set[str]:
    """Return the directories that a revision mounts, and their parents. `content` is the content of the ControllerRevision;
    None if there is none.
    """
    found: set[str] = set()
    for place in mounted_directories((content or {}).get("data")):
        while place not in found and place != "/":
            found.add(place)
            place = dirname(place) or "/"
    return found


def mounted_directories(data: Any, component: str = "") -> set[str]:
    """Return the directories that the pods of a revision mount; with `component`, only the directories that this component
    mounts. `data` is what the ControllerRevision stores. Return an empty set if another client wrote data that the
    operator never stores.
    """
    try:
        roles = (data or {}).get("workloads") or {}
        parts = [role for name, role in roles.items() if component in ("", name)]
        sets = [role.get(part) for role in parts for part in ("leader", "worker")]
        pods = [workload["spec"]["template"]["spec"] for workload in sets if workload]
        return {place for pod in pods for place in host_directories(pod)}
    except (AttributeError, KeyError, TypeError):
        return set()
