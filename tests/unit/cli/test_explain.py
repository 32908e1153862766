"""Tests of `ome explain runtime` with YAML files."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from ome_operator.cli.explain import app
from ome_operator.errors import QuestionUnanswered
from tests.support import parts

CONFIG = parts.ROOT / "config"
SERVICE = {
    "apiVersion": "ome.io/v1beta1",
    "kind": "InferenceService",
    "metadata": {"name": "kimi"},
    "spec": {"model": {"name": "kimi-k2-instruct"}, "engine": {}, "decoder": {}, "router": {}},
}


def said(tmp_path: Path, *files: Path, **spec: object) -> tuple[int, str]:
    """Return the exit code and the output for SERVICE with these fields replaced."""
    file = tmp_path / "isvc.yaml"
    file.write_text(yaml.safe_dump({**SERVICE, "spec": {**SERVICE["spec"], **spec}}))  # type: ignore[dict-item]
    arguments = ["runtime", "-f", str(file)] + [word for one in files for word in ("--files", str(one))]
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


def test_the_shipped_model_gets_a_shipped_runtime(tmp_path: Path) -> None:
    code, text = said(tmp_path, CONFIG / "models", CONFIG / "runtimes")
    assert code == 0
    assert "chosen   ClusterServingRuntime kimi-k2-pd-rt: weight × priority 2" in text


def test_explain_states_what_decides_between_equal_candidates(tmp_path: Path) -> None:
    model = tmp_path / "model.yaml"
    model.write_text(yaml.safe_dump(parts.model(name="own").dump()))
    config = {"runner": parts.container()}
    supports = [{"modelFormat": {"name": "safetensors"}, "autoSelect": True}]
    runtimes = [parts.runtime(name, supportedModelFormats=supports, engineConfig=config).dump() for name in ("b", "a")]
    runtimes.append(parts.runtime("c", supportedModelFormats=[{**supports[0], "priority": 0}], engineConfig=config).dump())
    (tmp_path / "runtimes.yaml").write_text(yaml.safe_dump_all(runtimes))
    code, text = said(
        tmp_path, model, tmp_path / "runtimes.yaml", model={"name": "own"}, engine={}, decoder=None, router=None
    )
    assert (code, "quantization not stated, treated as none" in text) == (0, True), text
    assert "chosen   ClusterServingRuntime a: weight × priority 1\n" in text
    assert (
        "fits     ClusterServingRuntime b: weight × priority 1, the same score as the chosen runtime, which is preferred"
        in text
    )
    assert "because its name is first in the alphabet\n" in text
    assert "fits     ClusterServingRuntime c: weight × priority 0\n" in text


def test_every_excluded_candidate_is_listed_with_its_rules(tmp_path: Path) -> None:
    small = tmp_path / "small.yaml"
    small.write_text(yaml.safe_dump(parts.runtime("small", supportedModelFormats=[{"name": "gguf"}]).dump()))
    code, text = said(tmp_path, CONFIG / "models", small)
    assert code == 1
    assert "excluded ClusterServingRuntime small\n           none of its supportedModelFormats has autoSelect: true" in text
    assert "           it has no engineConfig\n" in text
    assert "nothing fits" in text


def test_a_model_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    code, text = said(tmp_path, CONFIG / "runtimes")
    assert code == 1
    assert text.startswith("problem  BaseModelNotFound")


def test_serving_is_explained_like_its_inference_service(tmp_path: Path) -> None:
    file, small = tmp_path / "short.yaml", tmp_path / "small.yaml"
    short = {"apiVersion": "sglang.ai/v1", "kind": "Serving", "metadata": {"name": "s"}}
    file.write_text(yaml.safe_dump({**short, "spec": {"baseModel": "kimi-k2-instruct"}}))
    small.write_text(yaml.safe_dump(parts.runtime("small", supportedModelFormats=[{"name": "gguf"}]).dump()))
    models = ["runtime", "-f", str(file), "--files", str(CONFIG / "models"), "--files"]
    fits = CliRunner().invoke(app, [*models, str(CONFIG / "runtimes")])
    assert (fits.exit_code, "chosen   ClusterServingRuntime" in fits.output) == (0, True), fits.output
    none = CliRunner().invoke(app, [*models, str(small)])
    assert (none.exit_code, "excluded ClusterServingRuntime small" in none.output) == (1, True), none.output
    assert "problem" not in none.output, "the runtime defines the components"


def test_file_without_a_service_is_refused_with_a_remedy(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["runtime", "-f", str(CONFIG / "accelerators")])
    assert isinstance(result.exception, QuestionUnanswered)
    assert str(result.exception).endswith(
        "contains neither an InferenceService nor a Serving: name a file that contains such an object."
    )


REFUSED = {
    "an unknown field": ({"bogus": 1}, {}, r"spec\.bogus is not a field of spec of InferenceService: remove it"),
    "another version": ({}, {"apiVersion": "ome.io/v1"}, "write apiVersion: ome.io/v1beta1"),
    "the kind of another project": ({}, {"apiVersion": "serving.kserve.io/v1beta1"}, "has no kind InferenceService"),
    "an order of numbers": ({"engine": {"minReplicas": 2, "maxReplicas": 1}}, {}, "minReplicas is greater than maxReplicas"),
}
"""Changes of a service's spec and of its object, and the reason why a cluster would refuse it."""


@pytest.mark.parametrize(("spec", "body", "why"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("other", [False, True])
def test_explain_refuses_invalid_services_and_explains_the_others(
    spec: dict[str, Any], body: dict[str, Any], why: str, other: bool, tmp_path: Path
) -> None:
    """`ome explain runtime` refuses the same objects as `ome lint -f`, `ome render` and `ome diff`, and explains the other
    services in the file.
    """
    good = parts.read_documents(parts.ROOT / "config/samples/isvc/moonshotai/kimi-k2-pd.yaml")[1]
    bad = {**good, "metadata": {"name": "bad", "namespace": "x"}, "spec": {**good["spec"], **spec}, **body}
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([bad, good] if other else [bad]))
    done = CliRunner().invoke(app, ["runtime", "-f", str(file), "--files", str(CONFIG / "models"), "--files", str(CONFIG)])
    assert isinstance(done.exception, QuestionUnanswered) and re.search(why, str(done.exception)), done.exception
    assert ("chosen " in done.stdout) is other, done.stdout
