"""Headers of files whose authors decide how long they are (S23 of the review)."""

import json
from pathlib import Path

import pytest

from ome_operator.agent import model_facts

SIZE = 1000
HEADER = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [7, 9], "data_offsets": [0, 63]}}).ljust(SIZE).encode()


def written(folder: Path, count: int, length: int = SIZE) -> None:
    """So many safetensors files with headers of a kilobyte, or that say to be longer."""
    for number in range(count):
        (folder / f"m-{number:03}.safetensors").write_bytes(length.to_bytes(8, "little") + HEADER)
    (folder / "config.json").write_text('{"architectures": ["Unknown"]}')


def test_headers_that_are_longer_than_any_models_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported: 256 headers of 100 MB lay in memory together, and the agent has 2 GiB."""
    monkeypatch.setattr(model_facts, "MAX_HEADER_BYTES", 10 * SIZE)
    read: list[str] = []
    real = model_facts._header
    monkeypatch.setattr(model_facts, "_header", lambda path: (read.append(path.name), real(path))[1])
    written(tmp_path, 10)
    assert model_facts.read_facts(tmp_path)["parameters"] == 630 and len(read) == 10
    written(tmp_path, 256)
    read.clear()
    assert "parameters" not in model_facts.read_facts(tmp_path) and len(read) == 11
    written(tmp_path, model_facts.MAX_FILES + 1)
    read.clear()
    model_facts.read_facts(tmp_path)
    assert read == []


@pytest.mark.parametrize("length", [2**63, 100_000_001])
def test_a_header_that_no_file_has_is_not_read(length: int, tmp_path: Path) -> None:
    written(tmp_path, 3, length)
    assert "parameters" not in model_facts.read_facts(tmp_path)


def test_all_headers_together_are_less_than_an_agents_memory() -> None:
    assert model_facts.MAX_HEADER_BYTES <= 128 * 1024 * 1024
