"""Count the Jobs that pull images for all services, so that all services together stay below `Policy.image_pulls`."""

from ome_operator.core.observed.objects import Ref


class PullCounts:
    """The number of active Jobs of each service that has any, as its last plan reported it.

    A pass counts the Jobs of its own service from the cache. After a restart of the operator, the Jobs of a service are
    counted from its first pass on, so the limit may be exceeded until every service had a pass.
    """

    def __init__(self) -> None:
        self._active: dict[Ref, int] = {}

    def report(self, ref: Ref, active: int) -> None:
        """Store the number of a service's active Jobs, including those that its plan creates. There must be no await between
        the decision and this call.
        """
        if active:
            self._active[ref] = active
        else:
            self._active.pop(ref, None)

    def active_jobs_of_others(self, ref: Ref) -> int:
        """Return the number of active Jobs of all services except `ref`."""
        return sum(self._active.values()) - self._active.get(ref, 0)

    def forget(self, ref: Ref) -> None:
        """Discard the number of a service that is gone, or that is not watched any more."""
        self._active.pop(ref, None)
