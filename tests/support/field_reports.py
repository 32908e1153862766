"""Generates docs/field-reports.md from tests/data/field_reports.yaml: what users reported, the kind of fault behind each
report, and the tests that keep the kind from coming back.
"""

from pathlib import Path
from typing import NamedTuple

import yaml

from tests.support.review import OPEN, cell, links

FILE = Path(__file__).parents[1] / "data/field_reports.yaml"
SOURCES = {
    "R": "Public reports of other projects, tried here",
    "W": "A first week with this project",
    "M": "Published models",
    "G": "Routers beside real engines",
}
"""First letter of an ID → the title of the source."""

HEAD = """# Reports from the field, row by row

In November 2026, four people tried this project without knowledge of its code. Their reports have these letters:

* R: 48 public reports of users of similar projects, tried here
* W: a user's first week with this project
* M: 110 published model configurations
* G: routers beside real engines

Each report is treated as an example of a kind of fault. A row contains the kind, the *siblings* (other places that had the
same fault), the behavior before and now, and the tests that cover the whole kind. A row without a test is marked "open",
and describes what is left to do.

R1 to R15, W1 to W25 and G1 to G7 have the numbers of the reports. The reports about published models have the numbers P1
to P10, and the rows M1 to M9 group them by kind. If a row covers further reports, their numbers are in parentheses after
its ID. W26 to W58 and M10 are kinds that were found later, in the same way.

`tests/docs/test_field_reports.py` checks that each of these tests exists, and that every report has a row. The rows are in
[field_reports.yaml](../tests/data/field_reports.yaml), from which `pytest tests/docs/test_field_reports.py
--update-golden` generates this page.
"""


class Row(NamedTuple):
    """A report of a user, the kind of the reported fault, and the tests of this kind."""

    id: str
    """Letter of the source, and number of the report in this source."""
    kind: str
    """The kind of fault for which the report stands."""
    siblings: str
    """The other places that had the fault; "none" if a search found none."""
    before: str
    now: str
    tests: tuple[str, ...]
    """IDs of pytest, without parameters."""
    covers: tuple[str, ...] = ()
    """IDs of other reports of the same kind of fault: R, W or G and the number of the report. Reports about models have a P
    and their number.
    """

    @property
    def open(self) -> bool:
        """Return whether a part of the report's kind of fault is not covered by a test yet."""
        return self.now.startswith(OPEN)


def rows() -> list[Row]:
    """Return the rows in the order of the file."""
    read = yaml.load(FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return [Row(**{**row, "tests": tuple(row["tests"]), "covers": tuple(row.get("covers", ()))}) for row in read]


def page() -> str:
    """Return the text of the page."""
    every = rows()
    still = [row.id for row in every if row.open]
    said = [HEAD, f"{len(every)} rows; open: {', '.join(still) or 'none'}."]
    for letter, title in SOURCES.items():
        if not (mine := [row for row in every if row.id.startswith(letter)]):
            continue
        said += ["", f"## {title}", "", "| | kind | siblings | before | now | tests |", "|---|---|---|---|---|---|"]
        for row in mine:
            texts = " | ".join(map(cell, (row.kind, row.siblings, row.before, row.now)))
            others = f" ({', '.join(row.covers)})" if row.covers else ""
            said.append(f"| {row.id}{others} | {texts} | {links(row.tests)} |")
    return "\n".join(said) + "\n"
