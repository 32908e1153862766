"""Parse the headers of safetensors files and the index of several files: bytes by type, and the number of parameters."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeGuard

from ome_operator.modelinfo.json_fields import Config, section, string, whole_number

HEADER_LIMIT = 100_000_000
"""Maximum bytes of a header; the safetensors library rejects longer headers."""
_NOT_WEIGHTS = re.compile(
    r"(scale|scales|scale_inv|scale_2|_scale_inv|qzeros|g_idx|weight_shape|zero_point|absmax|quant_map|quant_state\S*)$"
)
_PACKED = re.compile(r"(weight_packed|qweight|_blocks)$")


@dataclass(frozen=True)
class Tensors:
    """The totals of all tensors in the headers."""

    bytes: dict[str, int]
    """Data type in the file -> bytes of all tensors with this type."""
    parameters: int
    """Number of weights after unpacking, without the scales."""


def header_length(start: bytes) -> int | None:
    """Return the length of the JSON header after the first 8 bytes of a safetensors file; None if the file has another
    format.
    """
    length = int.from_bytes(start[:8], "little") if len(start) >= 8 else 0
    return length if 2 <= length <= HEADER_LIMIT else None


def tensors(headers: Iterable[Config], bits: int | None) -> Tensors | None:
    """Return the totals of all tensors in these headers; None if a header is invalid.

    `bits` is the number of bits of a packed weight (None means 4).
    """
    size: Counter[str] = Counter()
    parameters = 0
    for header in headers:
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            parsed = _tensor(name, entry, bits or 4)
            if parsed is None:
                return None
            kind, byte_count, weights = parsed
            size[kind] += byte_count
            parameters += weights
    return Tensors(dict(sorted(size.items())), parameters)


def _tensor(name: str, entry: object, bits: int) -> tuple[str, int, int] | None:
    """Return (type, bytes, weights) of one tensor, or None if its entry is invalid."""
    if not isinstance(entry, dict):
        return None
    kind, shape, offsets = string(entry, "dtype"), entry.get("shape"), entry.get("data_offsets")
    if kind is None or not _numbers(shape) or not _numbers(offsets) or len(offsets) != 2 or offsets[1] < offsets[0]:
        return None
    byte_count = offsets[1] - offsets[0]
    if _NOT_WEIGHTS.search(name):
        return kind, byte_count, 0
    elements = 1
    for dimension in shape:
        elements *= dimension
    packed = _PACKED.search(name) or (kind == "U8" and name.endswith("weight"))
    return kind, byte_count, byte_count * 8 // bits if packed else elements


def _numbers(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def index_sizes(index: Config) -> tuple[int | None, int | None]:
    """Return (bytes, parameters) from `model.safetensors.index.json`; each may be None."""
    metadata = section(index, "metadata")
    return whole_number(metadata, "total_size"), whole_number(metadata, "total_parameters")
