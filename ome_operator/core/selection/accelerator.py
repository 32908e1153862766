"""Select the accelerator class of each component, by name or by policy, and determine what the class adds to the
component's pods.

A class is selected once and stored with the revision, together with the request that led to it. It is selected again only if
the request changes (decisions 2). The settings of a selected class follow edits of that class.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ome_operator import keys, quantity
from ome_operator.api import AcceleratorClass, AcceleratorSelector, Component, InferenceService, Runtime
from ome_operator.core.observed.objects import Deps, Manifest
from ome_operator.core.podspec.compose import compose
from ome_operator.core.podspec.flags import flags, remove_flags
from ome_operator.core.problem import NOT_READ, Problem, ProblemError
from ome_operator.core.reasons import RUNTIME_READY, Reason
from ome_operator.core.selection.capability import DEFAULT_POLICY, AcceleratorNeeds, rank_classes, unmet_requirements
from ome_operator.core.selection.model_profile import ModelProfile
from ome_operator.util.similar import suggestion

ASKED = "asked"
"""Key in a stored component: the request by which the class was selected; absent if the service named the class."""
OWN = "own"
"""Key in a stored component, next to the settings of the class: the flags that the service itself sets for the component."""
LISTED = 5
"""Maximum number of classes that a message names."""


@dataclass(frozen=True)
class AcceleratorClasses:
    """The accelerator classes of a service's components."""

    parts: Manifest = field(default_factory=dict)
    """Maps each component that has a class to the settings of the class, in the form in which the inputs of the revision
    store them: {class, asked, nodeSelector, args, env, parallelism, pipeline}, without empty values."""


def accelerator_classes(
    service: InferenceService,
    runtime: Runtime | None,
    runtime_spec: Manifest,
    deps: Deps,
    model: ModelProfile | None,
    stored: Mapping[str, Any],
    own: Mapping[str, Any] | None = None,
) -> tuple[AcceleratorClasses, tuple[Problem, ...]]:
    """Return the accelerator classes of engine and decoder, and the problems with them.

    `runtime_spec` are the runtime's parts for `compose`. `stored` are the inputs of the newest revision, {} if there is no
    revision. `own` are the stored parts if the service keeps its runtime at a stored revision; None if edits of the runtime
    are rolled out to the service.
    """
    parts: Manifest = {}
    problems: list[Problem] = []
    for component, written in ((keys.ENGINE, service.spec.engine), (keys.DECODER, service.spec.decoder)):
        if written is None:
            continue
        selector = _selector(service, written)
        kept = (stored.get("accelerator") or {}).get(component) or {}
        request = _asked(selector, runtime, new=component not in stored or bool(kept))
        name = (selector.accelerator_class if selector else None) or ""
        if not name and request and runtime is not None:
            required = runtime.spec.accelerator_requirements
            want = AcceleratorNeeds(selector.constraints if selector else None, required, None)
            repeat = selector is None and own is None and kept and _misfits(kept["class"], want, deps)
            if kept.get(ASKED) == request and not repeat:
                name = kept["class"]
            else:
                want = want._replace(bytes_each=_bytes_each(component, runtime_spec, written, model))
                name, problem = _choose(component, request, want, deps)
                if problem is not None:
                    # A runtime that the service names is used even if its requirements cannot be met.
                    if selector is not None:
                        problems.append(problem)
                    continue
        if name in deps.accelerators:
            part = _part(deps.accelerators[name], runtime if own is None else None)
            part |= {} if own is None else _overrides(name, own.get(component) or {})
            parts[component] = {**part, ASKED: request} if request else part
        elif name:
            by_annotation = selector is not None and service.annotations.get(keys.ACCELERATOR_CLASS) == name
            problems.append(_missing(name, component, deps, chosen=bool(request), by_annotation=by_annotation))
    return AcceleratorClasses(parts), tuple(problems)


def _selector(service: InferenceService, component: Component) -> AcceleratorSelector | None:
    """Return the selector that applies to a component: its own override, else the service's selector, else the service's
    annotation. Return None if none of them is set.
    """
    annotated = service.annotations.get(keys.ACCELERATOR_CLASS)
    from_annotation = AcceleratorSelector(accelerator_class=annotated) if annotated else None
    for selector in (component.accelerator_override, service.spec.accelerator_selector, from_annotation):
        if selector is not None and (selector.accelerator_class or selector.policy or selector.constraints):
            return selector
    return None


def _asked(selector: AcceleratorSelector | None, runtime: Runtime | None, *, new: bool) -> Manifest:
    """Return the request by which a class has to be selected; {} if a class is named or nothing is requested. `selector` is
    the selector of the component; None if the service sets none. `new` is false for an existing component that runs without
    a class.

    If the service requests nothing, the runtime's requirements apply, except for an existing component that runs without a
    class.
    """
    if selector is None:
        required = runtime.spec.accelerator_requirements if runtime is not None else None
        return {"policy": DEFAULT_POLICY, "by": "runtime"} if new and required is not None and required.dump() else {}
    if selector.accelerator_class:
        return {}
    request: Manifest = {"policy": selector.policy or DEFAULT_POLICY}
    if selector.constraints is not None:
        request["constraints"] = selector.constraints.dump()
    return request


