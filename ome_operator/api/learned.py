"""What a model's own files say about it: learned on a node, shown in the model's status, never written to a spec.

Every field is absent where the files do not say it; `unknown` names what a reader would miss.
"""

from typing import Annotated

from ome_operator.api.base import ATOMIC, Spec


class Named(Spec):
    """A format or a library, with its version where the files name it."""

    name: str
    """Name."""
    version: str | None = None
    """Version in the files."""


class Experts(Spec):
    """The experts of a mixture-of-experts layer."""

    routed: int
    """Experts of which each token gets some."""
    shared: int
    """Experts that see every token; 0 when there are none."""
    per_token: int
    """Routed experts that see one token (top-k)."""
    layers: int
    """Layers that have experts."""


class Attention(Spec):
    """The shapes of attention. The ranks and the parts of a head are those of multi-head latent attention (MLA)."""

    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads."""
    head_dim: int | None = None
    """Width of a head."""
    kv_lora_rank: int | None = None
    """Rank of keys and values."""
    q_lora_rank: int | None = None
    """Rank of queries."""
    qk_rope_head_dim: int | None = None
    """Width with a position."""
    qk_nope_head_dim: int | None = None
    """Width without a position."""
    v_head_dim: int | None = None
    """Width of a value."""
    sliding_window: int | None = None
    """Tokens that sliding layers look back."""
    sliding_layers: int | None = None
    """Layers whose cache stops growing at the window."""


class Quantization(Spec):
    """How weights are stored in fewer bits."""

    name: str
    """fp8, int8, int4, mxfp4, nvfp4, awq, gptq, bitsandbytes, …; none for plain weights."""
    method: str | None = None
    """The tool's name for it in the files, such as compressed-tensors or modelopt."""
    bits: int | None = None
    """Bits of a weight."""
    group_size: int | None = None
    """Weights that share a scale."""
    block: Annotated[list[int] | None, ATOMIC] = None
    """Rows and columns that share a scale, for FP8 in blocks."""


class Facts(Spec):
    """Everything that is known of a model from its files."""

    architecture: str | None = None
    """Class name, such as DeepseekV3ForCausalLM."""
    model_type: str | None = None
    """Family in config.json."""
    format: Named | None = None
    framework: Named | None = None
    parameters: int | None = None
    """All parameters that a token may meet; draft layers (multi-token prediction) and vision towers are not counted."""
    active_parameters: int | None = None
    """Those that one token meets: the chosen experts, everything dense, and no input embedding (a look-up)."""
    parameter_size: str | None = None
    """The same in words, such as "1.03T"."""
    layers: int | None = None
    """Layers without draft layers."""
    draft_layers: int | None = None
    """Layers for multi-token prediction."""
    hidden_size: int | None = None
    """Width of a layer."""
    vocabulary: int | None = None
    """Tokens that it knows."""
    context_length: int | None = None
    """Tokens that it can look at."""
    experts: Experts | None = None
    attention: Attention | None = None
    quantization: Quantization | None = None
    dtype: str | None = None
    """Type of what is not quantized, such as bfloat16."""
    kv_bytes_per_token: dict[str, int] | None = None
    """Cache of one token over all layers that keep every token, by cache type (bfloat16, fp8)."""
    weight_bytes: int | None = None
    """Bytes of all tensors."""
    tensor_bytes: dict[str, int] | None = None
    """Bytes of tensors by their type in the files, such as F8_E4M3."""
    pipeline: str | None = None
    """Class of a diffusion pipeline."""
    unknown: Annotated[list[str] | None, ATOMIC] = None
    """What the files do not say, or say in a way that is not understood: a sentence each."""
