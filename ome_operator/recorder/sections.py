"""Convert a recorded pass to JSON tables and back. For each pass, a file contains only the differences from the previous
pass.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from typing import Any, get_type_hints

from ome_operator.api import AcceleratorClass, FineTunedWeight, InferenceService, Invalid, Model, Runtime, well_known
from ome_operator.api.well_known import NO_MODELS
from ome_operator.core.observed.admission import GangAdmission
from ome_operator.core.observed.arrivals import Arrivals
from ome_operator.core.observed.autoscalers import ForeignAutoscaler
from ome_operator.core.observed.budgets import Budget
from ome_operator.core.observed.objects import (
    NO_POLICY,
    Child,
    Deps,
    Node,
    Observed,
    Pod,
    Ref,
    Refusal,
)
from ome_operator.core.observed.silence import Silence
from ome_operator.core.observed.telemetry import DrainReport, ForeignWorkers, LeaderStart
from ome_operator.core.observed.transfers import FailingPair
from ome_operator.core.observed.validation import ValidationResult
from ome_operator.core.placement.claims import Claim
from ome_operator.recorder import decision
from ome_operator.recorder.decision import Decision
from ome_operator.recorder.facts import UnreadableRecording, convert, fact_json
from ome_operator.recorder.passes import Pass, recorded_ahead, recorded_result, relevant_nodes
from ome_operator.settings import Policy

Tables = dict[str, dict[str, Any]]
"""Tables of a pass. Each table maps names to JSON."""
_OBJECTS: Mapping[str, Any] = {
    "models": Model,
    "runtimes": Runtime,
    "weights": FineTunedWeight,
    "accelerators": AcceleratorClass,
}
_FACTS: Mapping[str, Any] = {
    "nodes": Node,
    "children": Child,
    "pods": Pod,
    "refusals": Refusal,
    "strangers": ForeignWorkers,
    "drains": tuple[DrainReport, ...],
    "silences": Silence,
    "transfers": tuple[FailingPair, ...],
    "starts": LeaderStart,
}
_TEXTS = ("accepted", "checks", "remarks", "failures")
_PAIRS = ("children", "refusals", "failures")
"""Tables whose keys consist of kind and name."""
_REFS = ("models", "runtimes")
"""Tables whose keys consist of kind, namespace and name."""
_POLICY = tuple(field.name for field in fields(Policy))
TABLES = (
    "service",
    *_OBJECTS,
    "nodes",
    "holders",
    "settings",
    "children",
    "pods",
    *_TEXTS,
    "refusals",
    "strangers",
    "drains",
    "silences",
    "transfers",
    "starts",
    "told",
)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation in which kubectl stores the complete object again. It is removed, because it repeats all values that must be
redacted."""


def tables(pass_: Pass) -> Tables:
    """Return the inputs of a pass as tables."""
    deps, observed, service = pass_.deps, pass_.observed, pass_.service
    well_known_source = "" if deps.well_known is NO_MODELS else well_known.PACKAGE
    return {
        "service": _body(service),
        **{name: {_key(key): _body(value) for key, value in getattr(deps, name).items()} for name in _OBJECTS},
        "nodes": {name: fact_json(node) for name, node in relevant_nodes(pass_).items()},
        "holders": {label: sorted(names) for label, names in deps.holders.items()},
        "settings": {**fact_json(deps.policy), "frozen": deps.frozen, "well_known": well_known_source},
        "children": {_key(key): fact_json(child) for key, child in observed.children.items()},
        "pods": {pod.name: fact_json(pod) for pod in observed.pods},
        **{
            name: {_key(key): fact_json(fact) for key, fact in getattr(observed, name).items()}
            for name in (*_TEXTS, "refusals")
        },
        "strangers": {uid: fact_json(value) for uid, value in observed.strangers.items()},
        "drains": {uid: fact_json(value) for uid, value in observed.drains.items()},
        "silences": {uid: fact_json(value) for uid, value in observed.silences.items()},
        "transfers": {uid: fact_json(value) for uid, value in observed.transfers.items()},
        "starts": {uid: fact_json(value) for uid, value in observed.starts.items()},
        "told": {
            "warnings": list(observed.warnings),
            "ahead": "".join(getattr(observed.ahead, "args", ())),
            "turn": fact_json(observed.turn),
            "another": observed.another,
            "traffic": observed.traffic,
            "avoided": dict(observed.avoided),
            "arrivals": fact_json(observed.arrivals),
            "scaling": observed.scaling,
            "budgets": [fact_json(one) for one in observed.budgets],
            "autoscalers": [fact_json(one) for one in observed.autoscalers],
            "judged": [[*key, fact_json(fact)] for key, fact in getattr(deps.judge, "args", ({},))[0].items()],
        },
    }


