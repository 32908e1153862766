"""Tests that no locked package has a license that obliges users of the images to more than keeping its notice."""

import re
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOCKED = re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
COPYLEFT = re.compile(r"\bA?GPL|\bLGPL|\bSSPL|Affero|General Public License|Server Side Public", re.IGNORECASE)
ELSEWHERE = frozenset({"colorama", "httpx2-jsfetch"})
"""Packages for other platforms, which are neither in an image nor installed here."""


def licence(found: metadata.PackageMetadata) -> str:
    """Return all statements of a package about its license: the expression, the text of its author, and classifiers."""
    said = [found.get("License-Expression") or "", (found.get("License") or "")[:200]]
    return "; ".join(filter(None, [*said, *(text for text in found.get_all("Classifier", []) if "License" in text)]))


@pytest.mark.parametrize("package", [name for name in LOCKED if name not in ELSEWHERE])
def test_every_locked_package_has_a_licence_that_is_not_copyleft(package: str) -> None:
    said = licence(metadata.metadata(package))
    assert said and not COPYLEFT.search(said), said


@pytest.mark.parametrize("said", ["GPL-3.0-only", "AGPL-3.0", "GNU General Public License v2 (GPLv2)", "LGPL-2.1"])
def test_copyleft_licences_are_recognized(said: str) -> None:
    assert COPYLEFT.search(said)
