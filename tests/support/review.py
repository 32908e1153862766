"""Generates docs/security-review.md from tests/data/review.yaml: the findings of two security reviews, the present
behavior, and the tests.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FILE = Path(__file__).parents[1] / "data/review.yaml"
OPEN = "open:"
"""Prefix of `now` for a finding without a test."""

HEAD = """# A security review, finding by finding

On 2026-11-24 a security review attacked this project with the permissions of a tenant, with the operator's token, and with
an agent's token. The review had 25 findings, S1 to S25. A finding with several attacks has a row for each of them. Each row
names the tests that repeat the attack and fail without the fix. A row without a test is marked "open", and describes what is
left to do. Further attacks followed:

* T1 to T19 are the findings of a second review, on 2026-11-27.
* U1 to U7 are attacks on `ome adopt`, calibration files, BenchmarkJobs, and the requests between agents, which neither
  review had examined.
* U8 to U12 are attacks of 2026-11-28 on code that was new then: the summaries of routers, `ome generate --from`, the
  process of the recorder, the reading of folders, and floods of services, Events and disruption budgets.
* U13 to U17 are attacks of the same day on further new code: objects of 1 MB, the autoscaler of the class Demand, the record
  of bad nodes, annotations that are parsed, and connections to registries.

`tests/docs/test_security_review.py` checks that each of these tests exists, and that no attempt of the review is missing.
The tests in `tests/controlplane` send their requests to a real API server, those in `tests/router` use a real router, and
those in `tests/agent` use real hubs, registries and stores on loopback. The rows are in
[review.yaml](../tests/data/review.yaml), from which `pytest tests/docs/test_security_review.py --update-golden` generates
this page.

[Security](security.md) and [tenancy](tenancy.md) describe the present behavior.
"""


class Row(NamedTuple):
    """A finding, or an attempt that failed."""

    id: str
    """ID of the finding; "" for an attempt that failed."""
    what: str
    before: str
    """Behavior before the fix; "" for an attempt that failed."""
    now: str
    tests: tuple[str, ...]
    """IDs of pytest, without parameters."""

    @property
    def is_open(self) -> bool:
        """Return whether a part of the finding is not covered by a test yet."""
        return self.now.startswith(OPEN)


def findings() -> list[Row]:
    """Return the findings in order."""
    return [Row(row["id"], row["threat"], row["before"], row["now"], tuple(row["tests"])) for row in _read()["findings"]]


def withstood_attempts() -> list[Row]:
    """Return the attempts that failed, that is, those that the system withstood."""
    return [Row("", row["what"], "", row["now"], tuple(row["tests"])) for row in _read()["held"]]


def page() -> str:
    """Return the text of the page."""
    rows, others = findings(), withstood_attempts()
    still = [row.id for row in rows if row.is_open]
    said = [HEAD, f"{len(rows)} attacks; open: {', '.join(still) or 'none'}."]
    for title, letter in (("S1 to S25", "S"), ("T1 to T19", "T"), ("U1 to U17", "U")):
        said += ["", f"## {title}", "", "| | threat | before | now | tests |", "|---|---|---|---|---|"]
        for row in rows:
            if row.id.startswith(letter):
                said.append(f"| {row.id} | {cell(row.what)} | {cell(row.before)} | {cell(row.now)} | {links(row.tests)} |")
    said += ["", "## Attacks that failed", "", "| result of the review | now | tests |", "|---|---|---|"]
    said += [f"| {cell(row.what)} | {cell(row.now)} | {links(row.tests)} |" for row in others]
    return "\n".join(said) + "\n"


def links(tests: tuple[str, ...]) -> str:
    """Return a cell of a table on a page in docs/ that links to these tests, one line for each file."""
    return "<br>".join(_shown(tests))


def standing(file: Path) -> set[str]:
    """Return `function`, or `Class::function`, of each test in a file."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        place = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        functions = [item for item in inner if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
        found |= {place + item.name for item in functions if item.name.startswith("test_")}
    return found


def _shown(tests: tuple[str, ...]) -> Iterator[str]:
    """Yield each file once, with its tests."""
    for file in dict.fromkeys(test.partition("::")[0] for test in tests):
        mine = (test.partition("::")[2] for test in tests if test.startswith(f"{file}::"))
        yield f"[{file.removeprefix('tests/')}](../{file}): " + ", ".join(f"`{name}`" for name in mine)


def cell(text: str) -> str:
    """Return a text as a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def _read() -> Any:
    return yaml.load(FILE.read_text(encoding="utf-8"), yaml.CSafeLoader)
