"""Tests that the tests of each report from the field exist, and that docs/field-reports.md is generated from the rows."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.field_reports import SOURCES, Row, page, rows
from tests.support.review import standing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/field-reports.md"
ROWS = rows()


def test_every_report_is_there_once_and_in_order() -> None:
    ids = [row.id for row in ROWS]
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    for letter in SOURCES:
        numbers = [int(re.fullmatch(r"[A-Z](\d+)[a-z]?", name)[1]) for name in ids if name.startswith(letter)]  # type: ignore[index]
        assert numbers == sorted(numbers), letter


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_names_tests_that_exist(row: Row) -> None:
    assert row.id[0] in SOURCES and all((row.kind, row.siblings, row.before, row.now))
    assert bool(row.tests) is not row.open, "only open rows may have no test"
    for test in row.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file() and name in standing(ROOT / path), test


def test_the_page_is_as_the_rows_are(update: bool) -> None:
    text = page()
    if update:
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "see `pytest tests/docs/test_field_reports.py --update-golden`"
