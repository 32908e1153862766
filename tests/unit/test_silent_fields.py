"""Tests that every field that users can write either has an effect, or is reported as having none by the condition Advice.

A field has an effect if something that is made from the object differs with it: the objects that a pass writes in one of
several stages of a service's life, a status, the Job of a benchmark, the files that an agent downloads, or a column of
`kubectl get`. A new name or other stored inputs of a revision are not an effect.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ome_operator.api import Invalid
from ome_operator.api.kinds import KINDS, Kind
from ome_operator.core.observed import from_api
from ome_operator.core.observed.nodes import node_record
from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.resolve.no_effect import (
    ANNOTATIONS,
    FIELDS,
    READ,
    READ_ON_PODS,
    READ_WHERE_EXPOSED,
    NoEffectUnless,
    ReadKeysOnly,
    Tree,
)
from ome_operator.settings import Exposure
from tests.support import parts, readings
from tests.support.beside import BESIDE
from tests.support.fields import Body, Field, fields, merged, with_value
from tests.support.parts import change_deps
from tests.support.simulator import START
from tests.support.stages import ALONE, CHOSEN, MEASURED, NAMED, OLDER, SHORT, Bodies

Look = Callable[[Bodies, Bodies], str]
"""A function that checks bodies; the bodies before the field was set come first."""


def _now(look: Callable[[Bodies], str]) -> Look:
    return lambda _, bodies: look(bodies)


def _kept(before: Bodies, bodies: Bodies) -> str:
    edit = {"spec": {"engineConfig": {"runner": {"image": "engine:2"}}}}
    return readings.later(before, bodies, edit={"runtime": edit})


def _stuck(before: Bodies, bodies: Bodies) -> str:
    return readings.later(before, bodies, ready=False)


FRESH, CATALOG, ARRIVING, _LATER = _now(readings.first_plan), _now(readings.catalog), _now(readings.arriving), readings.later
_OF_BENCHMARK, _OF_SHORT = [(MEASURED, _now(readings.benchmark))], [(SHORT, _now(readings.sglang_objects))]
PARTS: Mapping[str, tuple[str, list[tuple[Bodies, Look]]]] = {
    "InferenceService": (
        "service",
        [(NAMED, FRESH), (ALONE, FRESH), (CHOSEN, FRESH), *((NAMED, look) for look in (_LATER, _stuck, _kept, ARRIVING))],
    ),
    "ClusterServingRuntime": ("runtime", [(NAMED, FRESH), (ALONE, FRESH), (CHOSEN, FRESH), (NAMED, readings.later)]),
    "ClusterBaseModel": ("model", [(CHOSEN, FRESH), (CHOSEN, CATALOG), (CHOSEN, _now(readings.downloads_of_agent))]),
    "AcceleratorClass": ("gpu", [(CHOSEN, FRESH), (CHOSEN, CATALOG), (CHOSEN, _now(readings.generated))]),
    "FineTunedWeight": ("lora", [(ALONE, FRESH), (ALONE, CATALOG), (ALONE, _now(readings.downloads_of_agent))]),
    "BenchmarkJob": ("benchmark", _OF_BENCHMARK),
    "sglang.ai ClusterBaseModel": ("short", _OF_SHORT),
    "sglang.ai Serving": ("serving", _OF_SHORT),
}  # fmt: skip
"""Kind -> the name of its object in the stages, and where to look."""
RESTARTS = "spec.rollout.restartedAt"
"""The field that restarts a service: no other field may cause a new revision without another effect."""


def own(kind: Kind) -> str:
    """Return the name of a kind as in the tables of this module."""
    return kind.kind if kind.group == "ome.io" else f"{kind.group} {kind.kind}"


SEEN = {own(kind): kind for kind in KINDS if own(kind) in PARTS}
ALIKE = {"BaseModel": "ClusterBaseModel", "ServingRuntime": "ClusterServingRuntime"}  # kinds with the same spec
OURS = {"RoleScale", "NodeModels", "NodeFaults"}
"""Kinds that autoscalers, agents and the operator write: their tests are below."""


def row(kind: str, path: str) -> tuple[str, Any]:
    """Return the row of the table that a field falls under, and the field's path; ("", None) for a field that is not
    listed.
    """
    tree: Any = FIELDS.get(kind, {})
    at = []
    for step in path.split(".")[1:]:
        found = next((name for name in tree if name.rstrip("[]{}") == step.rstrip("[]{}")), None)
        if found is None:
            return "", None
        tree = tree[found]
        at.append(step)
        if not isinstance(tree, Mapping):
            return ("", None) if isinstance(tree, ReadKeysOnly) else (f"spec.{'.'.join(at)}", tree)
    return "", None


def spelled(path: str) -> str:
    """Return a path as it is written in messages."""
    return re.sub(r"acceleratorConfig\{\}", "acceleratorConfig.gpu", path).replace("[]", "").replace("{}", "")


def listed_rows(tree: Tree, at: str = "spec") -> Iterator[str]:
    """Yield the paths of all rows of the table."""
    for name, below in tree.items():
        if isinstance(below, Mapping):
            yield from listed_rows(below, f"{at}.{name}")
        else:
            yield f"{at}.{name}"


def groups() -> Iterator[tuple[str, str]]:
    """Yield (kind, name of a field directly below `spec`). Each pair is the parameter of one test."""
    for name, kind in SEEN.items():
        yield from dict.fromkeys((name, field.path.split(".")[1]) for field in fields(kind.spec))


def silent(name: str, field: Field) -> str:
    """Return what is wrong with a field; "" if it has an effect, or is listed and the condition Advice reports it."""
    part, looks = PARTS[name]
    top, hint = row(name, field.path)
    if top:
        return told(part, looks[0][0], field, top, hint)
    if any(column.path == f".{field.path}" for column in SEEN[name].columns) or field.path == RESTARTS:
        return ""
    for stage, look in [(OLDER, FRESH), (OLDER, _kept)] if ".predictor" in field.path else looks:
        beside = context(part, field.path, stage)
        if any(differs(look, beside, {**beside, part: body}) for body in bodies(part, beside, field)):
            return ""
    return f"{field.path} changes nothing, and core/resolve/no_effect.py does not list it"


def told(part: str, stage: Bodies, field: Field, top: str, hint: Any) -> str:
    """Return what is wrong with a listed field: it is not reported as having no effect, or it has an effect."""
    stage = OLDER if ".predictor" in field.path else stage
    beside = context(part, field.path, stage)
    wrong = hint.value if isinstance(hint, NoEffectUnless) else None
    for body in bodies(part, beside, field):
        written = {**beside, part: body}
        if f"{spelled(top)} has no effect" not in advice(part, written):
            if wrong is None or str(wrong) not in str(body):
                return f"{field.path} is listed, and Advice does not say so: {advice(part, written)!r}"
        elif part not in ("benchmark", "short") and differs(FRESH, beside, written):
            return f"{field.path} is listed as without effect, and has an effect"
        else:
            return ""
    return f"{field.path}: no value for it"


def context(part: str, path: str, stage: Bodies) -> Bodies:
    """Return a stage of a service's life, extended by everything that the field needs in order to have a meaning."""
    out = dict(stage)
    for of, pattern, more in BESIDE:
        if of == part and (found := re.match(pattern, path)):
            out |= {name: merged(stage[name], body) for name, body in more(found[1]).items() if name in stage}
    return out


