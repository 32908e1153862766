"""Find fields of pods that Kubernetes does not have, and report their location in the user's object and the field that
was probably meant.

A component accepts every field of a pod spec, so a misspelled field of the component (`minReplica`) is mistaken for a field
of the pod. Only the API server has the authoritative list of fields, which may be newer than `api/pod_fields.py`. So in the
operator this list serves only for suggestions, and nothing is rejected because of it.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from ome_operator.api import (
    Component,
    InferenceService,
    PodPart,
    Runtime,
    RuntimeSpec,
    ServiceSpec,
    misplaced,
    pod_fields,
    strict,
)
from ome_operator.api.base import Spec
from ome_operator.core.podspec.merge import FREE
from ome_operator.util.memoize import memoize_by_identity

_TEMPLATE, _UNDECLARED = ".spec.template.spec.", ": field not declared in schema"
"""The text before and after the path of a field in an error of the API server."""
_INDEX = re.compile(r"\[[^][]*+\]")
MOST = 100
"""Maximum number of unknown fields for which a valid field is searched, because each search takes 70 µs."""
LONGEST = 64
"""Maximum number of characters of an unknown field for which a valid field is searched. No valid field is longer."""


@cache
def _known(type_: str, part: type[Spec] | None) -> frozenset[str]:
    """Return the fields of a type of core/v1, and the fields of `part`, a part of an object that contains the fields of a
    pod.
    """
    own = part.model_fields.values() if part is not None else ()
    return frozenset(pod_fields.fields(type_)).union(str(field.alias) for field in own)


class _Field(NamedTuple):
    """A field in a user's object."""

    chain: tuple[str, ...]
    """Names of the fields on the way from the pod spec down to this field."""
    path: str
    """Path of the field in the user's object, such as `spec.engine.volumes[0].hostpath`."""
    value: Any
    above: tuple[type[Spec], ...]
    """Classes on the way from the object's spec to the part that contains the pod spec."""
    of: str = ""
    """Text in front of the path that names the object; "" for the service."""

    def pod_field(self, name: str, value: Any) -> "_Field":
        """Return the field `name` inside this field. Both fields are in the pod spec."""
        return self._replace(chain=(*self.chain, name), path=f"{self.path}.{name}", value=value)

    def object_part(self, name: str, value: Spec) -> "_Field":
        """Return the part `name` of this part of an object. Both parts are outside the pod spec."""
        return self._replace(path=f"{self.path}.{name}", value=value, above=(*self.above, type(value)))

    @property
    def candidates(self) -> frozenset[str]:
        """The valid fields at the location of this field; empty if users choose the names there."""
        return _known(pod_fields.type_at(self.chain[:-1]), self.above[-1] if len(self.chain) == 1 else None)

    @property
    def remedy(self) -> str:
        """An instruction for the user, in the words of `ome lint`. It states the name or the place that the user probably
        meant.
        """
        name = self.chain[-1]
        if len(name) > LONGEST:
            return pod_fields.REMOVE
        outer = strict.outermost_match(self.above, name, self.value) if len(self.chain) == 1 else None
        if outer is not None and not pod_fields.closest_field(name, self.candidates):
            return f"move it to {'.'.join(self.path.split('.')[: outer + 1])}, with less indentation"
        found = pod_fields.advice(name, self.candidates, pod_fields.type_at(self.chain[:-1]))
        return (
            misplaced.correct_place(self.above[0], self.path, of_pod=True) if found == pod_fields.REMOVE else ""
        ) or found

    @property
    def sentence(self) -> str:
        """A message which states that the field does not exist, and what to do."""
        if self.chain[-1] in self.candidates:
            older = "in the Kubernetes version of this cluster: upgrade the cluster, or remove it"
            return f"{self.of}{self.path} is not a field of a pod {older}"
        return f"{self.of}{self.path} is not a field of a pod: {self.remedy}"


def misspelled_fields(service: InferenceService, runtime: Runtime | None) -> tuple[str, ...]:
    """Return a sentence for each misspelled or misplaced field of pods in a service and its runtime. Such a field does not
    exist at its place, and either resembles a valid field or is valid at another place. `runtime` is None if the runtime is
    not available.
    """
    return _misspelled(service.spec, runtime)


@memoize_by_identity(1024)
def _misspelled(spec: ServiceSpec, runtime: Runtime | None) -> tuple[str, ...]:
    """Return the result of `misspelled_fields`, computed from specs alone. The arguments exclude the status, so that the
    cached result stays valid when only the status changes.
    """
    fields = (field for field in _written(spec, runtime) if field.candidates)
    unknown = islice((field for field in fields if field.chain[-1] not in field.candidates), MOST)
    return tuple(field.sentence for field in unknown if field.remedy != pod_fields.REMOVE)


def translate_errors(message: str, service: InferenceService, runtime: Runtime | None) -> str:
    """Translate the API server's errors about fields of a pod template into messages about the user's objects. `runtime` is
    None if the runtime is not available.

    The message is returned unchanged if it is about something else, or about fields that the objects do not contain (any
    more).
    """
    before = [part.partition(_TEMPLATE) for part in message.split(_UNDECLARED)[:-1]]
    undeclared = {tuple(_INDEX.sub("", path).split(".")) for _, found, path in before if found}
    if not undeclared:
        return message
    fields = (field for field in _written(service.spec, runtime) if field.chain in undeclared)
    return "; ".join(dict.fromkeys(field.sentence for field in islice(fields, MOST))) or message


def _written(spec: ServiceSpec, runtime: Runtime | None) -> Iterator[_Field]:
    """Yield all fields of pods in the components of a service and of its runtime."""
    service = _Field((), "spec", spec, (ServiceSpec,))
    shared = _Field((), "spec", None, (RuntimeSpec,), f"runtime {runtime.name}: ") if runtime is not None else None
    for role, component in spec.components.items():
        yield from _component(component, role, service)
        if runtime is not None and shared is not None:
            yield from _component(getattr(runtime.spec, f"{role}_config"), f"{role}Config", shared)
    if runtime is not None and shared is not None:
        yield from _below(shared._replace(value=runtime.spec.pod))
        if runtime.spec.workers is not None:
            workers = shared.object_part("workers", runtime.spec.workers)
            yield from _below(workers._replace(value=runtime.spec.workers.pod))


def _component(component: Component | None, name: str, of: _Field) -> Iterator[_Field]:
    if component is None:
        return
    whole = of.object_part(name, component)
    parts: tuple[tuple[Component | PodPart, _Field], ...] = (
        (component, whole),
        *(
            (part, whole.object_part(key, part))
            for key in ("leader", "worker")
            if (part := getattr(component, key)) is not None
        ),
    )
    for part, place in parts:
        yield from _below(place._replace(value=part.pod))
        yield from _below(place._replace(chain=("containers",), path=f"{place.path}.runner", value=part.runner))


def _below(where: _Field) -> Iterator[_Field]:
    if isinstance(where.value, list):
        for number, entry in enumerate(where.value):
            yield from _below(where._replace(path=f"{where.path}[{number}]", value=entry))
    elif isinstance(where.value, Mapping) and not (where.chain and where.chain[-1] in FREE):
        for name, inner in where.value.items():
            field = where.pod_field(str(name), inner)
            yield field
            yield from _below(field)