def _key(key: Any) -> str:
    return "/".join(key) if isinstance(key, tuple) else key


def _body(found: Any) -> dict[str, Any]:
    """Return an object as the API server returns it, or, for an invalid object, the reason why it is invalid."""
    if isinstance(found, Invalid):
        return {"invalid": found.why}
    annotations = {key: value for key, value in found.annotations.items() if key != LAST_APPLIED}
    metadata = {
        "name": found.name,
        "namespace": found.namespace,
        "uid": found.uid,
        "generation": found.generation,
        "labels": dict(found.labels),
        "annotations": annotations,
        "creationTimestamp": found.created,
        "deletionTimestamp": found.created or "1970-01-01T00:00:00Z" if found.deleting else "",
    }
    metadata_fields = {name: value for name, value in metadata.items() if value}
    return {"kind": found.kind, "metadata": metadata_fields, "spec": found.spec.dump(), "status": fact_json(found.status)}


def changes(passes: Iterable[Tables]) -> Iterator[Tables]:
    """Yield, for each pass, the differences from the previous pass. A removed entry has the value None."""
    before: Tables = {}
    for current in passes:
        yield {name: change for name in current if (change := _change(before.get(name, {}), current[name]))}
        before = current


def _change(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    removed = dict.fromkeys(key for key in before if key not in after)
    return {key: value for key, value in after.items() if key not in before or before[key] != value} | removed


def apply_changes(before: Tables, change: Mapping[str, Any], location: str) -> Tables:
    """Return the tables of a pass: the tables of the previous pass (`before`) with the differences `change`. `location`
    names the pass in messages. Raises UnreadableRecording if the differences are not valid.
    """
    after = dict(before)
    for name, differences in change.items():
        if name not in TABLES:
            raise UnreadableRecording(f"{location}.{name} is not a known part of a pass")
        if not isinstance(differences, dict):
            raise UnreadableRecording(f"{location}.{name} is not a map")
        after[name] = {key: value for key, value in {**before.get(name, {}), **differences}.items() if value is not None}
    return after


def make_pass(tables_: Tables, now: datetime, decided: Decision, location: str) -> Pass:
    """Return the pass that the tables describe. `location` names the pass in messages. Raises UnreadableRecording if a
    table is not valid.
    """
    service = InferenceService.parse({"apiVersion": InferenceService.API_VERSION, **tables_.get("service", {})})
    if isinstance(service, Invalid):
        raise UnreadableRecording(f"{location}.service cannot be read: {service.why}")
    return Pass(now, service, _deps(tables_, location), _observed(tables_, location), decided)


def _deps(found: Tables, location: str) -> Deps:
    hints, settings = get_type_hints(Policy), dict(found.get("settings", {}))
    known = well_known.load_packaged() if settings.pop("well_known", "") else NO_MODELS
    frozen = convert(str, settings.pop("frozen", ""), f"{location}.settings.frozen")
    if unknown := settings.keys() - set(_POLICY):
        raise UnreadableRecording(f"{location}.settings.{min(unknown)} is not a setting of this version")
    objects: dict[str, Any] = {
        name: {_ref(name, key, location): _object(kind, body, f"{location}.{name}.{key}") for key, body in _of(found, name)}
        for name, kind in _OBJECTS.items()
    }
    results = convert(
        tuple[tuple[str, int, ValidationResult], ...], found.get("told", {}).get("judged", []), f"{location}.told.judged"
    )
    return Deps(
        **objects,
        judge=partial(recorded_result, {(revision, parts): result for revision, parts, result in results}),
        nodes=dict(_facts(found, "nodes", location)),
        holders={
            label: convert(frozenset[str], names, f"{location}.holders.{label}") for label, names in _of(found, "holders")
        },
        well_known=known,
        frozen=frozen,
        policy=replace(
            NO_POLICY,
            **{name: convert(hints[name], value, f"{location}.settings.{name}") for name, value in settings.items()},
        ),
    )


def _object(kind: Any, body: Any, location: str) -> Any:
    if not isinstance(body, dict):
        raise UnreadableRecording(f"{location} is not a map")
    if "invalid" in body:
        return Invalid(convert(str, body["invalid"], f"{location}.invalid"))
    return kind.parse(body)


def _observed(found: Tables, location: str) -> Observed:
    messages = found.get("told", {})
    turn = convert(GangAdmission, messages.get("turn", {}), f"{location}.told.turn")
    rivals = convert(tuple[Claim, ...], list(turn.rivals), f"{location}.told.turn.rivals")
    texts: dict[str, Any] = {
        name: {_pair(name, key, location): convert(str, text, f"{location}.{name}.{key}") for key, text in _of(found, name)}
        for name in _TEXTS
    }
    return Observed(
        children=dict(_facts(found, "children", location)),
        pods=tuple(pod for _, pod in _facts(found, "pods", location)),
        refusals=dict(_facts(found, "refusals", location)),
        strangers=dict(_facts(found, "strangers", location)),
        drains=dict(_facts(found, "drains", location)),
        silences=dict(_facts(found, "silences", location)),
        transfers=dict(_facts(found, "transfers", location)),
        starts=dict(_facts(found, "starts", location)),
        warnings=convert(tuple[str, ...], messages.get("warnings", []), f"{location}.told.warnings"),
        ahead=partial(recorded_ahead, convert(str, messages.get("ahead", ""), f"{location}.told.ahead")),
        turn=turn._replace(rivals=rivals),
        budgets=convert(tuple[Budget, ...], messages.get("budgets", []), f"{location}.told.budgets"),
        autoscalers=convert(tuple[ForeignAutoscaler, ...], messages.get("autoscalers", []), f"{location}.told.autoscalers"),
        another=convert(str, messages.get("another", ""), f"{location}.told.another"),
        arrivals=convert(Arrivals, messages.get("arrivals", {}), f"{location}.told.arrivals"),
        traffic=convert(dict[str, Any] | None, messages.get("traffic"), f"{location}.told.traffic"),
        avoided=convert(dict[str, str], messages.get("avoided", {}), f"{location}.told.avoided"),
        scaling=convert(dict[str, Any] | None, messages.get("scaling"), f"{location}.told.scaling"),
        **texts,
    )


def _of(found: Tables, name: str) -> Iterable[tuple[str, Any]]:
    return found.get(name, {}).items()


def _facts(found: Tables, name: str, location: str) -> Iterator[tuple[Any, Any]]:
    for key, value in _of(found, name):
        yield _pair(name, key, location), convert(_FACTS[name], value, f"{location}.{name}.{key}")


def _pair(name: str, key: str, location: str) -> Any:
    return _split(key, 2, f"{location}.{name}") if name in _PAIRS else key


def _ref(name: str, key: str, location: str) -> Any:
    return Ref(*_split(key, 3, f"{location}.{name}")) if name in _REFS else key


def _split(key: str, parts: int, location: str) -> tuple[str, ...]:
    parts_found = tuple(key.split("/"))
    if len(parts_found) != parts:
        raise UnreadableRecording(f"{location} has the invalid key {key}: a key has {parts} parts, separated by /")
    return parts_found


def read_decision(data: Any, location: str) -> Decision:
    """Parse the decision of a pass in a file. `location` names the pass in messages. Raises UnreadableRecording if the
    decision is not valid.
    """
    return convert(Decision, data, location)  # type: ignore[no-any-return]


def plain_decision(decided: Decision) -> dict[str, Any]:
    """Return a decision as JSON."""
    return decision.decision_json(decided)
