"""Tests of the text for ranges of numbers and names."""

import pytest

from ome_operator.describe.text import combine_names, numbers


def test_consecutive_numbers_are_printed_as_a_range() -> None:
    assert numbers([5, 0, 2, 3, 4, 9]) == "0, 2–5, 9"
    assert numbers([]) == ""


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["h200-02", "h200-01", "h200-12"], "h200-[01-02,12]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n7"], "n7"),
        (["n07"], "n07"),
        (["gpu-a", "gpu-b"], "gpu-a, gpu-b"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
        (["n1", "n1"], "n1"),
        ([], ""),
    ],
)
def test_names_with_numbers_are_combined(names: list[str], said: str) -> None:
    assert combine_names(names) == said
