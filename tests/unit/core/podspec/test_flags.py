"""Tests of how the words of a command line are read."""

import pytest

from ome_operator.core.podspec.flags import override_flags, remove_flags

OVERRIDES: list[tuple[list[str], list[str], list[str]]] = [
    (["--tp=8", "--x"], ["--tp=4"], ["--x", "--tp=4"]),
    (["--tp", "8", "--x"], ["--tp", "4"], ["--x", "--tp", "4"]),
    (["--tp=8", "model"], ["--tp=4"], ["model", "--tp=4"]),
    (["--tp 8", "--x"], ["--tp 4"], ["--x", "--tp 4"]),
    (["--list", "a", "b", "--x"], ["--list", "c"], ["--x", "--list", "c"]),
    (["--tp-size=8"], ["--tp=4"], ["--tp-size=8", "--tp=4"]),
    (["serve", "--x"], [], ["serve", "--x"]),
]


@pytest.mark.parametrize(("args", "extra", "merged"), OVERRIDES)
def test_override_replaces_flags_of_the_same_name(args: list[str], extra: list[str], merged: list[str]) -> None:
    assert override_flags(args, extra) == merged


def test_remove_flags_removes_flags_with_all_values() -> None:
    assert remove_flags(["serve", "--a", "1", "2", "--b=3", "x", "--c"], {"--a", "--b"}) == ["serve", "x", "--c"]
