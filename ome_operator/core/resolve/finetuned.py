"""Weights that were fine-tuned from a service's model: LoRA adapters in addition to the model, or merged weights in its
place.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ome_operator.api import FineTunedWeight, InferenceService, Invalid, Model
from ome_operator.core.observed.objects import Deps, Manifest
from ome_operator.core.problem import NOT_READ, Problem
from ome_operator.core.reasons import MODEL_READY, Reason
from ome_operator.core.resolve.references import MOST
from ome_operator.core.weights.mount import weights
from ome_operator.util.similar import suggestion

ADAPTERS = "adapters"
"""Key in stored inputs: identities of the LoRA weights, in the order of the service's spec."""
BASE = "base"
"""Key in stored inputs: identity of the base model, if merged weights replace the model."""


def fine_tuned(
    service: InferenceService, model: Model | None, identity: Manifest, deps: Deps
) -> tuple[Manifest, tuple[Problem, ...]]:
    """Return the inputs of a revision that describe the fine-tuned weights of its service, and the first problems of
    these weights.

    `identity` is the identity of the model's weights, as the revision stores it.
    """
    problem_by_name = dict(_checked(service, model, deps))
    problems = [problem for problem in problem_by_name.values() if problem is not None]
    usable = {name for name, problem in problem_by_name.items() if problem is None}
    weights_found = [weight for weight in existing_weights(service, deps) if weight.name in usable]
    merged = [weight for weight in weights_found if is_merged(weight)]
    if merged and len(weights_found) > 1:
        message = (
            f"FineTunedWeight {merged[0].name} contains the complete model, so no other weight can be used with it: remove "
            "the other names from spec.model.fineTunedWeights"
        )
        problems.append(Problem(MODEL_READY, Reason.WEIGHTS_DO_NOT_MIX, message))
    if problems or model is None or not weights_found:
        return {}, tuple(problems)
    if merged:
        return {"model": weights(merged[0]).identity(deps.policy.model_agent), BASE: identity}, ()
    return {ADAPTERS: [weights(weight).identity(deps.policy.model_agent) for weight in weights_found]}, ()


def existing_weights(service: InferenceService, deps: Deps) -> list[FineTunedWeight]:
    """Return the fine-tuned weights that a service names, in the order of its spec. Weights that do not exist or are
    invalid are left out.
    """
    return [weight for name in _names(service) if isinstance(weight := deps.weights.get(name), FineTunedWeight)]


def _names(service: InferenceService) -> list[str]:
    return (service.spec.model.fine_tuned_weights if service.spec.model else None) or []


def _checked(service: InferenceService, model: Model | None, deps: Deps) -> Iterator[tuple[str, Problem | None]]:
    """Yield the name of each fine-tuned weight that a service names, with the problem of the weight (None if it has no
    problem). At most `MOST` problems are yielded, because a service can name any number of weights; the weights after these
    are not checked. `model` is None if the model of the service is not available.
    """
    left = MOST
    for name in _names(service):
        problem = _wrong(name, deps.weights.get(name), model, deps)
        yield name, problem
        left -= problem is not None
        if not left:
            return


def _wrong(name: str, weight: FineTunedWeight | Invalid | None, model: Model | None, deps: Deps) -> Problem | None:
    if weight is None and not deps.policy.sees_cluster:
        message = f"FineTunedWeight {name} is {NOT_READ}: remove it from spec.model.fineTunedWeights"
        return Problem(MODEL_READY, Reason.FINE_TUNED_WEIGHT_NOT_FOUND, message)
    if weight is None:
        question = suggestion(name, deps.weights)
        message = f"FineTunedWeight {name} does not exist: {question}apply it, or fix spec.model.fineTunedWeights"
        return Problem(MODEL_READY, Reason.FINE_TUNED_WEIGHT_NOT_FOUND, message)
    if isinstance(weight, Invalid):
        return Problem(MODEL_READY, Reason.INVALID_FINE_TUNED_WEIGHT, f"FineTunedWeight {name} cannot be read: {weight.why}")
    if weight.spec.disabled:
        message = f"FineTunedWeight {name} is disabled: set its spec.disabled to false"
        return Problem(MODEL_READY, Reason.FINE_TUNED_WEIGHT_DISABLED, message)
    base = weight.spec.base_model_ref
    if model is not None and (base.name, base.namespace or "") != (model.name, model.namespace):
        expected, actual = _called(base.name, base.namespace), _called(model.name, model.namespace)
        message = f"FineTunedWeight {name} was trained on {expected}, not on {actual}"
        if base.name == model.name and not base.namespace:
            message += (
                ": if the two are the same model, an administrator must set spec.baseModelRef.namespace of the "
                "FineTunedWeight"
            )
        else:
            message += ": name a weight that was trained on this model"
        return Problem(MODEL_READY, Reason.WRONG_BASE_MODEL, message)
    return None


def _called(name: str, namespace: str | None) -> str:
    """Return a description of a model for messages. A model without a namespace is cluster-wide, and differs from a model
    of the same name in a namespace.
    """
    return f"model {name} of namespace {namespace}" if namespace else f"model {name}"


def is_merged(weight: FineTunedWeight) -> bool:
    """Return whether the weights contain the whole model: `configuration.merged_weights` as in OME, or the model type
    "merged".
    """
    configuration = weight.spec.configuration or {}
    return weight.spec.model_type.lower() == "merged" or configuration.get("merged_weights") is True


def mounted_weights(inputs: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Return the identities of all weights that pods of a revision mount, beginning with the model. Return [] if the inputs
    of the revision are not known.
    """
    return [inputs["model"], *(inputs.get(ADAPTERS) or ())] if inputs else []
