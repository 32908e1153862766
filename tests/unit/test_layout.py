"""Tests that unit tests are in folders with the names of the packages that they test, so that both can be found from each
other.

A class name is used only once, so that a search finds a single class. Modules and functions are small enough to be read as a
whole.
"""

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.support.parts import ROOT

UNIT = ROOT / "tests/unit"
BESIDE = {"bench", "examples", "images", "release"}
"""Folders of the repository outside the packages ome_operator and ome_local that have unit tests, too."""

SHARED = 31
"""Largest number of class names that may belong to more than one class of the packages ome_operator and ome_local."""

FUNCTION, PARAMETERS, MODULE = 50, 8, 350
"""The most lines of a function, parameters of a function and lines of a module. A command (`cli`) has as many parameters as
users need options, and a constructor (`__init__`) gets as many parts as it puts together.
"""


def folders(root: Path, files: str = "*.py") -> set[str]:
    """Return the folders below `root` that contain such files, directly or further below."""
    found = [path.relative_to(root) for path in root.rglob(files)]
    return {str(folder) for path in found for folder in path.parents if folder != Path()}


def packages() -> set[str]:
    """Return the folders below tests/unit in which the unit tests of each package belong. Folders for packages of
    ome_operator do not begin with its name.
    """
    return folders(ROOT / "ome_operator") | {"ome_local"} | {f"ome_local/{one}" for one in folders(ROOT / "ome_local")}


def test_unit_test_folders_correspond_to_packages() -> None:
    assert folders(UNIT) - packages() == BESIDE
    assert all((ROOT / one).is_dir() for one in BESIDE)


def test_every_package_has_its_unit_tests() -> None:
    assert packages() - folders(UNIT, "test_*.py") == set()


def shared(files: Iterable[Path]) -> set[str]:
    """Return the class names that these files define more than once."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {name for name, times in names.items() if times > 1}


def test_number_of_equal_class_names_is_limited() -> None:
    names = shared(file for package in ("ome_operator", "ome_local") for file in (ROOT / package).rglob("*.py"))
    shared_now = f"{len(names)} names are shared by several classes, and {SHARED} may be"
    assert len(names) <= SHARED, f"{shared_now}: name your class by what it is in its field: {', '.join(sorted(names))}"


def test_class_names_are_counted_over_all_files(tmp_path: Path) -> None:
    for file, text in {"a.py": "class A: ...\nclass B: ...", "b.py": "class B:\n    class C: ..."}.items():
        (tmp_path / file).write_text(text)
    assert shared(tmp_path.glob("*.py")) == {"B"}


def oversized(name: str, text: str) -> list[str]:
    """Return a message for each function of a module that has too many lines or parameters."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines, given = (node.end_lineno or 0) - node.lineno + 1, node.args
        names = [
            each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if each
        ]
        count = len([each for each in names if each not in ("self", "cls")])
        if lines > FUNCTION:
            found.append(f"{name}:{node.lineno} {node.name} has {lines} lines")
        if count > PARAMETERS and node.name != "__init__":
            found.append(f"{name}:{node.lineno} {node.name} has {count} parameters")
    return found


def modules(*folders: str) -> dict[str, str]:
    """Return the texts of the Python files in these folders of the repository, by path."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def test_functions_are_short() -> None:
    messages = [each for name, text in modules("ome_operator", "ome_local").items() for each in oversized(name, text)]
    assert [each for each in messages if not is_number_of_options(each)] == []


def is_number_of_options(message: str) -> bool:
    """Return whether a message of `oversized` is about the number of parameters of a function of the command line."""
    return message.endswith("parameters") and "cli" in Path(message.partition(":")[0]).with_suffix("").parts


def test_modules_are_short() -> None:
    files = modules("ome_operator", "ome_local", "tests", *BESIDE)
    counted = {name: len(text.splitlines()) for name, text in files.items()}
    assert {name: lines for name, lines in counted.items() if lines > MODULE} == {}


def test_lines_and_parameters_of_a_function_are_counted() -> None:
    def function(name: str, parameters: str, lines: int) -> list[str]:
        return oversized("a.py", f"class A:\n  async def {name}(self, {parameters}):\n" + "    ...\n" * (lines - 1))

    most = "a, b, /, c, d, *e, f, g, **h"
    assert function("run", most, FUNCTION) == []
    assert function("run", f"z, {most}", FUNCTION + 1) == ["a.py:2 run has 51 lines", "a.py:2 run has 9 parameters"]
    assert function("__init__", f"z, {most}", FUNCTION) == []
