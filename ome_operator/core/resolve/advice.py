"""Advice about a service together with its model and runtime, as sentences for the condition Advice."""

from ome_operator.api import Component, InferenceService, Model, Runtime
from ome_operator.api.well_known import WellKnown
from ome_operator.core import compile_caches
from ome_operator.core.observed.objects import Deps
from ome_operator.core.podspec.compose import ROUTER_SAMPLE
from ome_operator.core.podspec.default_router import default_router
from ome_operator.core.podspec.spelling import misspelled_fields
from ome_operator.core.preflight import mode as preflight_mode
from ome_operator.core.resolve.ignored_fields import in_service
from ome_operator.core.resolve.references import missing_classes
from ome_operator.core.selection.match import violations
from ome_operator.core.selection.model_profile import profile_of
from ome_operator.core.selection.runtime import SPLIT
from ome_operator.core.traces import collector as traces_collector
from ome_operator.util.memoize import memoize_by_identity


def advice(
    as_written: InferenceService, service: InferenceService, model: Model | None, runtime: Runtime | None, deps: Deps
) -> tuple[str, ...]:
    """Return all advice about a service. `as_written` is the service in the form that its user wrote. `model` and `runtime`
    are None if they do not exist or are invalid.
    """
    sentences = in_service(as_written, runtime, bool(deps.policy.exposure.kind))
    if runtime is not None:
        named = service.spec.runtime is not None and bool(service.spec.runtime.name)
        mismatch = _mismatch(runtime, model, deps.well_known) if model is not None and named else ()
        sentences = (*mismatch, *sentences, *unpaired_advice(service, runtime))
    return (
        *sentences,
        *misspelled_fields(service, runtime),
        *preflight_mode.advice(service, runtime),
        *compile_caches.advice(service, runtime),
        *traces_collector.advice(service, runtime),
        *_unknown_classes(service, deps),
    )


def _unknown_classes(service: InferenceService, deps: Deps) -> tuple[str, ...]:
    """Return a sentence for each accelerator class that a service excludes and that does not exist."""
    if not deps.policy.sees_cluster:
        return ()
    return tuple(each.sentence for each in missing_classes(service.spec, deps.accelerators))


@memoize_by_identity(1024)
def _mismatch(runtime: Runtime, model: Model, well_known: WellKnown) -> tuple[str, ...]:
    """Return the reasons why a runtime that a service names may not fit its model. The runtime is used nevertheless,
    because the user may know better.
    """
    rules = [rule.sentence for rule in violations(runtime, profile_of(model, True, well_known), chosen=False) if rule.sure]
    return (f"runtime {runtime.name} may not fit model {model.name}: {', '.join(rules)}",) if rules else ()


def unpaired_advice(service: InferenceService, runtime: Runtime) -> tuple[str, ...]:
    """Return a sentence if a service lacks the router between prefill and decode, or lacks the decoder. Such a service has
    ready pods, but cannot answer any request.

    The service is not rejected, because the user may run another router, or may pass arguments that make the prefill engine
    serve alone.
    """
    spec = service.spec
    if spec.engine is None:
        return ()
    if spec.decoder is not None and spec.router is None:
        effect = "the URL leads only to prefill, which generates no answers"
        remedy = "add router: {}"
        if runtime.spec.router_config is None and default_router(runtime.spec, spec) is None:
            remedy += f", and {ROUTER_SAMPLE}, which has no router"
        return (f"spec.router is missing, so nothing pairs prefill and decode, and {effect}; {remedy}",)
    if spec.decoder is None and runtime.spec.decoder_config is not None and not _has_own_command(spec.engine):
        more = "decoder: {}" if spec.router is not None else "decoder: {} and router: {}"
        remedy = f"add {more}, or name a runtime of a single engine"
        return (f"runtime {runtime.name} does not fit this service: {SPLIT}, so no pod decodes; {remedy}",)
    return ()


def _has_own_command(engine: Component) -> bool:
    """Return whether the service itself specifies the command or arguments of its engine."""
    parts = [part for part in (engine, engine.leader) if part is not None]
    boxes = [part.runner or {} for part in parts] + [box for part in parts for box in part.pod.get("containers") or ()]
    return any(isinstance(box, dict) and (box.get("command") or box.get("args")) for box in boxes)
