"""Prefill and decode that do not find each other: such a service has ready pods, and answers nobody."""

from ome_operator.api import Component, InferenceService, Runtime
from ome_operator.core.selection.runtime import SPLIT


def unpaired(service: InferenceService, runtime: Runtime) -> tuple[str, ...]:
    """What lacks between prefill and decode, a sentence each, for the condition Advice.

    It is no refusal: a person may bring a router of another kind, or arguments that make a single engine of prefill.
    """
    spec = service.spec
    if spec.engine is None:
        return ()
    if spec.decoder is not None and spec.router is None:
        lone = "the URL leads to prefill alone, whose answers nobody decodes"
        return (f"spec.router is missing: nothing pairs prefill and decode, and {lone}. Add router: {{}}",)
    if spec.decoder is None and runtime.spec.decoder_config is not None and not _has_own_command(spec.engine):
        more = "decoder: {}" if spec.router is not None else "decoder: {} and router: {}"
        remedy = f"add {more}, or name a runtime of a single engine"
        return (f"runtime {runtime.name} does not fit this service: {SPLIT}, so nobody decodes; {remedy}",)
    return ()


def _has_own_command(engine: Component) -> bool:
    """Whether the service itself says what its engine runs."""
    parts = [part for part in (engine, engine.leader) if part is not None]
    boxes = [part.runner or {} for part in parts] + [box for part in parts for box in part.pod.get("containers") or ()]
    return any(isinstance(box, dict) and (box.get("command") or box.get("args")) for box in boxes)
