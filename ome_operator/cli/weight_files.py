"""Determines the size of the weights in a model's directory on this machine."""

import re
from collections import Counter
from pathlib import Path

from ome_operator.cli.file_errors import why_unreadable
from ome_operator.errors import UserError
from ome_operator.modelinfo.extract import INDEX, MEMORY
from ome_operator.modelinfo.safetensors import index_sizes
from ome_operator.util.json_limits import parse_untrusted

_POINTER = b"version https://git-lfs.github.com/spec/"
"""Beginning of the text that `git clone` without Git LFS writes in place of a large file."""
_LARGEST_POINTER = 1024
_STATED_SIZE = re.compile(rb"^size (\d{1,18})$", re.MULTILINE)
_PART = re.compile(r"(.*)-\d{5}-of-(\d{5})\.safetensors")


def weight_bytes(folder: Path) -> int | None:
    """Return the bytes of the safetensors files of a model; None if the directory has neither such files nor an index that
    states their size. Raises UserError if some of the files are missing and there is no index.

    A file that Git LFS has not downloaded counts with the size that its pointer states.
    """
    files = sorted(folder.glob("*.safetensors"))
    there = Counter(found.groups() for file in files if (found := _PART.fullmatch(file.name)))
    partial = next(((number, int(total)) for (_, total), number in there.items() if number < int(total)), None)
    if files and partial is None:
        return sum(map(_size, files))
    if stated := _of_index(folder / INDEX):
        return stated
    if partial is not None:
        raise UserError(
            f"{folder} contains {partial[0]} of {partial[1]} weight files: download the others, or their {INDEX}"
        )
    return None


def is_folder(path: Path) -> bool:
    """Return whether a path is a directory. Unlike with `Path.is_dir`, the result is False for a name that is too long for a
    path, and for a directory that this user may not enter: the name of a repository or of a model need not be a path.
    """
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Return whether a path is a file. Like `is_folder`, this function returns False for a path that cannot be examined,
    and never raises.
    """
    try:
        return path.is_file()
    except OSError:
        return False


def only_gguf(folder: Path) -> bool:
    """Return whether a directory contains GGUF files and no safetensors files."""
    return any(folder.glob("*.gguf")) and not any(folder.glob("*.safetensors")) and not (folder / INDEX).exists()


def _size(file: Path) -> int:
    try:
        size = file.stat().st_size
        text = file.read_bytes() if size <= _LARGEST_POINTER else b""
    except OSError as error:  # for example a link in a cache to a file that was removed
        raise UserError(f"{file} cannot be read: {why_unreadable(error)}") from error
    stated = _STATED_SIZE.search(text) if text.startswith(_POINTER) else None
    return int(stated[1]) if stated else size


def _of_index(file: Path) -> int | None:
    """Return the bytes that the index of a model states; None if there is no index, or no size above 0 in it."""
    try:
        return parse_untrusted(
            file.read_bytes(), str(file), memory=MEMORY[INDEX], extract=lambda found: index_sizes(found)[0] or None
        )
    except (OSError, ValueError, AttributeError):
        return None
