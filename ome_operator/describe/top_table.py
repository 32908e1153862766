"""The table of `ome top`: its columns, the order of its rows, and numbers as short text. Pure functions.

A number that is unknown is shown as –, and is sorted last.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ome_operator.describe.top import TopRow, Value
from ome_operator.util import columns


class TopColumn(NamedTuple):
    """A column of numbers."""

    title: str
    value: Callable[[TopRow], Value]
    """A function that returns the number of a row in this column, by which rows are sorted."""
    text: Callable[[TopRow], str]


def _amount(name: str) -> Callable[[TopRow], str]:
    def text(row: TopRow) -> str:
        value = getattr(row, name)
        return "–" if value is None else short_number(value) + ("+" if row.is_part else "")

    return text


def _plain(title: str, name: str) -> TopColumn:
    return TopColumn(title, lambda row: getattr(row, name), _amount(name))


def _time(title: str, name: str) -> TopColumn:
    def value(row: TopRow) -> Value:
        bounds = getattr(row, name).get("p95")
        return None if bounds is None else bounds.get("upTo", math.inf)

    return TopColumn(title, value, lambda row: seconds(getattr(row, name).get("p95")))


def _age(row: TopRow) -> str:
    if row.age is None:
        return "–"
    unit, length = next((each for each in _UNITS if row.age >= 2 * each[1]), ("s", 1))
    return f"{row.age / length:.0f}{unit}"


_UNITS = (("d", 86400), ("h", 3600), ("m", 60))


def _share(row: TopRow) -> str:
    return "–" if row.cache_use is None else f"{100 * row.cache_use:.0f}%"


def _gpu_text(row: TopRow) -> str:
    return str(row.gpus) if row.allocatable is None else f"{row.gpus}/{row.allocatable}"


COLUMNS: Mapping[str, TopColumn] = {
    "requests": _plain("REQ/S", "requests_per_second"),
    "in": _plain("IN/S", "prompt_tokens_per_second"),
    "out": _plain("OUT/S", "output_tokens_per_second"),
    "running": _plain("RUN", "running"),
    "waiting": _plain("WAIT", "waiting"),
    "ttft": _time("TTFT P95", "time_to_first_token"),
    "tbt": _time("TBT P95", "time_between_tokens"),
    "cache": TopColumn("CACHE", lambda row: row.cache_use, _share),
    "gpus": TopColumn("GPUS", lambda row: row.gpus, _gpu_text),
    "age": TopColumn("AGE", lambda row: row.age, _age),
}
"""Maps each name for `--sort` to its column, in the order in which the columns are shown."""
NAME = "name"


def sort_top_rows(rows: Iterable[TopRow], column: str) -> list[TopRow]:
    """Return the rows sorted by a column, or by `NAME`: the largest numbers first, unknown numbers last."""
    by_name = sorted(rows, key=lambda row: (row.namespace, row.name, row.group))
    if column == NAME:
        return by_name
    value = COLUMNS[column].value
    return sorted(by_name, key=lambda row: -math.inf if (found := value(row)) is None else found, reverse=True)


def lines(rows: Sequence[TopRow], subject: str) -> Iterator[str]:
    """Yield the lines of the table, with aligned columns and the titles first. `subject` is services, groups or
    nodes.
    """
    heads = HEADS[subject]
    titles = [*heads, *(column.title for column in COLUMNS.values())]
    cells = [
        [*(getattr(row, field) for field in heads.values()), *(column.text(row) for column in COLUMNS.values())]
        for row in rows
    ]
    yield from columns.lines([titles, *cells], left=len(heads))


HEADS: Mapping[str, Mapping[str, str]] = {
    "services": {"NAMESPACE": "namespace", "SERVICE": "name"},
    "groups": {"NAMESPACE": "namespace", "SERVICE": "name", "GROUP": "group"},
    "nodes": {"NODE": "name"},
}
"""Maps the kind of the rows (`services`, `groups` or `nodes`) to the columns that identify a row: title of the column, and
field of the row."""


def summarize_row(row: TopRow) -> str:
    """Return a line with those metrics of a service that are known."""
    parts = {"req/s": row.requests_per_second, "tok/s": row.output_tokens_per_second, "running": row.running}
    parts["waiting"] = row.waiting or None
    more = "+" if row.is_part else ""
    return ", ".join(f"{short_number(value)}{more} {unit}" for unit, value in parts.items() if value is not None)


def short_number(value: float) -> str:
    """Return a number with at most four characters where possible, such as 0.42, 310, 12.3k."""
    for unit, factor in (("M", 1e6), ("k", 1e3)):
        if value >= 10 * factor or (unit == "M" and value >= factor):
            return f"{value / factor:.3g}{unit}" if value < 1000 * factor else f"{value / factor:.0f}{unit}"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def seconds(bounds: Mapping[str, float] | None) -> str:
    """Return the bounds of a time as text, such as 0.4-0.6s, or >2s without an upper bound."""
    if bounds is None:
        return "–"
    above = f"{bounds['above']:.3g}"
    return f"{above}-{bounds['upTo']:.3g}s" if "upTo" in bounds else f">{above}s"
