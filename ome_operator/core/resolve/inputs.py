"""What a service is made of: find the objects that it names and take from them what belongs to a revision.

A revision is what the user wrote for engine and decoder and what was chosen for it, nothing else: no status, no replica
counts, no autoscaling, no budgets, no router, no metadata (decisions 2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ome_operator.api import Component, InferenceService, Invalid, Model, Runtime, RuntimeSpec, migrate
from ome_operator.api.invalid import shown
from ome_operator.api.well_known import WellKnown
from ome_operator.core.observed.objects import Deps, Manifest, Ref
from ome_operator.core.podspec import queues
from ome_operator.core.podspec.spelling import misspelled
from ome_operator.core.preflight import mode as preflight_mode
from ome_operator.core.problem import UNREAD, Problem
from ome_operator.core.reasons import ENGINE_READY, MODEL_READY, RUNTIME_READY, Reason
from ome_operator.core.resolve.finetuned import BASE, fine_tuned, named
from ome_operator.core.resolve.identity import CHOSEN
from ome_operator.core.resolve.ignored_fields import in_service
from ome_operator.core.resolve.ome_labels import ome_labels
from ome_operator.core.resolve.pairing import unpaired
from ome_operator.core.resolve.pinned import Part, Pinned, pinned
from ome_operator.core.selection.accelerator import Accelerated, accelerated
from ome_operator.core.selection.match import broken
from ome_operator.core.selection.model_profile import known
from ome_operator.core.selection.runtime import select, still, unread
from ome_operator.core.traces import collector as traces_collector
from ome_operator.core.weights.mount import weights
from ome_operator.util.memoize import memoize_by_identity

NOT_IDENTITY = frozenset(
    {
        "minReplicas", "maxReplicas", "scaleTarget", "scaleMetric", "minAvailable", "maxUnavailable", "deploymentStrategy",
        "containerConcurrency", "canaryTrafficPercent", "kedaConfig", "autoscaler", "acceleratorOverride", "lifecycle",
        "topologyKey", "topologySpread", "topologySpreadKey",
    }
)  # fmt: skip
"""Fields of a component that never make a new revision."""


class _Kinds(NamedTuple):
    """The kinds of models, or of runtimes."""

    here: str
    """Of objects in the service's namespace."""
    everywhere: str
    """Of objects of the cluster."""


_MODELS, _RUNTIMES = _Kinds("BaseModel", "ClusterBaseModel"), _Kinds("ServingRuntime", "ClusterServingRuntime")


@dataclass(frozen=True)
class Resolved:
    """A service together with what it refers to, or the reasons why that cannot be had."""

    model: Model | None = None
    runtime: Runtime | None = None
    inputs: Manifest | None = None
    """Inputs of the revision that the service wants now; None while something that they need is missing."""
    router: tuple[Manifest, Manifest] | None = None
    """(runtime's spec, service's router) to compose the router from; None without a router or runtime."""
    problems: tuple[Problem, ...] = ()
    advice: tuple[str, ...] = field(default=())
    """What the user should know and need not act on."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What pods of a new revision are called besides (`ome_labels`)."""
    drift: Mapping[str, str | None] = field(default_factory=dict)
    """How what the service keeps differs from what there is by now, "" when it does not; None for what it follows."""


def model_refs(service: InferenceService) -> tuple[Ref, ...]:
    """What a service's model may be, best first: without a kind a BaseModel of its namespace, then a ClusterBaseModel."""
    named = migrate(service.spec).model
    return _refs(named.name, named.kind, service.namespace, _MODELS) if named else ()


def object_refs(service: InferenceService) -> tuple[Ref, ...]:
    """Everything that holds weights and that a service may refer to: its model and what was trained on it."""
    named = migrate(service.spec).model
    return model_refs(service) + tuple(Ref("FineTunedWeight", "", one) for one in (named and named.fine_tuned_weights) or ())


def runtime_refs(service: InferenceService) -> tuple[Ref, ...]:
    """What a service's runtime may be, in the same way; () when it names none."""
    named = migrate(service.spec).runtime
    if named is None or not named.name:
        return ()
    return _refs(named.name, named.kind, service.namespace, _RUNTIMES)


