"""Status of models, runtimes and accelerator classes: who uses me, and what is wrong with me."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from heapq import nsmallest
from types import MappingProxyType
from typing import Any

from ome_operator import keys, quantity
from ome_operator.api import AcceleratorClass, Component, FineTunedWeight, Model, Runtime
from ome_operator.api.well_known import NOBODY, WellKnown
from ome_operator.core.catalog import node_models
from ome_operator.core.observed.objects import Holding, Node
from ome_operator.core.podspec.compose import Composed, compose
from ome_operator.core.problem import Problem, ProblemError
from ome_operator.core.reasons import READY, Reason
from ome_operator.core.resolve.ignored_fields import ignored
from ome_operator.core.resolve.inputs import runtime_parts
from ome_operator.core.selection.capability import carries
from ome_operator.core.selection.model_profile import facts_of, profile_of
from ome_operator.core.status import conditions as cond
from ome_operator.core.waves import terms as wave_terms
from ome_operator.core.weights.mount import claim, node_label, unsupported_scheme, weights
from ome_operator.engines.servers import server, strategy
from ome_operator.names import title


def model_status(
    model: Model | FineTunedWeight,
    users: tuple[str, ...],
    nodes_ready: AbstractSet[str] | None,
    now: datetime,
    holdings: Mapping[str, Holding] = MappingProxyType({}),
    well_known: WellKnown = NOBODY,
) -> dict[str, Any]:
    """Status of a model or of weights that were trained on one: the nodes that hold it, by their labels; the services
    (`namespace/name`) that use it; and what the agents say about it (`holdings`: node -> record). `nodes_ready` is None
    where nodes are not read.
    """
    identity = weights(model)
    uri = identity.uri
    everywhere, known_nodes = claim(uri) is not None, nodes_ready is not None
    nodes_ready = nodes_ready or frozenset()
    one, state = _model_ready(model, uri, len(nodes_ready), holdings)
    if not known_nodes and one.reason == Reason.ON_NO_NODE:
        label = node_label(model.kind, model.namespace, model.name)
        text = f"this operator reads no nodes (clusterWideKinds is false): pods wait for a node with the label {label}=Ready"
        one = cond.Condition(READY, None, Reason.NODES_UNKNOWN, text)
    told = node_models.status(uri, identity.digest, model.status, holdings)
    return {
        "state": state,
        **_listed("nodesReady", nodes_ready),
        "summary": "claim" if everywhere else str(len(nodes_ready)) if known_nodes else "unknown",
        **(_shown(replace(model, status=told), well_known) if isinstance(model, Model) else {}),
        **told,
        **_users(users),
        "observedGeneration": model.generation,
        "conditions": cond.stamp(_told(one, model), model.status.get("conditions") or (), model.generation, now),
    }


def _model_ready(
    model: Model | FineTunedWeight, uri: str, count: int, holdings: Mapping[str, Holding]
) -> tuple[cond.Condition, str]:
    """The condition Ready, and OME's word for the state."""
    words = {one.state for one in holdings.values()}
    state = _state(words, count)
    what = "model" if isinstance(model, Model) else "weights"
    if model.spec.disabled:
        return cond.Condition(READY, False, Reason.DISABLED, "spec.disabled is true: no new service may use it"), state
    if claim(uri) is not None:
        return cond.Condition(READY, True, Reason.CLAIM, "the weights come with a claim"), "Ready"
    if count:
        return cond.Condition(READY, True, Reason.ON_NODES, f"{count} nodes hold the {what}"), state
    if said := unsupported_scheme(uri):
        return cond.Condition(READY, False, Reason.NOT_SERVED, said), "Failed"
    if state == "In_Transit":
        if words == {keys.MODEL_READY}:
            said = f"{len(holdings)} nodes hold the {what} and are to be labelled{_crowded(model)}"
        else:
            said = f"agents fetch the files: {node_models.summary(0, holdings.values())}"
        return cond.Condition(READY, False, Reason.DOWNLOADING, said), state
    if state == "Failed":
        node, first = min((node, one) for node, one in holdings.items() if one.state == keys.MODEL_FAILED)
        return cond.Condition(READY, False, Reason.DOWNLOAD_FAILED, f"node {node}: {first.message}"), state
    label = node_label(model.kind, model.namespace, model.name)
    said = f"no node holds the {what} (label {label}={keys.MODEL_READY}): pods that need it stay Pending"
    return cond.Condition(READY, False, Reason.ON_NO_NODE, said), state


def _crowded(model: Model | FineTunedWeight) -> str:
    """What else may keep the labels of a namespace's model away."""
    most = node_models.MOST
    return f"; a node has at most {most} labels of BaseModels, those that services use first" if model.namespace else ""


def _state(words: set[str], count: int) -> str:
    """OME's word for how far a model is: `count` nodes hold it, and agents say these words."""
    if count:
        return "Ready"
    if words == {keys.MODEL_FAILED}:
        return "Failed"
    return "In_Transit" if words else "Creating"


def _shown(model: Model, well_known: WellKnown) -> dict[str, Any]:
    """What is known of a model, for the table."""
    seen = profile_of(model, True, well_known)
    out = {
        "architecture": seen.architecture,
        "size": model.spec.model_parameter_size or facts_of(model, well_known)[0].parameter_size,
        "format": seen.format.name if seen.format else "",
        "quantization": seen.quantization,
    }
    return {name: value for name, value in out.items() if value}


