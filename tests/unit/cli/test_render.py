"""Tests of `ome render`, which makes manifests from files, without a cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ome_operator import keys
from ome_operator.cli.app import app
from ome_operator.core.compile_caches import AGENT_VOLUME
from ome_operator.core.observed.managed_fields import digest
from ome_operator.errors import QuestionUnanswered
from ome_operator.settings.policy import ENABLE_COMPILE_CACHES
from tests.support import parts, yamls

CONFIG = parts.ROOT / "config"
SAMPLE = CONFIG / "samples/isvc/moonshotai/kimi-k2-pd.yaml"


def run(*words: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["render", *map(str, words)], input=stdin)


def objects(result: Result) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(result.stdout) if one]


def test_render_outputs_all_objects_that_the_operator_would_write() -> None:
    result = run("-f", SAMPLE, "--catalog", CONFIG, "--sidecar-image", "r.example.com/op:1")
    assert result.exit_code == 0, result.output
    found = objects(result)
    kinds = [one["kind"] for one in found]
    assert (len(found), kinds.count("StatefulSet"), kinds.count("Service")) == (17, 4, 5)
    assert all(one["metadata"]["annotations"][keys.HASH] == digest(one) for one in found)
    (router,) = [one for one in found if one["kind"] == "Deployment"]
    assert [box["image"] for box in router["spec"]["template"]["spec"]["initContainers"]] == ["r.example.com/op:1"]


def test_operator_settings_are_options_of_render() -> None:
    result = run("-f", SAMPLE, "--catalog", CONFIG, "--model-agent")
    (router,) = [one for one in objects(result) if one["kind"] == "Deployment"]
    assert "initContainers" not in router["spec"]["template"]["spec"]
    (stored,) = [one for one in objects(result) if one["kind"] == "ControllerRevision"]
    assert stored["data"]["directories"]


def test_compile_caches_are_rendered_with_the_operators_options() -> None:
    """With the options of an operator that keeps compile caches, the engine whose image has a digest gets one. Without them,
    a note names the settings.
    """
    case = parts.ROOT / "tests/golden/compile-cache/in.yaml"

    def cached(result: Result) -> list[tuple[str, str]]:
        """Return the StatefulSets whose pods copy a compile cache, each with the directory of the node that they mount."""
        return [
            (one["metadata"]["name"], volume["hostPath"]["path"])
            for one in objects(result)
            if one["kind"] == "StatefulSet"
            for volume in one["spec"]["template"]["spec"]["volumes"]
            if volume["name"] == AGENT_VOLUME
        ]

    with_caches = run("-f", case, "--model-agent", "--compile-caches", "--agent-root=/raid")
    assert with_caches.exit_code == 0, with_caches.output
    assert {name.split("-engine")[0] for name, _ in cached(with_caches)} == {"cached"} and len(cached(with_caches)) == 2
    assert {path[: path.rindex("/")] for _, path in cached(with_caches)} == {"/raid/.namespaces/team/.compile"}
    assert "decoder: annotation ome.io/compile-cache has no effect: image engine:1 has no digest" in with_caches.stderr
    for options in ((), ("--model-agent",), ("--compile-caches",)):
        without = run("-f", case, *options)
        assert (without.exit_code, cached(without)) == (0, [])
        assert f"annotation {keys.COMPILE_CACHE} has no effect: {ENABLE_COMPILE_CACHES}" in without.stderr


def test_namespaced_models_are_rendered_below_the_agent_roots() -> None:
    model = yamls.model()
    model |= {"kind": "BaseModel", "metadata": {"name": "tiny", "namespace": "team"}}
    model["spec"]["storage"]["path"] = "/raid/org/tiny"
    service = yamls.service("team", "s", "rt", "engine")
    service["spec"]["model"]["kind"] = "BaseModel"
    texts = [yaml.safe_dump(body) for body in (model, service, yamls.runtime("rt", router=False))]
    result = run("-f", "-", "--model-agent", "--agent-root=/raid/", stdin="\n---\n".join(texts))
    (stored,) = [one for one in objects(result) if one["kind"] == "ControllerRevision"]
    assert [place.rpartition("/")[0] for place in stored["data"]["directories"]] == ["/raid/.namespaces/team/.ome"]


def test_render_reads_stdin_and_writes_json() -> None:
    texts = [SAMPLE, CONFIG / "models/moonshotai/Kimi-K2-Instruct.yaml", CONFIG / "runtimes/srt/kimi-k2-pd-rt.yaml"]
    result = run("-f", "-", "-o", "json", stdin="\n---\n".join(text.read_text() for text in texts))
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)["items"]) == 17


def test_missing_references_are_reported_with_exit_code_1(tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump(yamls.service("team", "svc", "none", model="nothing")))
    result = run("-f", file)
    assert (result.exit_code, objects(result)) == (1, [])
    for line, (kind, name, part) in zip(
        result.stderr.splitlines(),
        (("ClusterBaseModel", "nothing", "model"), ("ClusterServingRuntime", "none", "runtime")),
        strict=True,
    ):
        assert line == (
            f"team/svc: {kind} {name} is neither in these files nor in the catalog of ome (config/): add -f with its file, "
            f"or fix spec.{part}.name; if it is on your cluster, `ome diff -f` with the same files finds it there"
        )


def test_shipped_catalog_is_read_and_named() -> None:
    result = run("-f", SAMPLE)
    assert result.exit_code == 0 and objects(result)
    assert result.stderr.splitlines()[0] == (
        "from the catalog of ome (config/): ClusterBaseModel kimi-k2-instruct, ClusterServingRuntime kimi-k2-pd-rt"
    )


def test_invalid_service_does_not_hide_the_others(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    fine, broken = yamls.service("team", "fine", "rt"), yamls.service("team", "broken", "rt")
    broken["spec"]["engine"] = {"minReplicas": "two"}
    file.write_text(yaml.safe_dump_all([fine, broken, yamls.model(), yamls.runtime("rt")]))
    result = run("-f", file)
    assert result.exit_code == 1
    assert {one["metadata"]["labels"][keys.SERVICE] for one in objects(result)} == {"fine"}
    assert (
        result.stderr
        == 'InferenceService team/broken: spec.engine.minReplicas is "two": write a whole number without quotes\n'
    )


def test_service_with_refused_arguments_is_not_rendered(tmp_path: Path) -> None:
    """A service with an argument with which the engine would exit is not rendered. The message on stderr is one sentence
    with the field and the fix, and stdout stays empty. Another service in the files is rendered.
    """
    runner = {"name": "ome-container", "image": "docker.io/lmsysorg/sglang:v0.5.23", "args": ["--tp-sise=8"]}
    runner |= {"command": ["sglang", "serve", "--model-path=/model"], "resources": {"limits": {"nvidia.com/gpu": 8}}}
    wrong = yamls.runtime("wrong") | {"spec": {"engineConfig": {"runner": runner}}}
    bodies = [yamls.model("tiny"), wrong, yamls.service("team", "svc", "wrong", "engine")]
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump_all(bodies))
    told = run("-f", file)
    assert (told.stdout, told.exit_code) == ("", 1)
    (said,) = [line for line in told.stderr.splitlines() if "--tp-sise" in line]
    assert said.startswith("team/svc: the engine would exit at once with these arguments")
    assert "write --tp-size (ClusterServingRuntime wrong: spec.engineConfig.runner.args)" in said
    bodies += [yamls.runtime("rt", gpus=1), yamls.service("team", "fine", "rt", "engine")]
    file.write_text(yaml.safe_dump_all(bodies))
    assert {each["metadata"]["labels"][keys.SERVICE] for each in objects(run("-f", file))} == {"fine"}


def test_serving_is_rendered_with_the_objects_made_from_it(tmp_path: Path) -> None:
    file = tmp_path / "short.yaml"
    short = {"apiVersion": "sglang.ai/v1", "kind": "Serving", "metadata": {"name": "s"}}
    file.write_text(yaml.safe_dump({**short, "spec": {"baseModel": "kimi-k2-instruct"}}))
    found = objects(run("-f", file, "-n", "team", "--catalog", CONFIG))
    assert [one["metadata"]["namespace"] for one in found if one["kind"] == "InferenceService"] == ["team"]
    assert any(one["kind"] == "StatefulSet" for one in found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "cannot be read"),
        ("kind: ConfigMap", "no object of this operator: there is only ConfigMap in"),
        ("apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: 5", "metadata.name is missing in an object of"),
    ],
)
def test_invalid_file_gives_a_one_line_error(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    result = run("-f", file)
    assert isinstance(result.exception, QuestionUnanswered) and words in str(result.exception)
    assert result.exception.exit_code == 2


HEAD = "apiVersion: ome.io/v1beta1\nkind: InferenceService\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("metadata: {name: 5}", "metadata.name is 5 in an object of kind InferenceService: put quotes around it."),
        ("metadata: {name: a, namespace: -1}", "metadata.namespace is -1 in an object of kind InferenceService: put quotes"),
        ("metadata: {name: a, namespace: [x]}", 'metadata.namespace is ["x"] in an object of kind InferenceService: write'),
        ("metadata: {name: a, labels: 5}", "metadata.labels of InferenceService a is 5: write a map of keys and values."),
        (
            "metadata: {name: a, labels: {1: x}}",
            "metadata.labels has the key 1, which is not a string: put quotes around it.",
        ),
        (
            "metadata: {name: a}\nspec: {engine: {5: x}}",
            "spec.engine has the key 5, which is not a string: put quotes around it",
        ),
        ("metadata: {name: a}\nspec: {engine: {x: [{true: y, a: z}]}}", "spec.engine.x[0] has the key true, which is no"),
        ("metadata: {name: a}\nspec: &a {engine: *a}", "has more than 500000 values: remove YAML aliases"),
        ("metadata: {name: a}\nspec: " + "[" * 150 + "]" * 150, "nests lists and maps more than 100 levels deep: use few"),
        ("metadata: {name: a}\nspec: {x: !!set {a}}", "Kubernetes does not support !!set"),
    ],
)
def test_yaml_that_no_server_accepts_is_refused_with_the_file_name(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(HEAD + text)
    result = run("-f", file)
    assert isinstance(result.exception, QuestionUnanswered) and words in str(result.exception)
    assert str(result.exception).startswith(str(file))


def test_dates_are_strings_and_invalid_server_fields_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    extra = {"uid": ["x"], "generation": "x", "ownerReferences": 5, "managedFields": "x", "resourceVersion": {}}
    dated = yamls.service("team", "svc", "rt", engine={"runner": {"name": "main", "env": [{"name": "A", "value": "DAY"}]}})
    bodies = [dated, yamls.model(), yamls.runtime("rt")]
    for one in bodies:
        one["metadata"] |= extra
    file.write_text(yaml.safe_dump_all(bodies).replace("DAY", "2024-01-01"))
    result = run("-f", file)
    assert result.exit_code == 0, result.output
    pods = [one["spec"]["template"]["spec"] for one in objects(result) if one["kind"] == "StatefulSet"]
    assert {"name": "A", "value": "2024-01-01"} in [env for pod in pods for box in pod["containers"] for env in box["env"]]


def of_groups(number: int, place: Path, *args: str) -> Path:
    """Return a file with a service of this number of groups, and its model and runtime, whose engine has these arguments."""
    box = {"name": "ome-container", "image": "lmsysorg/sglang:v0.5.23", "command": ["python3", "-m", "sglang.launch_server"]}
    box |= {"args": ["--model-path=$(MODEL_PATH)", *args], "resources": {"limits": {"nvidia.com/gpu": 1}}}
    runtime, service = yamls.runtime("rt", router=False), yamls.service("team", "svc", "rt", "engine")
    runtime["spec"]["engineConfig"], service["spec"]["engine"] = {"runner": box}, {"minReplicas": number}
    file = place / f"{number}.yaml"
    file.write_text(yaml.safe_dump_all([service, runtime, yamls.model()]))
    return file


def test_service_scaled_to_zero_is_rendered_without_statefulsets(tmp_path: Path) -> None:
    results = [run("-f", of_groups(number, tmp_path)) for number in (0, 1)]
    assert [result.exit_code for result in results] == [0, 0]
    asleep, awake = ([one["kind"] for one in objects(result)] for result in results)
    assert asleep == [kind for kind in awake if kind != "StatefulSet"] != awake


def test_service_scaled_to_zero_has_the_same_findings(tmp_path: Path) -> None:
    words = [["lint", "-f", str(of_groups(number, tmp_path, "--no-such-flag")), "-o", "json"] for number in (0, 1)]
    asleep, awake = ([each["rule"] for each in json.loads(CliRunner().invoke(app, each).stdout)] for each in words)
    assert asleep == awake and "flag-unknown" in asleep


def test_model_in_another_namespace_is_reported(tmp_path: Path) -> None:
    """If the model of a service is a BaseModel of another namespace, `ome render` says so with the same sentence as `ome
    lint`.
    """
    model = {**yamls.model(), "kind": "BaseModel", "metadata": {"name": "tiny", "namespace": "other"}}
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([yamls.service("team", "svc", "rt", "engine"), yamls.runtime("rt"), model]))
    words = "BaseModel tiny is in namespace other, and a service reads only its own namespace"
    assert words in run("-f", file).stderr
    assert words in CliRunner().invoke(app, ["lint", "-f", str(file)]).stdout.replace("\n", " ")
