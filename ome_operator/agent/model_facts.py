"""Extract the facts of a model (such as its architecture and size) from its files on this disk."""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ome_operator.modelinfo.extract import FILES, HEADER_MEMORY, MEMORY, facts
from ome_operator.modelinfo.safetensors import header_length
from ome_operator.util.json_limits import MIB, TooLarge, max_text_bytes

MAX_FILES = 256
"""Maximum number of safetensors files whose headers are read. For a model with more files, the facts come from the index
file."""

MAX_HEADER_BYTES = 128 * MIB
"""Maximum number of bytes of all headers together. This limits the time for parsing the headers, because the author of
the files decides how long they are. Headers are parsed one by one, and `extract.HEADER_MEMORY` limits the memory for each
header."""


_READING = threading.Lock()


def read_facts(root: Path) -> dict[str, Any]:
    """Return the facts of the model in `root`, from its config files, safetensors headers and GGUF names, as JSON data.

    Only one thread of the process reads facts at a time. The thread has the content of only one file in memory.
    """
    large = sorted(root.glob("*.safetensors"))
    ggufs = [] if large else sorted(file.name for file in root.rglob("*.gguf"))
    headers = _Headers(large if len(large) <= MAX_FILES else [])
    with _READING:
        return facts(_SmallFiles(root), headers if headers.size <= MAX_HEADER_BYTES else {}, ggufs).dump()


class _SmallFiles(Mapping[str, bytes]):
    """A mapping from the names of a model's existing `FILES` to their contents. The content of a file is read when it is
    requested.
    """

    def __init__(self, root: Path) -> None:
        self._paths = {name: root / name for name in FILES if (root / name).is_file()}

    def __getitem__(self, name: str) -> bytes:
        """Return the content of a file. Raises TooLarge for a file that is too long to be parsed, without reading all
        of it.
        """
        with self._paths[name].open("rb") as stream:
            return _at_most(stream.read(max_text_bytes(MEMORY[name]) + 1), MEMORY[name])

    def __contains__(self, name: object) -> bool:
        """Return whether the file exists, without reading it."""
        return name in self._paths

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class _Headers(Mapping[str, bytes]):
    """A mapping from the names of safetensors files to their JSON headers. A header is read when it is requested; only its
    length is read in advance.
    """

    def __init__(self, files: list[Path]) -> None:
        self._lengths = {file.name: _length(file) for file in files}
        self._paths = {file.name: file for file in files}
        self.size = sum(self._lengths.values())
        """Bytes of all headers."""

    def __getitem__(self, name: str) -> bytes:
        """Return the header; b"" for a file of another format. Raises TooLarge for a header that is too long."""
        length = self._lengths[name]
        if length > max_text_bytes(HEADER_MEMORY):
            raise _too_large(HEADER_MEMORY)
        with self._paths[name].open("rb") as stream:
            stream.seek(8)
            return stream.read(length)

    def __contains__(self, name: object) -> bool:
        """Return whether the file exists, without reading it."""
        return name in self._lengths

    def __iter__(self) -> Iterator[str]:
        return iter(self._lengths)

    def __len__(self) -> int:
        return len(self._lengths)


def _length(path: Path) -> int:
    """Return the number of bytes of a file's header, which is at most the size of the file; 0 for a file of another
    format.
    """
    with path.open("rb") as stream:
        return min(header_length(stream.read(8)) or 0, path.stat().st_size)


def _at_most(text: bytes, memory: int) -> bytes:
    if len(text) > max_text_bytes(memory):
        raise _too_large(memory)
    return text


def _too_large(memory: int) -> TooLarge:
    return TooLarge(f"it has more than {max_text_bytes(memory) // MIB} MiB")
