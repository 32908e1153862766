"""Tests that the messages of rules contain no unformatted placeholder."""

import re

from ome_operator.lint.finding import Finding
from tests.support.linting import in_file
from tests.support.overlays import LINT


def test_no_message_contains_an_unformatted_placeholder() -> None:
    findings: list[Finding] = [found for path in LINT.glob("corpus/*/*.yaml") for found in in_file(path)]
    texts = {text for found in findings for text in (found.hit.says, found.hit.remedy)}
    assert len(texts) > 60
    assert [text for text in texts if re.search(r"(?<![$({])\{[A-Za-z_.]+\}(?!\})", text)] == []


def test_several_flags_in_one_argument_are_not_joined_again() -> None:
    """A message does not join several flags in one argument. Only a single flag with its value can be written
    as one word.
    """
    joined = {
        path.stem: found.hit
        for path in LINT.glob("corpus/flag-joined/*")
        for found in in_file(path)
        if found.rule.id == JOINED
    }
    assert joined["several"].remedy == "write each argument as its own item of the list" and joined["several"].fix is None
    assert joined["space"].remedy.startswith("write --") and joined["space"].fix is not None


JOINED = "flag-joined"
