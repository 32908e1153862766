"""The table of docs/cookbook.md is what the cookbook says."""

from collections.abc import Iterator

from ome_operator.cookbook import fit
from ome_operator.cookbook.ask import Ask, RefusedError
from ome_operator.cookbook.layout import plan
from ome_operator.cookbook.library import Library, engine, engines
from tests.support import parts

PAGE = parts.ROOT / "docs/cookbook.md"
REFUSED = "–"
BEGIN, END = "<!-- table -->", "<!-- end of the table -->"


def table(shelf: Library) -> Iterator[str]:
    for name in engines():
        chosen = engine(name)
        yield f"\n| {name} {chosen.version} | {' | '.join(f'`{one}`' for one in chosen.strategies)} |"
        yield "|---" * (len(chosen.strategies) + 1) + "|"
        for served in (one for one in shelf.models.values() if one.format == chosen.format):
            for hardware in shelf.hardware:
                asked = [Ask(hardware=hardware, model=served.name, engine=name, strategy=one) for one in chosen.strategies]
                cells = [cell(shelf, one) for one in asked]
                if set(cells) != {REFUSED}:
                    yield f"| {served.name}, {hardware.upper()} | {' | '.join(cells)} |"


def cell(shelf: Library, ask: Ask) -> str:
    try:
        made = plan(ask, shelf)
    except RefusedError:
        return REFUSED
    size = " + ".join(f"{role.nodes} × {role.gpus}" for role in made.roles)
    if made.roles[0].experts_on_cpus:
        return size
    tokens = fit.room(made.served, made.hardware, made.roles[-1], None).tokens
    return f"{size}, {tokens // 1000}k"


def test_the_table_is_what_the_cookbook_says(shelf: Library, update: bool) -> None:
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    text = "\n".join((f"{before}{BEGIN}", *table(shelf), f"\n{END}{after}"))
    if update:
        PAGE.write_text(text)
    assert text == PAGE.read_text(), "see `pytest tests/unit/cookbook/test_page.py --update-golden`"
