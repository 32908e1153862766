"""Tests that docs/sizing.md matches the data, and that the data match what the code computes from the calibration."""

from ome_operator.sizing.aims import aims
from ome_operator.sizing.calibration import shipped
from ome_operator.sizing.constants import shipped_constants
from ome_operator.sizing.error_bars import DEPLOYMENT, KINDS, held_out_predictions, left_out
from ome_operator.sizing.fit import predictable_rows
from ome_operator.sizing.page import PAGE, TERMS, update_tables
from ome_operator.sizing.priors import constants
from tests.support.parts import ROOT

HELD = {(each.id, each.left_out): each.ratios for each in held_out_predictions()}
EXAMPLE = ROOT / "tests/data/plans/kimi-k2-h200-agentic.txt"


def made(text: str) -> str:
    """Return the page with current tables, and with its example, whose output `test_command.py` checks."""
    before, rest = text.split("<!-- example -->\n")
    after = rest.partition("<!-- end of example -->")[2]
    example = f"<!-- example -->\n```\n{EXAMPLE.read_text(encoding='utf-8')}```\n<!-- end of example -->"
    return update_tables(f"{before}{example}{after}")


def test_sizing_page_is_generated_from_the_data(update: bool) -> None:
    text = PAGE.read_text(encoding="utf-8")
    if update:
        PAGE.write_text(text := made(text), encoding="utf-8")
    assert made(text) == text, "see `pytest tests/unit/sizing --update-golden`"


def test_every_evaluated_row_was_left_out_once() -> None:
    rows = [row.id for row in shipped() if row.id != "lmsys_gb200_decode_fp8"]
    for kind in KINDS:
        assert [id_ for id_, what in HELD if what == kind] == rows


def test_shipped_constants_equal_the_fit_of_the_rows() -> None:
    names = {name for row in predictable_rows() for name in constants(row)}
    assert set(shipped_constants().logs) == names and TERMS.keys() <= names


def test_prediction_errors_are_at_most_those_on_the_page() -> None:
    """The errors of the predictions are at most those on the page, with some tolerance, so that a change of the model does
    not increase them unnoticed.
    """
    whole, apart = left_out(DEPLOYMENT, True), left_out(DEPLOYMENT, False)
    assert whole["tokens"].median < 0.15 and whole["tpot"].median < 0.15 and whole["ttft"].median < 0.4
    assert whole["tokens"].ninth < 0.45 and whole["tpot"].ninth < 0.40
    assert apart["tokens"].median < 0.10 and apart["tpot"].median < 0.10 and apart["ttft"].median < 0.45
    found = {aim.description: aim.found for aim in aims()}
    assert int(found["pairs of GPUs in the right order"].rstrip("%")) >= 85
    assert int(found["pairs of engines in the right order"].rstrip("%")) >= 70
    assert found["decode steps below the roofline"] == "0"


def test_at_most_three_percent_of_predictions_exceed_a_factor_of_two() -> None:
    """At most three of a hundred predictions of throughput or TPOT are wrong by more than a factor of two. Each row is
    predicted without the rows of its deployment.
    """
    ratios = [found for (_, what), found in HELD.items() if what == DEPLOYMENT]
    beyond = [each for each in ratios if any(not 0.5 <= each.get(name, 1.0) <= 2 for name in ("tokens", "tpot"))]
    assert len(beyond) <= 0.03 * len(ratios)


def test_calibration_file_has_all_rows_with_a_value() -> None:
    rows = (ROOT / "ome_operator/sizing/data/calibration.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1309 and all(line.split(",")[1] for line in rows)
