"""Build the statuses of models, runtimes and accelerator classes: which services use an object, and what is wrong with the
object.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from heapq import nsmallest
from types import MappingProxyType
from typing import Any

from ome_operator import keys, names, quantity
from ome_operator.api import AcceleratorClass, Component, Model, Runtime
from ome_operator.api.well_known import NO_MODELS, WellKnown
from ome_operator.core.catalog import agreement, node_models
from ome_operator.core.observed.objects import Node, NodeHolding
from ome_operator.core.podspec.compose import ComposedPods, compose
from ome_operator.core.problem import Problem, ProblemError
from ome_operator.core.reasons import ADVICE, READY, Reason
from ome_operator.core.resolve.ignored_fields import ignored_field_messages
from ome_operator.core.resolve.inputs import runtime_parts
from ome_operator.core.selection.capability import has_class_labels
from ome_operator.core.selection.model_profile import facts_of, profile_of
from ome_operator.core.status import conditions as cond
from ome_operator.core.waves import terms as wave_terms
from ome_operator.core.weights.mount import AnyModel, agents_can_download, claim, node_label, unsupported_scheme, weights
from ome_operator.core.weights.node_selection import needs_agent
from ome_operator.engines.servers import server, strategy
from ome_operator.names import role_title
from ome_operator.settings.policy import AGENT_PODS, ENABLE_AGENTS, SILENT_AGENTS
from ome_operator.util.wording import count


def model_status(
    model: AnyModel,
    users: tuple[str, ...],
    nodes_ready: AbstractSet[str] | None,
    now: datetime,
    holdings: Mapping[str, NodeHolding] = MappingProxyType({}),
    well_known: WellKnown = NO_MODELS,
    witnesses: agreement.ReportingNodes | None = None,
    *,
    agent: bool = True,
) -> dict[str, Any]:
    """Return the status of a model, or of fine-tuned weights.

    `users` are the services (`namespace/name`) that use the model. `nodes_ready` are the nodes that have the model
    according to their labels; None if the operator does not read nodes. `holdings` maps nodes to the records of their
    agents. `witnesses` are the nodes whose records can be used for all nodes; None for the nodes in `holdings`. `agent`
    states whether model agents run.
    """
    identity = weights(model)
    uri = identity.uri
    everywhere, known_nodes = claim(uri) is not None, nodes_ready is not None
    nodes_ready = nodes_ready or frozenset()
    speakers = witnesses or agreement.ReportingNodes(frozenset(holdings))
    verdict = agreement.agree_on_reports(uri, model.status, holdings, speakers, now)
    condition, state = _model_ready(model, uri, len(nodes_ready), holdings, verdict.unpinned_reason, agent, identity.digest)
    if not known_nodes and condition.reason == Reason.ON_NO_NODE:
        label = node_label(model.kind, model.namespace, model.name)
        text = (
            "this operator reads no nodes (clusterWideKinds is false), so it cannot state whether any node holds the "
            f"model: pods wait for a node with the label {label}=Ready"
        )
        condition = cond.Condition(READY, None, Reason.NODES_UNKNOWN, text)
    from_records = node_models.status(verdict, identity.digest, holdings)
    return {
        "state": state,
        **_listed("nodesReady", nodes_ready),
        "summary": "claim" if everywhere else str(len(nodes_ready)) if known_nodes else "unknown",
        **(_shown(replace(model, status=from_records), well_known) if isinstance(model, Model) else {}),
        **from_records,
        **_users(users),
        "observedGeneration": model.generation,
        "conditions": cond.format_conditions(
            _with_advice(condition, model, verdict.condition), model.status.get("conditions") or (), model.generation, now
        ),
    }


def _model_ready(
    model: AnyModel, uri: str, number: int, holdings: Mapping[str, NodeHolding], unpinned: str, agent: bool, digest: str
) -> tuple[cond.Condition, str]:
    """Return the condition Ready of a model, and the state of the model in OME's terms. `unpinned` is
    `AgreedReports.unpinned_reason`. `number` is the number of nodes that have the model, and `agent` states whether model
    agents run.
    """
    states = {holding.state for holding in holdings.values()}
    state = _state(states, number)
    noun = "model" if isinstance(model, Model) else "weights"
    if model.spec.disabled:
        return cond.Condition(
            READY,
            False,
            Reason.DISABLED,
            ("spec.disabled is true: running services continue, but no new service may use this object"),
        ), state
    if claim(uri) is not None:
        return cond.Condition(
            READY, True, Reason.CLAIM, "the weights are in a PersistentVolumeClaim, so no node has to hold them"
        ), "Ready"
    if number:
        silent = _by_hand(model, digest) if agent and agents_can_download(uri) and not holdings else ""
        return cond.Condition(READY, True, Reason.ON_NODES, f"{_hold(number)} the {noun}{silent}"), state
    if message := unsupported_scheme(uri):
        return cond.Condition(READY, False, Reason.NOT_SERVED, message), "Failed"
    if state == "In_Transit":
        if unpinned:
            return cond.Condition(READY, False, Reason.UNCONFIRMED, unpinned), state
        if states == {keys.MODEL_READY}:
            message = f"{_hold(len(holdings))} the {noun}, but no node has the label of the model yet{_crowded(model)}"
        else:
            message = f"agents download the files: {node_models.summary(0, holdings.values())}"
        return cond.Condition(READY, False, Reason.DOWNLOADING, message), state
    if state == "Failed":
        node, first = min((node, holding) for node, holding in holdings.items() if holding.state == keys.MODEL_FAILED)
        return cond.Condition(READY, False, Reason.DOWNLOAD_FAILED, f"node {node}: {first.message}"), state
    return cond.Condition(READY, False, Reason.ON_NO_NODE, _on_no_node(model, uri, noun, agent)), state


def _on_no_node(model: AnyModel, uri: str, noun: str, agent: bool) -> str:
    """Return the message about a model that no node holds, with the next step. `noun` names the model in the message."""
    label = node_label(model.kind, model.namespace, model.name)
    message = f"no node holds the {noun} (label {label}={keys.MODEL_READY}), so pods that need this model stay Pending"
    if agent and needs_agent(model):
        return f"{message}. No model agent reports it. {SILENT_AGENTS}"
    if agent or uri.startswith("local://"):
        return message
    return (
        f"{message}. This operator uses no model agents, so nothing downloads {uri}: {ENABLE_AGENTS}, or copy the files to "
        f"{model.spec.storage.path or 'spec.storage.path'} of a node and label the node"
    )


def _by_hand(model: AnyModel, digest: str) -> str:
    """Return a clause for the message about a model whose label is on nodes although no agent reports the model. Revisions
    that mount the directories of agents ignore this label. `digest` is the name of these directories.
    """
    ref = model.kind, model.namespace, model.name
    return (
        f" according to the label {node_label(*ref)}, but no model agent reports the model. New revisions of services wait "
        f"until an agent sets the label {names.revision_label(*ref, digest)}. To list the agents: {AGENT_PODS}"
    )


def _hold(nodes: int) -> str:
    return f"{count(nodes, 'node')} hold{'s' if nodes == 1 else ''}"


def _crowded(model: AnyModel) -> str:
    """Return a clause for a message: nodes may also lack the label of a namespaced model because the number of these labels
    on a node is limited. Return "" for a cluster-wide model.
    """
    most = node_models.LABEL_LIMIT
    return (
        (f"; a node gets the labels of at most {most} BaseModels, and BaseModels that services use come first")
        if model.namespace
        else ""
    )


def _state(states: set[str], number: int) -> str:
    """Return the state of a model in OME's terms, from the number of nodes that have it (`number`) and the states that
    agents report.
    """
    if number:
        return "Ready"
    if states == {keys.MODEL_FAILED}:
        return "Failed"
    return "In_Transit" if states else "Creating"


def _shown(model: Model, well_known: WellKnown) -> dict[str, Any]:
    """Return the properties of a model for the status, which `kubectl get` shows."""
    seen = profile_of(model, True, well_known)
    out = {
        "architecture": seen.architecture,
        "size": model.spec.model_parameter_size or facts_of(model, well_known)[0].parameter_size,
        "format": seen.format.name if seen.format else "",
        "quantization": seen.quantization,
    }
    return {name: value for name, value in out.items() if value}


def runtime_status(runtime: Runtime, users: tuple[str, ...], now: datetime) -> dict[str, Any]:
    """Return the status of a runtime: its roles, the number of nodes and GPUs of one replica of each role, and the
    problems of its configuration.
    """
    roles, composed_by_component, problems = _composed(runtime)
    engines = [composed for name, composed in composed_by_component.items() if name != keys.ROUTER]
    containers = [composed.leader["containers"][0] for composed in engines]
    strategies = [" ".join(f"{kind}{number}" for kind, number in strategy(box).items()) for box in containers]
    return {
        "engine": _engine(containers[0] if containers else {}),
        "roles": "+".join(roles) or "none",
        "nodes": "+".join(str(composed.size) for composed in engines) or "0",
        "gpus": str(sum(map(_group_gpus, composed_by_component.values()))),
        **({"strategy": " + ".join(strategies)} if any(strategies) else {}),
        **_users(users),
        "observedGeneration": runtime.generation,
        "conditions": cond.format_conditions(
            _with_advice(_runtime_ready(runtime, roles, problems), runtime),
            runtime.status.get("conditions") or (),
            runtime.generation,
            now,
        ),
    }


def _composed(runtime: Runtime) -> tuple[list[str], dict[str, ComposedPods], list[Problem]]:
    """Return the titles of a runtime's roles, the composed pods of the valid roles, and the problems of the other roles."""
    roles: list[str] = []
    composed: dict[str, ComposedPods] = {}
    problems: list[Problem] = []
    both = runtime.spec.decoder_config is not None
    for component in (keys.ENGINE, keys.DECODER, keys.ROUTER):
        config: Component | None = getattr(runtime.spec, f"{component}_config")
        if config is None and not (component == keys.ENGINE and runtime.spec.pod.get("containers")):
            continue
        roles.append(role_title(component, both))
        try:
            composed[component] = compose(component, runtime_parts(runtime.spec, component == keys.ROUTER), {})
        except ProblemError as error:
            problems.append(error.problem)
    return roles, composed, problems


