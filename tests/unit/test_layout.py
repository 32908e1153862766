"""The folders of unit tests are the packages that they test: who knows a room knows where its tests are."""

from pathlib import Path

from tests.support.parts import ROOT

UNIT = ROOT / "tests/unit"
BESIDE = {"bench", "examples", "images", "release"}
"""Folders of the repository that are no packages of ours, but are tested too."""


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
