"""Renders pages and their sections as HTML. Every value is escaped, because text from users must never act as markup."""

import hashlib
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ome_operator.cli.ui.views import Section
from ome_operator.describe.text import combine_names, numbers
from ome_operator.quantity import moment
from ome_operator.util.wording import count

_AGE = re.compile(r"(<time [^<>]*>)[^<]*(?=</time>)")
"""The text of an age ("5m"), which changes although nothing has happened."""


class RenderedSection(NamedTuple):
    """A section rendered as HTML."""

    name: str
    html: Markup

    @property
    def digest(self) -> str:
        """Hash of the section without its ages, so that it changes only if something other than an age changes."""
        return hashlib.sha256(_AGE.sub(r"\1", self.html).encode()).hexdigest()[:16]


def age(since: str | datetime, now: datetime) -> str:
    """Return an age in the largest unit in which its value is at least 2, as kubectl does, such as "5m". Return "" if
    `since` is not a time.
    """
    when = since if isinstance(since, datetime) else moment(since, now)
    if when is None:
        return ""
    seconds = max(0, int((now - when).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def iso(when: str | datetime) -> str:
    """Return a time in ISO 8601, which browsers parse; "" if `when` is not a time."""
    found = when if isinstance(when, datetime) else moment(when, datetime.now(UTC))
    return found.astimezone(UTC).isoformat(timespec="seconds") if found is not None else ""


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("ome_operator.cli.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"count": count, "numbers": numbers, "together": combine_names, "iso": iso}
    return made


ENVIRONMENT = _environment()


def render_section(section: Section, now: datetime) -> RenderedSection:
    """Render a section with its template."""
    text = ENVIRONMENT.get_template(f"{section.name}.html").render(
        **section.data, age=lambda since: age(since, now), now=now
    )
    return RenderedSection(section.name, Markup(text))  # noqa: S704 its values were escaped when it was rendered


def page(title: str, here: str, sections: list[RenderedSection], at: datetime | None, **more: Any) -> str:
    """Render a complete page. `here` is the name of the page, which its navigation marks, and `at` the time at which the
    cluster was read; None if it has not been read yet.
    """
    old = age(at, datetime.now(UTC)) if at is not None else ""
    return ENVIRONMENT.get_template("page.html").render(
        title=title, here=here, sections=sections, at=iso(at or ""), old=old, **more
    )
