"""Tests of the checks of words by typos in `make lint`: on pages, they find misspelled words, and project words for which
a standard term exists. Code is not checked for such project words.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A verdict is teh result.\n", ["`verdict` should be `result`", "`teh` should be `the`"]),
        ("The label `brake` stays.\n\n```\nmax by (brake) (ome_braked_services)\n```\n", []),
    ],
)
def test_project_words_and_misspelled_words_are_found_outside_of_code(text: str, found: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text(text, encoding="utf-8")
    command = [Path(sys.executable).parent / "typos", "--format", "brief", "--config", ROOT / "pyproject.toml", page]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert [line.partition(": error: ")[2] for line in result.stdout.splitlines()] == found
    assert (result.returncode != 0) == bool(found)
