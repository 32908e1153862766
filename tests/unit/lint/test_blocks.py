"""Tests of the rule about quantization blocks, and of its remedy, which must pass the same rule."""

import pytest

from tests.support.linting import found

RUNTIME = {
    "apiVersion": "ome.io/v1beta1",
    "kind": "ClusterServingRuntime",
    "metadata": {"name": "rt"},
}


def said(config: dict[str, object], *args: str, gpus: int = 8) -> list[tuple[str, str]]:
    """Return the findings of the rule for a model with this config.json. Each finding is a pair of message and remedy."""
    settings = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    model = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterBaseModel",
        "metadata": {"name": "m"},
        "spec": {
            "modelFormat": {"name": "safetensors"},
            "modelConfiguration": {**config, "quantization_config": settings},
            "storage": {"storageUri": "local:///m", "path": "/m"},
        },
    }
    runner = {
        "image": "lmsysorg/sglang:v0.5.23",
        "command": ["python3", "-m", "sglang.launch_server"],
        "args": ["--model-path=$(MODEL_PATH)", "--host=0.0.0.0", "--port=30000", *args],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    runtime = {**RUNTIME, "spec": {"engineConfig": {"runner": runner}}}
    service = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "s", "namespace": "d"},
        "spec": {"model": {"name": "m"}, "runtime": {"name": "rt"}, "engine": {}},
    }
    hits = found([model, runtime, service], whole=False)
    return [(each.hit.says, each.hit.remedy) for each in hits if each.rule.id == "blocks-divide"]


def qwen(width: int, **more: object) -> dict[str, object]:
    return {
        "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": width,
        "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 1024,
        "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, **more,
    }  # fmt: skip


DENSE = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 6144, "num_hidden_layers": 4, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 1024,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "args", "change"),
    [
        (qwen(768), ("--tp-size=4",), "write --ep-size=2: an expert can be cut into 1, 2, 3 or 6 pieces"),
        (qwen(1536), ("--tp-size=8",), "write --ep-size=2: an expert can be cut into 1, 2, 3, 4, 6 or 12 pieces"),
        (qwen(768, mlp_only_layers=[0]), ("--tp-size=32", "--ep-size=32"), "write --moe-dense-tp-size=1"),
        (DENSE, ("--tp-size=32",), "write a --tp-size that cuts them into 1, 2, 3, 4, 6, 8, 12, 16, 24 or 48 pieces"),
        (qwen(704), ("--tp-size=8", "--ep-size=8"), "use weights without blocks"),
    ],
)
def test_remedy_names_only_accepted_sizes(config: dict[str, object], args: tuple[str, ...], change: str) -> None:
    """The remedy names sizes that the rule accepts. Reported: for a matrix cut into 4 pieces, the remedy was "at most 6",
    and --moe-dense-tp-size=1 was suggested for experts.
    """
    ((_, remedy),) = said(config, *args)
    assert remedy.startswith(change)
    if change.startswith("write --"):
        assert said(config, *args, remedy.removeprefix("write ").partition(":")[0].partition(",")[0]) == []


def test_expert_width_must_be_a_multiple_of_the_block() -> None:
    """The width of an expert must be a multiple of the block even if the expert is not divided. In SGLang 0.5.23
    (layers/quantization/fp8.py), the check of block_n does not depend on the TP size.
    """
    assert said(qwen(704), "--tp-size=1", gpus=1)[0][0] == (
        "experts 704 columns wide cannot consist of whole fp8 blocks of 128 columns"
    )


def test_width_of_a_nonexistent_layer_is_not_checked() -> None:
    """A width that no layer has is not checked. Every layer of this model has experts, so no matrix is 6,200
    columns wide.
    """
    assert said(qwen(768, intermediate_size=6200), "--tp-size=2") == []
