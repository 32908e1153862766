"""Read the quantization of a GGUF checkpoint from its file names, in which it precedes the number of the shard."""

import re
from collections.abc import Iterable

from ome_operator.api.learned import Quantization

METHOD = "gguf"
_TYPE = re.compile(r"[-._](I?Q\d(?:_[0-9A-Z]+)*|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|BF16|F16|F32)(?=[-._])", re.IGNORECASE)
_BESIDE = re.compile(r"(^|[-._])(mmproj|imatrix|mtp)([-._]|$)", re.IGNORECASE)
"""Pattern of the names of GGUF files that are not the model itself: the projector of images, the importance matrix of a
quantization, and draft layers."""
_PLAIN = frozenset({"bf16", "f16", "f32"})


def quantization(names: Iterable[str]) -> Quantization | None:
    """Return the quantization of a checkpoint, such as q4_k_m; None if the file names contain no quantization or several."""
    files = [file for name in names if not _BESIDE.search(file := name.rpartition("/")[2])]
    kinds = {matches[-1].lower() for file in files if (matches := _TYPE.findall(file))}
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    return Quantization(name="none" if kind in _PLAIN else kind, method=METHOD)