def _refs(name: str, kind: str | None, namespace: str, kinds: _Kinds) -> tuple[Ref, ...]:
    found = Ref(kinds.here, namespace, name), Ref(kinds.everywhere, "", name)
    return tuple(ref for ref in found if kind in (None, ref.kind))


def resolve(
    service: InferenceService,
    deps: Deps,
    kept: Mapping[str, Mapping[str, Any]] | None = None,
    as_written: InferenceService | None = None,
) -> Resolved:
    """Find model, runtime and accelerators, and make the revision's inputs of them.

    `kept`: revision -> stored inputs, oldest first. What was chosen for the newest stays chosen (decisions 2), and what a
    service does not follow comes from one of them. `as_written`: the service in the form that its user knows.
    """
    kept = kept or {}
    before: Mapping[str, Any] = next(iter([*kept.values()][-1:]), {})
    model, about_model = _model(service, deps)
    runtime, about_runtime = _runtime(service, model, deps, before)
    of_model = _pinned(
        service, "model", model, weights(model).identity(deps.policy.model_agent) if model is not None else {}, kept
    )
    of_runtime = _pinned(service, "runtime", runtime, runtime_parts(runtime.spec) if runtime is not None else {}, kept)
    seen = known(model, True, deps.well_known) if model is not None else None
    own = None if of_runtime.inputs is None else of_runtime.inputs.get("accelerator") or {}
    chosen, refused = accelerated(service, runtime, of_runtime.part, deps, seen, before, own)
    trained, about_trained = fine_tuned(service, model, of_model.part, deps)
    lacking = (*of_model.problems, *of_runtime.problems, *refused, *about_trained)
    inputs = None
    if model is not None and runtime is not None and service.spec.engine is not None and not lacking:
        inputs = _inputs(service, of_model.part, of_runtime.part, runtime, chosen) | trained
    router = None
    if runtime is not None and service.spec.router is not None:
        router = runtime_parts(runtime.spec, True), written(service.spec.router, True)
    advice = in_service(as_written or service, runtime, bool(deps.policy.exposure.kind))
    if model is not None and runtime is not None and runtime_refs(service):
        advice = _mismatch(runtime, model, deps.well_known) + advice
    if runtime is not None:
        advice += unpaired(service, runtime)
    advice += misspelled(service, runtime)
    advice += preflight_mode.advice(service, runtime) + traces_collector.advice(service, runtime)
    problems = (*about_model, *about_runtime, *_shape(service), *lacking)
    labels = {} if inputs is None or model is None or runtime is None else ome_labels(model, runtime, named(service, deps))
    drift = {"runtime": of_runtime.drift, "model": of_model.drift}
    return Resolved(model, runtime, inputs, router, problems, advice, labels, drift)


def _pinned(
    service: InferenceService, part: Part, one: Model | Runtime | None, now: Manifest, kept: Mapping[str, Mapping[str, Any]]
) -> Pinned:
    if one is None:
        return Pinned(now)
    return pinned(service, part, Ref(one.kind, one.namespace, one.name), now, kept)


@memoize_by_identity(1024)
def _mismatch(runtime: Runtime, model: Model, well_known: WellKnown) -> tuple[str, ...]:
    """What speaks against a runtime that a service names: it runs all the same, for whoever names it may know better."""
    rules = [one.sentence for one in broken(runtime, known(model, True, well_known), chosen=False) if one.sure]
    return (f"runtime {runtime.name} may not fit model {model.name}: {', '.join(rules)}",) if rules else ()


