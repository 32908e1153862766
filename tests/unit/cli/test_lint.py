"""Tests of `ome lint`: exit codes, output formats, fixes and invalid input."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ome_operator.cli import manifests
from ome_operator.cli.app import app
from ome_operator.errors import QuestionUnanswered, UserError
from ome_operator.util.kubeyaml import documents_with_repeats
from tests.support import yamls
from tests.support.overlays import LINT, composed_file
from tests.support.parts import ROOT

ERROR, WARNING, NOTE = (
    composed_file(LINT / "corpus" / path)
    for path in ("flag-removed/deepep.yaml", "gpus-idle/half.yaml", "version-unknown/newer.yaml")
)


def run(*words: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["lint", *map(str, words)], input=stdin)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([ERROR], 2),
        ([WARNING], 0),
        ([WARNING, "--strict"], 1),
        ([ERROR, "--strict"], 2),
        ([NOTE, "--strict"], 0),
        ([ERROR, "--ignore", "flag-removed"], 0),
        ([ROOT / "config/runtimes/srt/kimi-k2-pd-rt.yaml", "--strict"], 0),
    ],
)
def test_lint_exit_code_depends_on_severity(words: list[object], code: int) -> None:
    assert run("-f", *words).exit_code == code


def test_file_that_is_also_in_the_catalog_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def read(text: str) -> Iterator[Any]:
        texts.append(text)
        return documents_with_repeats(text)

    monkeypatch.setattr(manifests, "documents_with_repeats", read)
    given = "../config/samples", ROOT / "config/runtimes/srt"
    monkeypatch.chdir(ROOT / "docs")
    assert run("-f", given[0], "-f", given[1], "--catalog", ROOT / "config").exit_code == 0
    assert sorted(texts) == sorted(file.read_text() for file in (ROOT / "config").rglob("*.yaml"))


def small(tmp_path: Path, gpus: int) -> Path:
    """Return the file of the catalog's runtime for Qwen3 235B with fewer GPUs, under another name."""
    text = (ROOT / "config/runtimes/srt/qwen3-235b-rt.yaml").read_text()
    for old, new in (
        ("--tp-size=8", f"--tp-size={gpus}"),
        ("gpu: 8", f"gpu: {gpus}"),
        ("name: qwen3-235b-rt", "name: mine"),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "runtime.yaml").write_text(text)
    return tmp_path / "runtime.yaml"


def test_runtime_without_model_is_checked_with_its_intended_model(tmp_path: Path) -> None:
    said = run("-f", small(tmp_path, 2))
    assert "from the catalog of ome (config/): ClusterBaseModel qwen3-235b-a22b-instruct" in said.stderr
    assert "error memory-short: a rank needs 219.7 GiB" in said.stdout
    model = (ROOT / "config/models/Qwen/Qwen3-30B-A3B-Instruct-2507.yaml").read_text()
    own = model.replace("name: qwen3-30b-a3b-instruct", "name: own").replace(
        "modelParameterSize: 30", "modelParameterSize: 230"
    )
    (tmp_path / "model.yaml").write_text(own)
    assert (told := run("-f", tmp_path)).stdout == "no findings\n" and "ClusterBaseModel" not in told.stderr


def test_named_accelerator_class_determines_the_memory_check(tmp_path: Path) -> None:
    file = small(tmp_path, 4)
    for words, errors in ([], 0), (["--accelerator=nvidia-h200"], 0), (["--accelerator=nvidia-h100"], 1):
        assert run("-f", file, *words).stdout.count("error memory-short") == errors, words
    refused = run("-f", file, "--accelerator=amd-mi300x")
    assert isinstance(refused.exception, QuestionUnanswered)
    assert str(refused.exception) == (
        "--accelerator: no checked service or runtime runs on amd-mi300x: name one of nvidia-b200, nvidia-h100, nvidia-h20, "
        "nvidia-h200."
    )


@pytest.mark.parametrize("words", [["isvc.yaml"], ["-f", ERROR, "isvc.yaml"], ["config/isvc.json", "-n", "a"]])
def test_file_name_in_place_of_a_service_is_reported(words: list[object]) -> None:
    refused = run(*words).exception
    assert isinstance(refused, QuestionUnanswered) and "is the name of a file, not of a service: `ome lint -f" in str(
        refused
    )


def test_lint_prints_findings_as_text() -> None:
    said = run("-f", ERROR).stdout
    assert "error flag-removed: sglang 0.5.23 has no flag --enable-deepep-moe" in said
    assert "ClusterServingRuntime broken: spec.engineConfig.runner.args  (service lint/broken)" in said
    assert "Write --moe-a2a-backend deepep." in said and "docs/rules.md#flag-removed" in said
    assert said.endswith("1 error, 0 warnings, 0 notes\n")
    assert run("-f", ROOT / "config/samples/isvc/moonshotai/kimi-k2-pd.yaml").stdout == "no findings\n"


def test_each_part_of_a_finding_has_a_label() -> None:
    parts = [line.split(":")[0].strip() for line in run("-f", ERROR).stdout.splitlines() if line.startswith("  ")]
    assert parts == ["Where", "If ignored", "Fix", "More"]


def test_lint_writes_findings_as_json() -> None:
    (finding,) = json.loads(run("-f", ERROR, "-o", "json").stdout)
    assert finding["rule"] == "flag-removed" and finding["file"] == str(ERROR)
    assert ERROR.read_text().splitlines()[finding["line"] - 1].strip() == "- --enable-deepep-moe"
    assert finding["fix"] == {"old": "--enable-deepep-moe", "new": "--moe-a2a-backend=deepep"}