def _misfits(name: str, want: AcceleratorNeeds, deps: Deps) -> bool:
    """Return whether the accelerator class `name` exists but no longer meets the requirements `want`."""
    return name in deps.accelerators and bool(unmet_requirements(deps.accelerators[name], want))


def _choose(component: str, request: Manifest, want: AcceleratorNeeds, deps: Deps) -> tuple[str, Problem | None]:
    lacks = {name: unmet_requirements(accelerator, want) for name, accelerator in sorted(deps.accelerators.items())}
    fitting = rank_classes(
        (deps.accelerators[name] for name, missing in lacks.items() if not missing), request["policy"], want, deps.nodes
    )
    if fitting:
        return fitting[0].name, None
    closest = sorted(lacks.items(), key=lambda item: (len(item[1]), item[0]))
    reasons = ", ".join(f"{name} ({', '.join(missing)})" for name, missing in closest[:LISTED]) or (
        "no AcceleratorClass exists" if deps.policy.sees_cluster else f"an AcceleratorClass is {NOT_READ}"
    )
    more = f" and {len(closest) - LISTED} more" if len(closest) > LISTED else ""
    cause = f"{'not even' if lacks else 'because'} {reasons}{more}"
    text = f"no AcceleratorClass fits spec.{component}, {cause}: relax acceleratorSelector, or name a class in it"
    return "", Problem(RUNTIME_READY, Reason.NO_ACCELERATOR_FITS, text)


def _missing(name: str, component: str, deps: Deps, *, chosen: bool, by_annotation: bool) -> Problem:
    if not deps.policy.sees_cluster:
        message = f"AcceleratorClass {name} is {NOT_READ}: name labels of nodes in spec.{component}.nodeSelector instead"
    elif chosen:
        message = (
            f"AcceleratorClass {name}, chosen for spec.{component}, no longer exists: apply it again, or change "
            "acceleratorSelector to select another class"
        )
    else:
        where = f"annotation {keys.ACCELERATOR_CLASS}" if by_annotation else f"acceleratorClass of spec.{component}"
        message = (
            f"AcceleratorClass {name} does not exist: {suggestion(name, deps.accelerators)}apply it, or fix the {where}"
        )
    return Problem(RUNTIME_READY, Reason.ACCELERATOR_NOT_FOUND, message)


def _bytes_each(component: str, runtime: Manifest, written: Component, model: ModelProfile | None) -> int | None:
    """Return the bytes of weights per accelerator if the model is divided among all accelerators of a group; None if
    unknown.
    """
    if model is None or not model.weight_bytes:
        return None
    try:
        composed = compose(component, runtime, written.dump())
    except ProblemError:
        return None
    pods = [composed.leader, *[composed.worker] * (composed.size - 1)]
    count = sum(quantity.gpus(box) for pod in pods if pod for box in pod["containers"])
    return model.weight_bytes // count if count else None


def _part(chosen: AcceleratorClass, runtime: Runtime | None) -> dict[str, Any]:
    discovery = chosen.spec.discovery
    part: dict[str, Any] = {"class": chosen.name, "nodeSelector": dict(discovery.node_selector or {})}
    for format_ in (runtime.spec.supported_model_formats or ()) if runtime else ():
        override = (format_.accelerator_config or {}).get(chosen.name)
        if override is None:
            continue
        part["args"] = list(override.runtime_args_override or ())
        part["env"] = dict(override.environment_override or {})
        if (sizes := override.tensor_parallelism_override) and sizes.tensor_parallel_size:
            part["parallelism"] = sizes.tensor_parallel_size * (sizes.pipeline_parallel_size or 1)
            part["pipeline"] = sizes.pipeline_parallel_size
        break
    return {key: value for key, value in part.items() if value}


def _overrides(name: str, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the stored runtime `kept` adds for the accelerator class with the name `name`."""
    return {key: kept[key] for key in ("args", "env", "parallelism", "pipeline") if key in kept and kept["class"] == name}


def unset_by_service(part: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that an accelerator class adds to a component, `part`, without the flags and environment variables
    that the service itself sets in the component `written`. The values of the service take precedence.
    """
    runners = [part.get("runner") or {} for part in (written, *(written.get(name) or {} for name in ("leader", "worker")))]
    words = [str(word) for part in runners for word in (*(part.get("command") or ()), *(part.get("args") or ()))]
    names = {part["name"] for runner in runners for part in runner.get("env") or ()}
    out = {**part, "args": remove_flags(part.get("args") or (), flags(words))}
    out["env"] = {name: value for name, value in (part.get("env") or {}).items() if name not in names}
    if "parallelism" in part:
        out[OWN] = sorted(flags(piece for word in words for piece in word.split()))
    return {key: value for key, value in out.items() if value}


def parallel_sizes(part: Mapping[str, Any]) -> dict[str, int]:
    """Return how a class divides the model: {"TP": number of tensor parallel parts, "PP": number of pipeline stages}; {}
    if the runtime does not specify it.

    A stored component contains the product of both, which is also the value of PARALLELISM_SIZE, and the number of pipeline
    stages if there is more than one.
    """
    stages = int(part.get("pipeline") or 1)
    if "parallelism" not in part:
        return {}
    return {"TP": int(part["parallelism"]) // stages, **({"PP": stages} if "pipeline" in part else {})}
