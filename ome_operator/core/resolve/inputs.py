"""Find the objects that a service refers to, and take from them the inputs of its revision.

A revision consists of what the user wrote for engine and decoder and of the objects selected for it. It excludes status,
replica counts, autoscaling, budgets, the router and metadata (decisions 2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ome_operator.api import Component, InferenceService, Invalid, Model, Runtime, RuntimeSpec, migrate
from ome_operator.api.invalid import as_yaml
from ome_operator.core import compile_caches
from ome_operator.core.observed.objects import Deps, Manifest, Ref
from ome_operator.core.podspec import queues
from ome_operator.core.podspec.default_router import default_router
from ome_operator.core.preflight import mode as preflight_mode
from ome_operator.core.problem import NOT_READ, Problem
from ome_operator.core.reasons import ENGINE_READY, MODEL_READY, RUNTIME_READY, Reason
from ome_operator.core.resolve.advice import advice
from ome_operator.core.resolve.finetuned import BASE, existing_weights, fine_tuned
from ome_operator.core.resolve.identity import CHOSEN
from ome_operator.core.resolve.ome_labels import ome_labels
from ome_operator.core.resolve.pinned import Part, PinnedObject, pinned_version
from ome_operator.core.resolve.system_paths import of_system
from ome_operator.core.selection.accelerator import AcceleratorClasses, accelerator_classes
from ome_operator.core.selection.model_profile import profile_of
from ome_operator.core.selection.runtime import remedy_for_unknown_model, select, still_matches
from ome_operator.core.traces import collector as traces_collector
from ome_operator.core.weights.mount import weights
from ome_operator.util.memoize import memoize_by_identity
from ome_operator.util.similar import suggestion

NOT_IDENTITY = frozenset(
    {
        "minReplicas", "maxReplicas", "scaleTarget", "scaleMetric", "minAvailable", "maxUnavailable", "deploymentStrategy",
        "containerConcurrency", "canaryTrafficPercent", "kedaConfig", "autoscaler", "acceleratorOverride", "lifecycle",
        "topologyKey", "topologySpread", "topologySpreadKey", "nodeScaleDown",
    }
)  # fmt: skip
"""Fields of a component that never cause a new revision."""


class _Kinds(NamedTuple):
    """The names of the two kinds of models, or of the two kinds of runtimes: the namespaced and the cluster-wide kind."""

    here: str
    """Kind of the objects in a namespace."""
    everywhere: str
    """Kind of the cluster-wide objects."""


_MODELS, _RUNTIMES = _Kinds("BaseModel", "ClusterBaseModel"), _Kinds("ServingRuntime", "ClusterServingRuntime")


@dataclass(frozen=True)
class ResolvedService:
    """A service together with the objects to which it refers, or the problems that prevent this."""

    model: Model | None = None
    runtime: Runtime | None = None
    inputs: Manifest | None = None
    """Inputs of the revision that the service's current spec describes; None while an object to which the service refers
    is missing."""
    router: tuple[Manifest, Manifest] | None = None
    """The two parts from which the router is composed: the spec of the runtime (or the default router), and the router in
    the spec of the service. None if there is no router or no runtime."""
    problems: tuple[Problem, ...] = ()
    advice: tuple[str, ...] = field(default=())
    """Sentences about the service that are useful to the user, but require no action."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """OME's labels for pods of a new revision: the result of `ome_labels`."""
    drift: Mapping[str, str | None] = field(default_factory=dict)
    """Maps "runtime" and "model" to a text that states how the version that the service uses differs from the current
    object; "" if they are equal, None if edits of the object are rolled out to the service."""


def model_refs(service: InferenceService) -> tuple[Ref, ...]:
    """Return the objects to which a service's model reference may refer, in order of precedence. Without a kind these are
    a BaseModel of its namespace, and then a ClusterBaseModel.
    """
    named = migrate(service.spec).model
    return _refs(named.name, named.kind, service.namespace, _MODELS) if named else ()


def object_refs(service: InferenceService) -> tuple[Ref, ...]:
    """Return all objects with weights to which a service may refer: its model and its fine-tuned weights."""
    named = migrate(service.spec).model
    return model_refs(service) + tuple(
        Ref("FineTunedWeight", "", name) for name in (named and named.fine_tuned_weights) or ()
    )


