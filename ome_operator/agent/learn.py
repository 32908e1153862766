"""Facts of a model from its files on this disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ome_operator.modelinfo.extract import FILE_LIMIT, FILES, facts
from ome_operator.modelinfo.safetensors import header_length

MANY = 256
"""Safetensors files whose headers are read; the index says enough about more."""

HEADERS = 128 * 1024 * 1024
"""Bytes of all headers together, which lie in memory while they are read."""


def learn(root: Path) -> dict[str, Any]:
    """What `config.json` and its neighbours say, as the record holds it."""
    small = {name: (root / name).read_bytes() for name in FILES if _readable(root / name)}
    large = sorted(root.glob("*.safetensors"))
    headers = _headers(large) if len(large) <= MANY else {}
    ggufs = [] if large else sorted(found.name for found in root.rglob("*.gguf"))
    return facts(small, headers, ggufs).dump()


def _headers(files: Sequence[Path]) -> dict[str, bytes]:
    """The headers; {} when they are longer than any model's: whoever made the files decides how long."""
    found, left = {}, HEADERS
    for item in files:
        found[item.name] = _header(item)
        left -= len(found[item.name])
        if left < 0:
            return {}
    return found


def _readable(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= FILE_LIMIT


def _header(path: Path) -> bytes:
    with path.open("rb") as stream:
        length = header_length(stream.read(8))
        return stream.read(length) if length is not None else b""
