"""Generates docs/seeds.md from tests/data/seeds.yaml."""

import shlex
from collections import Counter
from collections.abc import Iterator

from ome_operator.cookbook.library import engine
from ome_operator.engines.flags import replacements
from tests.support.seeds import words
from tests.support.seeds.rows import Row, RowResult, Section, sections

HEAD = """# The first documents, row by row

This project began with four texts about serving Kimi K2: the announcement of a deployment on 128 H200 GPUs, a shorter text
about this deployment, the deployment guide of the model's authors, and the model's page in SGLang's cookbook. Each command,
flag, variable and claim of these texts has a row here.

Each row has one of these results:

* **works**: the item has the same effect here, and a test of this project shows this. A flag works if the engine's own
  parser accepts it, `ome generate` writes it, the operator renders it in pods (if the row's proof names pods), and a server
  in the tests has run with it, on CPUs or on one GPU, with a value that fits the machine of the tests.
* **written**: the item is generated, parsed and rendered in the same way, but it has never run, because this project has no
  machine with the GPUs, the network or the engine for it. Only its documentation states that it has the same effect.
* **differs**: something else has the same effect; the row describes the difference and its reason.
* **missing**: nothing here has this effect.

If a section begins with a command, the flags of its rows are compared with the output of this command.

The column *proof* names what the test of a row examines: the *command* that `ome generate` prints, the *pods* or other
*objects* that the operator renders, the *facts* that are computed from the files of the model, the *sizes* of the layout
that the cookbook plans, or a file of this repository.

These results are tested: for each row, `tests/docs/test_seeds.py` examines the code and runs it, and fails if the row
claims too much or too little. `tests/docs/test_seed_sentences.py` fails if a sentence of these texts has neither a row nor a
reason why it needs none ([seed_sentences.yaml](../tests/data/seed_sentences.yaml)). The rows are in
[seeds.yaml](../tests/data/seeds.yaml), from which `pytest tests/docs/test_seeds.py --update-golden` generates this page.

Flags are spelled as in the version of the engine that a document describes. If the newest version of the engine that this
project supports has another flag instead, the row contains that flag, and `ome generate` without `--engine-version` writes
it.
"""


def page() -> str:
    """Return the text of the page."""
    found = list(sections())
    every = [row for section in found for row in section.rows]
    named = Counter(row.kind for row in every)
    said = [
        HEAD,
        f"{named['flag']} flags, {named['variable']} variables, {named['row']} commands and claims:",
        "",
        *_counts(found),
    ]
    document = ""
    for section in found:
        if section.document != document:
            document = section.document
            said += ["", f"## {document}"]
        said += ["", *_section(section)]
    return "\n".join(said) + "\n"


def _counts(found: list[Section]) -> Iterator[str]:
    yield f"| document | rows | {' | '.join(RowResult)} |"
    yield f"|---|---|{'---|' * len(RowResult)}"
    documents: dict[str, list[Row]] = {}
    for section in found:
        documents.setdefault(section.document, []).extend(section.rows)
    for name, rows in (*documents.items(), ("all", [row for listed in documents.values() for row in listed])):
        counted = Counter(row.expected for row in rows)
        yield f"| {name} | {len(rows)} | {' | '.join(str(counted[verdict]) for verdict in RowResult)} |"


def _section(section: Section) -> Iterator[str]:
    yield f"### {section.title}"
    yield ""
    if section.command:
        yield f"Command: `ome generate {section.command}`"
        yield ""
    yield "| row | result | reason, or the spelling of the newest version | proof |"
    yield "|---|---|---|---|"
    for row in section.rows:
        says = row.says if row.kind == "row" else f"`{row.says}`"
        yield f"| {_cell(says)} | {row.expected} | {_cell(row.because or _today(row))} | {_cell(_proof(row))} |"


_SHOWN = {
    "flag": "command",
    "variable": "command",
    "generates": "command",
    "tells": "`ome generate`",
    "explains": "`ome plan explain`",
    "pods": "pods",
    "made": "objects",
    "short_kinds": "objects",
    "facts": "facts of the model",
    "sizes": "sizes of the plan",
}
"""Name of a proof → what it examines. All other proofs examine a file, which they name."""


def _proof(row: Row) -> str:
    """Return the proof of a row as text."""
    said = []
    for proof in row.instead if row.expected == RowResult.DIFFERS else row.proof:
        for name, told in proof.items():
            said.append(_SHOWN.get(name) or f"`{told if isinstance(told, str) else told.get('file') or told.get('sample')}`")
            said += ["pods"] if name in ("flag", "variable") and "pods" in told else []
    return ", ".join(dict.fromkeys(said))


def _today(row: Row) -> str:
    """Return how the newest version spells a flag, if the spelling differs."""
    name = shlex.split(row.says)[0] if row.kind == "flag" else ""
    if not name.startswith("--"):
        return ""
    chosen = words.chosen_engine(row.command)
    newest = engine(chosen.name)
    line = newest.command_line
    known = line.find_flag(name)
    better = replacements(newest.name).get(name) or (known.deprecated if known is not None else "")
    if better and (known is None or known.deprecated):
        return f"{newest.name} {newest.version}: {better}"
    gone = known is None and chosen.command_line.find_flag(name) is not None
    return f"{newest.name} {newest.version} has no such flag" if gone else ""


def _cell(text: str) -> str:
    """Return a text for a table cell."""
    return " ".join(text.split()).replace("|", "\\|")
