"""Locates findings in the files that the user named, and creates a diff with the automatic fixes."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import unified_diff
from typing import NamedTuple

from ome_operator.lint.finding import Finding, RuleHit

_KIND, _NAME = re.compile(r"^kind:\s*[\"']?(\w+)", re.M), re.compile(r"^  name:\s*[\"']?([\w.-]+)", re.M)
_INLINE = re.compile(r"^metadata:\s*\{.*?\bname:\s*[\"']?([\w.-]+)", re.M)


class Spot(NamedTuple):
    """A line of a file. The first line has the number 1."""

    file: str
    line: int


class _Document(NamedTuple):
    object: str
    """Kind and name of the object in the document."""
    first: int
    """Index of the document's first line in the file; the first line of the file has the index 0."""
    lines: list[str]


def spot(files: Mapping[str, str], hit: RuleHit) -> Spot | None:
    """Return the position of a hit. It is the line of the word that the fix replaces, or else the first line of the hit's
    object. Return None if the object is in none of the files.
    """
    for file, text in files.items():
        for document in _documents(text):
            if document.object == _object(hit):
                words = [hit.fix.old] if hit.fix is not None else re.findall(r"--[a-z][\w-]+", hit.says)[:1]
                found = (at for word in words for at, line in enumerate(document.lines) if _word(word).search(_code(line)))
                return Spot(file, document.first + next(found, 0) + 1)
    return None


def patch(files: Mapping[str, str], findings: Iterable[Finding]) -> str:
    """Return a unified diff that applies the automatic fixes of the findings to the files; "" if there are no automatic
    fixes.
    """
    hits = [finding.hit for finding in findings if finding.hit.fix is not None]
    return "".join(
        line
        for file, text in files.items()
        for line in unified_diff(text.splitlines(True), _fixed(text, hits).splitlines(True), f"a/{file}", f"b/{file}")
    )


def _fixed(text: str, hits: Iterable[RuleHit]) -> str:
    lines = text.splitlines(True)
    for document in _documents(text):
        for hit in hits:
            if hit.fix is None or document.object != _object(hit):
                continue
            for at in range(document.first, document.first + len(document.lines)):
                code, comment = _code(lines[at]), lines[at][len(_code(lines[at])) :]
                lines[at] = _word(hit.fix.old).sub(hit.fix.new.replace("\\", r"\\"), code) + comment
    return "".join(lines)


def _documents(text: str) -> Iterator[_Document]:
    """Yield the documents of a file that contain an object. Objects inside a List are left out."""
    lines, first = text.splitlines(True), 0
    for at in [*(number for number, line in enumerate(lines) if line.startswith("---")), len(lines)]:
        part = "".join(lines[first:at])
        kind, name = _KIND.search(part), _INLINE.search(part) or _NAME.search(part.partition("\nmetadata:")[2] or part)
        if kind and name:
            yield _Document(f"{kind[1]} {name[1]}", first, lines[first:at])
        first = at


def _object(hit: RuleHit) -> str:
    """Return kind and name of the object of a hit, without the object's namespace."""
    kind, _, name = hit.place.object.partition(" ")
    return f"{kind} {name.rpartition('/')[2]}"


def _word(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])")


def _code(line: str) -> str:
    """Return a line without its comment."""
    return re.split(r"(?:^|\s)#", line, maxsplit=1)[0]
