"""Tests that versions are compared as OME v0.1.5 compares them. The rows are taken from its tests (pkg/runtimeselector,
pkg/modelver).
"""

import pytest

from ome_operator.core.selection.versions import accepts_version

GT, GE = "GreaterThan", "GreaterThanOrEqual"


@pytest.mark.parametrize(
    ("operator", "runtime", "model", "serves"),
    [
        (GT, "1.8.0", "1.7.0", True), (GT, "1.7.0", "1.7.0", False), (GT, "1.7.0", "1.8.0", False),
        (GE, "1.8.0", "1.8.0", True), (GE, "1.9.0", "1.8.0", True), (GE, "1.7.0", "1.8.0", False),
        ("Equal", "1.8.0", "1.8.0", True), ("Equal", "1.9.0", "1.8.0", False), (None, "1.8.0", "1.8.0", True),
        (GT, "2.0.0", "1.9.0", True), (GT, "1.10.0", "1.9.0", True), (GT, "2", "1", True), (GE, "v0.9.0", "v0.8.0", True),
    ],
)  # fmt: skip
def test_runtime_version_is_the_left_operand(operator: str | None, runtime: str, model: str, serves: bool) -> None:
    assert accepts_version(operator, runtime, model) == serves


@pytest.mark.parametrize(
    ("operator", "runtime", "model", "serves"),
    [
        (GT, "4.44.0", "4.43.0.dev0", False), (GE, "4.43.0.dev0", "4.43.0.dev0", True),
        (GE, "1.8.0-beta", "1.8.0-alpha", False), (None, "1.8.0+20240707", "1.8.0+20240707", True),
        (None, "1.8.0+20240708", "1.8.0", False), (GT, "4.51.3-SAM-HQ-preview", "4.50.0", False),
    ],
)  # fmt: skip
def test_unofficial_version_is_only_equal_to_itself(operator: str | None, runtime: str, model: str, serves: bool) -> None:
    assert accepts_version(operator, runtime, model) == serves


@pytest.mark.parametrize(("runtime", "model"), [("4.57", "4.48.3"), ("5", "4.48"), ("v2.0.0", "1.0.0"), ("next", "1.0")])
def test_versions_of_different_form_are_not_ordered(runtime: str, model: str) -> None:
    assert not accepts_version(GE, runtime, model)


def test_missing_version_parts_are_zero() -> None:
    assert (
        accepts_version(None, "1", "1.0.0")
        and accepts_version("Equal", "1.0", "1.0.0")
        and accepts_version(GE, "latest", "latest")
    )