def bodies(part: str, stage: Bodies, field: Field) -> Iterator[Body]:
    """Yield the object with each accepted value of the field."""
    for value in field.values:
        body = with_value(stage[part], field, value)
        if body != stage[part] and accepted(part, body):
            yield body


def accepted(part: str, body: Body) -> bool:
    """Return whether the object can be parsed."""
    return not isinstance(readings.PARSED[part].parse(body), Invalid)


def differs(look: Look, before: Bodies, after: Bodies) -> bool:
    """Return whether the field has an effect."""
    return seen(look, before, before) != look(before, after)


_SEEN: dict[tuple[int, str], str] = {}


def seen(look: Look, before: Bodies, bodies: Bodies) -> str:
    """Return the results for these bodies. They are cached."""
    key = id(look), json.dumps(bodies)
    if key not in _SEEN:
        _SEEN[key] = look(before, bodies)
    return _SEEN[key]


def advice(part: str, bodies: Bodies) -> str:
    """Return the message of the condition Advice of an object."""
    status = readings.status(part, bodies)
    return next((str(item["message"]) for item in status["conditions"] if item["type"] == "Advice"), "")


@pytest.mark.parametrize(("name", "top"), list(groups()))
def test_every_field_has_an_effect_or_is_reported(name: str, top: str) -> None:
    found = [item for item in fields(SEEN[name].spec) if item.path.split(".")[1] == top]
    assert [said for item in found if (said := silent(name, item))] == []


