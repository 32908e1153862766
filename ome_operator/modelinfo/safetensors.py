"""Headers of safetensors files, and the index over several of them: bytes by type, and parameters by element."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeGuard

from ome_operator.modelinfo.json_fields import Config, section, whole, word

HEADER_LIMIT = 100_000_000
"""Bytes that a header may have; safetensors itself refuses longer ones."""
_NOT_WEIGHTS = re.compile(
    r"(scale|scales|scale_inv|scale_2|_scale_inv|qzeros|g_idx|weight_shape|zero_point|absmax|quant_map|quant_state\S*)$"
)
_PACKED = re.compile(r"(weight_packed|qweight|_blocks)$")


@dataclass(frozen=True)
class Tensors:
    """What headers say of all tensors together."""

    bytes: dict[str, int]
    """Type in the file -> bytes."""
    parameters: int
    """Weights, counted after unpacking; scales are none."""


def header_length(start: bytes) -> int | None:
    """Length of the JSON header that follows the first 8 bytes of a safetensors file; None when it is no such file."""
    length = int.from_bytes(start[:8], "little") if len(start) >= 8 else 0
    return length if 2 <= length <= HEADER_LIMIT else None


def tensors(headers: Iterable[Config], bits: int | None) -> Tensors | None:
    """All tensors of these headers; `bits` of a packed weight (None: 4). None when a header cannot be read."""
    size: Counter[str] = Counter()
    parameters = 0
    for header in headers:
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            found = _tensor(name, entry, bits or 4)
            if found is None:
                return None
            kind, taken, weights = found
            size[kind] += taken
            parameters += weights
    return Tensors(dict(sorted(size.items())), parameters)


def _tensor(name: str, entry: object, bits: int) -> tuple[str, int, int] | None:
    """(type, bytes, weights) of one tensor."""
    if not isinstance(entry, dict):
        return None
    kind, shape, offsets = word(entry, "dtype"), entry.get("shape"), entry.get("data_offsets")
    if kind is None or not _numbers(shape) or not _numbers(offsets) or len(offsets) != 2 or offsets[1] < offsets[0]:
        return None
    taken = offsets[1] - offsets[0]
    if _NOT_WEIGHTS.search(name):
        return kind, taken, 0
    elements = 1
    for one in shape:
        elements *= one
    packed = _PACKED.search(name) or (kind == "U8" and name.endswith("weight"))
    return kind, taken, taken * 8 // bits if packed else elements


def _numbers(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)


def index_sizes(index: Config) -> tuple[int | None, int | None]:
    """(bytes, parameters) of `model.safetensors.index.json`; either may be missing."""
    metadata = section(index, "metadata")
    return whole(metadata, "total_size"), whole(metadata, "total_parameters")
