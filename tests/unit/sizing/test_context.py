"""Tests of the context length of each model that `ome plan` knows, including models that share an entry with another one."""

import pytest

from ome_operator.api import Model
from ome_operator.sizing import shapes
from ome_operator.sizing.errors import PlanRefused
from tests.support.parts import ROOT, ensure_valid, read_documents

MODELS = [
    ensure_valid(Model.parse(body))
    for file in sorted((ROOT / "config/models").rglob("*.yaml"))
    for body in read_documents(file)
]


def test_context_length_equals_that_of_the_catalog() -> None:
    seen = 0
    for model in MODELS:
        name = model.spec.storage.storage_uri.rpartition("/")[2]
        try:
            known = shapes.shape(name).longest
        except PlanRefused:
            continue
        seen += 1
        assert known == model.spec.max_tokens, name
    assert seen > 10


@pytest.mark.parametrize(("name", "longest"), [("Kimi-K2", 262144), ("Qwen3-235B-A22B-FP8", 40960), ("GLM-4.5", 131072)])
def test_models_of_one_entry_may_have_different_context_lengths(name: str, longest: int) -> None:
    assert shapes.shape(name).longest == longest
