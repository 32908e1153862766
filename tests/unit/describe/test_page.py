"""Tests that docs/troubleshooting.md has a row for every reason, generated from the records."""

import ast
import re
from pathlib import Path

from ome_operator import describe
from ome_operator.core.reasons import REASONS
from ome_operator.describe.page import PAGE, page_text, tables
from ome_operator.describe.words import WORDS


def test_troubleshooting_page_is_generated_from_the_records() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_text(), "run python -m ome_operator.describe.page"


def test_every_reason_has_a_row_with_its_kstatus() -> None:
    rows = re.findall(r"^\| (\w+) \| [\w, ]+ \| (InProgress|Failed|Current) \| [^|]+ \| [^|]* \|$", tables(), re.M)
    assert rows == [(record.word, str(record.read_as)) for record in REASONS.values()]


def test_printed_remedies_are_code_without_placeholders() -> None:
    text = tables()
    assert "`kubectl annotate isvc NAME -n NAMESPACE ome.io/ignore-fit=true`. See [placement](placement.md) |" in text
    assert "| `ome logs NAME -n NAMESPACE --role ROLE --group GROUP --previous` |" in text
    placeholders = [word for word in re.findall(r"\{(\w*)\}", text) if word]
    assert placeholders == []


def test_every_word_shown_in_place_of_a_reason_has_a_row() -> None:
    rows = re.findall(r"^\| (\w+) \| (?:Service|Pod) \| [^|]+ \| [^|]+ \|$", tables(), re.M)
    assert rows == list(WORDS) and not WORDS.keys() & REASONS.keys()


def test_trees_use_only_recorded_reasons_and_words() -> None:
    """A word that the modules of trees set as a reason is a reason with a record, or one of WORDS."""
    where = Path(describe.__file__).parent
    assigned = {
        node.value.value
        for name in ("tree.py", "readiness.py", "states.py", "diagnosis.py", "causes.py")
        for node in ast.walk(ast.parse((where / name).read_text(encoding="utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "reason"
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    assert assigned <= {*REASONS, *WORDS}
