"""Tests of the facts about well-known models: they are found by repository and by name, and are generated from
config/models.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_operator.api import Invalid
from ome_operator.api.well_known import NO_MODELS, WRITTEN, differences, load, load_packaged, load_selected
from tests.support import parts

K2 = "moonshotai/Kimi-K2-Instruct"


def test_well_known_model_files_are_generated_from_the_catalog() -> None:
    assert differences() == []
    first, second = ((parts.ROOT / path).read_text() for path in WRITTEN)
    assert first == second
    catalog = sorted(
        body["metadata"]["name"]
        for file in (parts.ROOT / "config/models").rglob("*.yaml")
        for body in parts.read_documents(file)
    )
    assert sorted(model["name"] for model in yaml.safe_load(first)["models"]) == catalog


@pytest.mark.parametrize(
    ("name", "uri", "found"),
    [
        ("x", "hf://moonshotai/Kimi-K2-Instruct", K2),
        ("x", "hf://MoonshotAI/kimi-k2-instruct@main", K2),
        ("x", "hf://kimi-ai/Kimi-K2-Chat", K2),
        ("x", "hf://mirror/Kimi-K2-Chat", K2),
        ("x", "hf://kimi-ai/Kimi-K2-Base", "moonshotai/Kimi-K2-Base"),
        ("x", "s3://bucket@eu/models/Kimi-K2-Instruct/", None),
        ("x", "s3://bucket/models/Kimi-K2-Instruct/", K2),
        ("x", "local:///raid/models/moonshotai/Kimi-K2-Thinking", "moonshotai/Kimi-K2-Thinking"),
        ("x", "oci://registry.example.com/models/kimi-k2-instruct:1", K2),
        ("kimi-k2-instruct", "pvc://weights", K2),
        ("deepseek-r1", "hf://somebody/DeepSeek-R1-AWQ", None),
        ("x", "hf://somebody/Else", None),
        ("x", "pvc://weights", None),
    ],
)
def test_well_known_model_is_found_by_repository_or_name(name: str, uri: str, found: str | None) -> None:
    model = load_packaged().find(name, uri)
    assert (model.repository if model else None) == found


def test_additional_well_known_models_take_precedence(tmp_path: Path) -> None:
    entry: dict[str, Any] = {"name": "mine", "repositories": [K2], "facts": {"architecture": "Mine"}}
    (tmp_path / "more.yaml").write_text(yaml.safe_dump({"models": [entry]}))
    (tmp_path / "well-known-models.yaml").write_text((parts.ROOT / WRITTEN[1]).read_text())
    both = load(tmp_path)
    assert not isinstance(both, Invalid)
    first, other = both.find("x", f"hf://{K2}"), both.find("x", "hf://kimi-ai/Kimi-K2-Base")
    assert first is not None and first.facts.architecture == "Mine"
    assert other is not None and other.facts.architecture == "DeepseekV3ForCausalLM"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [{name: a, repositories: [], facts: {}}]", "models[0].repositories has 0 entries"),
        ("models: [{name: a, repositories: [b], facts: {layers: x}}]", "models[0].facts.layers"),
        ("[1]", ""), ("a: [", "is not valid YAML"),
    ],
)  # fmt: skip
def test_unreadable_well_known_models_name_file_and_field(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "more.yaml"
    file.write_text(text)
    found = load(tmp_path)
    assert isinstance(found, Invalid) and found.why.startswith(str(file)) and words in found.why


def test_missing_well_known_models_file_is_invalid_and_empty_path_is_none() -> None:
    found = load(Path("/nowhere/models.yaml"))
    assert (
        isinstance(found, Invalid)
        and found.why == "well-known models at /nowhere/models.yaml cannot be read: No such file or directory"
    )
    assert load_selected("") is NO_MODELS and load_selected("package") is not NO_MODELS
