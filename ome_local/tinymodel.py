"""A model with Kimi K2's architecture and 330,000 random weights. Its answers are random text, but engines serve it in
the same way as the real model.

The model has multi-head latent attention, routed experts, YaRN, and Kimi's special tokens and chat template, in 0.7 MB. The
bytes are always the same, and are created without network, torch or numpy.
"""

import json
import math
import random
import shutil
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ome_operator.errors import UserError

NAME = "kimi-k2-tiny"
PLACE = Path("/var/lib/ome/models") / NAME
"""Folder of this machine in which pods find the model as a hostPath."""
_SPREAD = 0.3
"""Standard deviation of the weights. With much smaller weights the model repeats a single token."""

SPECIAL = (
    "[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>",
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
    "<|tool_call_end|>", "[PAD]",
)  # fmt: skip
"""Special tokens of Kimi K2, which SGLang's parser of Kimi's tool calls expects."""
_WORDS = 256
"""Number of ordinary tokens: each byte value is a token."""

CHAT_TEMPLATE = """\
{%- if tools -%}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{%- endif -%}
{%- for message in messages -%}
{%- set who = {'user': '<|im_user|>', 'assistant': '<|im_assistant|>'}.get(message['role'], '<|im_system|>') -%}
{{- who + message['role'] + '<|im_middle|>' -}}
{%- if message['role'] == 'tool' -%}{{- '## Return of ' + message['tool_call_id'] + '\\n' -}}{%- endif -%}
{%- if message['content'] is string -%}{{- message['content'] -}}
{%- elif message['content'] -%}{%- for part in message['content'] -%}{{- part['text'] -}}{%- endfor -%}{%- endif -%}
{%- if message['tool_calls'] -%}
<|tool_calls_section_begin|>
{%- for call in message['tool_calls'] -%}
<|tool_call_begin|>{{ call['id'] }}<|tool_call_argument_begin|>
{%- if call['function']['arguments'] is string -%}{{- call['function']['arguments'] -}}
{%- else -%}{{- call['function']['arguments'] | tojson -}}{%- endif -%}
<|tool_call_end|>
{%- endfor -%}
<|tool_calls_section_end|>
{%- endif -%}
<|im_end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}
"""

CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "kimi_k2",
    "vocab_size": _WORDS + len(SPECIAL),
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "hidden_act": "silu",
    "intermediate_size": 128,
    # Layer 0 is dense. The others have 8 routed experts, of which each token uses 2, and one shared expert.
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "rope_scaling": {
        "type": "yarn",
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 32.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 1.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
    "rms_norm_eps": 1e-6,
    "num_nextn_predict_layers": 0,
    "ep_size": 1,
    "aux_loss_alpha": 0.001,
    "seq_aux": True,
    "pretraining_tp": 1,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "bos_token_id": _WORDS + SPECIAL.index("[BOS]"),
    "eos_token_id": _WORDS + SPECIAL.index("<|im_end|>"),
}


def files() -> dict[str, bytes]:
    """Return the content of every file of the model, by file name."""
    return texts() | {"model.safetensors": safetensors(shapes())}


def texts() -> dict[str, bytes]:
    """Return a map from file name to content, for every file except the weights."""
    ends = [CONFIG["eos_token_id"], _WORDS + SPECIAL.index("[EOS]")]
    return {
        "config.json": _json(CONFIG),
        "generation_config.json": _json({"eos_token_id": ends, "do_sample": False}),
        "tokenizer.json": _json(tokenizer()),
        "tokenizer_config.json": _json({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": CONFIG["max_position_embeddings"],
            "bos_token": "[BOS]",
            "eos_token": "<|im_end|>",
            "pad_token": "[PAD]",
            "chat_template": CHAT_TEMPLATE,
        }),
    }  # fmt: skip


def put(folder: Path = PLACE) -> Path:
    """Write the model to the folder, readable for every user, unless the model is already there. The folder appears in
    one step, so that pods never see a part of the model. Raises UserError if the folder contains other files.
    """
    wanted = files()
    if _is_ours(folder, wanted):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists() and any(folder.iterdir()):  # a kubelet creates an empty folder for a mount
            raise UserError(f"{folder} contains other files: move these files, or name another folder.")
        new = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
        for name, content in wanted.items():
            (new / name).write_bytes(content)
        new.chmod(0o755)
        new.rename(folder)
    except OSError as error:
        raise UserError(f"The model cannot be written to {folder}: {error.strerror}.") from error
    return folder


def remove(folder: Path = PLACE) -> bool:
    """Remove the model, and the folders of /var/lib/ome that become empty. Return False, and remove nothing, if the
    folder does not contain the files that `put` writes.

    Other parent folders stay, because kind's nodes have mounted them and would not see a new folder of the same name.
    """
    if not _is_ours(folder, files()):
        return False
    try:
        shutil.rmtree(folder)
        for parent in (folder.parent, folder.parent.parent):
            if parent in PLACE.parents and parent.name in ("models", "ome") and not any(parent.iterdir()):
                parent.rmdir()
    except OSError as error:
        raise UserError(f"The model cannot be removed from {folder}: {error.strerror}.") from error
    return True