def test_lint_writes_sarif() -> None:
    log = json.loads(run("-f", ERROR, "-o", "sarif").stdout)
    assert log["version"] == "2.1.0"
    (ran,) = log["runs"]
    known = {rule["id"]: rule for rule in ran["tool"]["driver"]["rules"]}
    (result,) = ran["results"]
    assert result["level"] == known[result["ruleId"]]["defaultConfiguration"]["level"] == "error"
    where = result["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"] == str(ERROR) and where["region"]["startLine"] > 1


def test_fix_is_printed_as_a_diff() -> None:
    diff = run("-f", ERROR, "--fix").stdout
    assert "-        - --enable-deepep-moe\n+        - --moe-a2a-backend=deepep\n" in diff
    assert run("-f", WARNING, "--fix").stdout == "", "no replacement of a word fixes it"


def test_user_defined_engine_version_is_used(tmp_path: Path) -> None:
    assert "version-unknown" in run("-f", NOTE).stdout
    (tmp_path / "sglang-0.9.1.yaml").write_text("flags: {--model-path: value, --host: value, --port: value}\n")
    result = run("-f", NOTE, "--engine-data", tmp_path)
    assert "error flag-removed: sglang 0.9.1 has no flag --tp-size" in result.stdout and result.exit_code == 2
    (tmp_path / "sglang-0.9.1.yaml").write_text("flags: [")
    assert isinstance(error := run("-f", NOTE, "--engine-data", tmp_path).exception, QuestionUnanswered)
    assert "sglang-0.9.1" in str(error)
    assert isinstance(run("-f", NOTE, "--engine-data", tmp_path / "no").exception, QuestionUnanswered)


def test_control_characters_in_findings_are_escaped() -> None:
    hostile = ERROR.read_text().replace("- --enable-deepep-moe", '- "--x\\e[31m\\nforged"')
    said = run("-f", "-", stdin=hostile).stdout
    assert "\x1b" not in said and "\nforged" not in said and "␛[31m␤forged" in said


def test_lint_reports_unreadable_input_and_unknown_rule(tmp_path: Path) -> None:
    broken = tmp_path / "a.yaml"
    for text in ("[", "kind: InferenceService\nmetadata: 7\n", "", "- 1"):
        broken.write_text(text)
        assert run("-f", broken).exit_code == 2 or isinstance(run("-f", broken).exception, QuestionUnanswered), text
    assert isinstance(run("-f", tmp_path / "none.yaml").exception, QuestionUnanswered)
    assert run("-f", ERROR, "--ignore", "no-such-rule").exit_code == 2
    assert "error flag-removed" in run("-f", "-", stdin=ERROR.read_text()).stdout


def test_lint_without_a_catalog_needs_all_objects_in_the_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nothing(folder: str) -> Path:
        raise UserError(f"There is no {folder}")

    monkeypatch.setattr("ome_operator.cli.manifests.shipped_folder", nothing)
    monkeypatch.chdir(tmp_path)
    model = ROOT / "config/models/moonshotai/Kimi-K2-Instruct.yaml"
    assert "error flag-removed" in (said := run("-f", ERROR, "-f", model).stdout) and said.startswith("error flag-removed")
    assert "ClusterBaseModel kimi-k2-instruct is neither in these files nor in the catalog" in run("-f", ERROR).stdout
    assert isinstance(run("-f", ERROR, "--catalog", "config").exception, UserError), "a named object must exist"


def test_a_path_of_the_system_is_an_error_with_and_without_a_service(tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    model = (
        "apiVersion: ome.io/v1beta1\nkind: ClusterBaseModel\nmetadata: {name: acme}\n"
        "spec: {storage: {storageUri: hf://acme/moe, path: PATH}, modelFormat: {name: safetensors}}\n"
    )
    service = (
        "---\napiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: acme}\n"
        "spec: {model: {name: acme}, runtime: {name: qwen3-235b-rt}, engine: {}}\n"
    )
    for text in (model, model + service):
        file.write_text(text.replace("PATH", "/etc"))
        found = run("-f", file)
        assert found.exit_code == 2 and found.stdout.count("spec.storage.path of ClusterBaseModel acme is /etc") == 1
    file.write_text(model.replace("PATH", "/mnt/models/acme"))
    assert run("-f", file).exit_code == 0


@pytest.mark.parametrize("runner", [{"a": 1}, {"name": "x"}, {"image": ""}, {"image": None}, {"image": 3}, {"args": ["x"]}])
@pytest.mark.parametrize("where", ["engineConfig", "decoderConfig", "routerConfig"])
def test_a_runner_without_an_image_is_a_finding(runner: dict[str, Any], where: str, tmp_path: Path) -> None:
    parts = {"engineConfig": "engine", "decoderConfig": "decoder", "routerConfig": "router"}
    box = {"name": "ome-container", "image": "engine:1", "args": ["--port=30000"]}
    runtime = yamls.runtime("rt", router=False)
    runtime["spec"] |= {**{name: {"runner": box} for name in parts}, where: {"runner": runner}}
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([yamls.model(), runtime, yamls.service("team", "svc", "rt", *parts.values())]))
    done = CliRunner().invoke(app, ["lint", "-f", str(file), "-o", "json"])
    assert done.exit_code == 2, done.exception
    assert any("image" in each["says"] for each in json.loads(done.stdout)), done.stdout
