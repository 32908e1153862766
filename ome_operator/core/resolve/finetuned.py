"""Weights that were trained on a service's model: LoRA adapters beside it, or merged weights in its place."""

from collections.abc import Mapping
from typing import Any

from ome_operator.api import FineTunedWeight, InferenceService, Invalid, Model
from ome_operator.core.observed.objects import Deps, Manifest
from ome_operator.core.problem import UNREAD, Problem
from ome_operator.core.reasons import MODEL_READY, Reason
from ome_operator.core.weights.mount import weights

ADAPTERS = "adapters"
"""In stored inputs: identities of the LoRA weights, in the order in which the service names them."""
BASE = "base"
"""In stored inputs: identity of the model that merged weights stand in for."""


def fine_tuned(
    service: InferenceService, model: Model | None, identity: Manifest, deps: Deps
) -> tuple[Manifest, tuple[Problem, ...]]:
    """What the fine-tuned weights of a service add to its revision's inputs, and the problems with them.

    `identity`: of the model's weights, as the revision has them.
    """
    asked = {name: _wrong(name, deps.weights.get(name), model, deps) for name in _names(service)}
    problems = [said for said in asked.values() if said is not None]
    found = [weight for weight in named(service, deps) if asked[weight.name] is None]
    merged = [one for one in found if is_merged(one)]
    if merged and len(found) > 1:
        alone = f"FineTunedWeight {merged[0].name} is merged into its model: name it alone in spec.model.fineTunedWeights"
        problems.append(Problem(MODEL_READY, Reason.WEIGHTS_DO_NOT_MIX, alone))
    if problems or model is None or not found:
        return {}, tuple(problems)
    if merged:
        return {"model": weights(merged[0]).identity(deps.policy.model_agent), BASE: identity}, ()
    return {ADAPTERS: [weights(one).identity(deps.policy.model_agent) for one in found]}, ()


def named(service: InferenceService, deps: Deps) -> list[FineTunedWeight]:
    """The fine-tuned weights that a service names, in its order, without those that do not exist or cannot be read."""
    return [weight for name in _names(service) if isinstance(weight := deps.weights.get(name), FineTunedWeight)]


def _names(service: InferenceService) -> list[str]:
    return (service.spec.model.fine_tuned_weights if service.spec.model else None) or []


def _wrong(name: str, one: FineTunedWeight | Invalid | None, model: Model | None, deps: Deps) -> Problem | None:
    if one is None and not deps.policy.sees_cluster:
        said = f"FineTunedWeight {name} is {UNREAD}: remove it from spec.model.fineTunedWeights"
        return Problem(MODEL_READY, Reason.FINE_TUNED_WEIGHT_NOT_FOUND, said)
    if one is None:
        said = f"FineTunedWeight {name} does not exist: apply it, or fix spec.model.fineTunedWeights"
        return Problem(MODEL_READY, Reason.FINE_TUNED_WEIGHT_NOT_FOUND, said)
    if isinstance(one, Invalid):
        return Problem(MODEL_READY, Reason.INVALID_FINE_TUNED_WEIGHT, f"FineTunedWeight {name} cannot be read: {one.why}")
    if one.spec.disabled:
        said = f"FineTunedWeight {name} is disabled: set its spec.disabled to false"
        return Problem(MODEL_READY, Reason.FINE_TUNED_WEIGHT_DISABLED, said)
    base = one.spec.base_model_ref
    if model is not None and (base.name, base.namespace or "") != (model.name, model.namespace):
        other, mine = _called(base.name, base.namespace), _called(model.name, model.namespace)
        said = f"FineTunedWeight {name} was trained on {other}, not on {mine}"
        if base.name == model.name and not base.namespace:
            said += ": if it was, an administrator writes the namespace into its spec.baseModelRef.namespace"
        else:
            said += ": name one of this model"
        return Problem(MODEL_READY, Reason.WRONG_BASE_MODEL, said)
    return None


def _called(name: str, namespace: str | None) -> str:
    """A model as people call it. Without a namespace it is a model of the whole cluster: another namespace's must not
    fit.
    """
    return f"model {name} of namespace {namespace}" if namespace else f"model {name}"


def is_merged(one: FineTunedWeight) -> bool:
    """Whether the weights hold the whole model: OME says so in `configuration.merged_weights`, others in the type."""
    configuration = one.spec.configuration or {}
    return one.spec.model_type.lower() == "merged" or configuration.get("merged_weights") is True


def mounted(inputs: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Identities of everything that pods of a revision mount, the model first; [] without inputs."""
    return [inputs["model"], *(inputs.get(ADAPTERS) or ())] if inputs else []
