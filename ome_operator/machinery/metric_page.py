"""Generate the tables of docs/metrics.md from `metric_catalog.py`: `python -m ome_operator.machinery.metric_page`."""

from pathlib import Path

from ome_operator.machinery.metric_catalog import FAMILIES, Family

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
MARK = "## All metrics of the operator\n"
"""Heading after which the page is generated. The text above this heading is written by hand."""


def text() -> str:
    """Return the complete text of the page."""
    return PAGE.read_text(encoding="utf-8").partition(MARK)[0] + MARK + tables()


def tables() -> str:
    """Return a table for each part of the catalog."""
    parts = [
        "\n`python -m ome_operator.machinery.metric_page` generates these tables from "
        "`ome_operator/machinery/metric_catalog.py`.\n"
    ]
    for title, families in FAMILIES.items():
        rows = "\n".join(map(_row, families))
        parts.append(f"### {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.text} |"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
