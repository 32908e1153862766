"""The bytes of a model's weights from its config.json, apart by how engines spread them over GPUs.

For planning, before any file was read; what the files themselves say is in `facts`.
"""

from dataclasses import dataclass

from ome_operator.modelinfo import architecture
from ome_operator.modelinfo.json_fields import Config, text_part, whole
from ome_operator.modelinfo.quantization import NONE, quantization

_PLAIN = 2
"""Bytes of a number that is not quantized: BF16."""
_SHORT_SCALES = frozenset({"mxfp4", "nvfp4"})
"""Formats whose groups have a scale of one byte."""


@dataclass(frozen=True)
class WeightBytes:
    """Bytes of a model's weights."""

    routed: int
    """Experts that a router chooses from."""
    rest: int
    """Attention, dense layers, shared experts, embeddings."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.routed + self.rest


def weights(config: Config) -> WeightBytes | None:
    """The bytes of the weights; None for a family whose tensors are not known, or a quantization without bits.

    Eight-bit checkpoints quantize every matrix but embeddings and the output layer, four-bit ones the routed experts alone:
    so are the published ones of `shapes.FAMILIES`. Scales of groups are counted; those of blocks are 1 byte in 4,096.
    """
    text, found = text_part(config), quantization(config)
    seen, mixture = architecture.attention(text), architecture.experts(text)
    count = architecture.counted(text, seen, mixture, tied=bool(text.get("tie_word_embeddings")))
    if count is None or found is None or (found.name != NONE and not found.bits):
        return None
    scale = 1 if found.name in _SHORT_SCALES else 2
    each = found.bits / 8 + (scale / found.group_size if found.group_size else 0) if found.bits else _PLAIN
    routed, rest = count.routed, count.total - count.routed
    matrices = (whole(text, "vocab_size") or 0) * (whole(text, "hidden_size") or 0)
    plain = min(rest, 2 * matrices) if found.bits == 8 else rest
    return WeightBytes(round(routed * each), round(plain * _PLAIN + (rest - plain) * each))
