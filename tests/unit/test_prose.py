"""The word that hides a noun becomes rarer: this test counts it, and its number may only sink."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORD = re.compile(r"\bone\b")
CEILING = 5300
"""How often the word stands in *.py and *.md of the repository, as a name of a variable too."""
ROOM = 40
"""How far the count may lie below before the number has to follow: several branches sink it at the same time."""
FOLDERS = ("bench", "docs", "examples", "images", "ome_local", "ome_operator", "tests")


def count() -> int:
    """Occurrences in the repository, without golden files and data."""
    files = [*ROOT.glob("*.md"), *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*"))]
    texts = [file for file in files if file.suffix in (".py", ".md")]
    written = [file for file in texts if not {"golden", "data"} & {*file.relative_to(ROOT).parts}]
    return sum(len(WORD.findall(file.read_text(encoding="utf-8"))) for file in written)


def test_the_word_becomes_rarer() -> None:
    found = count()
    assert found <= CEILING, f'"one" stands {found} times, and may {CEILING} times: write the noun that it stands for'
    assert found > CEILING - ROOM, f'"one" stands only {found} times by now: lower CEILING in {__file__} to that number'
