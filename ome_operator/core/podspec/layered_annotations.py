"""An annotation that stands on a service, on its components, or in the spec of a runtime: who counts, and what is unread.

What a service says for all of its components is kept in the inputs of a revision under a name of its own; what stands on
components and in the spec of the runtime is part of them anyway.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.api import Component, InferenceService, Runtime

ENGINES = (keys.ENGINE, keys.DECODER)
EVERYTHING = (*ENGINES, keys.ROUTER)
Read = Callable[[Any], str]
"""The value as it is spelled here; "" for a value that counts as not said."""


def first(inputs: Mapping[str, Any], component: str, note: str, stored: str, read: Read) -> str:
    """What counts for a component: its own annotation in the service, the service's, those of the runtime; "" for none."""
    runtime = inputs.get("runtime") or {}
    layers = (
        (inputs.get(component) or {}).get("annotations"),
        {note: inputs.get(stored)},
        (runtime.get(f"{component}Config") or {}).get("annotations"),
        runtime.get("annotations"),
    )
    said = (read((layer or {}).get(note, "")) for layer in layers)
    return next((found for found in said if found), "")


def unread(
    service: InferenceService, runtime: Runtime | None, note: str, read: Read, wanted: str, components: tuple[str, ...]
) -> tuple[str, ...]:
    """A sentence for each value that counts as not said; `wanted`: why, as the end of the sentence."""
    return tuple(
        f"annotation {note} of {where} counts as not said: {str(value)[:40]!r} {wanted}"
        for where, notes in _written(service, runtime, components)
        if (value := (notes or {}).get(note)) is not None and not read(value)
    )


def _written(
    service: InferenceService, runtime: Runtime | None, components: tuple[str, ...]
) -> Iterator[tuple[str, Mapping[str, str] | None]]:
    def of(part: Component | None) -> Mapping[str, str] | None:
        return part.annotations if part is not None else None

    yield "the service", service.annotations
    for name in components:
        yield f"spec.{name}", of(getattr(service.spec, name))
    if runtime is not None:
        yield f"spec of runtime {runtime.name}", runtime.spec.annotations
        for name in components:
            yield f"spec.{name}Config of runtime {runtime.name}", of(getattr(runtime.spec, f"{name}_config"))
