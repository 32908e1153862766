"""Tests of each row of claims from the first documents. docs/seeds.md is generated from these rows."""

from typing import Any

import pytest

from tests.support import parts
from tests.support.seeds.page import page
from tests.support.seeds.proofs import PROOFS, prove_row
from tests.support.seeds.rows import Row, RowResult, rows

PAGE = parts.ROOT / "docs/seeds.md"
ROWS = rows()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_verdict_of_a_row_equals_the_one_on_the_page(row: Row) -> None:
    """The result of a row on the page is the result that its proofs determine. The test fails if the page claims more or
    less than the proofs show.
    """
    found, why = prove_row(row)
    assert found == row.expected, f"{row.name} {found}, and the page says {row.expected}: {why or row.because}"


def test_seeds_page_is_generated_from_the_rows(update: bool) -> None:
    text = page()
    if update:
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "see `pytest tests/docs/test_seeds.py --update-golden`"


def test_every_row_is_unique_and_states_the_reason_for_a_difference() -> None:
    names = [row.name for row in ROWS]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
    assert [row.name for row in ROWS if not row.proof and not row.instead and row.expected != RowResult.MISSING] == []


KIMI = "--hardware h200 --model Kimi-K2-Instruct"
SAMPLE = "moonshotai/kimi-k2-tp16.yaml"
MODEL = "config/models/moonshotai/Kimi-K2-Instruct.yaml"
SHORT = {
    "kind": "ClusterBaseModel",
    "metadata": {"name": "k2", "uid": "u"},
    "spec": {"source": {"huggingface": {"repo": "a/b"}}},
}
FALSE: dict[str, list[Any]] = {
    "flag": [
        {"is": "--tp 9", "generate": KIMI},
        {"is": "--no-such-flag", "generate": KIMI},
        {"is": "--trust-remote-code yes", "generate": KIMI},
        {"is": "--enable-deepep-moe", "generate": f"{KIMI} --strategy pd"},
        {"is": "--tp 8", "generate": KIMI, "pods": {"sample": SAMPLE}},
        {"is": "--tp 8", "generate": "--hardware h300 --model Kimi-K2-Instruct"},
    ],
    "variable": [
        {"is": "MC_TE_METRIC=false", "generate": f"{KIMI} --strategy pd"},
        {"is": "MC_TE_METRIC=true", "generate": f"{KIMI} --strategy pd", "pods": {"sample": SAMPLE}},
    ],
    "generates": [{"words": KIMI, "has": ["--tp 9"]}, {"words": KIMI, "lacks": ["--tp 8"]}, {"words": "--model x"}],
    "tells": [{"words": KIMI, "has": ["no such words"]}],
    "explains": [["a price of nothing"]],
    "pods": [
        {"sample": SAMPLE, "runs": ["--tp-size 8"]},
        {"sample": SAMPLE, "env": {"PYTHONUNBUFFERED": "0"}},
        {"sample": SAMPLE, "at": {"spec.hostNetwork": True}},
    ],
    "made": [{"sample": SAMPLE, "kind": "Ingress"}, {"sample": SAMPLE, "kind": "Service", "at": {"spec.type": "NodePort"}}],
    "shipped": [{"file": "config/models/none.yaml"}, {"file": MODEL, "at": {"spec.storage.path": "/elsewhere"}}],
    "facts": [{"model": "Kimi-K2-Instruct", "at": {"experts.routed": 385}}],
    "sizes": [
        {"ask": {"hardware": "h200", "model": "instruct"}, "role": 0, "at": {"tp": 9}},
        {"ask": {"hardware": "h300", "model": "instruct"}, "at": {"nodes": 1}},
    ],
    "text": [{"file": "README.md", "has": ["no such sentence"]}, {"file": "NONE.md", "has": []}],
    "benchmark": [{"sample": "config/samples/benchmark/kimi-k2-latency.yaml", "has": ["--num-prompts 11"]}],
    "short_kinds": [{"model": SHORT, "at": {"ClusterBaseModel.spec.storage.storageUri": "hf://other/b"}}],
    "tested": ["tests/docs/test_seeds.py::test_that_nobody_wrote", "tests/none.py::test_it"],
}


@pytest.mark.parametrize("name", PROOFS)
def test_a_proof_can_fail(name: str) -> None:
    for told in FALSE[name]:
        assert PROOFS[name](told), told
