"""Tests of the form of findings (CONTRIBUTING.md): their heads state what is required, and they do not use this repository.
The scripts are not run.
"""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FINDINGS = sorted((ROOT / "findings").glob("*.sh"))


def head(file: Path) -> str:
    """Return the comment at the top of a script, without its marks."""
    lines = file.read_text(encoding="utf-8").splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(line.removeprefix("#").strip() for line in lines[:end])


@pytest.mark.parametrize("file", FINDINGS, ids=lambda file: file.stem)
def test_finding_head_states_software_expectation_and_observation(file: Path) -> None:
    for part in ("Software: ", "Expected: ", "Seen: ", "Output", "What helps: ", "Exit code 0: "):
        assert part in head(file), f"{file.name} does not say {part!r}"


@pytest.mark.parametrize("file", FINDINGS, ids=lambda file: file.stem)
def test_finding_pins_its_packages_and_does_not_use_this_repository(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", file], check=True)
    installed = re.findall(r"pip\" install (.*)$", text, re.MULTILINE)
    words = [word for line in installed for word in line.split() if not word.startswith("--")]
    assert words and all("==" in word for word in words), f"{file.name} installs {words}: pin each version with =="
    assert not re.search(r"ome_(operator|local)|index-url", text)


def test_the_page_lists_every_finding() -> None:
    listed = re.findall(r"\]\(([\w-]+\.sh)\)", (ROOT / "findings/README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [file.name for file in FINDINGS]
