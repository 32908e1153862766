"""Tests of the flags that are made from a settings class."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from ome_operator.cli.declared import read_values, with_flags
from ome_operator.errors import InvalidOption, UserError
from ome_operator.settings.option import Option, build_settings_object, options


@dataclass(frozen=True, kw_only=True)
class _Cake:
    """The settings of a command that exists only here."""

    layers: Annotated[int, Option(flag="--layers", help="Number of layers.", ge=1)] = 2
    fillings: Annotated[tuple[str, ...], Option(flag="--filling", help="A filling.", repeats="One for each layer.")] = ()
    weight: Annotated[float, Option(flag="--weight", help="Weight in kg.", ge=0)] = 1.0
    glazed: Annotated[bool, Option(flag="--glazed", help="Glaze it.", negatable=False)] = False
    warm: Annotated[bool, Option(flag="--warm", help="Serve it warm.")] = False


_OPTIONS = tuple(options(_Cake))
app = typer.Typer(add_completion=False, rich_markup_mode=None)
made: list[tuple[str, _Cake, bool]] = []


def _fillings(given: list[str]) -> tuple[str, ...]:
    if "" in given:
        raise ValueError("a filling has no name.")
    return tuple(given)


@app.command()
@with_flags(_OPTIONS)
def bake(guest: Annotated[str, typer.Option()] = "all", *, loud: bool = False, **given: Any) -> None:
    """Bake a cake."""
    made.append((guest, build_settings_object(_Cake, read_values(_OPTIONS, given, {"fillings": _fillings})), loud))


def test_own_options_of_a_command_stand_before_and_after_the_declared_ones() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    order = ["--guest", "--layers", "--filling", "--glazed", "--warm", "--loud"]
    assert sorted(order, key=shown.index) == order
    assert "A filling. One for each layer." in shown and "May be repeated" not in shown


def test_own_options_and_the_declared_ones_reach_the_command() -> None:
    made.clear()
    done = CliRunner().invoke(app, ["--guest=me", "--filling=plum", "--glazed", "--no-warm", "--loud"])
    assert done.exit_code == 0, done.output
    assert made == [("me", _Cake(fillings=("plum",), glazed=True), True)]


def test_a_switch_that_nothing_else_can_set_has_no_negated_form() -> None:
    assert CliRunner().invoke(app, ["--no-warm"]).exit_code == 0
    assert "No such option" in CliRunner().invoke(app, ["--no-glazed"]).stderr


def test_the_error_of_a_reader_names_the_flag() -> None:
    done = CliRunner().invoke(app, ["--filling="])
    assert isinstance(done.exception, UserError) and str(done.exception) == "--filling: a filling has no name."


@pytest.mark.parametrize("weight", ["inf", "1e999"])
def test_an_infinite_number_is_refused(weight: str) -> None:
    done = CliRunner().invoke(app, [f"--weight={weight}"])
    assert isinstance(done.exception, InvalidOption) and done.exception.exit_code == 2
    assert str(done.exception) == f"--weight={float(weight)}: write a number of at least 0."
