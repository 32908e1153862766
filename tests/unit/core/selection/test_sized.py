"""Tests of how messages write the size of a model."""

import pytest

from ome_operator.core.selection.model_profile import format_parameters


@pytest.mark.parametrize(
    ("parameters", "said"), [(1.0264e12, "1,026.4B"), (5e8, "0.5B"), (8.2e7, "82.0M"), (330_000, "330.0K"), (400, "0.4K")]
)
def test_parameter_count_is_never_formatted_as_zero(parameters: float, said: str) -> None:
    assert format_parameters(parameters) == said
