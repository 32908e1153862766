"""The accelerator class of each component, named or chosen by policy, and what it adds to their pods.

A class is chosen once and stored with the revision, together with what was asked for; it is chosen again only when that
changes (decisions 2). What a stored class adds follows the class's own edits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ome_operator import keys, quantity
from ome_operator.api import AcceleratorClass, AcceleratorSelector, Component, InferenceService, Runtime
from ome_operator.core.observed.objects import Deps, Manifest
from ome_operator.core.podspec.compose import compose
from ome_operator.core.podspec.flags import flags, without
from ome_operator.core.problem import UNREAD, Problem, ProblemError
from ome_operator.core.reasons import RUNTIME_READY, Reason
from ome_operator.core.selection.capability import DEFAULT_POLICY, Want, ranked, unfit
from ome_operator.core.selection.model_profile import ModelProfile

ASKED = "asked"
"""In a stored part: what the service asked for when the class was chosen; absent when it named the class."""
OWN = "own"
"""Beside what a class adds to a component: the flags that the service wrote there itself."""
LISTED = 5
"""Classes that a sentence speaks of."""


@dataclass(frozen=True)
class Accelerated:
    """What was chosen per component."""

    parts: Manifest = field(default_factory=dict)
    """component -> {class, asked, nodeSelector, args, env}: part of the revision's inputs."""


def accelerated(
    service: InferenceService,
    runtime: Runtime | None,
    runtime_spec: Manifest,
    deps: Deps,
    model: ModelProfile | None,
    stored: Mapping[str, Any],
    own: Mapping[str, Any] | None = None,
) -> tuple[Accelerated, tuple[Problem, ...]]:
    """The accelerator classes of engine and decoder, and the problems with them.

    `runtime_spec`: the runtime's parts for `compose`. `stored`: the inputs of the newest revision, {} without one. `own`:
    the parts that the service keeps with a runtime that it does not follow, None for one that it follows.
    """
    parts: Manifest = {}
    problems: list[Problem] = []
    for component, written in ((keys.ENGINE, service.spec.engine), (keys.DECODER, service.spec.decoder)):
        if written is None:
            continue
        selector = _selector(service, written)
        kept = (stored.get("accelerator") or {}).get(component) or {}
        asked = _asked(selector, runtime, new=component not in stored or bool(kept))
        name = (selector.accelerator_class if selector else None) or ""
        if not name and asked and runtime is not None:
            required = runtime.spec.accelerator_requirements
            want = Want(selector.constraints if selector else None, required, None)
            again = selector is None and own is None and kept and _misfits(kept["class"], want, deps)
            if kept.get(ASKED) == asked and not again:
                name = kept["class"]
            else:
                want = want._replace(bytes_each=_bytes_each(component, runtime_spec, written, model))
                name, problem = _choose(component, asked, want, deps)
                if problem is not None:
                    if selector is not None:  # a runtime that is named runs, whatever it requires
                        problems.append(problem)
                    continue
        if name in deps.accelerators:
            part = _part(deps.accelerators[name], runtime if own is None else None)
            part |= {} if own is None else _overrides(name, own.get(component) or {})
            parts[component] = {**part, ASKED: asked} if asked else part
        elif name:
            by_note = selector is not None and service.annotations.get(keys.ACCELERATOR_CLASS) == name
            problems.append(_missing(name, component, deps, chosen=bool(asked), by_note=by_note))
    return Accelerated(parts), tuple(problems)


def _selector(service: InferenceService, component: Component) -> AcceleratorSelector | None:
    """What counts for a component: its own override before the service's selector before the service's annotation."""
    noted = service.annotations.get(keys.ACCELERATOR_CLASS)
    by_note = AcceleratorSelector(accelerator_class=noted) if noted else None
    for selector in (component.accelerator_override, service.spec.accelerator_selector, by_note):
        if selector is not None and (selector.accelerator_class or selector.policy or selector.constraints):
            return selector
    return None


