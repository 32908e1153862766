"""Unit tests stand in folders as the packages that they test: who knows a room knows where its tests are.

A class has its name for itself, so that a search finds a single class.
"""

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.support.parts import ROOT

UNIT = ROOT / "tests/unit"
BESIDE = {"bench", "examples", "images", "release"}
"""Folders of the repository that are no packages of ours, but are tested too."""

SHARED = 38
"""How many names of classes of both packages stand twice or more: the number may only sink."""
ROOM = 5
"""How far the count may lie below before the number has to follow: several branches sink it at the same time."""


def folders(root: Path, files: str = "*.py") -> set[str]:
    """Folders below `root` with such files in them or further below."""
    found = [path.relative_to(root) for path in root.rglob(files)]
    return {str(folder) for path in found for folder in path.parents if folder != Path()}


def packages() -> set[str]:
    """Packages by where their unit tests are: those of the operator without its name."""
    return folders(ROOT / "ome_operator") | {"ome_local"} | {f"ome_local/{one}" for one in folders(ROOT / "ome_local")}


def test_every_folder_of_unit_tests_is_a_package_or_a_folder_of_the_repository() -> None:
    assert folders(UNIT) - packages() == BESIDE
    assert all((ROOT / one).is_dir() for one in BESIDE)


def test_every_package_has_its_unit_tests() -> None:
    assert packages() - folders(UNIT, "test_*.py") == set()


def shared(files: Iterable[Path]) -> set[str]:
    """Names that several classes of these files have."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {name for name, times in names.items() if times > 1}


def test_fewer_classes_share_a_name() -> None:
    names = shared(file for package in ("ome_operator", "ome_local") for file in (ROOT / package).rglob("*.py"))
    said = f"{len(names)} names of classes stand twice or more, and {SHARED} may"
    assert len(names) <= SHARED, f"{said}: name your class by what it is in its field: {', '.join(sorted(names))}"
    assert len(names) > SHARED - ROOM, f"{said}: lower SHARED in {__file__} to that number"


def test_a_name_is_counted_over_all_files(tmp_path: Path) -> None:
    for file, text in {"a.py": "class A: ...\nclass B: ...", "b.py": "class B:\n    class C: ..."}.items():
        (tmp_path / file).write_text(text)
    assert shared(tmp_path.glob("*.py")) == {"B"}
