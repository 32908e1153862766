"""Tests that every command that reads files reports what a cluster would refuse, before the files are applied."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from typer.testing import CliRunner, Result

from ome_operator.api import crds, invalid, strict
from ome_operator.api.base import Spec
from ome_operator.api.kinds import KINDS
from ome_operator.cli.app import app
from ome_operator.cli.gate import FileRefusal
from ome_operator.cli.manifests import read_files
from ome_operator.errors import QuestionUnanswered
from ome_operator.lint import files as rules
from tests.support import bounds, pod_fields, yamls

MODEL, RUNTIME = yamls.model("tiny", "hf://test/tiny"), yamls.runtime("rt", gpus=1)
FINE = yamls.service("team", "svc", "rt")


def written(tmp_path: Path, *bodies: dict[str, Any], text: str = "") -> Path:
    file = tmp_path / "a.yaml"
    file.write_text(text + yaml.safe_dump_all(bodies))
    return file


def refused(tmp_path: Path, *bodies: dict[str, Any], text: str = "") -> tuple[FileRefusal, ...]:
    return read_files([written(tmp_path, *bodies, text=text)], "default").refused


def edited(**spec: Any) -> dict[str, Any]:
    return {**FINE, "spec": {**FINE["spec"], **spec}}


def variable(**source: Any) -> dict[str, Any]:
    """Return an engine with a variable whose value comes from this source."""
    return {"runner": {"env": [{"name": "HF_TOKEN", "valueFrom": source}]}}


mounted = {"volumes": [{"name": "s", "secret": {"name": "token"}}]}
CASES: dict[str, tuple[tuple[dict[str, Any], ...], str, str]] = {
    "replicas": ((edited(engine={"replicas": 2}),), "pod-field-unknown", "write minReplicas and maxReplicas"),
    "case": ((edited(engine={"minreplicas": 3}),), "pod-field-unknown", "write minReplicas"),
    "a container's field": ((edited(engine={"args": ["--tp-size=8"]}),), "pod-field-unknown", "write runner.args"),
    "in a worker": ((edited(engine={"worker": {"size": 1, "image": "x"}}),), "pod-field-unknown", "write runner.image"),
    "a role": ((edited(prefill={}),), "object-refused", "write engine"),
    "a short role": ((edited(decode={}),), "object-refused", "write decoder"),
    "deep": ((edited(engine={"runner": {"env": [{"nam": "A"}]}}),), "pod-field-unknown", "write name"),
    "a word in full": ((edited(engine={"runner": {"environment": []}}),), "pod-field-unknown", "write env"),
    "a misspelled word in full": ((edited(engine={"runner": {"enviroment": []}}),), "pod-field-unknown", "write env"),
    "a third word": ((edited(engine={"leader": {"runner": {"argumens": []}}}),), "pod-field-unknown", "write args"),
    "leader": ((edited(engine={"leader": {"runner": {"imag": "x"}}}),), "pod-field-unknown", "write image"),
    "runtime in model": (
        (edited(model={"name": "tiny", "runtime": {"name": "rt"}}),), "object-refused", "move it to spec, with less"
    ),
    "a component without spare groups": (
        (edited(scalingPolicy={"demand": {"timeToFirstToken": "3s", "timeBetweenTokens": "50ms", "spare": {"router": 1}}}),),
        "object-refused",
        "remove it",
    ),
    "name alone": ((edited(model="tiny"),), "object-refused", "write {name: tiny}"),
    "a colon in the value": ((edited(runtime=[{"name": "rt"}]),), "object-refused", "write a map of keys and values"),
    "rule": ((edited(engine={"minReplicas": 3, "maxReplicas": 2}),), "object-refused", "lower minReplicas or raise"),
    "protocol": ((edited(model={"name": "tiny", "protocolVersion": "v2"}),), "object-refused", "remove it"),
    "type": ((edited(engine={"minReplicas": "2"}),), "object-refused", "write a whole number without quotes"),
    "uri": ((yamls.model("m", "s3:/bucket/x"),), "object-refused", "start it with one of"),
    "metadata": (({**FINE, "metadata": {**FINE["metadata"], "lables": {}}},), "object-refused", "write labels"),
    "label": (({**FINE, "metadata": {**FINE["metadata"], "labels": {"a": "b c"}}},), "object-refused", "write at most 63"),
    "version": (({**FINE, "apiVersion": "ome.io/v1alpha1"},), "kind-unknown", "write apiVersion: ome.io/v1beta1"),
    "kind": (({**FINE, "kind": "InferenceServices"},), "kind-unknown", "write kind: InferenceService"),
    "kserve": (({**FINE, "apiVersion": "serving.kserve.io/v1beta1"},), "kind-unknown", "write apiVersion: ome.io/v1beta1, "),
    "twice": ((FINE, edited(engine={"minReplicas": 2})), "object-twice", "keep one of the two"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_invalid_object_is_refused_with_rule_and_remedy(case: str, tmp_path: Path) -> None:
    bodies, rule, remedy = CASES[case]
    (found,) = refused(tmp_path, MODEL, RUNTIME, *bodies)
    assert found.rule == rule and found.remedy.startswith(remedy), found


def test_refusal_message_states_the_reason(tmp_path: Path) -> None:
    (found,) = refused(tmp_path, MODEL, RUNTIME, edited(engine={"minReplicas": 3, "maxReplicas": 2}))
    assert found.says == "spec.engine is refused, because minReplicas is greater than maxReplicas"


def test_every_class_that_a_name_may_stand_for_is_listed() -> None:
    """Where a map with a name is required, users often write only the name, and the message then proposes the map.
    `invalid.NAMED` must list every class with a field `name` that is the type of a field itself, and not of the items of a
    list.
    """
    alone = {
        inner.__name__
        for kind in KINDS
        for spec in below(kind.spec)
        for field in spec.model_fields.values()
        for inner in strict._alternatives(field.annotation)
        if isinstance(inner, type) and issubclass(inner, Spec) and "name" in inner.model_fields
    }
    assert alone == invalid.NAMED


def below(spec: type[Spec]) -> Iterator[type[Spec]]:
    """Yield a class and all classes of its fields, including those in lists and maps."""
    found, left = {spec}, [spec]
    while left:
        types = [field.annotation for field in left.pop().model_fields.values()]
        while types:
            one = types.pop()
            if isinstance(one, type) and issubclass(one, Spec):
                left += [one] if one not in found else []
                found.add(one)
            else:
                types += get_args(one)
    yield from found


def test_map_in_place_of_a_list_is_one_finding(tmp_path: Path) -> None:
    env = edited(engine={"runner": {"env": {"HF_TOKEN": "abc"}}})
    assert refused(tmp_path, MODEL, RUNTIME, env) == ()
    said = run("lint", "-f", written(tmp_path, MODEL, RUNTIME, env)).stdout
    assert "error refused: spec.engine.runner.env must be a list of maps, each with a name." in said
    assert "Where:       InferenceService team/svc: spec.engine.runner.env" in said
    assert "Fix:         Write a list such as [{name: A}]" in said


@pytest.mark.parametrize(
    ("bodies", "rules_found", "text"),
    [
        ((RUNTIME, yamls.model("tiny", "https://x/y"), FINE), ["object-refused"], "Start it with one of hf://"),
        (
            (RUNTIME, MODEL, edited(model={"name": "tiny", "kind": "BaseModel"}, runtime=None)),
            ["refused"],
            "ClusterBaseModel",
        ),
        ((MODEL, edited(engine=None, runtime=None, router={})), ["refused"], "Add `engine: {}`"),
        (
            (
                RUNTIME,
                {**MODEL, "kind": "BaseModel", "metadata": {"name": "other", "namespace": "elsewhere"}},
                edited(model={"name": "other"}),
            ),
            ["refused"],
            "BaseModel other is in namespace elsewhere, and a service reads only its own namespace",
        ),
        ((RUNTIME, MODEL, edited(model=None, modelName="tiny")), ["object-refused"], "write spec.model.name"),
        ((RUNTIME, MODEL, edited(model=None, modle={"name": "tiny"})), ["object-refused"], "write model"),
        ((RUNTIME, MODEL, edited(model={"modelName": "tiny"})), ["object-refused"], "write name"),
        ((RUNTIME, MODEL, edited(engine=None, engines={})), ["object-refused"], "write engine"),
        ((RUNTIME, MODEL, edited(engine=None, runtime=None, prefill={})), ["object-refused"], "write engine"),
        ((RUNTIME, MODEL, edited(engine=None, model={"name": "tiny", "engine": {}})), ["object-refused"], "move it to spec"),
        ((RUNTIME, MODEL, edited(engine=variable(secretRef={"name": "s"}))), ["pod-field-unknown"], "write secretKeyRef"),
        (
            (RUNTIME, MODEL, edited(engine=variable(secretKeyRef={"secretName": "s", "key": "k"}))),
            ["pod-field-unknown"],
            "name",
        ),
        ((RUNTIME, MODEL, edited(engine=mounted)), ["pod-field-unknown"], "write secretName"),
        (
            (RUNTIME, MODEL, edited(engine={"runner": {"ports": [{"port": 1}]}})),
            ["pod-field-unknown"],
            "write containerPort",
        ),
        ((RUNTIME, MODEL, edited(engine=variable(secretKeyRef={"name": "s", "key": "k"}))), [], ""),
    ],
    ids=[
        "model refused",
        "kind",
        "no engine",
        "namespace",
        "elsewhere",
        "misspelled",
        "in full",
        "plural",
        "role",
        "indented",
        "secret of a variable",
        "name of a secret",
        "secret of a volume",
        "port",
        "a right secret",
    ],
)
def test_one_cause_gives_one_error(bodies: tuple[Any, ...], rules_found: list[str], text: str, tmp_path: Path) -> None:
    said = run("lint", "-f", written(tmp_path, *bodies), "-o", "json").stdout
    found = [each for each in json.loads(said) if each["severity"] == "error"]
    assert [each["rule"] for each in found] == rules_found
    assert not text or text.lower() in found[0]["remedy"].lower()


def test_render_gives_one_message_per_cause(tmp_path: Path) -> None:
    found = run("render", "-f", written(tmp_path, RUNTIME, MODEL, edited(model=None, modelName="tiny")))
    assert "write spec.model.name instead" in found.stderr and "spec.model is missing" not in found.stderr


def renamed() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an object for each required field of each kind, in which the last letter of the field's name is doubled."""

    def below(schema: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
        yield from ((path, name) for name in schema.get("required", ()))
        for name, inner in schema.get("properties", {}).items():
            yield from below(inner, (*path, name))

    for kind in KINDS:
        schema = crds.crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for path, name in below(schema, ()):
            inner = schema
            for part in path:
                inner = inner["properties"][part]
            fine = bounds.sample(inner)
            value = {(f"{key}{key[-1]}" if key == name else key): each for key, each in fine.items()}
            spec = bounds.placed(bounds.sample(schema), path, value, schema)
            about = {"name": "a", **({"namespace": "team"} if kind.namespaced else {})}
            body = {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind, "metadata": about, "spec": spec}
            yield f"{kind.kind} {'.'.join(map(str, path))} {name}", body


def test_misspelled_required_field_is_one_error(tmp_path: Path) -> None:
    """A required field whose name is misspelled causes one error about the spelling, and no second error that the field is
    missing.
    """
    found = {case: refused(tmp_path, body) for case, body in renamed()}
    named = {case: parts for case, parts in found.items() if any(part.remedy.startswith("write ") for part in parts)}
    assert len(found) > 30 and len(named) > len(found) * 0.9
    assert {case: parts for case, parts in named.items() if any("is missing" in part.says for part in parts)} == {}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("metadata: {name: {{ .Release.Name }}, namespace: a}", "pass the output of `helm template` instead."),
        ("metadata: {name: a, namespace: ${NAMESPACE}}", "pass the output of `envsubst` instead."),
        ("metadata:\n\tname: a", "use spaces."),
    ],
)
def test_file_of_another_format_is_recognized(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"apiVersion: ome.io/v1beta1\nkind: InferenceService\n{line}\n")
    refused = str(run("lint", "-f", tmp_path / "a.yaml").exception)
    assert refused.endswith(says) and "in line " in refused and "<unicode string>" not in refused


