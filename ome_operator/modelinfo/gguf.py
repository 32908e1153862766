"""Read the quantization of a GGUF checkpoint from its file names, in which it precedes the number of the shard."""

import re
from collections.abc import Iterable

from ome_operator.api.learned import Quantization

METHOD = "gguf"
_TYPE = re.compile(r"[-._](I?Q\d(?:_[0-9A-Z]+)*|TQ\d_\d|MXFP4(?:_MOE)?|BF16|F16|F32)(?=[-._])", re.IGNORECASE)
_PLAIN = frozenset({"bf16", "f16", "f32"})


def quantization(names: Iterable[str]) -> Quantization | None:
    """Return the quantization of a checkpoint, such as q4_k_m; None if the file names contain no quantization or several."""
    kinds = {matches[-1].lower() for name in names if (matches := _TYPE.findall(name.rpartition("/")[2]))}
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    return Quantization(name="none" if kind in _PLAIN else kind, method=METHOD)