def _runtime_ready(runtime: Runtime, roles: list[str], problems: list[Problem]) -> cond.Condition:
    if runtime.spec.disabled:
        return cond.Condition(
            READY,
            False,
            Reason.DISABLED,
            ("spec.disabled is true: running services continue, but no new service may use this object"),
        )
    if broken := [problem.message for problem in problems if problem.reason == Reason.INVALID_POD]:
        return cond.Condition(READY, False, Reason.INVALID_POD, "; ".join(broken))
    if problems:
        message = "; ".join(problem.message for problem in problems)
        return cond.Condition(
            READY, False, Reason.INCOMPLETE, (f"services that use this runtime must add what is missing: {message}")
        )
    if not roles:
        message = "spec has neither engineConfig nor containers: add engineConfig with a runner"
        return cond.Condition(READY, False, Reason.EMPTY, message)
    return cond.Condition(READY, True, Reason.USABLE, "services can use this runtime")


def accelerator_status(accelerator: AcceleratorClass, nodes: Iterable[Node], now: datetime) -> dict[str, Any]:
    """Return the status of an accelerator class: the nodes that its discovery matches, and their accelerators."""
    wanted = accelerator.spec.discovery.node_selector or {}
    matching = [node for node in nodes if has_class_labels(node, accelerator)]
    usable = [node for node in matching if node.ready]
    if not wanted:
        message = "spec.discovery.nodeSelector is empty: name the labels of the nodes that have this accelerator"
        condition = cond.Condition(READY, False, Reason.NO_DISCOVERY, message)
    elif not usable:
        labels = ", ".join(f"{key}={value}" for key, value in wanted.items())
        condition = cond.Condition(READY, False, Reason.NO_NODES, f"no ready node has the labels {labels}")
    else:
        condition = cond.Condition(READY, True, Reason.FOUND, f"{len(usable)} of {len(matching)} nodes are ready")
    generation = accelerator.generation
    return {
        **_listed("nodes", (node.name for node in matching)),
        "availableNodes": len(usable),
        "availableAccelerators": sum(node.gpus for node in usable),
        "totalAccelerators": sum(node.gpus for node in matching),
        "observedGeneration": generation,
        "conditions": cond.format_conditions(
            _with_advice(condition, accelerator), accelerator.status.get("conditions") or (), generation, now
        ),
    }


