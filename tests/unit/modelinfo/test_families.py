"""Parameters and experts of model families, compared with the real classes of transformers.

tests/data/models has one JSON object in each line. All were counted on meta tensors with torch 2.14.1: the text part alone,
without draft layers.

published.jsonl: published config.json files (those in the package aiconfigurator-core 0.12.0), reduced to their sizes;
defaults.jsonl: the config that each class with experts saves with its own default values;
variants.jsonl: small configs of the families whose parameters are counted, with random sizes and switches.

What is read must be right; what is not known must be said.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ome_operator.api import Facts
from ome_operator.modelinfo import hybrid
from ome_operator.modelinfo.architecture import FAMILIES, tied
from ome_operator.modelinfo.extract import facts
from ome_operator.modelinfo.json_fields import text_part
from tests.support import parts

DATA = parts.ROOT / "tests/data/models"
PAGE = parts.ROOT / "docs/models.md"
MARKS = "<!-- counted models -->", "<!-- end of counted models -->"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


PUBLISHED = rows("published")


def of(config: dict[str, Any]) -> Facts:
    return facts({"config.json": json.dumps(config)})


def correction(config: dict[str, Any], seen: Facts) -> int:
    """The number of biases that correct the choice of experts. The weights contain them, the classes do not count them."""
    kind = text_part(config).get("model_type")
    listed = ("deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2", "mimo_v2_flash")
    corrected = kind in listed and text_part(config).get("topk_method") == "noaux_tc"
    if seen.experts is None or not (corrected or kind in ("glm4_moe", "glm4v_moe_text", "minimax_m2")):
        return 0
    return seen.experts.layers * seen.experts.routed


def wrong(row: dict[str, Any]) -> list[str]:
    """What the facts of a config state that differs from the class."""
    seen, found = of(row["config"]), []
    if seen.experts is not None and seen.experts.layers != row["expertLayers"]:
        found.append(f"{seen.experts.layers} layers with experts, not {row['expertLayers']}")
    if seen.parameters is not None:
        more = seen.parameters - row["total"] - correction(row["config"], seen)
        if more:
            found.append(f"{more:+,} parameters")
        active = row.get("active")
        if active and seen.active_parameters != active + correction(row["config"], seen):
            found.append(f"{seen.active_parameters:,} active parameters, not {active:,}")
    said = any(sentence.startswith("experts:") for sentence in seen.unknown or ())
    if seen.experts is None and bool(row["expertLayers"]) != said:
        found.append("nothing says that the experts are not known" if row["expertLayers"] else "a dense model has experts")
    return found


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["model"])
def test_a_published_model_is_read_right_or_not_at_all(row: dict[str, Any]) -> None:
    assert wrong(row) == []
    known = text_part(row["config"]).get("model_type") in FAMILIES
    seen = of(row["config"])
    assert (seen.parameters is not None) == known, "the families that are counted are those of FAMILIES"
    assert known == (seen.kv_bytes_per_token is not None)


@pytest.mark.parametrize("row", rows("defaults"), ids=lambda row: row["family"])
def test_a_config_of_default_values_is_read_right_or_not_at_all(row: dict[str, Any]) -> None:
    assert wrong(row) == []


@pytest.mark.parametrize("row", rows("variants"), ids=lambda row: row["family"])
def test_switches_of_a_family_are_counted(row: dict[str, Any]) -> None:
    assert wrong(row) == []
    seen = of(row["config"])
    assert seen.parameters is not None or (row["family"] == "qwen2_moe" and not row["expertLayers"])


def test_every_counted_family_was_compared_with_its_class() -> None:
    """With variants, or with published models where the kinds of attention leave few switches."""
    varied = {text_part(row["config"])["model_type"] for row in rows("variants")} | {"kimi_k2"}
    published = {text_part(row["config"]).get("model_type") for row in PUBLISHED}
    assert varied | (hybrid.FAMILIES | {"deepseek_v32", "glm_moe_dsa"}) & published == FAMILIES


TIES = {  # three values of the outer field (absent, false, true), each with the same three of the text part
    "qwen3_vl_moe": "---" "---" "ttt",
    "qwen3_vl": "---" "---" "ttt",
    "llama4": "--t" "--t" "--t",
    "glm4v_moe": "--t" "--t" "ttt",
    "qwen2_5_vl": "--t" "--t" "ttt",
    "llava": "--t" "--t" "ttt",
}  # fmt: skip
"""Type of a config in two parts → whether its class of transformers 5.24.0 ties the two matrices."""
_VALUES = ({}, {"tie_word_embeddings": False}, {"tie_word_embeddings": True})


@pytest.mark.parametrize("kind", TIES)
def test_two_parts_tie_the_embeddings_as_their_class_does(kind: str) -> None:
    found = [
        tied({"model_type": kind, **outer, "text_config": {"hidden_size": 8, **inner}})
        for outer in _VALUES
        for inner in _VALUES
    ]
    assert "".join("t" if value else "-" for value in found) == TIES[kind]


def test_two_parts_that_contradict_each_other_are_not_guessed() -> None:
    assert tied({"model_type": "new_vl", "tie_word_embeddings": True, "text_config": {"hidden_size": 8}}) is None


def table() -> Iterator[str]:
    """Yield the table of docs/models.md: the counted numbers, and the cache where it is known."""
    yield "| model | parameters | active | layers with experts | KV cache of a token (BF16) | counted with transformers |"
    yield "|---|---|---|---|---|---|"
    for row in PUBLISHED:
        seen = of(row["config"])
        cache = f"{seen.kv_bytes_per_token['bfloat16']:,}" if seen.kv_bytes_per_token else "not known"
        counted = "" if seen.parameters else " (not known to the operator)"
        experts = row["expertLayers"] or "none"
        versions = ", ".join(row["transformers"])
        yield f"| {row['model']} | {row['total']:,}{counted} | {row['active']:,} | {experts} | {cache} | {versions} |"


def test_the_page_lists_the_counted_models(update: bool) -> None:
    text = PAGE.read_text()
    before, rest = text.split(MARKS[0])
    wanted = "\n".join((f"{before}{MARKS[0]}", *table(), f"{MARKS[1]}{rest.split(MARKS[1])[1]}"))
    if update:
        PAGE.write_text(wanted)
    assert wanted == text, "`pytest tests/unit/modelinfo/test_families.py --update-golden` writes it"