def runtime_refs(service: InferenceService) -> tuple[Ref, ...]:
    """Return the objects to which a service's runtime reference may refer, in the same order of precedence as for models;
    () if the service names no runtime.
    """
    named = migrate(service.spec).runtime
    if named is None or not named.name:
        return ()
    return _refs(named.name, named.kind, service.namespace, _RUNTIMES)


def _refs(name: str, kind: str | None, namespace: str, kinds: _Kinds) -> tuple[Ref, ...]:
    candidates = Ref(kinds.here, namespace, name), Ref(kinds.everywhere, "", name)
    return tuple(ref for ref in candidates if kind in (None, ref.kind))


def resolve(
    service: InferenceService,
    deps: Deps,
    kept: Mapping[str, Mapping[str, Any]] | None = None,
    as_written: InferenceService | None = None,
) -> ResolvedService:
    """Find the model, runtime and accelerator classes of a service, and build the inputs of its revision from them.

    `kept` maps revisions to stored inputs, oldest first. The selections of the newest revision are kept (decisions 2). A
    runtime or model with `autoSync: false` is read from a stored revision. `as_written` is the service in the form that its
    user wrote.
    """
    kept = kept or {}
    before: Mapping[str, Any] = next(iter([*kept.values()][-1:]), {})
    model, about_model = _model(service, deps, before)
    runtime, about_runtime = _runtime(service, model, deps, before)
    of_model = _pinned(
        service, "model", model, weights(model).identity(deps.policy.model_agent) if model is not None else {}, kept
    )
    of_runtime = _pinned(service, "runtime", runtime, runtime_parts(runtime.spec) if runtime is not None else {}, kept)
    seen = profile_of(model, True, deps.well_known) if model is not None else None
    own = None if of_runtime.inputs is None else of_runtime.inputs.get("accelerator") or {}
    chosen, refused = accelerator_classes(service, runtime, of_runtime.part, deps, seen, before, own)
    trained, about_trained = fine_tuned(service, model, of_model.part, deps)
    system = of_system(
        {"model": of_model.part} | trained if model is not None else {}, kept.values(), deps.policy.model_agent
    )
    lacking = (*of_model.problems, *of_runtime.problems, *refused, *about_trained, *system)
    inputs = None
    if model is not None and runtime is not None and service.spec.engine is not None and not lacking:
        inputs = _inputs(service, of_model.part, of_runtime.part, runtime, chosen) | trained
    router = None
    if runtime is not None and service.spec.router is not None:
        config = default_router(runtime.spec, service.spec) or runtime_parts(runtime.spec, True)
        router = config, identity_fields(service.spec.router, True)
    sentences = advice(as_written or service, service, model, runtime, deps)
    problems = (*about_model, *about_runtime, *_shape(service), *lacking)
    labels: Mapping[str, str] = {}
    if inputs is not None and model is not None and runtime is not None:
        labels = ome_labels(model, runtime, existing_weights(service, deps))
    drift = {"runtime": of_runtime.drift, "model": of_model.drift}
    return ResolvedService(model, runtime, inputs, router, problems, sentences, labels, drift)


def _pinned(
    service: InferenceService, part: Part, item: Model | Runtime | None, now: Manifest, kept: Mapping[str, Mapping[str, Any]]
) -> PinnedObject:
    if item is None:
        return PinnedObject(now)
    return pinned_version(service, part, Ref(item.kind, item.namespace, item.name), now, kept)


def _inputs(
    service: InferenceService, model: Manifest, runtime: Manifest, made_from: Runtime, chosen: AcceleratorClasses
) -> Manifest:
    spec = service.spec
    out: Manifest = {
        "model": model,
        "runtime": runtime,
        "engine": identity_fields(spec.engine),
        CHOSEN: Ref(made_from.kind, made_from.namespace, made_from.name)._asdict(),
    }
    if spec.decoder is not None:
        out["decoder"] = identity_fields(spec.decoder)
    if chosen.parts:
        out["accelerator"] = chosen.parts
    if queue := queues.queue_annotations(service.annotations):
        out["queue"] = queue
    if mode := preflight_mode.mode_of_service(service):
        out[preflight_mode.STORED] = mode
    if cached := compile_caches.asked(service):
        out[compile_caches.STORED] = cached
    if collector := traces_collector.endpoint_of_service(service):
        out[traces_collector.STORED] = collector
    if spec.rollout is not None and spec.rollout.restarted_at:
        out["restartedAt"] = spec.rollout.restarted_at
    return out


