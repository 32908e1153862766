"""`make lint` reads the pages with codespell: it finds words that have a standard term, and leaves code out."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A verdict is teh result.\n", ["verdict ==> result", "teh ==> the"]),
        ("The label `brake` stays.\n\n```\nmax by (brake) (ome_braked_services)\n```\n", []),
    ],
)
def test_words_of_ours_and_misspelled_words_are_found_outside_of_code(text: str, found: list[str], tmp_path: Path) -> None:
    page = tmp_path / "text"
    page.write_text(text, encoding="utf-8")
    command = [Path(sys.executable).parent / "codespell", "--dictionary", "-", page]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert [line.partition(": ")[2] for line in told.stdout.splitlines()] == found
