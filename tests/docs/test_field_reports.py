"""Tests that every report from the field has a row, that the tests of each row exist, and that docs/field-reports.md is
generated from the rows.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.field_reports import SOURCES, Row, page, rows
from tests.support.review import standing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/field-reports.md"
ROWS = rows()
REPORTS = {"R": 15, "W": 25, "P": 10, "G": 7}
"""Number of reports by letter: public reports, the first week, published models, and routers beside real engines."""


def test_every_report_has_a_row() -> None:
    """A report has a row of its own, or another row says that it covers the report."""
    reports = {f"{letter}{number}" for letter, count in REPORTS.items() for number in range(1, count + 1)}
    covered = {name for row in ROWS for name in row.covers}
    assert sorted(reports - {row.id for row in ROWS} - covered) == [], "these reports have no row"
    assert sorted(covered - reports) == [], "there are no reports with these numbers"
    assert [row.id for row in ROWS if row.id in covered] == [], "these reports have a row of their own"


def test_every_report_occurs_once_and_in_order() -> None:
    ids = [row.id for row in ROWS]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    for letter in SOURCES:
        numbers = [int(re.fullmatch(r"[A-Z](\d+)[a-z]?", name)[1]) for name in ids if name.startswith(letter)]  # type: ignore[index]
        assert numbers == sorted(numbers), letter


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_rows_name_existing_tests(row: Row) -> None:
    assert row.id[0] in SOURCES and all((row.kind, row.siblings, row.before, row.now))
    assert bool(row.tests) is not row.open, "only open rows may have no test"
    for test in row.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file() and name in standing(ROOT / path), test


def test_field_reports_page_is_generated_from_the_rows(update: bool) -> None:
    text = page()
    if update:
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "see `pytest tests/docs/test_field_reports.py --update-golden`"
