"""Tests of `ome generate --from`, which writes three files for a model that has no recipe."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ome_operator.api import Facts, Model, Runtime
from ome_operator.cli import generate_from
from ome_operator.cli.generate import app
from ome_operator.core.selection.match import violations
from ome_operator.core.selection.model_profile import profile_of
from ome_operator.errors import UserError
from tests.support.fake_api import FakeApi
from tests.support.linting import found, grave
from tests.support.parts import ensure_valid
from tests.unit.modelinfo import configs

OLMOE = {
    "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "vocab_size": 269, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 64, "num_experts": 8,
    "num_experts_per_tok": 2, "max_position_embeddings": 2048,
}  # fmt: skip


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def told(done: Result) -> str:
    """Return the message with which the command ended, on one line."""
    text = done.stderr + (str(done.exception) if done.exception else "")
    return " ".join(text.replace("│", " ").split())


def folder(place: Path, config: dict[str, Any], weights: int = 0) -> Path:
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(config))
    if weights:
        (place / "model.safetensors").write_bytes(bytes(weights))
    return place


def written(text: str) -> list[dict[str, Any]]:
    return [body for body in yaml.safe_load_all(text) if body["apiVersion"].startswith("ome.io")]


@pytest.mark.parametrize(
    ("config", "weights", "tp"),
    [(configs.GPT_OSS_20B, 0, "8"), (configs.GLM_45_AIR, 0, "8"), (configs.LLAMA_31_8B, 0, "8"), (OLMOE, 500_000, "4")],
)
def test_generated_files_for_a_model_directory_have_no_findings(
    config: dict[str, Any], weights: int, tp: str, tmp_path: Path
) -> None:
    """A directory with a model's files becomes three objects without a finding of `ome lint`. In the last case, the
    parameters of the model's family are not counted, so the size of the model is the size of its files. This model has four
    attention heads.
    """
    place = folder(tmp_path / "My-Model", config, weights)
    said = run("--from", str(place), "--hardware", "h200", "-o", "yaml")
    assert said.exit_code == 0, told(said)
    model, runtime, service = written(said.stdout)
    assert model["spec"]["storage"] == {"storageUri": f"local://{place}", "path": str(place)}
    assert model["spec"]["modelArchitecture"] == config["architectures"][0]
    assert f"--tp={tp}" in runtime["spec"]["engineConfig"]["runner"]["args"]
    assert (service["spec"]["model"]["name"], service["spec"]["runtime"]["name"]) == (
        model["metadata"]["name"],
        runtime["metadata"]["name"],
    )
    rules = violations(ensure_valid(Runtime.parse(runtime)), profile_of(ensure_valid(Model.parse(model))), chosen=False)
    assert rules == (), "the runtime requires only what the model states"
    assert grave(found([model, runtime, service], whole=False)) == []


CODE = {"auto_map": {"AutoConfig": "configuration_mine.MyConfig"}}
ENGINES = {
    "sglang": ("tp", "--trust-remote-code"),
    "vllm": ("tp", "--trust-remote-code"),
    "tensorrt-llm": ("tp+ep", "--trust_remote_code"),
}
"""Engine -> a strategy, and the flag that permits Python code of a model."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("place", ["config.json", "tokenizer_config.json", "processor_config.json", "vision_config", ""])
def test_python_code_of_a_model_is_named_and_enabled(engine: str, place: str, tmp_path: Path) -> None:
    """If a file of the model names Python code, the arguments permit it, and the user is told. Otherwise, no engine gets the
    permission.
    """
    strategy, flag = ENGINES[engine]
    inside: dict[str, Any] = {"config.json": CODE, "vision_config": {"vision_config": CODE}}
    more = inside.get(place, {})
    model = folder(tmp_path / "Mine", {**configs.QWEN3_30B, "quantization_config": {"quant_method": "fp8"}, **more})
    if place in ("tokenizer_config.json", "processor_config.json"):
        (model / place).write_text(json.dumps(CODE))
    said = run("--from", str(model), "--hardware", "h200", "--engine", engine, "--strategy", strategy, "-o", "yaml")
    assert said.exit_code == 0, told(said)
    _, runtime, _ = written(said.stdout)
    assert (flag in str(runtime)) is bool(place)
    assert ("name Python code that is stored with the weights (auto_map)" in told(said)) is bool(place)


def test_model_known_only_by_facts_gets_a_hint_about_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = Facts(architecture="NewForCausalLM", weight_bytes=80 * 2**30)
    monkeypatch.setattr(generate_from, "_on_the_cluster", lambda _: (learned, "/models/new"))
    said = run("--from", "org/New-Model", "--hardware", "h200", "-o", "yaml")
    assert said.exit_code == 0 and "--trust-remote-code" not in said.stdout
    assert "if the engine exits with `contains custom code`, add --trust-remote-code" in told(said)


def test_config_file_suffices_for_a_known_model_family(tmp_path: Path) -> None:
    file = folder(tmp_path / "Mine", configs.QWEN3_30B) / "config.json"
    said = run("--from", str(file), "--hardware", "h100", "--strategy", "tp+ep", "--tool-call-parser", "qwen25")
    assert said.exit_code == 0, told(said)
    assert "--tool-call-parser qwen25" in said.stdout


