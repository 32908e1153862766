"""Tests of the reasons why parameters and weights are not known, for configs that differ from a complete one in a single
field. `ome plan`, `ome generate --from` and the facts of a model give the same reason.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from ome_operator.capacity.division import find_uneven_size
from ome_operator.capacity.model import ModelFacts, matrix_widths
from ome_operator.capacity.shape import ParallelShape
from ome_operator.cli.generate import bookshelf
from ome_operator.cli.generate_from import own_model
from ome_operator.cli.planfiles import model
from ome_operator.cookbook.own_model import with_own_model
from ome_operator.cookbook.request import RecipeRefused
from ome_operator.modelinfo.extract import facts
from ome_operator.modelinfo.json_fields import text_part
from ome_operator.modelinfo.uncounted import unweighed
from ome_operator.modelinfo.weight_sizes import weight_bytes
from ome_operator.sizing.errors import PlanRefused
from tests.unit.modelinfo import configs
from tests.unit.modelinfo.test_families import PUBLISHED

GONE: Any = object()
NUMBER = ", but a whole number above 0 is needed"
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "a text": ({"hidden_size": "2048"}, f'states hidden_size: "2048"{NUMBER}'),
    "a fraction": ({"num_hidden_layers": 48.0}, f"states num_hidden_layers: 48.0{NUMBER}"),
    "a truth value": ({"num_hidden_layers": True}, f"states num_hidden_layers: true{NUMBER}"),
    "negative": ({"vocab_size": -1}, f"states vocab_size: -1{NUMBER}"),
    "zero": ({"num_key_value_heads": 0}, f"states num_key_value_heads: 0{NUMBER}"),
    "no number": ({"hidden_size": float("nan")}, f"states hidden_size: NaN{NUMBER}"),
    "no size": ({"hidden_size": GONE}, "config.json does not contain hidden_size"),
    "null": ({"hidden_size": None}, "config.json does not contain hidden_size"),
    "two sizes": ({"num_hidden_layers": GONE, "vocab_size": GONE}, "does not contain num_hidden_layers and vocab_size"),
    "no heads": ({"num_attention_heads": GONE}, "does not contain the numbers of attention heads and key-value heads"),
    "no family": ({"model_type": GONE}, "config.json does not contain model_type"),
    "another type of family": ({"model_type": ["qwen3_moe"]}, "config.json does not contain model_type"),
    "another family": ({"model_type": "qwen9"}, "the tensors of model type qwen9 are not known"),
    "no experts": ({"num_experts": -8}, "does not state the number of experts in a known field"),
    "too many experts": ({"num_experts_per_tok": 500}, "states 500 experts per token, but 128 experts"),
    "no width": ({"moe_intermediate_size": "768"}, "lacks a size that model type qwen3_moe needs"),
}
"""Changes of a complete config, and the reason why the parameters are unknown."""
STORED: dict[str, tuple[Any, str]] = {
    "an unknown method": ({"quant_method": "quark"}, "the quantization in its files is not known"),
    "a text": ("fp8", "the quantization in its files is not known"),
    "a list": ([{"quant_method": "fp8"}], "the quantization in its files is not known"),
    "bits as a text": ({"quant_method": "gptq", "bits": "4"}, "do not state the bits of its quantization gptq as a number"),
}
"""Values of `quantization_config`, and the reason why the weights are unknown."""


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**configs.QWEN3_30B, **changes}.items() if value is not GONE}


def reasons(config: dict[str, Any], place: Path) -> tuple[str, str]:
    """Return the messages of `ome generate --from` and of `ome plan` for a directory with this config."""
    (place / "config.json").write_text(json.dumps(config))
    with pytest.raises(RecipeRefused) as generated:
        with_own_model(bookshelf(), own_model(str(place)))
    with pytest.raises(PlanRefused) as planned:
        model(str(place), "")
    return str(generated.value), str(planned.value)


@pytest.mark.parametrize(("changes", "why"), CHANGES.values(), ids=CHANGES)
def test_all_commands_print_the_reason_for_unknown_sizes(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    config = changed(changes)
    assert weight_bytes(config) is None
    known = facts({"config.json": json.dumps(config)})
    assert [each for each in known.unknown or () if each.startswith("parameters: ") and why in each], known.unknown
    for message in reasons(config, tmp_path):
        assert why in message


@pytest.mark.parametrize(("stated", "why"), STORED.values(), ids=STORED)
def test_unknown_quantization_is_not_treated_as_none(stated: Any, why: str, tmp_path: Path) -> None:
    config = changed({"quantization_config": stated})
    assert weight_bytes(config) is None
    assert why in reasons(config, tmp_path)[0]


@pytest.mark.parametrize("stated", [None, {}, GONE])
def test_a_config_without_a_quantization_is_not_quantized(stated: Any) -> None:
    found = facts({"config.json": json.dumps(changed({"quantization_config": stated}))})
    assert found.quantization is not None and found.quantization.name == "none"


WRONG: tuple[Any, ...] = (0, -1, 10**12, "x", None, [], [0, 0], {})
QUANTIZED = {"quant_method": "fp8", "weight_block_size": [128, 128]}


@pytest.mark.parametrize("kind", sorted({text_part(row["config"])["model_type"] for row in PUBLISHED}))
def test_no_field_value_raises_an_exception(kind: str) -> None:
    """No value of a field of config.json raises an exception, because an agent reads the config of any model. Reported:
    Gemma 4 with no layers, and FP8 with blocks of 0 columns.
    """
    config = next(row["config"] for row in PUBLISHED if text_part(row["config"])["model_type"] == kind)
    text = text_part(config)
    for name in text:
        for value in WRONG:
            changed = {**text, "quantization_config": QUANTIZED, name: value}
            known = facts({"config.json": json.dumps(changed)})
            sizes = weight_bytes(changed)
            assert (sizes is None) or sizes.total >= 0
            assert unweighed(changed, None) and (known.unknown or known.parameters)
    for value in WRONG:
        block = {**QUANTIZED, "weight_block_size": value}
        model = facts({"config.json": json.dumps({**text, "quantization_config": block})})
        found = find_uneven_size(ModelFacts("x", model, None, matrix_widths(text)), ParallelShape(tp=1, cut=1))
        assert found is None, "a model that is not cut divides"
