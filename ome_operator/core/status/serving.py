"""Determine whether a service serves: whether requests to its URL are answered now.

The result depends only on the objects that exist, not on the spec: pods that serve continue to serve if the spec cannot be
read, or requests more groups than the cluster can hold.
"""

from collections.abc import Iterable, Mapping

from ome_operator import keys
from ome_operator.core.group_numbers import is_leader, pods, ready_groups
from ome_operator.core.observed import slices
from ome_operator.core.observed.objects import Observed
from ome_operator.core.observed.slices import Revision, Slice
from ome_operator.core.render.statefulsets import StoredRole, roles_by_component


def can_serve(present: Mapping[str, Slice], revisions: Iterable[Revision], *, routed: bool) -> bool:
    """Return whether any revision can answer requests.

    `present` contains the existing objects by revision, `revisions` the stored revisions. `routed` states whether the
    Service of the InferenceService leads to routers; otherwise it leads to the leaders of the engine.
    """
    return any(
        revision.name in present and slice_serves(present[revision.name], roles_by_component(revision.data), routed=routed)
        for revision in revisions
    )


def slice_serves(slice_: Slice, roles: Mapping[str, StoredRole], *, routed: bool) -> bool:
    """Return whether a revision can answer requests: it has a ready group of each of its `roles` and, if it is `routed`, a
    ready router. The router of a revision knows only the groups of this revision.
    """
    if routed and not any(pod.component == keys.ROUTER and pod.ready and not pod.deleting for pod in slice_.pods):
        return False
    return bool(roles) and all(_open(name, role.size, slice_, routed=routed) for name, role in roles.items())


def observed_serves(observed: Observed, name: str, uid: str) -> bool:
    """Return whether the service with this name and UID serves, from its existing objects alone."""
    address = observed.children.get(("Service", name))
    if address is None or address.owner != uid or address.deleting:
        return False
    routed = address.labels.get(keys.COMPONENT) == keys.ROUTER
    return can_serve(slices.slices(observed, uid), slices.stored_revisions(observed.children.values(), uid), routed=routed)


def _open(role: str, size: int, slice_: Slice, *, routed: bool) -> bool:
    """Return whether a role has a ready group that gets new requests. Behind a router, a leader that is being drained gets
    no new requests. `routed` states whether there is a router.
    """
    closed = {pod.group for pod in pods(role, slice_) if routed and pod.draining and is_leader(pod)}
    return bool(ready_groups(role, size, slice_) - closed)
