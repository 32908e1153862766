"""Tests with invalid files, in a directory for each rule: the rule of the directory finds the fault of a file.

The same author wrote the rules and these files; test_second.py has files by another author.
"""

import re
from pathlib import Path

import pytest

from ome_operator.lint import files
from ome_operator.lint.finding import Severity
from ome_operator.lint.rules import RULES
from tests.support.linting import in_file
from tests.support.overlays import BASES, LINT

CORPUS = LINT / "corpus"
FILES = sorted(CORPUS.glob("*/*.yaml"))
ELSEWHERE = {"requests-few", "keda-missing"} | {
    rule.id for rule in files.RULES
}  # works/max-running-below-dp; test_scaling.py; tests/unit/cli/test_gate.py


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def test_every_rule_has_a_file_and_every_folder_is_named_after_a_rule() -> None:
    """Every rule has a file in this corpus or in the second corpus, and every directory has the name of a rule."""
    folders = {path.parent.name for path in FILES}
    headers = "".join(path.read_text(encoding="utf-8") for path in (LINT / "second").glob("*.yaml"))
    assert folders <= RULES.keys()
    assert folders | set(re.findall(r"^# rule: (.+)$", headers, re.M)) | ELSEWHERE == RULES.keys()


def test_bases_have_no_errors() -> None:
    """The bases of the cases have no errors except a known error, because the fault of a case must be in its overlay."""
    errors = {
        path.stem: {each.rule.id for each in in_file(path) if each.rule.severity == Severity.ERROR}
        for path in BASES.glob("*.yaml")
    }
    assert len(errors) >= 12
    assert {base: rules for base, rules in errors.items() if rules} == {"minimal-shell": {"host-loopback"}}


def test_every_base_has_a_case() -> None:
    cases = [path.read_text(encoding="utf-8") for path in LINT.glob("*/**/*.yaml")]
    assert {name for text in cases for name in re.findall(r"^base: (.+)$", text, re.M)} == {
        path.stem for path in BASES.iterdir()
    }


def test_lint_reports_rule_of_each_corpus_folder() -> None:
    missed = [name(path) for path in FILES if path.parent.name not in {each.rule.id for each in in_file(path)}]
    assert missed == []


ALSO = {
    "flag-range/port": {"port-differs"},
    "port-twice/grpc": {"requirement-missing"},
    "drafts-differ/tokens": {"flags-contradict"},
    "ranks-differ/worker": {"host-loopback"},
    "ranks-limits-differ/worker": {"host-loopback"},
    "variable-missing/path": {"host-loopback"},
    "dp-both/both": {"gpus-too-few"},
    "ep-divides-tp/seven": {"experts-divide"},
    "gpus-too-few/65": {"heads-divide", "blocks-divide"},
    "heads-divide/heads": {"blocks-divide"},
    "nnodes-differ/three": {"heads-divide", "blocks-divide"},
    "tp-divides-nodes/odd": {"gpus-too-few", "heads-divide", "blocks-divide"},
}
"""Further findings in these files. A size that does not divide, or a command line that the engine cannot parse, often causes
several faults.
"""


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_other_rule_reports_an_error(path: Path) -> None:
    errors = {each.rule.id for each in in_file(path) if each.rule.severity == Severity.ERROR}
    assert errors - {path.parent.name} == ALSO.get(name(path), set())