def test_every_file_rule_has_a_test_case() -> None:
    assert {rule for _, rule, _ in CASES.values()} | {"key-twice"} == {rule.id for rule in rules.RULES}


def test_duplicate_yaml_key_is_refused(tmp_path: Path) -> None:
    text = "apiVersion: ome.io/v1beta1\nkind: BaseModel\nmetadata: {name: m}\nspec:\n  storage: {storageUri: 'hf://a/b'}\n"
    (found,) = refused(tmp_path, text=f"{text}  vendor: a\n  vendor: b\n---\n")
    assert (found.rule, found.object, found.field) == ("key-twice", "BaseModel default/m", "vendor")
    assert found.says.startswith("vendor is given twice in one map, in lines 6 and 7 of ")
    anchors = f"{text}  modelFormat: &f {{name: x}}\n  modelFramework: {{<<: *f, name: y}}\n---\n"
    assert refused(tmp_path, text=anchors) == ()


def test_valid_objects_are_not_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, MODEL, RUNTIME, FINE, {**FINE, "metadata": {"name": "svc", "namespace": "other"}}) == ()
    file = written(tmp_path, FINE)
    assert read_files([file, tmp_path, file], "default").refused == (), "a file that is named twice is read once"


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_unchecked_objects_are_named(tmp_path: Path) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    file = written(
        tmp_path, MODEL, RUNTIME, FINE, other, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
    )
    for command in ("lint", "render"):
        said = run(command, "-f", file)
        assert f"not checked: ConfigMap c in {file}" in said.stderr and "Namespace" not in said.stderr
    alone = written(tmp_path, other)
    for command in ("lint", "render"):
        said = run(command, "-f", alone)
        assert isinstance(said.exception, QuestionUnanswered) and "there is only ConfigMap c in" in str(said.exception)


@pytest.mark.parametrize("case", CASES)
def test_lint_and_render_end_with_an_error(case: str, tmp_path: Path) -> None:
    bodies, rule, _ = CASES[case]
    file = written(tmp_path, MODEL, RUNTIME, *bodies)
    said = run("lint", "-f", file)
    assert said.exit_code == 2 and f"error {rule}: " in said.stdout
    rendered = run("render", "-f", file)
    assert rendered.exit_code == 1 and "kind: StatefulSet" not in rendered.stdout


def test_model_without_a_service_is_checked(tmp_path: Path) -> None:
    assert run("lint", "-f", written(tmp_path, MODEL)).stdout == "no findings\n"


def test_pod_fields_equal_those_of_the_kubernetes_package() -> None:
    assert pod_fields.FILE.read_text() == pod_fields.text(), "see `python -m tests.support.pod_fields`"
