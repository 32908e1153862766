"""Tests that docs/troubleshooting.md has a row for every reason, generated from the records."""

import re

from ome_operator.core.reasons import REASONS
from ome_operator.describe.page import PAGE, page_text, tables


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_text(), "run python -m ome_operator.describe.page"


def test_every_reason_has_a_row_with_its_kstatus() -> None:
    rows = re.findall(r"^\| (\w+) \| [\w, ]+ \| (InProgress|Failed|Current) \| [^|]+ \| [^|]* \|$", tables(), re.M)
    assert rows == [(record.word, str(record.read_as)) for record in REASONS.values()]


def test_a_printed_remedy_has_its_command_as_code_and_no_placeholder() -> None:
    text = tables()
    assert "`kubectl annotate isvc NAME -n NAMESPACE ome.io/ignore-fit=true`. See [placement](placement.md) |" in text
    assert "| `ome logs NAME -n NAMESPACE --role ROLE --group GROUP --previous` |" in text
    placeholders = [word for word in re.findall(r"\{(\w*)\}", text) if word]
    assert placeholders == []
