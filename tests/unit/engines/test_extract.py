"""Tests of extracting the flags of an engine from its argument parser. tests/node reads the parsers of real engines in their
images.
"""

import argparse
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from ome_operator.engines import extract
from ome_operator.engines.flags import packaged_versions

DATA = Path(extract.__file__).parent / "data"


class DeprecatedStoreTrueAction(argparse.Action):
    """An action in the form that SGLang defines."""

    def __init__(self, option_strings: list[str], dest: str, new_flag: str | None = None, **more: Any) -> None:
        self.new_flag = new_flag
        super().__init__(option_strings, dest, nargs=0, **more)


def described(*names: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return extract.describe_flag(argparse.ArgumentParser().add_argument(*names, **more))


def test_extracted_flag_has_aliases_default_help_and_negations() -> None:
    assert described("--tensor-size", "--tp-size", dest="tp_size", type=int, default=1, help="How\n  many.") == (
        "--tp-size",
        {"takes": "value", "type": "int", "default": 1, "aliases": ["--tensor-size"], "help": "How many."},
    )
    assert described("-s", "--on", action="store_true") == (
        "--on",
        {"takes": "switch", "default": False, "aliases": ["-s"]},
    )
    negated = described("--on", action=argparse.BooleanOptionalAction)[1]
    assert (negated["takes"], negated["negations"]) == ("switch", ["--no-on"])


@pytest.mark.parametrize(
    ("nargs", "takes"), [(None, "value"), ("?", "optional"), ("*", "any"), ("+", "values"), (2, "values")]
)
def test_extracted_flag_has_kind_of_value(nargs: str | int | None, takes: str) -> None:
    assert described("--x", nargs=nargs)[1]["takes"] == takes


def test_extracted_choices_are_sorted() -> None:
    assert described("--x", choices={"b", "c", "a"})[1]["choices"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"action": DeprecatedStoreTrueAction, "new_flag": "--new"}, "--new"),
        ({"action": DeprecatedStoreTrueAction}, "it no longer has an effect"),
        ({"help": "Deprecated. Use --new=1 instead."}, "--new=1"),
        ({"help": "(Deprecated, use --new) What it was."}, "--new"),
        ({"help": "The old value of it is deprecated."}, None),
    ],
)
def test_extracted_flag_has_deprecation(more: dict[str, Any], said: str | None) -> None:
    assert described("--old", **more)[1].get("deprecated") == said


def test_every_flag_is_written_on_its_own_line() -> None:
    text = extract.text({"version": "1", "flags": {"--a": {"takes": "switch"}, "--b": {"takes": "value"}}, "variables": {}})
    assert text.splitlines()[2:5] == [' "flags": {', '  "--a": {"takes": "switch"},', '  "--b": {"takes": "value"}']
    assert json.loads(text) == {
        "version": "1",
        "flags": {"--a": {"takes": "switch"}, "--b": {"takes": "value"}},
        "variables": {},
    }


def test_declared_variables_have_constant_defaults() -> None:
    field = types.SimpleNamespace
    fields = {"A": field(default=1), "B": field(default=lambda: 2), "get": field(default=3), "C": 4}
    assert extract.declared_variables(fields) == {"A": 1, "B": None}


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda path: path.stem)
def test_shipped_flag_files_have_the_format_of_the_extractor(path: Path) -> None:
    """The shipped files have the format that the extractor writes. The tests in the images prove that the files are the
    complete output.
    """
    text = path.read_text(encoding="utf-8")
    found = json.loads(text)
    assert extract.text(found) == text
    assert path.stem == f"{found['package']}-{found['version']}"
    assert packaged_versions().get(path.stem) is not None


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set another home directory for the rest of the program; the following tests get the original one again."""
    monkeypatch.setenv("HOME", "/root")


@pytest.mark.skipif(sys.platform != "linux", reason="the router is for Linux")
@pytest.mark.usefixtures("home")
def test_flags_of_the_installed_router_are_extracted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extractor reads the parser of the router that is installed with the tests, where sglang-router is a separate
    package.
    """
    monkeypatch.setattr(extract, "PROGRAMS", [extract.PROGRAMS[1]])
    assert extract.main() == 0
    assert capsys.readouterr().out == (DATA / "sglang-router-0.3.2.json").read_text(encoding="utf-8")


@pytest.mark.usefixtures("home")
def test_extract_fails_without_installed_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extract, "PROGRAMS", [extract.Program("no-such-package", "m", "C")])
    assert extract.main() == 1
    assert "no-such-package" in capsys.readouterr().err