def test_generated_model_states_quantization_and_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generated model states its quantization and its repository. Its facts are those that an agent wrote into the
    status of a model with this URI.
    """
    learned = Facts(architecture="NewForCausalLM", weight_bytes=80 * 2**30, context_length=4096)
    asked: list[str] = []

    def on_the_cluster(uri: str) -> tuple[Facts, str]:
        asked.append(uri)
        return learned, "/models/new"

    monkeypatch.setattr(generate_from, "_on_the_cluster", on_the_cluster)
    own = generate_from.own_model("hf://org/New-Model")
    assert asked == ["hf://org/New-Model"]
    assert (own.title, own.path, own.facts) == ("New-Model", "/models/new", learned)
    assert generate_from.own_model("moonshotai/Kimi-K2-Instruct").facts.parameters == 1026408232448
    page = "https://huggingface.co/moonshotai/Kimi-K2-Instruct/"
    assert generate_from.own_model(page) == generate_from.own_model("moonshotai/Kimi-K2-Instruct")


def stored(kind: str, path: str, **storage: Any) -> dict[str, Any]:
    """Return a model in the cluster whose facts an agent has read."""
    place = {"namespace": "team"} if kind == "BaseModel" else {}
    spec = {"storage": {"storageUri": "hf://org/New-Model", "path": path, **storage}}
    facts = {"architecture": f"Of{kind}", "parameters": 8_000_000_000}
    return {"kind": kind, "metadata": {"name": "m", **place}, "spec": spec, "status": {"facts": facts}}


OTHER_HUB = {"parameters": {"endpoint": "https://hub.tenant.example"}}


@pytest.mark.parametrize(
    ("bodies", "known"),
    [
        ([stored("ClusterBaseModel", "/raid/new", **OTHER_HUB)], ("OfClusterBaseModel", "/raid/new")),
        ([stored("BaseModel", "/raid/chosen-by-a-tenant")], ("OfBaseModel", "")),
        ([stored("BaseModel", "/raid/x", **OTHER_HUB)], None),
        ([stored("BaseModel", "/raid/x", parameters={"filesFrom": "hf://tenant/other"})], None),
    ],
)
def test_namespaced_model_determines_neither_facts_nor_path(
    bodies: list[dict[str, Any]], known: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generated model is a ClusterBaseModel. A tenant's BaseModel never decides the path of the generated model. A
    BaseModel with an endpoint or `filesFrom` also provides no facts, because its files are not the files of the repository.
    """

    def on_cluster(_: object, __: object, work: Any, **___: object) -> Any:
        return asyncio.run(work(FakeApi({"list_objects": lambda call: [one for one in bodies if one["kind"] == call.kind]})))

    monkeypatch.setattr("ome_operator.cli.connect.on_cluster", on_cluster)
    found = generate_from._on_the_cluster("hf://org/New-Model")
    assert (found and (found[0].architecture, found[1])) == known


def test_the_name_of_a_file_adds_no_line_to_the_manifests(tmp_path: Path) -> None:
    file = tmp_path / "evil\napiVersion: v1\nkind: ConfigMap\n#.json"
    file.write_text(json.dumps(configs.LLAMA_31_8B))
    said = run("--from", str(file), "--hardware", "h200", "-o", "yaml")
    assert said.exit_code == 0, told(said)
    assert "kind: ConfigMap" not in said.stdout.splitlines()
    assert "ConfigMap" not in [body["kind"] for body in yaml.safe_load_all(said.stdout)]


@pytest.mark.parametrize(
    ("config", "more", "said"),
    [
        (OLMOE, (), "The size of My-Model is not known"),
        (
            {
                key: value
                for key, value in configs.QWEN3_30B.items()
                if key not in ("decoder_sparse_step", "mlp_only_layers")
            },
            (),
            "The size of My-Model is not known: the layers of model type qwen3_moe that have experts are not known.",
        ),
        (configs.LLAMA_31_8B, ("--model", "Kimi-K2-Base"), "--model is not needed"),
        (configs.LLAMA_31_8B, ("--strategy", "pd"), "My-Model has recipes only for --strategy tp"),
        (configs.LLAMA_31_8B, ("--tool-call-parser",), "pass the name of a parser"),
        ([], (), "the file contains no JSON object"),
    ],
)
def test_impossible_source_gives_a_one_line_error(config: Any, more: tuple[str, ...], said: str, tmp_path: Path) -> None:
    place = folder(tmp_path / "My-Model", config)
    answer = run("--from", str(place), "--hardware", "h200", *more)
    assert answer.exit_code != 0 and isinstance(answer.exception, UserError | SystemExit)
    assert said in told(answer)


def test_file_that_is_not_json_is_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text("kind: ClusterBaseModel\n")
    said = told(run("--from", str(tmp_path / "model.yaml"), "--hardware", "h200"))
    assert "the file is not JSON" in said and said.endswith("name the config.json of a model")


@pytest.mark.parametrize(
    ("source", "said"),
    [("/does/not/exist", "no such file or directory"), ("a", "not a repository"), (".", "there is no config.json")],
)
def test_missing_source_is_reported(source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in told(run("--from", source, "--hardware", "h200"))


NAMES = (
    "moonshotai/Kimi-K2-Instruct", "hf://moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2-Instruct/",
    *(f"https://huggingface.co/moonshotai/Kimi-K2-Instruct{rest}" for rest in (
        "", "/", "/tree/main", "/blob/main/config.json", "/resolve/main/config.json")),
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_repository_is_recognized_by_name_and_page_url(name: str) -> None:
    assert generate_from.own_model(name) == generate_from.own_model(NAMES[0])


def test_the_revision_of_a_repository_is_kept() -> None:
    assert generate_from.own_model(f"{NAMES[0]}@main").uri == f"hf://{NAMES[0]}@main"


def test_misspelled_repository_suggests_the_intended_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_from, "_on_the_cluster", lambda _: None)
    with pytest.raises(UserError, match=r"did you mean Kimi-K2-Instruct\? "):
        generate_from.own_model("moonshotai/Kimi-K2-Instruc")
