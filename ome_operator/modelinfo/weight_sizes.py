"""Calculate the bytes of a model's weights from its config.json, separated by how engines distribute the weights over
GPUs.

The result is used for planning before any weight file was read; the sizes of the files themselves are in `facts`.
"""

from dataclasses import dataclass

from ome_operator.modelinfo import architecture
from ome_operator.modelinfo.json_fields import Config, text_part, whole_number
from ome_operator.modelinfo.quantization import NONE, quantization

_PLAIN = 2
"""Bytes of a weight that is not quantized (BF16)."""
_SHORT_SCALES = frozenset({"mxfp4", "nvfp4"})
"""Quantization formats in which the scale of a group has one byte."""


@dataclass(frozen=True)
class WeightBytes:
    """Numbers of bytes of a model's weights."""

    routed: int
    """Bytes of the routed experts."""
    rest: int
    """Bytes of attention, dense layers, shared experts and embeddings."""

    @property
    def total(self) -> int:
        """Bytes of all weights."""
        return self.routed + self.rest


def weight_bytes(config: Config) -> WeightBytes | None:
    """Return the bytes of the weights; None for a family whose tensors are not known, and for a quantization without a
    number of bits.

    Eight-bit checkpoints quantize every matrix except the embeddings and the output layer; four-bit checkpoints quantize
    only the routed experts. This is true of the published checkpoints of `architecture.FAMILIES`. Scales of groups are
    included. Scales of blocks (1 byte in 4,096) are not included.
    """
    text, quantized = text_part(config), quantization(config)
    attention, mixture = architecture.attention(text), architecture.experts(text)
    count = architecture.count_parameters(text, attention, mixture, tied=bool(text.get("tie_word_embeddings")))
    if count is None or quantized is None or (quantized.name != NONE and not quantized.bits):
        return None
    scale = 1 if quantized.name in _SHORT_SCALES else 2
    bytes_per_weight = (
        quantized.bits / 8 + (scale / quantized.group_size if quantized.group_size else 0) if quantized.bits else _PLAIN
    )
    routed, rest = count.routed, count.total - count.routed
    matrices = (whole_number(text, "vocab_size") or 0) * (whole_number(text, "hidden_size") or 0)
    plain = min(rest, 2 * matrices) if quantized.bits == 8 else rest
    return WeightBytes(round(routed * bytes_per_weight), round(plain * _PLAIN + (rest - plain) * bytes_per_weight))
