"""`python -m ome_operator.describe.page` writes the tables of reasons in docs/troubleshooting.md from the records in
`core/reasons/`.

The text before and after these tables is written by hand.
"""

from pathlib import Path

from ome_operator.core.reasons import FAMILIES, ReasonRecord
from ome_operator.describe.actions import CommandBuilder
from ome_operator.describe.words import WORDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md"
BEGIN, END = "## Reasons\n", "## Nodes\n"
"""The headings between which the text of the page is generated."""
_HEAD = """
`python -m ome_operator.describe.page` writes these tables from `ome_operator/core/reasons/`. `Ready` repeats the reasons of
the other conditions. Reasons with the condition *Pod* are those that `ome explain` shows for a pod.

The column *kstatus* states how Helm 4 (`--wait`), Flux and other software that uses the library kstatus interpret an object
with this reason:

* Failed: the object has the condition `Stalled`. Only an edit of this object helps, or, for a BenchmarkJob that has failed,
  a new one.
* InProgress: the object has the condition `Reconciling`. It proceeds by itself, or as soon as something else changes: a
  model or a runtime is created, nodes become free, an agent has downloaded files, or somebody ends a freeze.
* Current: the object has neither of these conditions. The reasons ScaledToZero, Disabled and Incomplete are an exception:
  the object has neither condition, but kstatus interprets its `Ready=False` as InProgress.

An object has at most one of the conditions `Stalled` and `Reconciling`. It is the first entry of `status.conditions`, and
has the reason and the message of the condition that caused it.
"""
_WORDS_HEAD = """### Words of commands

`ome status`, `ome explain` and `ome ui` show these words in the place of a reason. No condition has them.

| word | of | meaning | what to do |
|---|---|---|---|
"""
_NAMES = {
    "service": "NAME -n NAMESPACE",
    "which": " --role ROLE --group GROUP",
    "columns": " -L LABEL",
    "holders": " -l LABEL=Ready",
}
"""Maps each placeholder of a printed remedy to the words that replace it on the page."""


def page_text() -> str:
    """Return the text of the page with tables of the current records."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + tables() + END + rest.partition(END)[2]


def tables() -> str:
    """Return the tables of reasons as Markdown, one for each family of reasons."""
    parts = [_HEAD]
    for title, family in FAMILIES.items():
        records = (record for record in vars(family).values() if isinstance(record, ReasonRecord))
        rows = "\n".join(map(_row, records))
        parts.append(
            f"### {title}\n\n| reason | condition | kstatus | meaning | what to do |\n|---|---|---|---|---|\n{rows}\n"
        )
    rows = "\n".join(
        f"| {name} | {word.of} | {word.meaning} | {_remedy_text(word.remedy)} |" for name, word in WORDS.items()
    )
    parts.append(f"{_WORDS_HEAD}{rows}\n")
    return "\n".join(parts) + "\n"


def _row(record: ReasonRecord) -> str:
    conditions = ", ".join(dict.fromkeys(record.of))
    return f"| {record} | {conditions} | {record.read_as} | {record.meaning} | {_remedy(record)} |"


def _remedy(record: ReasonRecord) -> str:
    """Return the remedy in Markdown, with the link that follows it."""
    text = _remedy_text(record.remedy) if record.printed else record.remedy
    return ". ".join(filter(None, (text, record.see)))


def _remedy_text(printed: str) -> str:
    """Convert a remedy that commands print (`ReasonRecord.printed`) to Markdown."""
    prose, command = CommandBuilder().step(printed.format_map(_NAMES))
    return ": ".join(filter(None, (prose, f"`{command}`" if command else "")))


if __name__ == "__main__":
    PAGE.write_text(page_text(), encoding="utf-8")
