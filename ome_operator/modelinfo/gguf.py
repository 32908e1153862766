"""GGUF checkpoints: the type of their weights stands in the names of the files, before the number of the shard."""

import re
from collections.abc import Iterable

from ome_operator.api.learned import Quantization

METHOD = "gguf"
_TYPE = re.compile(r"[-._](I?Q\d(?:_[0-9A-Z]+)*|TQ\d_\d|MXFP4(?:_MOE)?|BF16|F16|F32)(?=[-._])", re.IGNORECASE)
_PLAIN = frozenset({"bf16", "f16", "f32"})


def quantization(names: Iterable[str]) -> Quantization | None:
    """What the files of a checkpoint are quantized to, such as q4_k_m; None where their names do not agree on it."""
    said = {found[-1].lower() for name in names if (found := _TYPE.findall(name.rpartition("/")[2]))}
    if len(said) != 1:
        return None
    (kind,) = said
    return Quantization(name="none" if kind in _PLAIN else kind, method=METHOD)
