"""Index of the services that refer to each model, runtime and weight, so that a change reaches only these services."""

from collections.abc import Callable

from ome_operator.api import InferenceService, Invalid
from ome_operator.cache.resources import RUNTIMES, Resource, editable_parts
from ome_operator.core.observed.objects import Ref

Refs = Callable[[InferenceService], tuple[Ref, ...]]
"""Function that returns the objects to which a service may refer, in order of precedence; () if the service names none."""

_ANY_RUNTIME = Ref("ServingRuntime", "", "*")
"""Placeholder for the reference of a service that names no runtime, because any runtime may be selected for the service."""


class ReferenceIndex:
    """Index of services by the objects to which they refer. The objects need not exist."""

    def __init__(self, models_of: Refs, runtimes_of: Refs) -> None:
        self._models_of, self._runtimes_of = models_of, runtimes_of
        self._users: dict[Ref, dict[Ref, None]] = {}

    def services_referring_to(self, ref: Ref) -> tuple[Ref, ...]:
        """Return the services that refer to an object, in the order in which the references were made."""
        return tuple(self._users.get(ref, ()))

    def services_concerned_by(self, ref: Ref) -> tuple[Ref, ...]:
        """Return the services to reconcile after an edit of an object. For a runtime, these include services for which it
        may be selected.
        """
        users = self.services_referring_to(ref)
        return tuple(dict.fromkeys(users + self.services_referring_to(_ANY_RUNTIME))) if ref.kind in RUNTIMES else users

    def update_references(self, service: Ref, old: Resource | None, new: Resource | None) -> tuple[Ref, ...]:
        """Update the references of a service, and return the objects that it began or ceased to refer to. `old` is None for
        a new service, and `new` is None for a service that is gone.
        """
        if old is not None and new is not None and _same(old, new):
            return ()
        before, after = self._refs(old), self._refs(new)
        for ref in before - after:
            users = self._users.get(ref, {})
            users.pop(service, None)
            if not users:
                self._users.pop(ref, None)
        for ref in after - before:
            self._users.setdefault(ref, {})[service] = None
        return tuple(ref for ref in before ^ after if ref != _ANY_RUNTIME)

    def _refs(self, resource: Resource | None) -> set[Ref]:
        if resource is None or isinstance(resource.parsed, Invalid):
            return set()
        named = self._runtimes_of(resource.parsed)
        return {*self._models_of(resource.parsed), *(named or (_ANY_RUNTIME, *_chosen(resource)))}


def _same(old: Resource, new: Resource) -> bool:
    """Return whether two states of a service have the same references: the same spec and the same chosen runtime."""
    return (
        old.uid == new.uid
        and editable_parts(old) == editable_parts(new)
        and old.status.get("runtime") == new.status.get("runtime")
    )


def _chosen(resource: Resource) -> tuple[Ref, ...]:
    """Return the references to the runtimes that may have the name that the status of a service contains."""
    name = resource.status.get("runtime")
    return (Ref("ServingRuntime", resource.ref.namespace, name), Ref("ClusterServingRuntime", "", name)) if name else ()
