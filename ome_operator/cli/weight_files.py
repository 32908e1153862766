"""Determines the size of the weights in a model's directory on this machine."""

import re
from pathlib import Path

from ome_operator.errors import UserError
from ome_operator.modelinfo.extract import INDEX, MEMORY
from ome_operator.modelinfo.safetensors import index_sizes
from ome_operator.util.json_limits import parsed

_POINTER = b"version https://git-lfs.github.com/spec/"
"""Beginning of the text that `git clone` without Git LFS writes in place of a large file."""
_LARGEST_POINTER = 1024
_STATED_SIZE = re.compile(rb"^size (\d{1,18})$", re.MULTILINE)
_PART = re.compile(r"-\d{5}-of-(\d{5})\.safetensors$")


def weight_bytes(folder: Path) -> int | None:
    """Return the bytes of the safetensors files of a model; None if the directory has neither such files nor an index that
    states their size. Raises UserError if some of the files are missing and there is no index.

    A file that Git LFS has not downloaded counts with the size that its pointer states.
    """
    files = sorted(folder.glob("*.safetensors"))
    wanted = max((int(found[1]) for file in files if (found := _PART.search(file.name))), default=len(files))
    if files and len(files) >= wanted:
        return sum(map(_size, files))
    if stated := _of_index(folder / INDEX):
        return stated
    if files:
        raise UserError(f"{folder} contains {len(files)} of {wanted} weight files: download the others, or their {INDEX}")
    return None


def only_gguf(folder: Path) -> bool:
    """Return whether a directory contains GGUF files and no safetensors files."""
    return any(folder.glob("*.gguf")) and not any(folder.glob("*.safetensors")) and not (folder / INDEX).exists()


def _size(file: Path) -> int:
    size = file.stat().st_size
    if size <= _LARGEST_POINTER and (text := file.read_bytes()).startswith(_POINTER):
        stated = _STATED_SIZE.search(text)
        return int(stated[1]) if stated else size
    return size


def _of_index(file: Path) -> int | None:
    """Return the bytes that the index of a model states; None if there is no index, or no size above 0 in it."""
    try:
        return parsed(file.read_bytes(), str(file), memory=MEMORY[INDEX], take=lambda found: index_sizes(found)[0] or None)
    except (OSError, ValueError, AttributeError):
        return None
