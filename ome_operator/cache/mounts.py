"""Which directories of nodes stored revisions would mount, kept by difference: an offer of an agent is a look-up."""

from collections import Counter
from collections.abc import Iterable
from posixpath import dirname, normpath

from ome_operator.core.observed.objects import Child, Manifest
from ome_operator.core.weights.mount import hosts


class MountIndex:
    """Directories that ControllerRevisions mount, and all directories above these -> how many revisions do."""

    def __init__(self) -> None:
        self._within: Counter[str] = Counter()

    def noted(self, old: Child | None, new: Child | None) -> None:
        """A ControllerRevision came, changed or went."""
        before, after = (child.content if child is not None else None for child in (old, new))
        if before == after:
            return
        gone = _all(before)
        self._within.update(_all(after))
        self._within.subtract(gone)
        for place in gone:
            if not self._within[place]:
                del self._within[place]

    def reached(self, places: Iterable[str]) -> bool:
        """Whether a stored revision mounts one of these places or what lies in it."""
        return any(normpath(place) in self._within for place in places)


def _all(content: Manifest | None) -> set[str]:
    """What a revision mounts, and what is above that; nothing where somebody wrote what no operator stores."""
    found: set[str] = set()
    try:
        mounted = {place for pod in _templates(content) for place in hosts(pod)}
    except (AttributeError, KeyError, TypeError):
        return found
    for place in mounted:
        while place not in found and place != "/":
            found.add(place)
            place = dirname(place) or "/"
    return found


def _templates(content: Manifest | None) -> list[Manifest]:
    """Pod specs of all roles that a ControllerRevision stores."""
    roles = ((content or {}).get("data") or {}).get("workloads") or {}
    sets = [role.get(part) for role in roles.values() for part in ("leader", "worker")]
    return [workload["spec"]["template"]["spec"] for workload in sets if workload]
