"""A pass as tables of JSON, and back. A file says of each pass only what was other in the pass before it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from typing import Any, get_type_hints

from ome_operator.api import AcceleratorClass, FineTunedWeight, InferenceService, Invalid, Model, Runtime, well_known
from ome_operator.api.well_known import NOBODY
from ome_operator.core.observed.objects import NO_POLICY, Child, Deps, Node, Observed, Pod, Ref, Refusal, Strangers, Turn
from ome_operator.core.observed.validation import Verdict
from ome_operator.core.placement.admission import Claim
from ome_operator.recorder import decision
from ome_operator.recorder.decision import Decision
from ome_operator.recorder.facts import Unreadable, plain, read
from ome_operator.recorder.passes import Pass, answer, looked_at, verdict
from ome_operator.settings import Policy

Tables = dict[str, dict[str, Any]]
"""Table -> name -> JSON."""
_OBJECTS: Mapping[str, Any] = {
    "models": Model,
    "runtimes": Runtime,
    "weights": FineTunedWeight,
    "accelerators": AcceleratorClass,
}
_FACTS = {"nodes": Node, "children": Child, "pods": Pod, "refusals": Refusal, "strangers": Strangers}
_TEXTS = ("accepted", "checks", "failures")
_PAIRS = ("children", "refusals", "failures")
"""Tables by kind and name."""
_REFS = ("models", "runtimes")
"""Tables by kind, namespace and name."""
_POLICY = tuple(field.name for field in fields(Policy))
TABLES = ("service", *_OBJECTS, "nodes", "holders", "settings", "children", "pods", *_TEXTS, "refusals", "strangers", "told")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The whole object once more, with all that is to be redacted in it."""


def tables(made: Pass) -> Tables:
    """What a pass saw."""
    deps, observed, service = made.deps, made.observed, made.service
    known = "" if deps.well_known is NOBODY else well_known.PACKAGE
    return {
        "service": _body(service),
        **{name: {_key(key): _body(found) for key, found in getattr(deps, name).items()} for name in _OBJECTS},
        "nodes": {name: plain(node) for name, node in looked_at(made).items()},
        "holders": {label: sorted(names) for label, names in deps.holders.items()},
        "settings": {**plain(deps.policy), "frozen": deps.frozen, "well_known": known},
        "children": {_key(key): plain(child) for key, child in observed.children.items()},
        "pods": {pod.name: plain(pod) for pod in observed.pods},
        **{
            name: {_key(key): plain(said) for key, said in getattr(observed, name).items()} for name in (*_TEXTS, "refusals")
        },
        "strangers": {uid: plain(found) for uid, found in observed.strangers.items()},
        "told": {
            "warnings": list(observed.warnings),
            "ahead": "".join(getattr(observed.ahead, "args", ())),
            "turn": plain(observed.turn),
            "another": observed.another,
            "judged": [[*key, plain(said)] for key, said in getattr(deps.judge, "args", ({},))[0].items()],
        },
    }


def _key(key: Any) -> str:
    return "/".join(key) if isinstance(key, tuple) else key


def _body(found: Any) -> dict[str, Any]:
    """An object as a server would give it, or why nobody can read it."""
    if isinstance(found, Invalid):
        return {"invalid": found.why}
    notes = {key: value for key, value in found.annotations.items() if key != LAST_APPLIED}
    metadata = {
        "name": found.name,
        "namespace": found.namespace,
        "uid": found.uid,
        "generation": found.generation,
        "labels": dict(found.labels),
        "annotations": notes,
        "creationTimestamp": found.created,
        "deletionTimestamp": found.created or "1970-01-01T00:00:00Z" if found.deleting else "",
    }
    written = {name: value for name, value in metadata.items() if value}
    return {"kind": found.kind, "metadata": written, "spec": found.spec.dump(), "status": plain(found.status)}


def steps(passes: Iterable[Tables]) -> Iterator[Tables]:
    """Of each pass what is other than in the pass before; what is gone is null there."""
    before: Tables = {}
    for made in passes:
        yield {name: change for name in made if (change := _change(before.get(name, {}), made[name]))}
        before = made


