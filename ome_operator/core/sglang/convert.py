"""Convert the kinds of sglang.ai: a ClusterBaseModel of sglang.ai to a ClusterBaseModel of ome.io, and a Serving to an
InferenceService.
"""

from ome_operator import keys, names
from ome_operator.api import InferenceService, Invalid, Model, Runtime, Serving, SglangModel
from ome_operator.core.observed.objects import Deps, Manifest, Ref
from ome_operator.core.reasons import NOTHING, Reason, ReasonedMessage
from ome_operator.core.selection.model_profile import profile_of
from ome_operator.core.selection.runtime import remedy_for_unknown_model, select
from ome_operator.util.similar import suggestion


def source(short: SglangModel | Serving) -> str:
    """Return a digest of the spec that the user wrote and of the label with the class of the operator. When the digest
    changes, the object of ome.io is rendered again.
    """
    return names.digest({**short.spec.dump(), **_class(short)})


def _class(short: SglangModel | Serving) -> dict[str, str]:
    """Return the label with the class of the operator that handles an object, as a dict; {} if it has no such label. The
    created object gets the same label.
    """
    operator_class = short.labels.get(keys.OPERATOR_CLASS)
    return {keys.OPERATOR_CLASS: operator_class} if operator_class else {}


def desired_object(short: SglangModel | Serving, deps: Deps) -> tuple[Manifest | None, ReasonedMessage]:
    """Return the object of ome.io that is created for the object `short` of sglang.ai; or None, and the reason why it cannot
    be created yet.
    """
    return _model(short) if isinstance(short, SglangModel) else _service(short, deps)


def _model(short: SglangModel) -> tuple[Manifest | None, ReasonedMessage]:
    origin, hub = short.spec.source, short.spec.source.huggingface
    uri = origin.storage_uri
    if hub is not None:
        uri = f"hf://{hub.repo}" + (f"@{hub.revision}" if hub.revision else "")
    if not uri:
        return None, ReasonedMessage(
            Reason.INVALID_SPEC, "spec.source names no location of the files: set huggingface.repo or storageUri"
        )
    storage = {"storageUri": uri, **({"path": short.spec.path} if short.spec.path else {})}
    return _manifest(short, "ClusterBaseModel", {}, {"storage": storage}), NOTHING


def _service(short: Serving, deps: Deps) -> tuple[Manifest | None, ReasonedMessage]:
    """Return the InferenceService for a Serving, with all components that its runtime configures, such as separate prefill
    and decode; or None and the reason if no InferenceService can be made yet.
    """
    refs = Ref("BaseModel", short.namespace, short.spec.base_model), Ref("ClusterBaseModel", "", short.spec.base_model)
    model = next((item for ref in refs if isinstance(item := deps.models.get(ref), Model)), None)
    if model is None:
        question = suggestion(
            short.spec.base_model, (each.name for each in deps.models if each.namespace in ("", short.namespace))
        )
        message = f"ClusterBaseModel {short.spec.base_model} does not exist: {question}apply it, or fix spec.baseModel"
        return None, ReasonedMessage(Reason.BASE_MODEL_NOT_FOUND, message)
    runtime = _named(short, deps)
    notes, spec = _begun(short, runtime)
    if runtime is None:
        first = draft(short, deps)
        if isinstance(first, Invalid):
            return None, ReasonedMessage(Reason.INVALID_SPEC, first.why)
        seen = profile_of(model, True, deps.well_known)
        selection = select(first, seen, deps)
        chosen = deps.runtimes[selection.selected_runtime] if selection.selected_runtime else None
        if not isinstance(chosen, Runtime):
            sentence = f"{selection.sentence(model.name, 'spec.runtime')}{remedy_for_unknown_model(seen, deps)}"
            return None, ReasonedMessage(Reason.NO_RUNTIME_FITS, _misspelt(short, deps) or sentence)
        runtime = chosen
    return _manifest(short, "InferenceService", notes, {**spec, **{name: {} for name in _brings(runtime)}}), NOTHING


def _misspelt(short: Serving, deps: Deps) -> str:
    """Return a message about the name of a runtime that is probably misspelled; "" if no runtime has a similar name."""
    name = short.spec.runtime or ""
    question = (
        suggestion(name, (each.name for each in deps.runtimes if each.namespace in ("", short.namespace))) if name else ""
    )
    return f"ClusterServingRuntime {name} does not exist: {question}apply it, or fix spec.runtime" if question else ""


def draft(short: Serving, deps: Deps) -> InferenceService | Invalid:
    """Return the InferenceService for a Serving without its components. A runtime is selected for this draft."""
    notes, spec = _begun(short, _named(short, deps))
    return InferenceService.parse(_manifest(short, "InferenceService", notes, spec))


def _begun(short: Serving, named: Runtime | None) -> tuple[dict[str, str], Manifest]:
    """Return the annotations and the spec of the InferenceService for a Serving, without components. `named` is the runtime
    that the Serving names.
    """
    spec: Manifest = {"model": {"name": short.spec.base_model}}
    if named is not None:
        return {}, {**spec, "runtime": {"name": named.name}}
    return ({keys.ENGINE_NAME: short.spec.runtime} if short.spec.runtime else {}), spec


def _named(short: Serving, deps: Deps) -> Runtime | None:
    """Return the runtime that the field `runtime` names; None if it does not exist, because the field may also name an
    engine.
    """
    name = short.spec.runtime or ""
    refs = Ref("ServingRuntime", short.namespace, name), Ref("ClusterServingRuntime", "", name)
    return next((item for ref in refs if isinstance(item := deps.runtimes.get(ref), Runtime)), None)


def _brings(runtime: Runtime) -> list[str]:
    spec = runtime.spec
    parts = {keys.ENGINE: True, keys.DECODER: spec.decoder_config, keys.ROUTER: spec.router_config}
    return [name for name, config in parts.items() if config]


def _manifest(short: SglangModel | Serving, kind: str, notes: dict[str, str], spec: Manifest) -> Manifest:
    owner = {"apiVersion": short.API_VERSION, "kind": short.kind, "name": short.name, "uid": short.uid, "controller": True}
    metadata: Manifest = {
        "name": short.name,
        **({"namespace": short.namespace} if short.namespace else {}),
        "labels": {keys.MANAGED_BY: keys.MANAGER, **_class(short)},
        "annotations": {keys.SOURCE_DIGEST: source(short), **notes},
        "ownerReferences": [owner],
    }
    return {"apiVersion": keys.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