def _is_ours(folder: Path, wanted: Mapping[str, bytes]) -> bool:
    try:
        return all((folder / name).read_bytes() == content for name, content in wanted.items())
    except OSError:
        return False


def shapes() -> dict[str, tuple[int, ...]]:
    """Return a map from the name of a weight in DeepSeek V3 to its shape. Matrices have the shape (outputs, inputs)."""
    hidden, heads, words = CONFIG["hidden_size"], CONFIG["num_attention_heads"], CONFIG["vocab_size"]
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (words, hidden), "model.norm.weight": (hidden,)}
    for layer in range(CONFIG["num_hidden_layers"]):
        within = f"model.layers.{layer}"
        found |= {f"{within}.{norm}_layernorm.weight": (hidden,) for norm in ("input", "post_attention")}
        found |= _attention(f"{within}.self_attn", hidden, heads)
        if layer < CONFIG["first_k_dense_replace"]:
            found |= _feed_forward(f"{within}.mlp", hidden, CONFIG["intermediate_size"])
        else:
            found |= _experts(f"{within}.mlp", hidden, CONFIG["moe_intermediate_size"])
    return found | {"lm_head.weight": (words, hidden)}


def _attention(within: str, hidden: int, heads: int) -> dict[str, tuple[int, ...]]:
    nope, rope, value = CONFIG["qk_nope_head_dim"], CONFIG["qk_rope_head_dim"], CONFIG["v_head_dim"]
    queries, cached = CONFIG["q_lora_rank"], CONFIG["kv_lora_rank"]
    return {
        f"{within}.q_a_proj.weight": (queries, hidden),
        f"{within}.q_a_layernorm.weight": (queries,),
        f"{within}.q_b_proj.weight": (heads * (nope + rope), queries),
        f"{within}.kv_a_proj_with_mqa.weight": (cached + rope, hidden),
        f"{within}.kv_a_layernorm.weight": (cached,),
        f"{within}.kv_b_proj.weight": (heads * (nope + value), cached),
        f"{within}.o_proj.weight": (hidden, heads * value),
    }


def _feed_forward(within: str, hidden: int, inner: int) -> dict[str, tuple[int, ...]]:
    sizes = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    return {f"{within}.{name}.weight": size for name, size in sizes.items()}


def _experts(within: str, hidden: int, inner: int) -> dict[str, tuple[int, ...]]:
    count = CONFIG["n_routed_experts"]
    found: dict[str, tuple[int, ...]] = {
        f"{within}.gate.weight": (count, hidden),
        f"{within}.gate.e_score_correction_bias": (count,),
    }
    for expert in range(count):
        found |= _feed_forward(f"{within}.experts.{expert}", hidden, inner)
    return found | _feed_forward(f"{within}.shared_experts", hidden, inner * CONFIG["n_shared_experts"])


def safetensors(wanted: Mapping[str, tuple[int, ...]]) -> bytes:
    """Return the content of a safetensors file of bfloat16 tensors: a JSON header followed by the numbers. `wanted` maps
    names to shapes.

    Matrices are random, norms are one and biases are zero. The random numbers are uniform, because normal random numbers
    need a logarithm whose last bit differs between machines.
    """
    dice, header, body = random.Random(0), {}, bytearray()
    for name, shape in wanted.items():
        begin, count = len(body), math.prod(shape)
        if len(shape) > 1:
            numbers = [_SPREAD * math.sqrt(3) * (2 * dice.random() - 1) for _ in range(count)]
        else:
            numbers = [0.0 if name.endswith("bias") else 1.0] * count
        body += _bfloat16(numbers)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, len(body)]}
    text = _json({"__metadata__": {"format": "pt"}, **header})
    text += b" " * (-len(text) % 8)  # the numbers start at a multiple of 8 bytes
    return struct.pack("<Q", len(text)) + text + body


def _bfloat16(numbers: list[float]) -> bytes:
    """Return the upper half of each float32 in little-endian order. The lower half is cut off, without rounding."""
    whole = struct.pack(f"<{len(numbers)}f", *numbers)
    halves = bytearray(2 * len(numbers))
    halves[0::2], halves[1::2] = whole[2::4], whole[3::4]
    return bytes(halves)


def tokenizer() -> dict[str, Any]:
    """Return a byte-level tokenizer without merges, in the format of the library `tokenizers`."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [_special(_WORDS + number, content) for number, content in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {sign: number for number, sign in enumerate(_signs())}, "merges": []},
    }


def _special(number: int, content: str) -> dict[str, Any]:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, **plain, "special": not content.startswith("<|tool_")}


def _signs() -> list[str]:
    """Return the character that represents each byte in byte-level tokenizers, in the order of the bytes: the byte's own
    character if it is printable, otherwise a character from code point 256 on.
    """
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = [byte for byte in range(256) if byte not in seen]
    return [chr(byte) if byte in seen else chr(256 + hidden.index(byte)) for byte in range(256)]


def _json(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=None).encode()