def _change(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    gone = dict.fromkeys(key for key in before if key not in after)
    return {key: value for key, value in after.items() if key not in before or before[key] != value} | gone


def followed(before: Tables, change: Mapping[str, Any], where: str) -> Tables:
    """The tables of a pass, from those before it and what is other. Raises Unreadable."""
    after = dict(before)
    for name, part in change.items():
        if name not in TABLES:
            raise Unreadable(f"{where}.{name} is no table of a pass")
        if not isinstance(part, dict):
            raise Unreadable(f"{where}.{name} is no map")
        after[name] = {key: value for key, value in {**before.get(name, {}), **part}.items() if value is not None}
    return after


def made(found: Tables, now: datetime, decided: Decision, where: str) -> Pass:
    """The pass that tables tell of. Raises Unreadable."""
    service = InferenceService.parse({"apiVersion": InferenceService.API_VERSION, **found.get("service", {})})
    if isinstance(service, Invalid):
        raise Unreadable(f"{where}.service cannot be read: {service.why}")
    return Pass(now, service, _deps(found, where), _observed(found, where), decided)


def _deps(found: Tables, where: str) -> Deps:
    hints, settings = get_type_hints(Policy), dict(found.get("settings", {}))
    known = well_known.packaged() if settings.pop("well_known", "") else NOBODY
    frozen = read(str, settings.pop("frozen", ""), f"{where}.settings.frozen")
    if strange := settings.keys() - set(_POLICY):
        raise Unreadable(f"{where}.settings.{min(strange)} is no setting of this version")
    objects: dict[str, Any] = {
        name: {_ref(name, key, where): _object(kind, body, f"{where}.{name}.{key}") for key, body in _of(found, name)}
        for name, kind in _OBJECTS.items()
    }
    judged = read(tuple[tuple[str, int, Verdict], ...], found.get("told", {}).get("judged", []), f"{where}.told.judged")
    return Deps(
        **objects,
        judge=partial(verdict, {(revision, parts): said for revision, parts, said in judged}),
        nodes=dict(_facts(found, "nodes", where)),
        holders={label: read(frozenset[str], names, f"{where}.holders.{label}") for label, names in _of(found, "holders")},
        well_known=known,
        frozen=frozen,
        policy=replace(
            NO_POLICY, **{name: read(hints[name], value, f"{where}.settings.{name}") for name, value in settings.items()}
        ),
    )


def _object(kind: Any, body: Any, where: str) -> Any:
    if not isinstance(body, dict):
        raise Unreadable(f"{where} is no map")
    if "invalid" in body:
        return Invalid(read(str, body["invalid"], f"{where}.invalid"))
    return kind.parse(body)


def _observed(found: Tables, where: str) -> Observed:
    told = found.get("told", {})
    turn = read(Turn, told.get("turn", {}), f"{where}.told.turn")
    rivals = read(tuple[Claim, ...], list(turn.rivals), f"{where}.told.turn.rivals")
    texts: dict[str, Any] = {
        name: {_pair(name, key, where): read(str, said, f"{where}.{name}.{key}") for key, said in _of(found, name)}
        for name in _TEXTS
    }
    return Observed(
        children=dict(_facts(found, "children", where)),
        pods=tuple(pod for _, pod in _facts(found, "pods", where)),
        refusals=dict(_facts(found, "refusals", where)),
        strangers=dict(_facts(found, "strangers", where)),
        warnings=read(tuple[str, ...], told.get("warnings", []), f"{where}.told.warnings"),
        ahead=partial(answer, read(str, told.get("ahead", ""), f"{where}.told.ahead")),
        turn=turn._replace(rivals=rivals),
        another=read(str, told.get("another", ""), f"{where}.told.another"),
        **texts,
    )


def _of(found: Tables, name: str) -> Iterable[tuple[str, Any]]:
    return found.get(name, {}).items()


def _facts(found: Tables, name: str, where: str) -> Iterator[tuple[Any, Any]]:
    for key, value in _of(found, name):
        yield _pair(name, key, where), read(_FACTS[name], value, f"{where}.{name}.{key}")


def _pair(name: str, key: str, where: str) -> Any:
    return _split(key, 2, f"{where}.{name}") if name in _PAIRS else key


def _ref(name: str, key: str, where: str) -> Any:
    return Ref(*_split(key, 3, f"{where}.{name}")) if name in _REFS else key


def _split(key: str, parts: int, where: str) -> tuple[str, ...]:
    found = tuple(key.split("/"))
    if len(found) != parts:
        raise Unreadable(f"{where} has the key {key}, which should have {parts} parts with / between them")
    return found


def read_decision(data: Any, where: str) -> Decision:
    """What a pass decided, as a file says. Raises Unreadable."""
    return read(Decision, data, where)  # type: ignore[no-any-return]


def plain_decision(decided: Decision) -> dict[str, Any]:
    """The same as JSON."""
    return decision.plain(decided)
