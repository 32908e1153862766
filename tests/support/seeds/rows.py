"""The rows of tests/data/seeds.yaml: the content of the first documents of this project, in our own words."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.support.parts import ROOT
from tests.support.seeds import words

FILE = Path(__file__).parents[2] / "data/seeds.yaml"
Proof = Mapping[str, Any]


class RowResult(StrEnum):
    """The result of a row: whether what the document says still works."""

    WORKS = "works"
    WRITTEN = "written"
    DIFFERS = "differs"
    MISSING = "missing"


class Row(NamedTuple):
    """A command, a flag, a variable or a claim of a document."""

    document: str
    section: str
    kind: str
    """flag, variable or row."""
    says: str
    proof: tuple[Proof, ...]
    """What has to hold if the row works as the document says."""
    instead: tuple[Proof, ...]
    """What has to hold if the row does not work as written, but something else has the same effect."""
    expected: RowResult
    because: str
    """Why the row works in another way, or not at all."""
    command: str
    """Arguments of `ome generate` from which a flag or variable was read."""

    @property
    def name(self) -> str:
        """Return the name of the test of this row."""
        return f"{self.document}: {self.section}: {self.says}"


class Section(NamedTuple):
    """A group of rows."""

    document: str
    title: str
    command: str
    rows: tuple[Row, ...]


def sections() -> Iterator[Section]:
    """Yield all rows, grouped as in the data file."""
    for document in yaml.load_all(FILE.read_text(encoding="utf-8"), yaml.CSafeLoader):
        for data in document["sections"]:
            rows = tuple(_rows(document["document"], data))
            yield Section(document["document"], data["title"], data.get("generate", ""), rows)


def rows() -> list[Row]:
    """Return the rows of all sections."""
    return [row for section in sections() for row in section.rows]


def _rows(document: str, data: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the flags and variables of the section's command, then its rows."""
    place = {key: data[key] for key in ("generate", "block", "pods") if key in data}
    for kind, listed in (("variable", "variables"), ("flag", "flags")):
        for entry in data.get(listed, ()):
            body = entry if isinstance(entry, dict) else {"says": entry}
            proof = {kind: {"is": body["says"], **place}}
            yield _row(document, data, kind, {"proof": [proof], **body})
    for body in data.get("rows", ()):
        yield _row(document, data, "row", body)


def only_written(kind: str, proofs: Sequence[Proof]) -> bool:
    """Return whether these proofs only examine the words of a command: the command is generated, parsed and rendered, but no
    test of this project runs it.

    A flag of SGLang counts as run if one of the runtimes in `RAN` has it, with any value: tests start these on CPUs and on a
    GPU.
    """
    if not proofs or not {name for proof in proofs for name in proof} <= WORDS:
        return False
    if kind == "row":
        return True
    said = [proof[kind] for proof in proofs if kind in proof]
    return not said or any(not _ran(each) for each in said)


WORDS = frozenset({"flag", "variable", "generates", "pods"})
"""Proofs about the words of a command."""
RAN = ("config/runtimes/srt/kimi-k2-tiny-pd-cpu-rt.yaml", "tests/gpu/one-gpu.yaml")
"""Runtimes that `make e2e` runs on CPUs, and tests/gpu on a GPU."""


def _ran(argument: Mapping[str, Any]) -> bool:
    name = shlex.split(argument["is"])[0].partition("=")[0]
    if not name.startswith("--"):
        return name in _run_words()
    engine = words.chosen_engine(argument["generate"])
    known = engine.command_line.find_flag(name)
    names = {name, *((known.name, *known.aliases) if known is not None else ())}
    return engine.name == "sglang" and bool(names & _run_words())


@cache
def _run_words() -> frozenset[str]:
    """Return the flags and variables of the runtimes in `RAN`, which tests run."""
    text = "".join((ROOT / file).read_text(encoding="utf-8") for file in RAN)
    return frozenset(re.findall(r"- (--[a-z][a-z0-9-]+)", text)) | frozenset(re.findall(r"name: ([A-Z][A-Z0-9_]+)", text))


def _row(document: str, section: Mapping[str, Any], kind: str, body: Mapping[str, Any]) -> Row:
    states = [state for state in (RowResult.WRITTEN, RowResult.DIFFERS, RowResult.MISSING) if state in body]
    known = {"says", "proof", "instead", *RowResult}
    assert len(states) < 2 and set(body) <= known, f"{body['says']}: {sorted(set(body) - known)}"
    unrun = RowResult.WRITTEN if only_written(kind, body.get("proof", ())) else RowResult.WORKS
    return Row(
        document=document,
        section=section["title"],
        kind=kind,
        says=body["says"],
        proof=tuple(body.get("proof", ())),
        instead=tuple(body.get("instead", ())),
        expected=states[0] if states else unrun,
        because=body[states[0]] if states else "",
        command=section.get("generate", "") if kind != "row" else "",
    )
