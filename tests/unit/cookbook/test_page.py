"""The table of docs/cookbook.md is what the cookbook says."""

from collections.abc import Iterator

from ome_operator.cookbook import fit
from ome_operator.cookbook.ask import STRATEGIES, Ask, RefusedError
from ome_operator.cookbook.library import Library
from ome_operator.cookbook.plan import plan
from tests.support import parts

PAGE = parts.ROOT / "docs/cookbook.md"
BEGIN, END = "<!-- table -->", "<!-- end of the table -->"


def table(shelf: Library) -> Iterator[str]:
    yield f"| | {' | '.join(f'`{one}`' for one in STRATEGIES)} |"
    yield "|---" * (len(STRATEGIES) + 1) + "|"
    for served in shelf.models.values():
        for hardware in shelf.hardware.values():
            cells = [cell(shelf, Ask(hardware=hardware.name, model=served.name, strategy=one)) for one in STRATEGIES]
            yield f"| {served.name}, {hardware.title} | {' | '.join(cells)} |"


def cell(shelf: Library, ask: Ask) -> str:
    try:
        made = plan(ask, shelf)
    except RefusedError:
        return "–"
    size = " + ".join(f"{role.nodes} × {role.gpus}" for role in made.roles)
    tokens = fit.room(made.served, made.hardware, made.roles[-1], None).tokens
    return f"{size}, {tokens // 1000}k"


def test_the_table_is_what_the_cookbook_says(shelf: Library, update: bool) -> None:
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    text = "\n".join((f"{before}{BEGIN}", *table(shelf), f"{END}{after}"))
    if update:
        PAGE.write_text(text)
    assert text == PAGE.read_text(), "see `pytest tests/unit/cookbook/test_page.py --update-golden`"
