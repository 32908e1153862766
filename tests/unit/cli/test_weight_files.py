"""Tests of the size of the weights in a directory: complete files, parts of them, pointers of Git LFS, and indexes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ome_operator.cli.app import app
from ome_operator.cli.weight_files import weight_bytes
from ome_operator.errors import UserError

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 4976698672\n"
INDEX = "model.safetensors.index.json"
ONE, FIRST, SECOND = "model.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def index(size: Any) -> str:
    return json.dumps({"metadata": {"total_size": size}, "weight_map": {}})


FOLDERS: dict[str, tuple[dict[str, str], int | None]] = {
    "none": ({}, None),
    "one": ({ONE: "x" * 500}, 500),
    "two": ({FIRST: "x" * 500, SECOND: "x" * 20}, 520),
    "pointers": ({FIRST: POINTER, SECOND: "x" * 20}, 4976698692),
    "a pointer without a size": ({ONE: POINTER.replace("size", "no")}, len(POINTER) - 2),
    "pointers and an index": ({FIRST: POINTER, SECOND: POINTER, INDEX: index(77)}, 2 * 4976698672),
    "a part and an index": ({FIRST: "x" * 500, INDEX: index(77)}, 77),
    "an index": ({INDEX: index(77)}, 77),
    "an index of nothing": ({INDEX: index(0)}, None),
    "an index with a wrong size": ({INDEX: index("77")}, None),
    "an index that is cut": ({INDEX: index(77)[:9]}, None),
    "an index that is no object": ({INDEX: "[]"}, None),
}
"""Files of a directory, and the bytes of the weights."""


def fill(place: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (place / name).write_text(text)
    return place


@pytest.mark.parametrize(("files", "size"), FOLDERS.values(), ids=FOLDERS)
def test_weight_size_of_a_directory_is_computed(files: dict[str, str], size: int | None, tmp_path: Path) -> None:
    assert weight_bytes(fill(tmp_path, files)) == size


UNKNOWN = {
    "architectures": ["NewForCausalLM"], "model_type": "new", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
}  # fmt: skip
COMMANDS = (
    ["generate", "--hardware", "h200", "--from"],
    ["plan", "--hardware", "h200", "--workload", "2000/200", "--model"],
)


@pytest.mark.parametrize("more", [(), ("consolidated.safetensors",), ("a-00001-of-00001.safetensors",)])
@pytest.mark.parametrize("words", COMMANDS)
def test_incomplete_weight_files_are_refused(words: list[str], more: tuple[str, ...], tmp_path: Path) -> None:
    """A directory with only one of two numbered weight files is refused, even if it also contains weight files with other
    names.
    """
    fill(tmp_path, {**dict.fromkeys((FIRST, *more), "x" * 500), "config.json": json.dumps(UNKNOWN)})
    done = CliRunner().invoke(app, [*words, str(tmp_path)])
    assert isinstance(done.exception, UserError) and "contains 1 of 2 weight files" in str(done.exception)


@pytest.mark.parametrize("words", COMMANDS)
def test_broken_link_to_a_weight_file_is_named(words: list[str], tmp_path: Path) -> None:
    fill(tmp_path, {"config.json": json.dumps(UNKNOWN)})
    (tmp_path / ONE).symlink_to(tmp_path / "removed")
    done = CliRunner().invoke(app, [*words, str(tmp_path)])
    assert isinstance(done.exception, UserError)
    assert str(done.exception) == f"{tmp_path / ONE} cannot be read: No such file or directory"


@pytest.mark.parametrize("words", COMMANDS)
def test_overlong_name_is_not_used_as_a_path(words: list[str]) -> None:
    done = CliRunner().invoke(app, [*words, "a" * 300])
    assert isinstance(done.exception, UserError) or (done.exit_code and "No data for the model" in done.output)


@pytest.mark.parametrize("beside", [{}, {"config.json": json.dumps(UNKNOWN)}])
def test_gguf_files_are_not_described_as_safetensors(beside: dict[str, str], tmp_path: Path) -> None:
    fill(tmp_path, {"m-Q4_K_M.gguf": "GGUF", **beside})
    done = CliRunner().invoke(app, [*COMMANDS[0], str(tmp_path)])
    assert isinstance(done.exception, UserError) and "the directory contains GGUF files" in str(done.exception)


def test_unknown_model_family_requires_divisible_heads(tmp_path: Path) -> None:
    """For a model of an unknown family, `ome plan` and `ome generate` propose only sizes that divide both the heads and the
    key-value heads. Phi-4 has 40 heads and 10 key-value heads.
    """
    heads = {"num_attention_heads": 40, "num_key_value_heads": 10, "hidden_size": 5120}
    fill(tmp_path, {INDEX: index(29_319_037_952), "config.json": json.dumps({**UNKNOWN, **heads})})
    generated, planned = (CliRunner().invoke(app, [*words, str(tmp_path)]).stdout for words in COMMANDS)
    assert "--tp 2" in generated
    assert "TP2 " in planned and "TP4 " not in planned and "TP8 " not in planned
