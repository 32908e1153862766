"""The parts of a report."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    what: str
    floor: str = ""
    operator: str = ""
    ratio: str = ""
    aim: str = ""
    met: bool | None = None
    """Whether the aim was reached; None if there is no aim."""
    ome: str = ""


@dataclass(frozen=True)
class Section:
    """Rows under a heading."""

    title: str
    rows: tuple[Row, ...]
