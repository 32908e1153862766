"""A model of Kimi K2's architecture with the widths that CUDA kernels are written for, and LoRA adapters of it.

Latent attention as wide as Kimi K2's (512 + 64), 16 heads, 4 layers, 16 experts: 67 million random weights. Needs torch.
"""

import json
from pathlib import Path
from typing import Any

from ome_local import tinymodel

SIZES: dict[str, Any] = {
    "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 16,
    "intermediate_size": 1024, "moe_intermediate_size": 256, "n_routed_experts": 16, "num_experts_per_tok": 4,
    "q_lora_rank": 256, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
CACHED = (SIZES["kv_lora_rank"] + SIZES["qk_rope_head_dim"]) * SIZES["num_hidden_layers"]
"""Number of elements that the KV cache holds for each token."""
TARGETS = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj")
RANK, ALPHA = 8, 16


def put(folder: Path) -> int:
    """Write the model, and return the number of bytes of its weights."""
    import torch
    from safetensors.torch import save_file

    tinymodel.CONFIG.update(SIZES)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in tinymodel.texts().items():
        (folder / name).write_bytes(content)
    torch.manual_seed(0)
    weights = {}
    for name, shape in tinymodel.shapes().items():
        if len(shape) == 1:
            one = torch.randn(shape) * 0.1 + (0 if name.endswith("bias") else 1)
        else:
            one = torch.randn(shape) * (1.0 if "embed" in name else 2.0 / shape[1] ** 0.5)
        weights[name] = one.to(torch.float32 if name.endswith("bias") else torch.bfloat16)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return sum(one.numel() * one.element_size() for one in weights.values())


def adapt(folder: Path, silent: bool) -> None:
    """Write an adapter as PEFT does; a silent adapter changes no tokens, because its B matrices are all zero."""
    import torch
    from safetensors.torch import save_file

    factors = {}
    for name, shape in tinymodel.shapes().items():
        module = name.removesuffix(".weight")
        if module.endswith(TARGETS):
            factors[f"base_model.model.{module}.lora_A.weight"] = torch.randn(RANK, shape[1]) * 0.1
            second = torch.zeros(shape[0], RANK) if silent else torch.randn(shape[0], RANK) * 0.1
            factors[f"base_model.model.{module}.lora_B.weight"] = second
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: one.to(torch.bfloat16) for name, one in factors.items()}, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "target_modules": TARGETS}
    (folder / "adapter_config.json").write_text(json.dumps(config))