def runtime_status(runtime: Runtime, users: tuple[str, ...], now: datetime) -> dict[str, Any]:
    """Status of a runtime: its roles, nodes and GPUs of one replica of each, and what it cannot run."""
    roles, made, problems = _composed(runtime)
    engines = [one for name, one in made.items() if name != keys.ROUTER]
    boxes = [one.leader["containers"][0] for one in engines]
    divided = [" ".join(f"{kind}{number}" for kind, number in strategy(box).items()) for box in boxes]
    return {
        "engine": _engine(boxes[0] if boxes else {}),
        "roles": "+".join(roles) or "none",
        "nodes": "+".join(str(one.size) for one in engines) or "0",
        "gpus": str(sum(_gpus(one.leader) + (one.size - 1) * _gpus(one.worker or {}) for one in made.values())),
        **({"strategy": " + ".join(divided)} if any(divided) else {}),
        **_users(users),
        "observedGeneration": runtime.generation,
        "conditions": cond.stamp(
            _told(_runtime_ready(runtime, roles, problems), runtime),
            runtime.status.get("conditions") or (),
            runtime.generation,
            now,
        ),
    }


def _composed(runtime: Runtime) -> tuple[list[str], dict[str, Composed], list[Problem]]:
    """The titles of a runtime's roles, the pods of those that can be made, and what is wrong with the others."""
    roles: list[str] = []
    made: dict[str, Composed] = {}
    problems: list[Problem] = []
    both = runtime.spec.decoder_config is not None
    for component in (keys.ENGINE, keys.DECODER, keys.ROUTER):
        config: Component | None = getattr(runtime.spec, f"{component}_config")
        if config is None and not (component == keys.ENGINE and runtime.spec.pod.get("containers")):
            continue
        roles.append(title(component, both))
        try:
            made[component] = compose(component, runtime_parts(runtime.spec, component == keys.ROUTER), {})
        except ProblemError as error:
            problems.append(error.problem)
    return roles, made, problems


def _runtime_ready(runtime: Runtime, roles: list[str], problems: list[Problem]) -> cond.Condition:
    if runtime.spec.disabled:
        return cond.Condition(READY, False, Reason.DISABLED, "spec.disabled is true: no new service may use it")
    if broken := [one.message for one in problems if one.reason == Reason.INVALID_POD]:
        return cond.Condition(READY, False, Reason.INVALID_POD, "; ".join(broken))
    if problems:
        said = "; ".join(one.message for one in problems)
        return cond.Condition(READY, False, Reason.INCOMPLETE, f"services have to bring what is missing: {said}")
    if not roles:
        said = "spec has neither engineConfig nor containers: add engineConfig with a runner"
        return cond.Condition(READY, False, Reason.EMPTY, said)
    return cond.Condition(READY, True, Reason.USABLE, "services can use it")


def accelerator_status(accelerator: AcceleratorClass, nodes: Iterable[Node], now: datetime) -> dict[str, Any]:
    """Status of an accelerator class: the nodes that its discovery matches and their accelerators."""
    wanted = accelerator.spec.discovery.node_selector or {}
    mine = [each for each in nodes if carries(each, accelerator)]
    usable = [one for one in mine if one.ready]
    if not wanted:
        said = "spec.discovery.nodeSelector is empty: name the labels of the nodes that have this accelerator"
        one = cond.Condition(READY, False, Reason.NO_DISCOVERY, said)
    elif not usable:
        labels = ", ".join(f"{key}={value}" for key, value in wanted.items())
        one = cond.Condition(READY, False, Reason.NO_NODES, f"no ready node has the labels {labels}")
    else:
        one = cond.Condition(READY, True, Reason.FOUND, f"{len(usable)} of {len(mine)} nodes are ready")
    generation = accelerator.generation
    return {
        **_listed("nodes", (each.name for each in mine)),
        "availableNodes": len(usable),
        "availableAccelerators": sum(each.gpus for each in usable),
        "totalAccelerators": sum(each.gpus for each in mine),
        "observedGeneration": generation,
        "conditions": cond.stamp(_told(one, accelerator), accelerator.status.get("conditions") or (), generation, now),
    }


def _told(ready: cond.Condition, about: Model | FineTunedWeight | Runtime | AcceleratorClass) -> list[cond.Condition]:
    """Ready, and what of the object has no effect."""
    return [ready, *cond.advice((*ignored(about), *wave_terms.terms(about.annotations, wave_terms.Terms())[1]))]


def _users(users: tuple[str, ...]) -> dict[str, Any]:
    pairs = [user.partition("/") for user in nsmallest(node_models.LISTED, users)]
    used = [{"namespace": namespace, "name": name} for namespace, _, name in pairs]
    return {"users": len(users), **({"usedBy": used} if used else {})}


def _listed(field: str, names: Iterable[str]) -> dict[str, list[str]]:
    """A list of names, left out when empty: the server keeps no record that we own an empty list of a map's items."""
    shown = nsmallest(node_models.LISTED, names)
    return {field: shown} if shown else {}


def _gpus(pod: dict[str, Any]) -> int:
    return sum(quantity.gpus(one) for one in pod.get("containers") or ())


def _engine(box: dict[str, Any]) -> str:
    """What people call an engine: the name and tag of its image, with the engine's own name where the image has another."""
    image = str(box.get("image") or "unknown").rpartition("/")[2]
    server_kind = server(box)
    return image if server_kind is None or server_kind.name in image else f"{server_kind.name}:{image.partition(':')[2]}"