@memoize_by_identity(2048)
def identity_fields(component: Component | None, router: bool = False) -> Manifest:
    """Return the fields that a user wrote for a component, as a dict, without the fields that do not affect its pods."""
    if component is None:
        return {}
    raw = component.dump()
    keep = NOT_IDENTITY - {"config"} if router else NOT_IDENTITY | {"config"}
    return {key: value for key, value in raw.items() if key not in keep}


@memoize_by_identity(512)
def runtime_parts(spec: RuntimeSpec, router: bool = False) -> Manifest:
    """Return the parts of a runtime's spec that affect the pods of engine and decoder or, if `router` is True, the pods of
    the router.
    """
    if router:
        return {"routerConfig": identity_fields(spec.router_config, True)}
    parts: Manifest = {
        "engineConfig": identity_fields(spec.engine_config),
        "decoderConfig": identity_fields(spec.decoder_config),
        "pod": spec.pod,
        "labels": spec.labels,
        "annotations": spec.annotations,
        "workers": spec.workers.dump() if spec.workers else None,
    }
    return {key: value for key, value in parts.items() if value}


def _model(service: InferenceService, deps: Deps, before: Mapping[str, Any]) -> tuple[Model | None, tuple[Problem, ...]]:
    refs, named = model_refs(service), service.spec.model
    if not refs:
        message = _no_kind("model", named.kind, _MODELS) if named else "spec.model is missing: name the model to serve"
        return None, (Problem(MODEL_READY, Reason.MODEL_NOT_NAMED, message),)
    model = next((deps.models[ref] for ref in refs if ref in deps.models), None)
    where = _where(refs, deps.models)
    if model is None:
        other = _of_other_kind(service, refs, _MODELS, deps.models)
        if not deps.policy.sees_cluster and other is None and refs[-1].kind == _MODELS.everywhere:
            return None, (Problem(MODEL_READY, Reason.BASE_MODEL_NOT_FOUND, _not_read(where, service, _MODELS)),)
        similar = _similar(refs, deps.models, before.get(BASE) or before.get("model"))
        remedy = _instead("model", other) or f"{similar}apply it, or fix spec.model.name"
        message = f"{where} does not exist: {remedy}"
        return None, (Problem(MODEL_READY, Reason.BASE_MODEL_NOT_FOUND, message),)
    if isinstance(model, Invalid):
        return None, (Problem(MODEL_READY, Reason.INVALID_MODEL, f"{where} cannot be read: {model.why}"),)
    if model.spec.disabled:
        return model, (Problem(MODEL_READY, Reason.MODEL_DISABLED, f"{where} is disabled: set its spec.disabled to false"),)
    return model, ()


def _runtime(
    service: InferenceService, model: Model | None, deps: Deps, before: Mapping[str, Any]
) -> tuple[Runtime | None, tuple[Problem, ...]]:
    named = runtime_refs(service)
    refs, problem = (named, None) if named else _chosen(service, model, deps, before)
    if problem is not None:
        return None, (problem,)
    remedy = "fix spec.runtime.name" if named else "name another in spec.runtime.name"
    runtime = next((deps.runtimes[ref] for ref in refs if ref in deps.runtimes), None)
    where = _where(refs, deps.runtimes) + ("" if named else ", which was selected for this service,")
    if runtime is None:
        other = _of_other_kind(service, named, _RUNTIMES, deps.runtimes)
        if not deps.policy.sees_cluster and other is None and refs[-1].kind == _RUNTIMES.everywhere:
            return None, (Problem(RUNTIME_READY, Reason.RUNTIME_NOT_FOUND, _not_read(where, service, _RUNTIMES)),)
        remedy = _instead("runtime", other) or f"{_similar(refs, deps.runtimes, before.get(CHOSEN))}apply it, or {remedy}"
        message = f"{where} does not exist: {remedy}"
        return None, (Problem(RUNTIME_READY, Reason.RUNTIME_NOT_FOUND, message),)
    if isinstance(runtime, Invalid):
        return None, (Problem(RUNTIME_READY, Reason.INVALID_RUNTIME, f"{where} cannot be read: {runtime.why}"),)
    if runtime.spec.disabled:
        return runtime, (
            Problem(RUNTIME_READY, Reason.RUNTIME_DISABLED, f"{where} is disabled: set its spec.disabled to false"),
        )
    return runtime, ()


