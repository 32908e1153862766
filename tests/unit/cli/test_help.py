"""Tests of the help texts on a terminal of 80 columns: names are complete, every command has an example, and only `ome
--help` mentions shell completion.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ome_operator.cli.app import app

ROOT: Any = typer.main.get_command(app)


def commands(group: Any = ROOT, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command and group with the words that call it."""
    context: Any = group.make_context("ome", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*before, name), command
        if hasattr(command, "list_commands"):
            yield from commands(command, (*before, name))


ALL = [((), ROOT), *commands()]


@pytest.mark.parametrize(("words", "command"), ALL, ids=lambda one: " ".join(one) if isinstance(one, tuple) else "")
def test_help_is_not_truncated_at_80_columns(words: tuple[str, ...], command: Any) -> None:
    shown = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).invoke(app, [*words, "--help"])
    assert shown.exit_code == 0
    assert max(map(len, shown.output.splitlines())) <= 80
    names = [name for one in command.params for name in one.opts if name.startswith("--")]
    assert [name for name in names if not re.search(rf"(?<![\w-]){name}(?![\w-])", shown.output)] == []
    meant = re.sub(r"FILE…|b200, …|(NAME|names|services|\]|\})\.\.\.", "", shown.output)
    assert "…" not in meant and "..." not in meant, "nothing is truncated"
    assert "Example" in shown.output
    assert words == () or "--install-completion" not in shown.output


WRONG = "no such value"


def refusing() -> Iterator[tuple[str, ...]]:
    """Yield the words that call a command with a value that an option refuses while it is parsed."""
    for words, command in ALL:
        for one in command.params:
            given = (
                next((name for name in one.opts if name.startswith("--")), "") if not getattr(one, "is_flag", False) else ""
            )
            try:
                if given:
                    command.make_context(words[-1] if words else "ome", [given, WRONG])
            except typer.BadParameter as error:
                if WRONG in error.message:
                    yield (*words, given)
            except Exception:  # an argument is missing, or the option takes any text
                continue


REFUSING = list(refusing())


@pytest.mark.parametrize("words", REFUSING, ids=" ".join)
def test_refused_value_is_reported_without_library_messages(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*words, WRONG])
    assert shown.exit_code == 2 and WRONG in shown.output
    assert "Value error" not in shown.output


def test_options_with_choices_are_among_those_that_refuse() -> None:
    assert {("top", "--sort"), ("top", "--output"), ("lint", "--output")} <= set(REFUSING)
