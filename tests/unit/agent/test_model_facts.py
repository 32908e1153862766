"""Tests of file headers whose length depends on the author of a model (S23 of the review)."""

import json
import weakref
from pathlib import Path

import pytest

from ome_operator.agent import model_facts

SIZE = 1000
HEADER = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [7, 9], "data_offsets": [0, 63]}}).ljust(SIZE).encode()


class Content(bytearray):
    """The content of a file. Unlike bytes, it supports weak references."""


def written(folder: Path, count: int, length: int = SIZE) -> None:
    """Write this number of safetensors files with headers of a kilobyte, or with headers that declare a greater length."""
    for number in range(count):
        (folder / f"m-{number:03}.safetensors").write_bytes(length.to_bytes(8, "little") + HEADER)
    (folder / "config.json").write_text('{"architectures": ["Unknown"]}')


def test_oversized_safetensors_headers_are_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A safetensors header that is longer than the header of any real model is not kept in memory. Reported: 256 headers of
    100 MB were in memory at the same time, and the agent has 2 GiB.
    """
    monkeypatch.setattr(model_facts, "MAX_HEADER_BYTES", 10 * SIZE)
    read: list[str] = []
    real = model_facts._Headers.__getitem__
    monkeypatch.setattr(model_facts._Headers, "__getitem__", lambda self, name: (read.append(name), real(self, name))[1])
    written(tmp_path, 10)
    assert model_facts.read_facts(tmp_path)["parameters"] == 630 and len(read) == 10
    read.clear()
    written(tmp_path, 11)
    assert "parameters" not in model_facts.read_facts(tmp_path)
    written(tmp_path, model_facts.MAX_FILES + 1)
    assert "parameters" not in model_facts.read_facts(tmp_path)
    assert read == []


def test_file_content_is_freed_before_the_next_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content of a file is freed before the next file is read. Reported: three files of 64 MiB were in memory at the
    same time, with all parsed values.
    """
    kept: list[weakref.ref[Content]] = []
    real = model_facts._Headers.__getitem__

    def read(self: model_facts._Headers, name: str) -> Content:
        assert [text for text in kept if text() is not None] == []
        text = Content(real(self, name))
        kept.append(weakref.ref(text))
        return text

    monkeypatch.setattr(model_facts._Headers, "__getitem__", read)
    written(tmp_path, 5)
    assert model_facts.read_facts(tmp_path)["parameters"] == 315 and len(kept) == 5


def test_a_header_that_is_invalid_ends_the_reading(tmp_path: Path) -> None:
    written(tmp_path, 3)
    (tmp_path / "m-001.safetensors").write_bytes((2).to_bytes(8, "little") + b"[]")
    found = model_facts.read_facts(tmp_path)
    assert "parameters" not in found
    assert "m-001.safetensors cannot be read: it is not a JSON object" in found["unknown"]


@pytest.mark.parametrize("length", [2**63, 100_000_001])
def test_implausible_header_length_is_not_read(length: int, tmp_path: Path) -> None:
    written(tmp_path, 3, length)
    assert "parameters" not in model_facts.read_facts(tmp_path)


def test_total_size_of_headers_is_limited() -> None:
    assert model_facts.MAX_HEADER_BYTES <= 128 * 1024 * 1024
