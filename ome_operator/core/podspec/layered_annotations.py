"""Read an annotation that users can set on a service, on the service's components, and in the spec of a runtime:
determine the value that takes precedence, and report invalid values.

A value on the service applies to all of its components, and is stored in the inputs of a revision under its own key. Values
on components and in a runtime's spec are part of the inputs anyway.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.api import Component, InferenceService, Runtime, ServiceSpec
from ome_operator.util.memoize import memoize_by_identity

ENGINES = (keys.ENGINE, keys.DECODER)
EVERYTHING = (*ENGINES, keys.ROUTER)
Read = Callable[[Any], str]
"""Function that parses a value. It returns the canonical form, or "" if the value is invalid and has to be ignored."""


def effective_value(inputs: Mapping[str, Any], component: str, note: str, stored: str, read: Read) -> str:
    """Return the value that applies to a component, which is the first of these that is set: the annotation of the component
    in the service, the annotation of the service, and the annotation of the runtime. Return "" if none is set. `note` is the
    key of the annotation, and `stored` the key under which the inputs store the service's value. `read` converts a value to
    its canonical form, and returns "" for an invalid value, which counts as not set.
    """
    runtime = inputs.get("runtime") or {}
    layers = (
        (inputs.get(component) or {}).get("annotations"),
        {note: inputs.get(stored)},
        (runtime.get(f"{component}Config") or {}).get("annotations"),
        runtime.get("annotations"),
    )
    values = (read((layer or {}).get(note, "")) for layer in layers)
    return next((value for value in values if value), "")


def invalid_values(
    service: InferenceService, runtime: Runtime | None, note: str, read: Read, wanted: str, components: tuple[str, ...]
) -> tuple[str, ...]:
    """Return one sentence for each value of the annotation that is invalid and therefore ignored. `wanted` describes valid
    values, and is the end of the sentence. `runtime` is None if the runtime is not available.
    """
    return _invalid_values(service.spec, service.annotations, runtime, note, read, wanted, components)


@memoize_by_identity(4096)
def _invalid_values(
    spec: ServiceSpec,
    annotations: Mapping[str, str],
    runtime: Runtime | None,
    note: str,
    read: Read,
    wanted: str,
    components: tuple[str, ...],
) -> tuple[str, ...]:
    """Return the result of `invalid_values`. The arguments exclude the status of the service, so that the cached result
    stays valid when only the status changes.
    """
    return tuple(
        f"annotation {note} of {where} is ignored: {str(value)[:40]!r} {wanted}"
        for where, notes in _written(spec, annotations, runtime, components)
        if (value := (notes or {}).get(note)) is not None and not read(value)
    )


def _written(
    spec: ServiceSpec, annotations: Mapping[str, str], runtime: Runtime | None, components: tuple[str, ...]
) -> Iterator[tuple[str, Mapping[str, str] | None]]:
    def of(part: Component | None) -> Mapping[str, str] | None:
        return part.annotations if part is not None else None

    yield "the service", annotations
    for name in components:
        yield f"spec.{name}", of(getattr(spec, name))
    if runtime is not None:
        yield f"spec of runtime {runtime.name}", runtime.spec.annotations
        for name in components:
            yield f"spec.{name}Config of runtime {runtime.name}", of(getattr(runtime.spec, f"{name}_config"))
