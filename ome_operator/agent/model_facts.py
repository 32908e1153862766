"""Extract the facts of a model (such as its architecture and size) from its files on this disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ome_operator.modelinfo.extract import FILE_LIMIT, FILES, facts
from ome_operator.modelinfo.safetensors import header_length

MAX_FILES = 256
"""Maximum number of safetensors files whose headers are read. For models with more files, the facts come from the index
file."""

MAX_HEADER_BYTES = 128 * 1024 * 1024
"""Maximum bytes of all headers together, because all headers are in memory at the same time."""


def read_facts(root: Path) -> dict[str, Any]:
    """Return the facts of the model in `root`, from its config files, safetensors headers and GGUF names, as JSON data."""
    small = {name: (root / name).read_bytes() for name in FILES if _readable(root / name)}
    large = sorted(root.glob("*.safetensors"))
    headers = _headers(large) if len(large) <= MAX_FILES else {}
    ggufs = [] if large else sorted(file.name for file in root.rglob("*.gguf"))
    return facts(small, headers, ggufs).dump()


def _headers(files: Sequence[Path]) -> dict[str, bytes]:
    """Return file name -> header of each file, or {} if the headers together are longer than MAX_HEADER_BYTES.

    The limit protects the agent's memory, because the author of the files decides how long the headers are.
    """
    headers, remaining = {}, MAX_HEADER_BYTES
    for file in files:
        headers[file.name] = _header(file)
        remaining -= len(headers[file.name])
        if remaining < 0:
            return {}
    return headers


def _readable(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= FILE_LIMIT


def _header(path: Path) -> bytes:
    with path.open("rb") as stream:
        length = header_length(stream.read(8))
        return stream.read(length) if length is not None else b""
