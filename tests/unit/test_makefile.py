"""Tests that `make help` shows every target, and that `make setup` uses the fastest Python."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import parts


def test_every_make_target_is_shown_in_help() -> None:
    """Each target has a description after `##`, and the pattern of `help` matches its name, including digits."""
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", (parts.ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    told = subprocess.run(["make", "-C", parts.ROOT, "-s", "help"], capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in told.splitlines() if line.startswith("  make ")} == set(
        phony[1].replace("\\", "").split()
    )


@pytest.mark.parametrize(
    ("here", "taken"),
    [
        ({"python3": "fast", "python3.13": "fast"}, "python3"),
        ({"python3": "slow", "python3.12": "slow", "python3.11": "fast"}, "python3.11"),
        ({"python3": "old", "python3.14": "fast"}, "python3.14"),
    ],
)
def test_optimized_python_is_preferred(here: dict[str, str], taken: str, tmp_path: Path) -> None:
    answers = {"fast": "exit 0", "slow": 'case "$2" in *optimizations*) exit 1;; esac', "old": "exit 1"}
    for name, what in here.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{answers[what]}\n")
        (tmp_path / name).chmod(0o755)
    assert shown(tmp_path) == taken


def test_first_sufficient_python_is_used_without_an_optimized_one(tmp_path: Path) -> None:
    (tmp_path / "python3.12").symlink_to(sys.executable)
    assert shown(tmp_path, "FAST=raise SystemExit(1)") == "python3.12"


def shown(path: Path, *words: str) -> str:
    """Return the interpreter that `make` chooses if only these programs are on the path."""
    command = [str(shutil.which("make")), "-C", str(parts.ROOT), "-s", "--eval=shown: ; @echo $(PYTHON)", *words, "shown"]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, check=True).stdout.strip()
