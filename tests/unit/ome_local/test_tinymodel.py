"""Tests of the tiny model: the same bytes everywhere, in the formats that engines read."""

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import jinja2
import pytest

from ome_local import tinymodel
from ome_operator.errors import UserError


def header(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header of a safetensors file, and the data after it."""
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def test_tiny_model_has_the_same_bytes_every_time() -> None:
    """The model consists of the same bytes every time, so that recorded answers stay valid. After an intended change of the
    model, the digest in this test has to be replaced.
    """
    digest = hashlib.sha256(tinymodel.files()["model.safetensors"]).hexdigest()
    assert digest.startswith("f781e95d9e5f87ca")


def test_tiny_model_safetensors_have_no_gaps() -> None:
    """In the safetensors file, the tensors follow each other without a gap, with two bytes for each number."""
    found, body = header(tinymodel.files()["model.safetensors"])
    assert found.pop("__metadata__") == {"format": "pt"}
    end = 0
    for name, shape in tinymodel.shapes().items():
        assert found[name]["dtype"] == "BF16"
        assert found[name]["data_offsets"] == [end, end + 2 * math.prod(shape)]
        end = found[name]["data_offsets"][1]
    assert len(body) == end


def test_tiny_model_weights_have_expected_deviation() -> None:
    """The random weights have a standard deviation of 0.3, and the weights of norms are one."""
    found, body = header(tinymodel.files()["model.safetensors"])
    begin, end = found["lm_head.weight"]["data_offsets"]
    numbers = [struct.unpack("<f", b"\0\0" + body[at : at + 2])[0] for at in range(begin, end, 2)]
    mean = sum(numbers) / len(numbers)
    assert math.sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers)) == pytest.approx(0.3, rel=0.02)
    begin, end = found["model.norm.weight"]["data_offsets"]
    assert body[begin:end] == b"\x80\x3f" * 64


def test_vocabulary_has_every_byte_and_the_special_tokens() -> None:
    """Each number below vocab_size is one token, so every output of the model can be decoded."""
    made = tinymodel.tokenizer()
    numbers = [*made["model"]["vocab"].values(), *(token["id"] for token in made["added_tokens"])]
    assert sorted(numbers) == list(range(tinymodel.CONFIG["vocab_size"]))
    assert made["model"]["vocab"]["A"] == ord("A")
    assert made["model"]["vocab"]["Ġ"] == ord(" ")


def test_tiny_model_chat_template_matches_kimi_k2() -> None:
    """The tiny model has the chat template of Kimi K2: first the tools, then every message between its tokens, then the
    beginning of the assistant's message.
    """
    call = {"id": "functions.f:0", "function": {"name": "f", "arguments": '{"a": 1}'}}
    template = jinja2.Environment().from_string(tinymodel.CHAT_TEMPLATE)
    assert template.render(
        tools=[{"name": "f"}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "2", "tool_call_id": "functions.f:0"},
        ],
        add_generation_prompt=True,
    ) == (
        '<|im_system|>tool_declare<|im_middle|>[{"name": "f"}]<|im_end|><|im_user|>user<|im_middle|>Hi<|im_end|>'
        "<|im_assistant|>assistant<|im_middle|><|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
        '<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|><|tool_calls_section_end|><|im_end|>'
        "<|im_system|>tool<|im_middle|>## Return of functions.f:0\n2<|im_end|><|im_assistant|>assistant<|im_middle|>"
    )


def test_put_and_remove_of_tiny_model_are_idempotent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`put` and `remove` can be repeated without an error. `remove` also removes parent folders that are then empty."""
    place = tmp_path / "ome" / "models" / "tiny"
    monkeypatch.setattr(tinymodel, "PLACE", place)
    place.mkdir(parents=True)  # empty, as a kubelet leaves it
    assert tinymodel.put(place) == place
    assert tinymodel.put(place) == place
    assert {path.name: path.read_bytes() for path in place.iterdir()} == tinymodel.files()
    assert place.stat().st_mode & 0o777 == 0o755
    assert tinymodel.remove(place)
    assert list(tmp_path.iterdir()) == []
    assert not tinymodel.remove(place)


def test_remove_keeps_mounted_parent_folder(tmp_path: Path) -> None:
    """If the model is removed, its parent folder stays if it is mounted. A node of kind mounts the folder; if it were
    removed and created again, the node would not see new files.
    """
    place = tinymodel.put(tmp_path / "models" / "tiny")
    assert tinymodel.remove(place)
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


def test_foreign_weights_are_neither_overwritten_nor_removed(tmp_path: Path) -> None:
    """Weights that were not written by this module are neither overwritten nor removed."""
    (tmp_path / "config.json").write_text("theirs")
    with pytest.raises(UserError, match="contains other files"):
        tinymodel.put(tmp_path)
    assert not tinymodel.remove(tmp_path)
    assert (tmp_path / "config.json").read_text() == "theirs"
