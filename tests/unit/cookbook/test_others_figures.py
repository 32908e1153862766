"""Tests that measurements which others have published are shown with their source next to the recipe that they describe, and
next to no other recipe.
"""

from typing import Any

import pytest

from ome_operator.cookbook.layout import PlanProposal, plan
from ome_operator.cookbook.library import Library
from ome_operator.cookbook.manifests import manifests
from ome_operator.cookbook.published import published_results
from ome_operator.cookbook.request import RecipeRequest
from tests.support import parts


def made(shelf: Library, **asked: Any) -> PlanProposal:
    return plan(RecipeRequest(**{"hardware": "h200", "model": "instruct", **asked}), shelf)


def words(text: str) -> str:
    """Return the text of a comment without its line breaks."""
    return " ".join(text.replace("\n#", "\n").split())


@pytest.mark.parametrize("number", range(len(published_results())))
def test_every_published_result_belongs_to_an_available_recipe(number: int, shelf: Library) -> None:
    record = published_results()[number]
    sizes = {"tp": 8, "dp": 4, "gpus_per_node": 32} if record.asked["strategy"] == "tp" else {}
    planned = made(shelf, **record.asked, **sizes)
    assert record in planned.published
    assert record.source.startswith("https://") and record.sentence.endswith(
        f"Not measured by this project. Source: {record.source}"
    )
    assert words(record.sentence) in words(manifests(planned).runtime)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"strategy": "pd", "nodes": 8},
        {"strategy": "pd", "tp": 4},
        {"strategy": "pd", "prefix_cache": True},
        {"strategy": "pd", "decode_batch": 48},
        {"strategy": "pd", "model": "base"},
        {"strategy": "tp+dp"},
        {"strategy": "tp+dp", "hardware": "b200", "dp": 8},
    ],
)
def test_other_recipes_have_no_published_results(asked: dict[str, Any], shelf: Library) -> None:
    assert made(shelf, **asked).published == ()


def test_shipped_runtimes_contain_the_published_results_in_comments() -> None:
    found = [(file, each) for each in published_results() for file in each.runtimes]
    assert found
    for file, each in found:
        head = words((parts.ROOT / "config/runtimes" / file).read_text().partition("\napiVersion")[0])
        assert words(each.sentence) in head


def test_numbers_derived_from_published_results_are_correct() -> None:
    """The numbers that a remark derives from published figures are right: the sums over 16, 4 and 12 nodes, and the price of
    a million tokens.
    """
    first = published_results()[0]
    for number in (56_000 * 16, 24_000 * 16, 56_000 * 4, 24_000 * 12):
        assert f"{number:,}" in first.remark
    million_an_hour = 24_000 * 16 * 3600 / 1e6
    assert f"${16 * 8 * 2.30 / million_an_hour:.2f}" in first.figures[2]