def test_every_kind_is_covered_by_the_field_check() -> None:
    assert {own(kind) for kind in KINDS} == SEEN.keys() | ALIKE.keys() | OURS
    specs = {own(kind): kind.spec for kind in KINDS}
    assert all(specs[name] is specs[other] and FIELDS[name] is FIELDS[other] for name, other in ALIKE.items())


def test_field_lists_name_existing_fields() -> None:
    for name in FIELDS.keys() - ALIKE.keys():
        known = [field.path for field in fields(SEEN[name].spec)]
        assert [row for row in listed_rows(FIELDS[name]) if not any(item.startswith(row) for item in known)] == []


def test_restart_annotation_makes_a_new_revision() -> None:
    service, deps = readings.parse_bodies(NAMED)
    again, _ = readings.parse_bodies(
        {**NAMED, "service": merged(NAMED["service"], {"spec": {"rollout": {"restartedAt": "now"}}})}
    )
    names = [sync(item, deps, Observed(), START).first[0].manifest["metadata"]["name"] for item in (service, again)]
    assert names[0] != names[1]


def test_fields_written_by_autoscalers_and_the_operator_are_read() -> None:
    meta = {"name": "a", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    scales = [from_api.child("RoleScale", {"metadata": meta, "spec": {"replicas": count}}) for count in (1, 2)]
    assert scales[0] != scales[1]
    rows = [[], [{"directory": "d", "offer": "o"}], [{"directory": "d", "offer": "p"}]]
    records = [node_record({"metadata": meta, "spec": {"remove": item}}) for item in rows]
    assert len({repr(item) for item in records}) == 3


def test_shipped_objects_have_no_fields_without_effect() -> None:
    for path in sorted((parts.ROOT / "config").rglob("*.yaml")):
        for body in parts.read_documents(path):
            assert (path.name, readings.without_effect(body)) == (path.name, ())


# --- annotations ---------------------------------------------------------------------------------------------------------

NOTES: Mapping[str, Mapping[str, str]] = parts.read_documents(Path(__file__).with_name("annotations.yaml"))[0]
"""Kind, or `pods`, -> annotations that OME or this operator reads there, with a value each."""
ASKS = {
    "rdma.ome.io/profile": {"rdma.ome.io/auto-inject": "true"},
    "rdma.ome.io/container-name": {"rdma.ome.io/auto-inject": "true"},
    "ome.io/load-balancer-ip": {"ome.io/service-type": "LoadBalancer"},
    "kueue-enabled": {"ome.io/dedicated-ai-cluster": "queue"},
}
"""Annotations that have a meaning only with another annotation."""
RETRIED = {"ome.io/rollout-retry", "ome.io/runtime-sync", "ome.io/model-sync", "ome.io/move"}
"""Annotations about what happened before: `tests/unit/core` has their stories."""


@pytest.mark.parametrize("note", NOTES["InferenceService"])
def test_every_service_annotation_has_an_effect_or_is_reported(note: str) -> None:
    value, asked = NOTES["InferenceService"][note], ASKS.get(note, {})
    found = False
    for stage in (NAMED, ALONE, CHOSEN):
        before = {**stage, "service": merged(stage["service"], {"metadata": {"annotations": asked}})}
        after = {**stage, "service": merged(stage["service"], {"metadata": {"annotations": {**asked, note: value}}})}
        found = found or differs(FRESH, before, after)
    told = f"annotation {note} has no effect" in advice("service", after)
    assert told == (note not in READ["InferenceService"])
    assert found != told or note in RETRIED


@pytest.mark.parametrize("note", sorted(READ_WHERE_EXPOSED))
def test_ingress_annotations_have_an_effect_if_ingresses_are_enabled(note: str) -> None:
    def seen(notes: Body) -> tuple[str, str]:
        service = merged(NAMED["service"], {"metadata": {"annotations": notes}})
        found, deps = readings.parse_bodies({**NAMED, "service": service})
        plan = sync(found, change_deps(deps, exposure=Exposure("Ingress", "a.org")), Observed(), START)
        return readings.plan_without_inputs(plan), str(plan.status["conditions"])

    (before, _), (after, said) = seen({}), seen({note: NOTES["InferenceService"][note]})
    assert before != after and "has no effect" not in said


@pytest.mark.parametrize("component", sorted(READ_ON_PODS))
@pytest.mark.parametrize("note", NOTES["pods"])
def test_every_pod_annotation_has_an_effect_or_is_reported(note: str, component: str) -> None:
    value, asked = NOTES["pods"][note], ASKS.get(note, {})

    def having(notes: Mapping[str, str]) -> Bodies:
        part = {"annotations": dict(notes), "volumes": [{"name": "keys", "emptyDir": {}}]}
        side = {"spec": {component: {**part, "containers": [{"name": "side", "image": "side:1"}]}}}
        return {**NAMED, "service": merged(NAMED["service"], side)}

    def bare(text: str) -> str:
        text = re.sub(rf'"{re.escape(note)}": "[^"]*"(, )?', "", text).replace(", }", "}")
        return re.sub(r'"annotations": \{\}, ', "", text)

    before, after = having(asked), having({**asked, note: value})
    found = bare(readings.first_plan(before)) != bare(readings.first_plan(after))
    assert found != (f"annotation {note} of spec.{component} has no effect" in advice("service", after))
    assert found == (note in READ_ON_PODS[component])


@pytest.mark.parametrize("name", sorted(NOTES.keys() - {"InferenceService", "pods"}))
def test_annotations_of_models_and_runtimes_are_reported(name: str) -> None:
    part, looks = PARTS[name]
    for note, value in NOTES[name].items():
        written = {**looks[0][0], part: merged(looks[0][0][part], {"metadata": {"annotations": {note: value}}})}
        assert f"annotation {note} has no effect" in advice(part, written)


def test_misspelled_annotation_is_reported() -> None:
    notes = {"metadata": {"annotations": {"ome.io/autoscalerclass": "keda", "example.com/owner": "me"}}}
    said = advice("service", {**NAMED, "service": merged(NAMED["service"], notes)})
    assert said == "annotation ome.io/autoscalerclass has no effect"


def test_hints_exist_only_for_known_annotations() -> None:
    assert ANNOTATIONS.keys() - {note for notes in NOTES.values() for note in notes} == set()


def test_predictor_is_ignored_and_reported_if_current_fields_are_set() -> None:
    both = {"spec": {"engine": {}, "predictor": {"minReplicas": 2}, "model": {"name": "tiny"}, "runtime": {"name": "rt"}}}
    assert "spec.predictor has no effect" in advice("service", {**NAMED, "service": merged(NAMED["service"], both)})
