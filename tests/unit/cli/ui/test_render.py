"""Tests of ages, of which sections count as changed, and of escaping."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from markupsafe import Markup

from ome_operator.cli.ui import render, views
from ome_operator.cli.ui.views import Section

NOW = datetime(2026, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("since", "said"),
    [
        (timedelta(seconds=9), "9s"), (timedelta(seconds=119), "119s"), (timedelta(minutes=2), "2m"),
        (timedelta(hours=47), "47h"), (timedelta(days=3), "3d"),
    ],
)  # fmt: skip
def test_age_is_rendered_in_largest_unit(since: timedelta, said: str) -> None:
    assert render.age(NOW - since, NOW) == render.age((NOW - since).isoformat(), NOW) == said


@pytest.mark.parametrize("since", ["", "yesterday", "<b>", "2026-02-01T00:00:00Z", "2026-01-01"])
def test_invalid_time_has_no_age(since: str) -> None:
    assert render.age(since, NOW) == ""


def test_section_with_only_a_changed_age_counts_as_unchanged() -> None:
    def drawn(text: str) -> str:
        return render.RenderedSection("s", Markup(text)).digest

    assert drawn('<time datetime="x">4s</time>') == drawn('<time datetime="x">9m</time>')
    assert drawn('<time datetime="x">4s</time>') != drawn('<time datetime="y">4s</time>')


def test_values_are_escaped_by_every_template() -> None:
    """Every template escapes its values. A variable that a template does not get is an error, and not an empty text."""
    assert render.ENVIRONMENT.autoescape is True
    for name in render.ENVIRONMENT.list_templates():
        source = render.ENVIRONMENT.loader.get_source(render.ENVIRONMENT, name)[0]  # type: ignore[union-attr]
        assert "safe" not in source.replace("safe.", "") and "autoescape" not in source, name
    html = render.render_section(Section("reading", {"why": "<b>"}), NOW).html
    assert "&lt;b&gt;" in html and "<b>" not in html


def test_no_width_depends_on_the_position_of_a_column() -> None:
    """Widths belong to the class of a column, which its header and its cells have, so the widths stay right when a column
    is added or removed.
    """
    css = Path(views.__file__).with_name("static").joinpath("ui.css").read_text()
    assert "nth-child" not in css
    sized = set(re.findall(r"\.(services|nodes) th\.([\w-]+) \{ width", css))
    assert len(sized) == 11
    for table, column in sized:
        source = Path(views.__file__).with_name("templates").joinpath(f"{table}.html").read_text()
        assert re.search(rf'<th scope="col" class="(n )?{column}">', source), (table, column)
        assert re.search(rf'<td class="(n )?{column}[ "{{]', source), (table, column)
