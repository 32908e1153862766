"""Tests of the text about the differences between two specs."""

from typing import Any

import pytest

from ome_operator.describe.edits import edits

LONG = "python3 -m sglang.launch_server --model-path=/models/a --tp 16 --mem-fraction-static {} --port 30000"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"size": 3}, {"size": 4}, ["size 3 → 4"]),
        ({"a": 1}, {"b": 2}, ["a removed, was 1", "b added: 2"]),
        ({"args": ["--mem=0.7", "--tp=8"]}, {"args": ["--mem=0.8", "--tp=8"]}, ["args --mem 0.7 → 0.8"]),
        ({"args": ["--mem", "0.7"]}, {"args": ["--mem", "0.8"]}, ["args --mem 0.7 → 0.8"]),
        ({"args": ["--mem", "0.7"]}, {"args": ["--mem=0.7"]}, ["args has the same arguments in another order or spelling"]),
        ({"args": ["--trust"]}, {"args": ["--trust", "--log=x"]}, ["args added: --log x"]),
        ({"args": ["--trust", "--log=x"]}, {"args": ["--trust"]}, ["args removed: --log x"]),
        ({"args": ["--trust=yes"]}, {"args": ["--trust"]}, ["args --trust yes → without a value"]),
        ({"args": ["-c", LONG.format(0.7)]}, {"args": ["-c", LONG.format(0.8)]}, ["args --mem-fraction-static 0.7 → 0.8"]),
        ({"script": LONG.format(0.7)}, {"script": LONG.format(0.8)}, ["script --mem-fraction-static 0.7 → 0.8"]),
        ({"command": ["sh"]}, {"command": ["bash"]}, ["command sh → bash"]),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B"}]},
            {"env": [{"name": "B"}, {"name": "A", "value": "2"}]},
            ["env[A].value 1 → 2"],
        ),
        ({"env": [{"name": "A"}, {"name": "B"}]}, {"env": [{"name": "B"}, {"name": "A"}]}, ["env has another order"]),
        ({"sizes": [1, 2]}, {"sizes": [1, 3]}, ["sizes[1] 2 → 3"]),
        ({"sizes": [1, 2]}, {"sizes": [1]}, ["sizes [1, 2] → [1]"]),
        ({"a": ""}, {"a": None}, ['a "" → null']),
        ({"a": "b"}, {"a": " b"}, ['a b → " b"']),
        ({"a": 1}, {"a": 1}, []),
    ],
)
def test_edits_are_described_in_plain_text(old: Any, new: Any, said: list[str]) -> None:
    assert [str(one) for one in edits(old, new)] == said


def test_repeated_flags_are_compared_by_position() -> None:
    old, new = ["--selector", "a", "--selector", "b"], ["--selector", "a", "--selector", "c"]
    assert [str(one) for one in edits(old, new, "args")] == ["args --selector b → --selector c"]


def test_long_edited_values_are_shortened() -> None:
    (one,) = edits({"note": "x"}, {"note": "y" * 50}, "")
    assert one.what == f"x → {'y' * 50}"
    (one,) = edits({}, {"note": {"text": "y" * 100}})
    assert len(one.what) < 80 and one.what.endswith("…")
