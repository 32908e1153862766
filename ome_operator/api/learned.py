"""Facts that a model's own files state. An agent reads the facts on a node, and the status of the model contains them;
the spec does not change.

A field is absent if the files do not state the fact; `unknown` lists the missing facts.
"""

from typing import Annotated

from ome_operator.api.base import ATOMIC, Spec


class Named(Spec):
    """A file format or a library, with its version if the files state it."""

    name: str
    """Name of the format or the library."""
    version: str | None = None
    """Version that the files state."""


class Experts(Spec):
    """The experts of a mixture-of-experts layer."""

    routed: int
    """Number of routed experts per layer. Each token is sent to `perToken` of them."""
    shared: int
    """Number of shared experts, which process every token; 0 if there are none."""
    per_token: int
    """Number of routed experts that process one token (top-k)."""
    layers: int
    """Number of layers that have experts."""


class Attention(Spec):
    """Shapes of the attention layers. The LoRA ranks and the parts of a head (rope, nope, v) are those of multi-head
    latent attention (MLA).
    """

    heads: int
    """Number of query heads."""
    kv_heads: int
    """Number of key and value heads."""
    head_dim: int | None = None
    """Dimension of a head."""
    kv_lora_rank: int | None = None
    """Rank of the compressed keys and values."""
    q_lora_rank: int | None = None
    """Rank of the compressed queries."""
    qk_rope_head_dim: int | None = None
    """Dimension of the part of a query or key head with a rotary position embedding."""
    qk_nope_head_dim: int | None = None
    """Dimension of the part of a query or key head without a position embedding."""
    v_head_dim: int | None = None
    """Dimension of a value head."""
    sliding_window: int | None = None
    """Window of the sliding-window layers in tokens."""
    sliding_layers: int | None = None
    """Number of sliding-window layers, whose KV cache does not grow beyond the window."""
    linear_heads: int | None = None
    """Number of heads of linear attention, in models in which some layers have a state of constant size instead of a KV
    cache."""


class Quantization(Spec):
    """How the weights are quantized."""

    name: str
    """Name of the quantization: fp8, int8, int4, mxfp4, nvfp4, awq, gptq, bitsandbytes, …; none for weights that are not
    quantized."""
    method: str | None = None
    """Name that the quantization tool writes into the files, such as compressed-tensors or modelopt."""
    bits: int | None = None
    """Bits per weight."""
    group_size: int | None = None
    """Number of weights that share a scale."""
    block: Annotated[list[int] | None, ATOMIC] = None
    """Rows and columns of a block that shares a scale, for FP8 in blocks."""


class Facts(Spec):
    """All facts that are known of a model from its files."""

    architecture: str | None = None
    """Name of the model class, such as DeepseekV3ForCausalLM."""
    model_type: str | None = None
    """Value of `model_type` in config.json."""
    format: Named | None = None
    framework: Named | None = None
    parameters: int | None = None
    """Number of all parameters that a token can use. Draft layers (multi-token prediction) and vision towers are not
    counted."""
    active_parameters: int | None = None
    """Number of parameters that one token uses: the chosen experts and all dense layers, without the input embedding (a
    table lookup)."""
    parameter_size: str | None = None
    """The number of all parameters as text, such as "1.03T"."""
    layers: int | None = None
    """Number of layers without draft layers."""
    draft_layers: int | None = None
    """Number of draft layers (multi-token prediction)."""
    hidden_size: int | None = None
    """Dimension of the hidden states."""
    vocabulary: int | None = None
    """Number of tokens in the vocabulary."""
    context_length: int | None = None
    """Maximum context length in tokens."""
    experts: Experts | None = None
    attention: Attention | None = None
    quantization: Quantization | None = None
    dtype: str | None = None
    """Data type of the weights that are not quantized, such as bfloat16."""
    kv_bytes_per_token: dict[str, int] | None = None
    """Bytes of KV cache per token, over all layers that keep every token, by cache type (bfloat16, fp8)."""
    bytes_per_request: int | None = None
    """Bytes that a request needs beside the cache of its tokens, at most: full windows of sliding-window layers (with a
    cache in bfloat16), and the states of linear attention."""
    weight_bytes: int | None = None
    """Bytes of all tensors."""
    tensor_bytes: dict[str, int] | None = None
    """Bytes of the tensors by their data type in the files, such as F8_E4M3."""
    pipeline: str | None = None
    """Class of a diffusion pipeline."""
    unknown: Annotated[list[str] | None, ATOMIC] = None
    """Facts that the files do not state, or state in a form that is not understood: one sentence each."""
