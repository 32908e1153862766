"""Pass every engine command of the samples to SGLang's own parser on a machine with a real GPU. Nothing is loaded."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.gpu import rendered
from tests.gpu.rendered import Manifest, Process
from tests.unit.modelinfo import configs

Facts = dict[str, Any]
_IMAGE = "/sglang:v0.5.23"
"""Part of the image whose SGLang is installed on this machine. Other images have other arguments."""
_WITHIN_S = 150
_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
_CODER = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 6144, "intermediate_size": 8192,
    "num_hidden_layers": 62, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "num_experts": 160, "num_experts_per_tok": 8, "moe_intermediate_size": 2560, "decoder_sparse_step": 1,
    "max_position_embeddings": 262144, "torch_dtype": "bfloat16", "quantization_config": _FP8,
}  # fmt: skip
_M2 = {
    "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "hidden_size": 3072, "intermediate_size": 1536,
    "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 200064,
    "num_local_experts": 256, "num_experts_per_tok": 8, "rotary_dim": 64, "max_position_embeddings": 196608,
    "torch_dtype": "bfloat16", "quantization_config": _FP8,
}  # fmt: skip
_CONFIGS = {
    "Thinking": configs.KIMI_K2_THINKING, "Kimi": configs.KIMI_K2, "Air": configs.GLM_45_AIR, "GLM": configs.GLM_45,
    "DeepSeek": configs.DEEPSEEK_V3, "235B": configs.QWEN3_235B, "30B": configs.QWEN3_30B, "120b": configs.GPT_OSS_120B,
    "20b": configs.GPT_OSS_20B, "Scout": configs.LLAMA4_SCOUT, "Maverick": configs.LLAMA4_MAVERICK, "Coder": _CODER,
    "M2": _M2,
}  # fmt: skip
"""Mapping of a word in a model's path to its config.json. The first word that occurs in the path counts."""


def parsed(samples: list[Manifest], folder: Path) -> Facts:
    """Return name -> facts for every StatefulSet and Deployment. The facts are the parsed arguments of its engine, the
    reason why SGLang refused them, or the name of its image if SGLang of that image is not installed here.
    """
    # Services share models, so every config.json exists before the first parser reads one.
    asked = [_asked(one, folder) for one in samples]
    with ThreadPoolExecutor(5) as pool:
        found = list(pool.map(_answer, asked))
    return {one["metadata"]["name"]: facts for one, facts in zip(samples, found, strict=True)}


def _asked(manifest: Manifest, folder: Path) -> Process | Facts:
    """Return the engine's process for a model in this folder, or facts with the reason why it is not parsed."""
    box = rendered.main_container(manifest)
    if not (_IMAGE in box["image"] and box.get("command", [""])[-1] == "sglang.launch_server" and _leads(manifest)):
        return {"skipped": box["image"]}
    what = rendered.process(manifest, 0)
    path = what.env["MODEL_PATH"]
    model = _model(path, folder)
    if model is None:
        return {"refused": f"no config.json is known for {path}"}
    return Process([word.replace(path, str(model)) for word in what.argv[3:]], what.env)


def _answer(asked: Process | Facts) -> Facts:
    if not isinstance(asked, Process):
        return asked
    command = [sys.executable, "-m", "tests.gpu.parsed", *asked.argv]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=_WITHIN_S, env=os.environ | asked.env, check=False
        )
    except subprocess.TimeoutExpired:
        return {"refused": f"no answer within {_WITHIN_S} s", "argv": asked.argv}
    if run.returncode:
        return {"refused": (run.stderr or run.stdout)[-1200:], "argv": asked.argv}
    warned = [line[-300:] for line in run.stderr.splitlines() if re.search(r"WARN|warn|set to|overrid|disabl", line)]
    return {"argv": asked.argv, "warned": warned[:12], "args": json.loads(run.stdout.splitlines()[-1])}


def _leads(manifest: Manifest) -> bool:
    """Return whether a manifest is the StatefulSet of leaders. The names of the StatefulSets of workers end in w."""
    return not manifest["metadata"]["name"].endswith("-w")


def _model(path: str, folder: Path) -> Path | None:
    """Create a folder with the config.json of the model at this path, and return it; None if the model is not known."""
    config = next((value for word, value in _CONFIGS.items() if word in path), None)
    if config is None:
        return None
    made = folder / Path(path).name
    made.mkdir(parents=True, exist_ok=True)
    (made / "config.json").write_text(json.dumps(config))
    return made
