"""Tests of how a case of `ome lint` is composed from a base and an overlay."""

from typing import Any

import pytest

from tests.support.overlays import BASES, LINT, compose, composed_file, merge_overlay


@pytest.mark.parametrize(
    ("base", "overlay", "result"),
    [
        ({"a": 1, "b": 2}, {"b": None, "c": {"d": 3}}, {"a": 1, "c": {"d": 3}}),
        (["--a=1", "--b"], {"--a=1": "--a=2"}, ["--a=2", "--b"]),
        (["--a=1", "--b"], {"--a=1": None, "append": ["--c"]}, ["--b", "--c"]),
        (["--a=1", "--b"], {"--b": ["--c", "--d"]}, ["--a=1", "--c", "--d"]),
        (["--a=1", "--b"], {"after --a=1": "--c"}, ["--a=1", "--c", "--b"]),
        (["--a=1", "--b"], ["--c"], ["--c"]),
        (
            [{"name": "X", "value": "1"}],
            {"X": {"value": "2"}, "Y": {"value": "3"}},
            [{"name": "X", "value": "2"}, {"name": "Y", "value": "3"}],
        ),
        ([{"name": "X"}, {"name": "Y"}], {"X": None, "append": [{"name": "Y"}]}, [{"name": "Y"}, {"name": "Y"}]),
        ([{"name": "X"}, {"name": "Y"}], {"after X": {"name": "Z"}}, [{"name": "X"}, {"name": "Z"}, {"name": "Y"}]),
    ],
)  # fmt: skip
def test_overlay_is_merged_into_its_base(base: Any, overlay: Any, result: Any) -> None:
    assert merge_overlay(base, overlay) == result


@pytest.mark.parametrize(
    ("base", "overlay"),
    [
        ({"a": 1}, {"b": None}),
        (["--a"], {"--b": "--c"}),
        (["--a"], {"after --b": "--c"}),
        ([{"name": "X"}], {"Y": None}),
        ([{"name": "X"}], {"after Y": {"name": "Z"}}),
    ],
)
def test_overlay_that_does_not_match_its_base_is_an_error(base: Any, overlay: Any) -> None:
    with pytest.raises(KeyError):
        merge_overlay(base, overlay)


def test_composed_case_has_the_documents_of_its_base() -> None:
    case = LINT / "corpus/flag-removed/deepep.yaml"
    assert "\nbase: minimal-one-node\n" in case.read_text()
    base, composed = compose(BASES / "minimal-one-node.yaml"), compose(case)
    assert [body["kind"] for body in composed] == [body["kind"] for body in base]
    assert composed != base and composed == compose(composed_file(case))