def _asked(selector: AcceleratorSelector | None, runtime: Runtime | None, *, new: bool) -> Manifest:
    """What has to be chosen by; {} when a class is named or nothing is asked for.

    Where the service says nothing the runtime's requirements ask, but not of a component that runs without a class.
    """
    if selector is None:
        required = runtime.spec.accelerator_requirements if runtime is not None else None
        return {"policy": DEFAULT_POLICY, "by": "runtime"} if new and required is not None and required.dump() else {}
    if selector.accelerator_class:
        return {}
    asked: Manifest = {"policy": selector.policy or DEFAULT_POLICY}
    if selector.constraints is not None:
        asked["constraints"] = selector.constraints.dump()
    return asked


def _misfits(name: str, want: Want, deps: Deps) -> bool:
    """Whether a chosen class exists and does not do any more."""
    return name in deps.accelerators and bool(unfit(deps.accelerators[name], want))


def _choose(component: str, asked: Manifest, want: Want, deps: Deps) -> tuple[str, Problem | None]:
    lacks = {name: unfit(one, want) for name, one in sorted(deps.accelerators.items())}
    fitting = ranked((deps.accelerators[name] for name, why in lacks.items() if not why), asked["policy"], want, deps.nodes)
    if fitting:
        return fitting[0].name, None
    told = sorted(lacks.items(), key=lambda one: (len(one[1]), one[0]))
    said = "; ".join(f"{name}: {', '.join(why)}" for name, why in told[:LISTED]) or (
        "no AcceleratorClass exists" if deps.policy.sees_cluster else f"an AcceleratorClass is {UNREAD}"
    )
    more = f"; and {len(told) - LISTED} more" if len(told) > LISTED else ""
    text = f"no AcceleratorClass fits spec.{component}: {said}{more}. Relax acceleratorSelector, or name a class there"
    return "", Problem(RUNTIME_READY, Reason.NO_ACCELERATOR_FITS, text)


def _missing(name: str, component: str, deps: Deps, *, chosen: bool, by_note: bool) -> Problem:
    if not deps.policy.sees_cluster:
        said = f"AcceleratorClass {name} is {UNREAD}: name labels of nodes in spec.{component}.nodeSelector instead"
    elif chosen:
        said = (
            f"AcceleratorClass {name}, chosen for spec.{component}, does not exist any more: apply it again, or change "
            "acceleratorSelector to choose anew"
        )
    else:
        where = f"annotation {keys.ACCELERATOR_CLASS}" if by_note else f"acceleratorClass of spec.{component}"
        said = f"AcceleratorClass {name} does not exist: apply it, or fix the {where}"
    return Problem(RUNTIME_READY, Reason.ACCELERATOR_NOT_FOUND, said)


def _bytes_each(component: str, runtime: Manifest, written: Component, model: ModelProfile | None) -> int | None:
    """Weights on one accelerator, when the model is spread over those of one group."""
    if model is None or not model.weight_bytes:
        return None
    try:
        made = compose(component, runtime, written.dump())
    except ProblemError:
        return None
    pods = [made.leader, *[made.worker] * (made.size - 1)]
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
    """What a kept runtime adds for a class."""
    return {key: kept[key] for key in ("args", "env", "parallelism", "pipeline") if key in kept and kept["class"] == name}


def beneath(part: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """What an accelerator class adds to a component below what the service wrote there: the service's own flags and
    variables count more.
    """
    runners = [one.get("runner") or {} for one in (written, *(written.get(name) or {} for name in ("leader", "worker")))]
    words = [str(word) for one in runners for word in (*(one.get("command") or ()), *(one.get("args") or ()))]
    names = {one["name"] for runner in runners for one in runner.get("env") or ()}
    out = {**part, "args": without(part.get("args") or (), flags(words))}
    out["env"] = {name: value for name, value in (part.get("env") or {}).items() if name not in names}
    if "parallelism" in part:
        out[OWN] = sorted(flags(piece for word in words for piece in word.split()))
    return {key: value for key, value in out.items() if value}


def divided(part: Mapping[str, Any]) -> dict[str, int]:
    """How a class divides the model, TP and PP -> the number; {} where its runtime does not say.

    Stored is the product, which is what PARALLELISM_SIZE says, and the pipeline's stages where there are some.
    """
    stages = int(part.get("pipeline") or 1)
    if "parallelism" not in part:
        return {}
    return {"TP": int(part["parallelism"]) // stages, **({"PP": stages} if "pipeline" in part else {})}
