"""Whether the pods of a revision are looked at before their engine starts (docs/preflight.md).

What service or runtime say is part of a revision. What the chart says counts when a revision is rendered, and rolls nothing
(decisions 2). A runtime says it in its spec, for only an edit of a spec goes in waves (decisions 30).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.api import Component, InferenceService, Runtime

OFF, WARN, REQUIRE = "Off", "Warn", "Require"
MODES = (OFF, WARN, REQUIRE)
STORED = "preflight"
"""In inputs: what the annotation of the service says."""


def read(value: Any) -> str:
    """A mode as it is spelled here; "" when it is none."""
    return next((mode for mode in MODES if mode.lower() == str(value).strip().lower()), "")


def asked(service: InferenceService) -> str:
    """What the service says for all of its components; "" when it says nothing that is a mode."""
    return read(service.annotations.get(keys.PREFLIGHT, ""))


def mode(inputs: Mapping[str, Any], component: str, default: str) -> str:
    """The mode of a component: its own annotation in the service, the service's, the runtime's, the `default`."""
    runtime = inputs.get("runtime") or {}
    layers = (
        (inputs.get(component) or {}).get("annotations"),
        {keys.PREFLIGHT: inputs.get(STORED)},
        (runtime.get(f"{component}Config") or {}).get("annotations"),
        runtime.get("annotations"),
    )
    said = (read((layer or {}).get(keys.PREFLIGHT, "")) for layer in layers)
    return next((found for found in said if found), default)


def advice(service: InferenceService, runtime: Runtime | None) -> tuple[str, ...]:
    """What is written for a mode and is none."""
    return tuple(
        f"annotation {keys.PREFLIGHT} of {where} counts as not said: {str(value)[:40]!r} is none of {', '.join(MODES)}"
        for where, notes in _written(service, runtime)
        if (value := (notes or {}).get(keys.PREFLIGHT)) is not None and not read(value)
    )


def _written(service: InferenceService, runtime: Runtime | None) -> Iterator[tuple[str, Mapping[str, str] | None]]:
    def of(part: Component | None) -> Mapping[str, str] | None:
        return part.annotations if part is not None else None

    yield "the service", service.annotations
    yield "spec.engine", of(service.spec.engine)
    yield "spec.decoder", of(service.spec.decoder)
    if runtime is not None:
        yield f"spec of runtime {runtime.name}", runtime.spec.annotations
        yield f"spec.engineConfig of runtime {runtime.name}", of(runtime.spec.engine_config)
        yield f"spec.decoderConfig of runtime {runtime.name}", of(runtime.spec.decoder_config)
