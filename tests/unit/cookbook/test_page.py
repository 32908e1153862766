"""Tests that the tables of docs/cookbook.md match the data of the cookbook."""

from collections.abc import Iterator

from ome_operator.cookbook import fit
from ome_operator.cookbook.layout import plan
from ome_operator.cookbook.library import Library, engine, engines
from ome_operator.cookbook.published import published_results
from ome_operator.cookbook.request import RecipeRefused, RecipeRequest
from tests.support import parts

PAGE = parts.ROOT / "docs/cookbook.md"
REFUSED = "–"
SIZES = "<!-- table -->", "<!-- end of the table -->"
PUBLISHED = "<!-- published -->", "<!-- end of published -->"


def table(shelf: Library) -> Iterator[str]:
    for name in engines():
        chosen = engine(name)
        yield f"\n| {name} {chosen.version} | {' | '.join(f'`{one}`' for one in chosen.strategies)} |"
        yield "|---" * (len(chosen.strategies) + 1) + "|"
        for served in (one for one in shelf.models.values() if one.format == chosen.format):
            for hardware in shelf.hardware:
                asked = [
                    RecipeRequest(hardware=hardware, model=served.name, engine=name, strategy=one)
                    for one in chosen.strategies
                ]
                cells = [cell(shelf, one) for one in asked]
                if set(cells) != {REFUSED}:
                    yield f"| {served.name}, {hardware.upper()} | {' | '.join(cells)} |"


def cell(shelf: Library, ask: RecipeRequest) -> str:
    try:
        made = plan(ask, shelf)
    except RecipeRefused:
        return REFUSED
    size = " + ".join(f"{role.nodes} × {role.gpus}" for role in made.roles)
    if made.roles[0].experts_on_cpus:
        return size
    tokens = fit.gpu_memory(made.served, made.hardware, made.roles[-1], None).tokens
    return f"{size}, {tokens // 1000}k"


def others() -> Iterator[str]:
    """Yield the recorded measurements by others as lines of the page."""
    yield "| recipe | measured | figures | source |"
    yield "|---|---|---|---|"
    for each in published_results():
        recipe = "{model} on {hardware}, {engine} `{strategy}`".format(**each.asked)
        sizes = " + ".join(f"{role['nodes']} × {role['tp'] // role['nodes']}" for role in each.roles)
        figures = f"{'; '.join(each.figures)}. {each.remark}"
        yield f"| {recipe}, {sizes} | {each.load} | {figures} | [{each.by}, {each.date}]({each.source}) |"


def between(text: str, marks: tuple[str, str], lines: Iterator[str]) -> str:
    """Return the page with these lines between two marks."""
    before, rest = text.split(marks[0])
    return "\n".join((f"{before}{marks[0]}", *lines, f"\n{marks[1]}{rest.split(marks[1])[1]}"))


def test_tables_on_the_page_equal_the_cookbook_data(shelf: Library, update: bool) -> None:
    text = between(between(PAGE.read_text(), SIZES, table(shelf)), PUBLISHED, iter(["", *others()]))
    if update:
        PAGE.write_text(text)
    assert text == PAGE.read_text(), "see `pytest tests/unit/cookbook/test_page.py --update-golden`"
