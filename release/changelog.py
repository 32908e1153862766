"""Parse CHANGELOG.md in the format of Keep a Changelog: sections of versions, the newest first."""

import re
from dataclasses import dataclass

UNRELEASED = "Unreleased"
_HEADING = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """The section of a version."""

    version: str
    date: str
    """Date of the release; "" for unreleased changes."""
    text: str


def sections(text: str) -> list[Section]:
    """Return the sections in the order of the file."""
    found = list(_HEADING.finditer(text))
    ends = [*(heading.start() for heading in found[1:]), len(text)]
    return [Section(item[1], item[2] or "", text[item.end() : end].strip()) for item, end in zip(found, ends, strict=False)]


def why_not(text: str, version: str) -> str | None:
    """Return why this version cannot be released with this changelog, as a sentence with a remedy; None if it can be
    released.
    """
    listed = sections(text)
    waiting = next((item for item in listed if item.version == UNRELEASED and item.text), None)
    released = [item for item in listed if item.version != UNRELEASED]
    heading = f"`## [{version}] - YYYY-MM-DD`"
    if not released or released[0].version != version:
        newest = f"its newest version is {released[0].version}" if released else "it has no version"
        return f"CHANGELOG.md does not begin with {version} ({newest}): put {heading} above the entries of this release."
    if not released[0].date:
        return f"CHANGELOG.md has no date for {version}: write {heading}."
    if not released[0].text:
        return f"CHANGELOG.md says nothing about {version}: people read there what changed."
    if waiting is not None:
        return f"CHANGELOG.md has entries under [{UNRELEASED}]: those that are part of {version} belong below its heading."
    return None