def _chosen(
    service: InferenceService, model: Model | None, deps: Deps, before: Mapping[str, Any]
) -> tuple[tuple[Ref, ...], Problem | None]:
    """Return the runtime for a service that names none: ((the selected runtime,), None), or ((), the problem)."""
    if service.spec.runtime is not None and service.spec.runtime.name:
        message = _no_kind("runtime", service.spec.runtime.kind, _RUNTIMES)
        return (), Problem(RUNTIME_READY, Reason.RUNTIME_NOT_NAMED, message)
    if model is None:
        message = "spec.runtime.name is missing: a runtime is selected as soon as the model exists"
        return (), Problem(RUNTIME_READY, Reason.MODEL_UNKNOWN, message)
    kept = _kept(service, model, deps, before)
    if kept is not None:
        return (kept,), None
    seen = profile_of(model, True, deps.well_known)
    selection = select(service, seen, deps)
    if selection.selected_runtime is not None:
        return (selection.selected_runtime,), None
    message = f"{selection.sentence(model.name)}{remedy_for_unknown_model(seen, deps)}"
    return (), Problem(RUNTIME_READY, Reason.NO_RUNTIME_FITS, message)


def _kept(service: InferenceService, model: Model, deps: Deps, before: Mapping[str, Any]) -> Ref | None:
    """Return the runtime that was selected earlier according to the stored inputs `before`. Return None if no runtime was
    selected, if the service has another model now, or if its spec or a later edit of the runtime excludes the runtime.
    """
    stored, named = before.get(BASE) or before.get("model") or {}, service.spec.runtime
    if not before.get(CHOSEN) or any(stored.get(name) != getattr(model, name) for name in ("kind", "namespace", "name")):
        return None
    kept = Ref(**before[CHOSEN])
    if named is not None and named.kind not in (None, kept.kind):
        return None
    runtime = deps.runtimes.get(kept)
    follows = named is None or named.auto_sync is not False
    if follows and isinstance(runtime, Runtime) and not still_matches(runtime, service, profile_of(model, False)):
        return None
    return kept


def _where(refs: tuple[Ref, ...], existing: Mapping[Ref, object]) -> str:
    """Return the kind, name and namespace of an object for messages. It is the first object in `refs` that exists. If none
    exists, it is the last object in `refs`, which has the cluster-wide kind if several kinds are possible.
    """
    ref = next((candidate for candidate in refs if candidate in existing), refs[-1])
    return f"{ref.kind} {ref.name}" + (f" in namespace {ref.namespace}" if ref.namespace else "")


def _not_read(location: str, service: InferenceService, kinds: _Kinds) -> str:
    """Return a message which states that the operator does not read the cluster-wide object that the field `location`
    names, and that the user can create a namespaced object instead.
    """
    return f"{location} is {NOT_READ}: apply a {kinds.here} of this name in namespace {service.namespace}"


def _no_kind(part: str, kind: str | None, kinds: _Kinds) -> str:
    """Return a message which states that a service names the kind `kind` of models, or of runtimes, that does not exist."""
    return f"spec.{part}.kind is {as_yaml(kind)}: write {kinds.everywhere} or {kinds.here}, or remove kind"


def _of_other_kind(
    service: InferenceService, refs: tuple[Ref, ...], kinds: _Kinds, existing: Mapping[Ref, object]
) -> Ref | None:
    """Return an existing object that has the name, but not the kind, that the service specifies; None if no object does."""
    both = _refs(refs[0].name, None, service.namespace, kinds) if refs else ()
    return next((ref for ref in both if ref in existing), None)


def _similar(refs: tuple[Ref, ...], existing: Mapping[Ref, object], used: Mapping[str, Any] | None) -> str:
    """Return a question for a message if an object that the service may use has a similar name, otherwise "". If the
    service has used an object of this name so far (`used`), there is no question, because the object was deleted and its
    name is not misspelled.
    """
    if used and used.get("name") == refs[0].name:
        return ""
    places = {(ref.kind, ref.namespace) for ref in refs}
    return suggestion(refs[0].name, (ref.name for ref in existing if (ref.kind, ref.namespace) in places))


def _instead(part: str, other: Ref | None) -> str:
    return f"a {other.kind} of this name exists, so write {other.kind} in spec.{part}.kind, or remove kind" if other else ""


def _shape(service: InferenceService) -> tuple[Problem, ...]:
    if service.spec.engine is None:
        needed = "spec.decoder requires spec.engine, which does prefill"
        message = needed if service.spec.decoder else "spec.engine is missing"
        return (Problem(ENGINE_READY, Reason.NO_ENGINE, f"{message}: add `engine: {{}}` to use the engine of the runtime"),)
    return ()
