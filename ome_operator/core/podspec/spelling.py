"""Find fields of pods that Kubernetes does not have, and report their location in the user's object and the field that
was probably meant.

A component accepts every field of a pod spec, so a misspelled field of the component (`minReplica`) is taken for a field of
the pod. Only the API server has the authoritative list of fields, which may be newer than `api/pod_fields.py`. So in the
operator this list serves only for suggestions, and nothing is rejected because of it.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from ome_operator.api import Component, InferenceService, PodPart, Runtime, ServiceSpec, pod_fields
from ome_operator.core.podspec.merge import FREE
from ome_operator.util.memoize import memoize_by_identity

_OURS = frozenset(str(field.alias) for part in (Component, PodPart) for field in part.model_fields.values())
"""Fields that a component has in addition to those of a pod."""
_TEMPLATE, _UNDECLARED = ".spec.template.spec.", ": field not declared in schema"
"""The text before and after the path of a field in an error of the API server."""
_INDEX = re.compile(r"\[[^][]*+\]")
MOST = 100
"""Maximum number of unknown fields for which a valid field is searched, because each search takes 70 µs."""


@cache
def _known(type_: str, of_a_component: bool) -> frozenset[str]:
    """Return the fields of a type of core/v1, and with `of_a_component` also those that a component has in addition."""
    return frozenset(pod_fields.fields(type_)) | (_OURS if of_a_component else frozenset())


class _Field(NamedTuple):
    """A field in a user's object."""

    chain: tuple[str, ...]
    """Names of the fields on the way from the pod spec down to this field."""
    where: str
    """Path of the field in the user's object, such as `spec.engine.volumes[0].hostpath`."""

    @property
    def candidates(self) -> frozenset[str]:
        """The valid fields at the location of this field; empty if users choose the names there."""
        return _known(pod_fields.type_at(self.chain[:-1]), len(self.chain) == 1)

    @property
    def meant(self) -> str:
        """The valid field that the user probably meant; "" if no field is similar."""
        return pod_fields.meant(self.chain[-1], self.candidates)

    @property
    def sentence(self) -> str:
        """A message which states that the field does not exist, and what to do."""
        return f"{self.where} is not a field of a pod: " + (f"did you mean {self.meant}?" if self.meant else "remove it")


def misspelled(service: InferenceService, runtime: Runtime | None) -> tuple[str, ...]:
    """Return a sentence for each field of pods, in a service and its runtime, that does not exist but resembles a valid
    field.
    """
    return _misspelled(service.spec, runtime)


@memoize_by_identity(1024)
def _misspelled(spec: ServiceSpec, runtime: Runtime | None) -> tuple[str, ...]:
    """Return the result of `misspelled`, computed from specs alone. The arguments exclude the status, so that the cached
    result stays valid when only the status changes.
    """
    fields = (field for field in _written(spec, runtime) if field.candidates)
    unknown = islice((field for field in fields if field.chain[-1] not in field.candidates), MOST)
    return tuple(field.sentence for field in unknown if field.meant)


def translated(message: str, service: InferenceService, runtime: Runtime | None) -> str:
    """Translate the API server's errors about fields of a pod template into messages about the user's objects.

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
    for role, component in spec.components.items():
        yield from _component(component, f"spec.{role}")
        if runtime is not None:
            yield from _component(getattr(runtime.spec, f"{role}_config"), f"runtime {runtime.name}: spec.{role}Config")
    if runtime is not None:
        yield from _below(runtime.spec.pod, (), f"runtime {runtime.name}: spec")


def _component(component: Component | None, where: str) -> Iterator[_Field]:
    if component is None:
        return
    parts: tuple[tuple[Component | PodPart | None, str], ...] = (
        (component, where), (component.leader, f"{where}.leader"), (component.worker, f"{where}.worker"),
    )  # fmt: skip
    for part, place in parts:
        if part is not None:
            yield from _below(part.pod, (), place)
            yield from _below(part.runner, ("containers",), f"{place}.runner")


def _below(value: Any, chain: tuple[str, ...], where: str) -> Iterator[_Field]:
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _below(entry, chain, f"{where}[{number}]")
    elif isinstance(value, Mapping) and not (chain and chain[-1] in FREE):
        for name, inner in value.items():
            yield _Field((*chain, str(name)), f"{where}.{name}")
            yield from _below(inner, (*chain, str(name)), f"{where}.{name}")
