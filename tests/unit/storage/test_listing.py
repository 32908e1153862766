"""Tests of the limits of a listing, whose names, numbers and sizes depend on the source."""

import json
from typing import Any

import pytest

from ome_operator.storage.hashes import SIZE_ONLY
from ome_operator.storage.hub import LIMIT, MEMORY, Hub
from ome_operator.storage.listing import (
    MAX_FILES,
    MAX_NAME_BYTES,
    MAX_SIZE,
    RemoteFile,
    RequestRefused,
    SourceUnreachable,
    make_listing,
)
from ome_operator.util.json_limits import estimate_memory


def file(name: str, size: int) -> RemoteFile:
    return RemoteFile(name, size, SIZE_ONLY)


def test_listing_with_a_too_large_size_is_refused() -> None:
    """A file listing with a size that a node's record cannot contain is refused. This is similar to T13: the API server
    would reject the whole record because of one such number.
    """
    assert make_listing([file("a", MAX_SIZE - 1), file("b", 1)]).size == MAX_SIZE
    for sizes in ((MAX_SIZE, 1), (10**400, 1), (MAX_SIZE, MAX_SIZE)):
        with pytest.raises(RequestRefused, match="more bytes than any disk has"):
            make_listing([file(str(number), size) for number, size in enumerate(sizes)])


def test_overlong_file_names_in_a_listing_are_refused() -> None:
    most = [file(f"{number:06}".ljust(200, "x"), 1) for number in range(MAX_NAME_BYTES // 200)]
    assert make_listing(most).files
    with pytest.raises(RequestRefused, match="file names that the source lists are together longer than 8 MiB"):
        make_listing([*most, file("\U0001f600" * 200, 1)])


def description(count: int) -> bytes:
    """Return a description as huggingface.co sends it, with this number of LFS files."""
    lfs = {"sha256": "a" * 64, "size": 5_000_000_000, "pointerSize": 135}
    siblings = [
        {
            "rfilename": f"folder/model-{number:05}-of-50000.safetensors",
            "size": 5_000_000_000,
            "blobId": "b" * 40,
            "lfs": lfs,
        }
        for number in range(count)
    ]
    return json.dumps({"id": "org/model", "sha": "c" * 40, "siblings": siblings}, separators=(",", ":")).encode()


def test_listing_with_the_maximum_number_of_files_is_parsed() -> None:
    text = description(MAX_FILES)
    assert len(text) < LIMIT and estimate_memory(text) < MEMORY
    assert len(Hub("org/model", "").read_description(text).files) == MAX_FILES


@pytest.mark.parametrize("size", ["1e999", "1e400", "NaN", "1" * 5_000, "-1", '"x"', "[]"])
@pytest.mark.parametrize("shape", ['{"rfilename":"a","size":%s}', '{"rfilename":"a","lfs":{"size":%s,"sha256":"%s"}}'])
def test_invalid_size_in_a_listing_is_reported(size: str, shape: str) -> None:
    item = shape % ((size, "a" * 64) if shape.count("%s") == 2 else (size,))
    text = f'{{"sha":"c","siblings":[{item}]}}'.encode()
    try:
        found: Any = Hub("org/model", "").read_description(text)
    except (RequestRefused, SourceUnreachable):
        return
    assert (size, found.size) == ("[]", 0), "an empty value is absent"
