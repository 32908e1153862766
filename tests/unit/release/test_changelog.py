"""Tests of the sections of CHANGELOG.md, and of whether they fit a release."""

from pathlib import Path

import pytest

from release.changelog import Section, sections, why_not

TEXT = """\
# Changelog

## [Unreleased]

## [0.2.0] - 2026-11-24

### Added

- Something.

## [0.1.0] - 2026-01-01

- First.
"""


def test_changelog_sections_are_parsed() -> None:
    assert sections(TEXT) == [
        Section("Unreleased", "", ""),
        Section("0.2.0", "2026-11-24", "### Added\n\n- Something."),
        Section("0.1.0", "2026-01-01", "- First."),
    ]


def test_release_accepts_matching_newest_section() -> None:
    assert why_not(TEXT, "0.2.0") is None


@pytest.mark.parametrize(
    ("text", "version", "why"),
    [
        (TEXT, "0.3.0", "does not begin with 0.3.0 (its newest version is 0.2.0): put `## [0.3.0] - YYYY-MM-DD` above"),
        (TEXT, "0.1.0", "does not begin with 0.1.0"),
        ("# Changelog\n", "0.1.0", "(it has no version)"),
        (TEXT.replace(" - 2026-11-24", ""), "0.2.0", "no date for 0.2.0: write `## [0.2.0] - YYYY-MM-DD`"),
        (TEXT.replace("### Added\n\n- Something.\n", ""), "0.2.0", "says nothing about 0.2.0"),
        (TEXT.replace("[Unreleased]\n", "[Unreleased]\n\n- More.\n"), "0.2.0", "entries under [Unreleased]"),
    ],
)
def test_unsuitable_changelog_is_refused_with_a_reason(text: str, version: str, why: str) -> None:
    assert why in (why_not(text, version) or "")


def test_changelog_of_this_project_has_sections() -> None:
    listed = sections((Path(__file__).parents[3] / "CHANGELOG.md").read_text())
    assert listed and all(one.text for one in listed[:1])