def _inputs(
    service: InferenceService, model: Manifest, runtime: Manifest, made_from: Runtime, chosen: Accelerated
) -> Manifest:
    spec = service.spec
    out: Manifest = {
        "model": model,
        "runtime": runtime,
        "engine": written(spec.engine),
        CHOSEN: Ref(made_from.kind, made_from.namespace, made_from.name)._asdict(),
    }
    if spec.decoder is not None:
        out["decoder"] = written(spec.decoder)
    if chosen.parts:
        out["accelerator"] = chosen.parts
    if queue := queues.asked(service.annotations):
        out["queue"] = queue
    if mode := preflight_mode.asked(service):
        out[preflight_mode.STORED] = mode
    if collector := traces_collector.asked(service):
        out[traces_collector.STORED] = collector
    if spec.rollout is not None and spec.rollout.restarted_at:
        out["restartedAt"] = spec.rollout.restarted_at
    return out


@memoize_by_identity(2048)
def written(component: Component | None, router: bool = False) -> Manifest:
    """What a user wrote for a component, without the fields that do not reach its pods."""
    if component is None:
        return {}
    raw = component.dump()
    keep = NOT_IDENTITY - {"config"} if router else NOT_IDENTITY | {"config"}
    return {key: value for key, value in raw.items() if key not in keep}


@memoize_by_identity(512)
def runtime_parts(spec: RuntimeSpec, router: bool = False) -> Manifest:
    """The parts of a runtime's spec that reach the pods of engine and decoder, or of the router."""
    if router:
        return {"routerConfig": written(spec.router_config, True)}
    parts: Manifest = {
        "engineConfig": written(spec.engine_config),
        "decoderConfig": written(spec.decoder_config),
        "pod": spec.pod,
        "labels": spec.labels,
        "annotations": spec.annotations,
        "workers": spec.workers.dump() if spec.workers else None,
    }
    return {key: value for key, value in parts.items() if value}


def _model(service: InferenceService, deps: Deps) -> tuple[Model | None, tuple[Problem, ...]]:
    refs, named = model_refs(service), service.spec.model
    if not refs:
        said = _no_kind("model", named.kind, _MODELS) if named else "spec.model is missing: name the model to serve"
        return None, (Problem(MODEL_READY, Reason.MODEL_NOT_NAMED, said),)
    found = next((deps.models[ref] for ref in refs if ref in deps.models), None)
    where = _where(refs, deps.models)
    if found is None:
        other = _of_other_kind(service, refs, _MODELS, deps.models)
        if not deps.policy.sees_cluster and other is None and refs[-1].kind == _MODELS.everywhere:
            return None, (Problem(MODEL_READY, Reason.BASE_MODEL_NOT_FOUND, _unread(where, service, _MODELS)),)
        said = f"{where} does not exist: {_instead('model', other) or 'apply it, or fix spec.model.name'}"
        return None, (Problem(MODEL_READY, Reason.BASE_MODEL_NOT_FOUND, said),)
    if isinstance(found, Invalid):
        return None, (Problem(MODEL_READY, Reason.INVALID_MODEL, f"{where} cannot be read: {found.why}"),)
    if found.spec.disabled:
        return found, (Problem(MODEL_READY, Reason.MODEL_DISABLED, f"{where} is disabled: set its spec.disabled to false"),)
    return found, ()


def _runtime(
    service: InferenceService, model: Model | None, deps: Deps, before: Mapping[str, Any]
) -> tuple[Runtime | None, tuple[Problem, ...]]:
    named = runtime_refs(service)
    refs, problem = (named, None) if named else _chosen(service, model, deps, before)
    if problem is not None:
        return None, (problem,)
    remedy = "fix spec.runtime.name" if named else "name another in spec.runtime.name"
    found = next((deps.runtimes[ref] for ref in refs if ref in deps.runtimes), None)
    where = _where(refs, deps.runtimes) + ("" if named else ", chosen for this service,")
    if found is None:
        other = _of_other_kind(service, named, _RUNTIMES, deps.runtimes)
        if not deps.policy.sees_cluster and other is None and refs[-1].kind == _RUNTIMES.everywhere:
            return None, (Problem(RUNTIME_READY, Reason.RUNTIME_NOT_FOUND, _unread(where, service, _RUNTIMES)),)
        said = f"{where} does not exist: {_instead('runtime', other) or f'apply it, or {remedy}'}"
        return None, (Problem(RUNTIME_READY, Reason.RUNTIME_NOT_FOUND, said),)
    if isinstance(found, Invalid):
        return None, (Problem(RUNTIME_READY, Reason.INVALID_RUNTIME, f"{where} cannot be read: {found.why}"),)
    if found.spec.disabled:
        return found, (
            Problem(RUNTIME_READY, Reason.RUNTIME_DISABLED, f"{where} is disabled: set its spec.disabled to false"),
        )
    return found, ()


