"""Tests that docs/sizing.md matches the data, and that the data match what the code computes from the calibration."""

import pytest

from ome_operator.sizing.calibration import shipped
from ome_operator.sizing.constants import fitted
from ome_operator.sizing.error_bars import DEPLOYMENT, FIGURES, held, left_out
from ome_operator.sizing.fit import fit, held_out, priors
from ome_operator.sizing.page import PAGE, TERMS, written
from ome_operator.sizing.validate import figures
from tests.conftest import SOAK
from tests.support.parts import ROOT

HELD = {(each.id, each.left_out): each.ratios for each in held()}
AGAIN = ("cfg666", "cfg481", "lmsys_h100_prefill_2k") if SOAK else ("cfg481",)
"""Deployments that the test leaves out of the fit again. Leaving out every deployment would take five minutes."""


EXAMPLE = ROOT / "tests/data/plans/kimi-k2-h200-agentic.txt"


def made(text: str) -> str:
    """Return the page with current tables, and with its example, whose output `test_command.py` checks."""
    before, rest = text.split("<!-- example -->\n")
    after = rest.partition("<!-- end of example -->")[2]
    example = f"<!-- example -->\n```\n{EXAMPLE.read_text(encoding='utf-8')}```\n<!-- end of example -->"
    return written(f"{before}{example}{after}")


def test_the_page_is_what_the_data_say(update: bool) -> None:
    text = PAGE.read_text(encoding="utf-8")
    if update:
        PAGE.write_text(text := made(text), encoding="utf-8")
    assert made(text) == text, "see `pytest tests/unit/sizing --update-golden`"


def test_every_row_that_is_answered_was_left_out_once() -> None:
    rows = [row.id for row in shipped() if row.id != "lmsys_gb200_decode_fp8"]
    assert [id_ for id_, what in HELD if what == DEPLOYMENT] == rows


def test_the_shipped_constants_are_what_the_fit_finds() -> None:
    rows = shipped()
    logs = fitted().logs
    assert set(logs) == set(priors(rows)) and TERMS.keys() <= logs.keys()
    again = fit(rows, logs, rounds=2).logs
    assert max(abs(again[name] - value) for name, value in logs.items()) < 0.1


@pytest.mark.parametrize("group", AGAIN)
def test_cross_validation_again(group: str) -> None:
    rows = shipped()
    said = held_out(rows, fitted(), DEPLOYMENT, group)
    assert said
    for row in (row for row in rows if row.id in said):
        guessed, seen = figures(row, said[row.id])
        for name in (name for name in FIGURES if name in seen and name in guessed):
            assert guessed[name] / seen[name] == pytest.approx(HELD[row.id, DEPLOYMENT][name], rel=0.1)


def test_no_throughput_and_no_tpot_of_a_known_engine_is_beyond_a_factor_of_two() -> None:
    for each in held():
        if each.left_out == DEPLOYMENT:
            assert all(0.5 <= each.ratios.get(name, 1.0) <= 2 for name in ("tokens", "tpot")), each


def test_errors_do_not_grow() -> None:
    """The errors that the page states, with some tolerance: a change of the model must not increase them unnoticed."""
    whole = left_out(DEPLOYMENT)
    assert whole["tokens"].median < 0.08 and whole["tpot"].median < 0.08 and whole["ttft"].median < 0.35
    assert left_out("gpu")["tokens"].median < 0.35


def test_the_calibration_is_the_file_that_was_handed_over() -> None:
    rows = (ROOT / "ome_operator/sizing/data/calibration.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 164 and all(line.split(",")[1] for line in rows)
