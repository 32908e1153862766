"""Tests with invalid services by an author who had seen neither the rules nor the first corpus.

The faults come from user reports and from SGLang's own checks. Before rules were added because of these files, the rules
found half of the faults. The head of a file states its fault, and the rule that must find it or why no rule can.
"""

import re
from pathlib import Path

import pytest

from ome_operator.lint.finding import Severity
from ome_operator.lint.rules import RULES
from tests.support.linting import in_file
from tests.support.overlays import LINT

SECOND, WORKS = sorted((LINT / "second").glob("*.yaml")), sorted((LINT / "works").glob("*.yaml"))
ASKED = 0.9


def told(path: Path, label: str) -> str:
    """Return the text after a label in the head of a file; "" if the label is missing."""
    found = re.search(rf"^# {label}: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


DECIDABLE = [path for path in SECOND if told(path, "rule")]


def test_every_file_states_its_fault_effect_and_source() -> None:
    assert len(SECOND) >= 40 and len(WORKS) >= 12
    for path in SECOND:
        assert all(told(path, label) for label in ("wrong", "then", "source")), path
        assert bool(told(path, "rule")) != bool(told(path, "missed")), f"{path}: name a rule, or state why there is none"
        assert not told(path, "rule") or told(path, "rule") in RULES, path
    for path in WORKS:
        assert all(told(path, label) for label in ("odd", "works", "source")), path


def test_nine_of_ten_faults_are_found() -> None:
    missed = [path.stem for path in DECIDABLE if told(path, "rule") not in {each.rule.id for each in in_file(path)}]
    assert len(missed) <= len(DECIDABLE) * (1 - ASKED), missed
    assert missed == []


def test_undetectable_fault_is_reported_as_no_error() -> None:
    """For a file whose head says that no rule can find its fault, `ome lint` reports no error. An error that names something
    else would be about another fault.
    """
    for path in set(SECOND) - set(DECIDABLE):
        assert Severity.ERROR not in {each.rule.severity for each in in_file(path)}, path


@pytest.mark.parametrize("path", WORKS, ids=lambda path: path.stem)
def test_working_service_gives_no_error(path: Path) -> None:
    assert [each.hit.says for each in in_file(path) if each.rule.severity == Severity.ERROR] == []
