"""What a report is made of."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    floor: str = ""
    operator: str = ""
    ratio: str = ""
    aim: str = ""
    met: bool | None = None
    """None where there is no aim."""
    ome: str = ""


@dataclass(frozen=True)
class Section:
    """Some rows under a heading."""

    title: str
    rows: tuple[Row, ...]