def _chosen(
    service: InferenceService, model: Model | None, deps: Deps, before: Mapping[str, Any]
) -> tuple[tuple[Ref, ...], Problem | None]:
    """(the runtime, nothing) or (nothing, the problem) for a service that names none."""
    if service.spec.runtime is not None and service.spec.runtime.name:
        said = _no_kind("runtime", service.spec.runtime.kind, _RUNTIMES)
        return (), Problem(RUNTIME_READY, Reason.RUNTIME_NOT_NAMED, said)
    if model is None:
        said = "spec.runtime.name is missing: a runtime is chosen when the model is there"
        return (), Problem(RUNTIME_READY, Reason.MODEL_UNKNOWN, said)
    kept = _kept(service, model, deps, before)
    if kept is not None:
        return (kept,), None
    seen = known(model, True, deps.well_known)
    selection = select(service, seen, deps)
    if selection.best is not None:
        return (selection.best,), None
    said = f"{selection.sentence(model.name)}{unread(seen, deps)}"
    return (), Problem(RUNTIME_READY, Reason.NO_RUNTIME_FITS, said)


def _kept(service: InferenceService, model: Model, deps: Deps, before: Mapping[str, Any]) -> Ref | None:
    """The runtime that was chosen before, while neither the service's own spec nor an edit of it speaks against it."""
    of, named = before.get(BASE) or before.get("model") or {}, service.spec.runtime
    if not before.get(CHOSEN) or any(of.get(name) != getattr(model, name) for name in ("kind", "namespace", "name")):
        return None
    kept = Ref(**before[CHOSEN])
    if named is not None and named.kind not in (None, kept.kind):
        return None
    found = deps.runtimes.get(kept)
    follows = named is None or named.auto_sync is not False
    if follows and isinstance(found, Runtime) and not still(found, service, known(model, False)):
        return None
    return kept


def _where(refs: tuple[Ref, ...], known: Mapping[Ref, object]) -> str:
    """The object that is meant, for people: the one that exists, else the cluster-wide spelling."""
    ref = next((one for one in refs if one in known), refs[-1])
    return f"{ref.kind} {ref.name}" + (f" in namespace {ref.namespace}" if ref.namespace else "")


def _unread(where: str, service: InferenceService, kinds: _Kinds) -> str:
    """That cluster-wide objects are not read, and what to make instead."""
    return f"{where} is {UNREAD}: apply a {kinds.here} of that name in namespace {service.namespace}"


def _no_kind(part: str, kind: str | None, kinds: _Kinds) -> str:
    """That there are no models, or runtimes, of the kind that a service names."""
    return f"spec.{part}.kind is {shown(kind)}: write {kinds.everywhere} or {kinds.here}, or remove kind"


def _of_other_kind(
    service: InferenceService, refs: tuple[Ref, ...], kinds: _Kinds, known: Mapping[Ref, object]
) -> Ref | None:
    """An object that has the name, but not the kind, that a service gives."""
    both = _refs(refs[0].name, None, service.namespace, kinds) if refs else ()
    return next((ref for ref in both if ref in known), None)


def _instead(part: str, other: Ref | None) -> str:
    return f"there is a {other.kind} of that name, so write that in spec.{part}.kind, or remove kind" if other else ""


def _shape(service: InferenceService) -> tuple[Problem, ...]:
    if service.spec.engine is None:
        said = "spec.decoder needs spec.engine (the prefill)" if service.spec.decoder else "spec.engine is missing"
        return (Problem(ENGINE_READY, Reason.NO_ENGINE, f"{said}: add `engine: {{}}` to use what the runtime brings"),)
    return ()