def _with_advice(
    ready: cond.Condition, about: AnyModel | Runtime | AcceleratorClass, more: cond.Condition | None = None
) -> list[cond.Condition]:
    """Return the conditions of the object `about`: `ready` (its condition Ready), `more` if it is given, and the condition
    Advice if fields of the object have no effect or its annotations about waves are invalid.
    """
    return [
        ready,
        *filter(None, [more]),
        *cond.advice((*ignored_field_messages(about), *wave_terms.terms(about.annotations, wave_terms.WaveTerms())[1])),
    ]


def with_advice(
    status: Mapping[str, Any], about: AnyModel | Runtime | AcceleratorClass, sentences: Iterable[str], now: datetime
) -> dict[str, Any]:
    """Return the status of the object `about` with further sentences in its condition Advice, before the sentences that the
    condition already has.
    """
    found = {one["type"]: one for one in status["conditions"]}
    told = found.get(ADVICE)
    new = cond.advice((*sentences, *([told["message"]] if told else [])))
    stamped = cond.format_conditions(new, about.status.get("conditions") or (), about.generation, now)
    return {**status, "conditions": [*{**found, **{one["type"]: one for one in stamped}}.values()]}


def _users(users: tuple[str, ...]) -> dict[str, Any]:
    pairs = [user.partition("/") for user in nsmallest(node_models.LISTED, users)]
    used = [{"namespace": namespace, "name": name} for namespace, _, name in pairs]
    return {"users": len(users), **({"usedBy": used} if used else {})}


def _listed(field: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Return a list of names as a field of a status. Return {} for an empty list, because the API server does not record
    the ownership of an empty list.
    """
    shown = nsmallest(node_models.LISTED, names)
    return {field: shown} if shown else {}


def _group_gpus(group: ComposedPods) -> int:
    return _gpus(group.leader) + (group.size - 1) * _gpus(group.worker or {})


def _gpus(pod: dict[str, Any]) -> int:
    return sum(quantity.gpus(container) for container in pod.get("containers") or ())


def _engine(box: dict[str, Any]) -> str:
    """Return the name of an engine for users: the name and tag of its image. If the image has another name than the
    engine, the engine's name precedes it.
    """
    image = str(box.get("image") or "unknown").rpartition("/")[2]
    server_kind = server(box)
    return image if server_kind is None or server_kind.name in image else f"{server_kind.name}:{image.partition(':')[2]}"
