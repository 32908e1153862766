"""Parse the headers of safetensors files and the index of several files: bytes by type, and the number of parameters."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeGuard

from ome_operator.modelinfo.json_fields import LARGEST, Config, is_whole, section, string, whole_number

HEADER_LIMIT = 100_000_000
"""Maximum bytes of a header; the safetensors library rejects longer headers."""
_NOT_WEIGHTS = re.compile(
    r"(scale|scales|scale_inv|scale_2|_scale_inv|qzeros|g_idx|weight_shape|zero_point|absmax|quant_map|quant_state\S*)$"
)
_END_OF_NAME = 128
"""Number of characters at the end of a tensor's name that the patterns are applied to; names may have any length."""
_MOST_DIMENSIONS = 16
_MOST_TYPES = 64
"""Maximum number of different data types in the headers; the format has fewer than 30."""
_PACKED = re.compile(r"(weight_packed|qweight|_blocks)$")


@dataclass(frozen=True)
class Tensors:
    """The bytes and the number of parameters of all tensors in the headers."""

    bytes: dict[str, int]
    """Maps each data type in the file to the bytes of all tensors with this type."""
    parameters: int
    """Number of weights after unpacking, without the scales."""


def header_length(start: bytes) -> int | None:
    """Return the length of the JSON header after the first 8 bytes of a safetensors file; None if the file has another
    format.
    """
    length = int.from_bytes(start[:8], "little") if len(start) >= 8 else 0
    return length if 2 <= length <= HEADER_LIMIT else None


def tensors(header: Config, bits: int | None, *, packed_experts: bool = False) -> Tensors | None:
    """Return the totals of all tensors in this header; None if the header is invalid.

    `bits` is the number of bits of a packed weight (None means 4). `packed_experts` is true if routed experts that are
    stored as bytes (I8 or U8) are packed 4-bit numbers.
    """
    size: Counter[str] = Counter()
    parameters = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        parsed = _tensor(name, entry, bits or 4, packed_experts)
        if parsed is None:
            return None
        kind, byte_count, weights = parsed
        size[kind] += byte_count
        parameters += weights
        if len(size) > _MOST_TYPES:
            return None
    return Tensors(dict(size), parameters)


def combine_headers(headers: Iterable[Tensors | None]) -> Tensors | None:
    """Return the totals over several headers. Return None if a header is invalid; the headers after this header are not
    requested.
    """
    size: Counter[str] = Counter()
    parameters = 0
    for totals in headers:
        if totals is None:
            return None
        size.update(totals.bytes)
        parameters += totals.parameters
        if len(size) > _MOST_TYPES or max(parameters, size.total()) > LARGEST:
            return None
    return Tensors(dict(sorted(size.items())), parameters)


def _tensor(name: str, entry: object, bits: int, packed_experts: bool) -> tuple[str, int, int] | None:
    """Return (type, bytes, weights) of one tensor, or None if its entry is invalid."""
    if not isinstance(entry, dict):
        return None
    kind, shape, offsets = string(entry, "dtype"), entry.get("shape"), entry.get("data_offsets")
    if kind is None or not _numbers(shape) or not _numbers(offsets) or len(offsets) != 2 or offsets[1] < offsets[0]:
        return None
    if len(shape) > _MOST_DIMENSIONS:
        return None
    byte_count, end = offsets[1] - offsets[0], name[-_END_OF_NAME:]
    if _NOT_WEIGHTS.search(end):
        return kind, byte_count, 0
    elements = 1
    for dimension in shape:
        elements *= dimension
    packed = _PACKED.search(end) or (kind == "U8" and name.endswith("weight"))
    packed = packed or (packed_experts and kind == "I8" and ".experts." in end)
    return kind, byte_count, byte_count * 8 // bits if packed else elements


def _numbers(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(map(is_whole, value))


def index_sizes(index: Config) -> tuple[int | None, int | None]:
    """Return (bytes, parameters) from `model.safetensors.index.json`; each may be None."""
    metadata = section(index, "metadata")
    return whole_number(metadata, "total_size"), whole_number(metadata, "total_parameters")
