"""Tests of the texts of exceptions in messages."""

import re

from ome_operator.util.wording import error_text
from tests.support.parts import ROOT


def test_text_of_an_exception_is_never_empty() -> None:
    assert error_text(TimeoutError()) == "TimeoutError"
    assert error_text(OSError("no route")) == "no route"


def test_no_message_falls_back_on_the_truth_value_of_an_exception() -> None:
    """An exception is always true, so `error or "text"` never is the text: the log of a leader said "cannot renew the
    Lease: ".
    """
    sources = [*ROOT.glob("ome_operator/**/*.py"), *ROOT.glob("ome_local/**/*.py")]
    assert len(sources) > 300
    found = [f"{source.relative_to(ROOT)}: {line}" for source in sources for line in FALLBACK.findall(source.read_text())]
    assert found == []


FALLBACK = re.compile(r".*[{=,(]\s*error or .*")
