"""Tests that texts by other users are escaped before they reach a terminal."""

import io
import json
import logging
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ome_operator import __main__ as program
from ome_operator.cli import status
from ome_operator.cli.logs import _Shown
from ome_operator.cli.output import Format, emit
from ome_operator.core.observed.objects import Observed
from ome_operator.describe.tree import tree
from ome_operator.errors import UserError
from ome_operator.kube.podlogs import LogLine
from ome_operator.lint import report
from ome_operator.lint.finding import Finding, Location, RuleHit
from ome_operator.lint.rules import RULES
from ome_operator.util.log_format import configure
from ome_operator.util.visible import make_all_visible, make_visible

EVIL = "evil\x1b]0;PWNED\x07\x1b[2J\x1b[31mALL GOOD\nFAKE LINE"
SHOWN = "evil␛]0;PWNED␇␛[2J␛[31mALL GOOD␤FAKE LINE"


@given(st.text())
def test_escaped_text_contains_no_control_or_format_characters(text: str) -> None:
    shown = make_visible(text)
    assert {unicodedata.category(item) for item in shown}.isdisjoint({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
    assert make_visible(shown) == shown
    assert make_visible(text, keep="\n").count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (EVIL, SHOWN),
        ("Kimi K2 – 中文 ✓ \u00a0", "Kimi K2 – 中文 ✓ \u00a0"),
        ("\x9b31m", "\\u009b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("\U000e0041", "\\U000e0041"),
        ("\x7f\t", "␡␉"),
    ],
)
def test_control_characters_are_shown_as_symbols(text: str, shown: str) -> None:
    assert make_visible(text) == shown


def test_status_output_contains_no_control_characters() -> None:
    """The output of `ome status` on a terminal contains no control characters of other users. A review reported this for the
    name of a model; the test covers every field of an object in the tree.
    """
    spec = {"model": {"name": EVIL}, "runtime": {"name": EVIL}}
    conditions = [{"type": "Ready", "status": "False", "reason": EVIL, "message": EVIL}]
    body = {"metadata": {"name": "svc", "namespace": "team-a"}, "spec": spec, "status": {"conditions": conditions}}
    out = io.StringIO()
    screen = Console(file=out, force_terminal=True, width=400, color_system=None)
    screen.print(status._drawn([tree(body, Observed())], True))
    said = out.getvalue()
    assert "PWNED" in said and "\x1b]" not in said and "\x1b[2J" not in said and "\x07" not in said
    assert not [line for line in said.splitlines() if line.strip(" │├└─").startswith("FAKE")]
    assert f"model {SHOWN}, runtime {SHOWN}" in said


def test_text_log_line_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.root.handlers[:]
    try:
        configure("console", "INFO")
        logging.getLogger("test").warning("model %s", EVIL)
        try:
            raise ValueError(EVIL)
        except ValueError:
            logging.getLogger("test").exception("broken")
    finally:
        logging.root.handlers[:] = before
    said = capsys.readouterr().err
    assert "\x1b" not in said and "\x07" not in said
    assert said.splitlines()[0].endswith(f"WARNING test: model {SHOWN}")


def test_json_log_line_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """A line of the operator's log in JSON contains no control characters of other users. JSON is the default of the chart,
    and users may still read it on a terminal, because `kubectl logs` prints it unchanged.
    """
    evil = EVIL + "\x9b31m \u202egood"
    before = logging.root.handlers[:]
    try:
        configure("json", "INFO")
        logging.getLogger("test").warning("model %s", evil)
        logging.getLogger("test").warning("Kimi K2 – 中文 ✓")
        try:
            raise ValueError(evil)
        except ValueError:
            logging.getLogger("test").exception("broken")
    finally:
        logging.root.handlers[:] = before
    said = capsys.readouterr().err
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(said)
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["message"] for line in lines] == [f"model {evil}", "Kimi K2 – 中文 ✓", "broken"]
    assert evil in lines[2]["exception"] and "中文" in said


def test_lint_findings_in_json_are_exact_and_escaped() -> None:
    rule = next(iter(RULES.values()))
    found = Finding(rule, "team/s", RuleHit(Location(EVIL + "\x9b31m", "spec"), "says", "do it"))
    for text in (report.json_report([found], {}), report.sarif_report([found], {}, "1")):
        assert not {"\x1b", "\x07", "\x9b"} & set(text) and "PWNED" in text


@pytest.mark.parametrize("output", Format)
def test_printed_documents_are_exact_and_escaped(output: Format, capsys: pytest.CaptureFixture[str]) -> None:
    emit(output, {"name": EVIL + "\x9b31m"})
    said = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b"} & set(said)
    if output is Format.JSON:
        assert json.loads(said) == {"name": EVIL + "\x9b31m"}


def test_user_error_is_printed_without_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: Any) -> None:
        raise UserError(f"{EVIL} is wrong.\nNext line.")

    monkeypatch.setattr(program, "app", refuse)
    monkeypatch.setattr(program.stack, "widen", lambda: None)
    with pytest.raises(SystemExit):
        program.main()
    said = capsys.readouterr().err
    assert "␛]0;PWNED␇" in said and "\x1b" not in said and said.endswith("is wrong.\nNext line.\n")


@pytest.mark.parametrize("terminal", [True, False])
def test_container_log_lines_are_escaped_on_terminal(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of containers are escaped on a terminal. If the output is not a terminal, they are printed unchanged."""
    shown = _Shown(1, False)
    shown._terminal = terminal
    shown("a", LogLine("", "\x1b[32mINFO\x1b[0m \x1b[2Jx\ty"))
    assert capsys.readouterr().out == ("a │ INFO ␛[2Jx\ty\n" if terminal else "a │ \x1b[32mINFO\x1b[0m \x1b[2Jx\ty\n")


@pytest.mark.parametrize("made", [list, tuple, lambda item: {"a": [*item]}, lambda item: {item[0]: 1, "n": None, "f": 1.5}])
def test_every_string_inside_a_value_is_escaped(made: Callable[[list[str]], Any]) -> None:
    assert EVIL not in repr(make_all_visible(made([EVIL, "x"]))) and type(make_all_visible(made([EVIL]))) is type(
        made([EVIL])
    )
    assert make_all_visible(made(["plain"])) == made(["plain"])
