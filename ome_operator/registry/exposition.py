"""Parse the metrics page of an engine or a router. The page is untrusted: any text gives a result, and values that are not
finite numbers from 0 to `LARGEST` are left out.

The parser of the Prometheus library is not used, because it creates an object for every sample of a page of megabytes, and
raises IndexError for some malformed pages. Only the lines of the known series are read.
"""

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import NamedTuple

from ome_operator.engines.telemetry import LARGEST_ONLY, EngineSeries, engine_series

LARGEST = 2.0**53
"""Largest number that is accepted. A float cannot represent every larger integer exactly."""
BUCKETS = 64
"""Maximum number of buckets of a histogram. A histogram with more buckets is left out."""
SAMPLES = 10_000
"""Maximum number of samples of the known series on a page. An engine with 16 data-parallel ranks has fewer than a
thousand samples. A page with more samples is not used, because it would occupy the registry for seconds."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?|[+-]?Inf|NaN", re.ASCII)
"""A number as the exposition format spells it. Python's `float` also reads `1_000` and the digits of other scripts."""
_LABEL = re.compile(r'(?<!\w)([a-zA-Z_]\w*+)="((?:[^"\\\n]++|\\.)*+)"', re.ASCII)
Labels = Mapping[str, str]


class EnginePage(NamedTuple):
    """The values of one metrics page."""

    engine: str
    """Name of the engine; "" if the page contains no series of a known engine."""
    counters: Mapping[str, float]
    gauges: Mapping[str, float]
    histograms: Mapping[str, Mapping[float, float]]
    """Maps the name of a histogram to a map from the upper bound of a bucket, in seconds, to the observations in this
    bucket and all smaller buckets."""
    start: Mapping[str, float] = {}
    """Maps a part of the engine's start to its duration in seconds. A part for which the page has no time is left out."""


EMPTY_PAGE = EnginePage("", {}, {}, {})


def parse_engine_page(text: str) -> EnginePage:
    """Return the values of the first known engine (`engine_series`) that has series on the page; `EMPTY_PAGE` if there is
    none, or if the page has more than `SAMPLES` samples.
    """
    for name, series in engine_series().items():
        if (page := _parse_page(name, series, text)) is not None:
            return page
    return EMPTY_PAGE


def parse_number(value: object) -> float | None:
    """Return a number from 0 to `LARGEST`, given as a number or as the text of a page; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) and 0 <= found <= LARGEST else None


def capped_sum(one: float, other: float) -> float:
    """Return the sum of two numbers, at most `LARGEST`, because the operator refuses a summary with a larger number."""
    return min(one + other, LARGEST)


def iter_samples(text: str, names: frozenset[str]) -> Iterator[tuple[str, Labels, float]]:
    """Yield the name, the labels and the value of each sample that belongs to one of the series `names`. Samples whose value
    is not a number from 0 to `LARGEST` are left out.
    """
    for line in _line_pattern(names).finditer(text):
        name, labels, value = line[1], line[2] or "", line[3]
        if (found := parse_number(value)) is not None:
            yield name, dict(_LABEL.findall(labels)), found


@cache
def _line_pattern(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"^({'|'.join(map(re.escape, sorted(names)))})(?:\{{([^\n]*)\}})?[ \t]+(\S{{1,40}})", re.MULTILINE)


def _parse_page(engine: str, series: EngineSeries, text: str) -> EnginePage | None:
    starts = {name for name, _ in series.start}
    names = frozenset((*series.counters, *series.gauges, *series.histograms, *starts))
    values: dict[tuple[str, str], dict[str, float]] = {}
    buckets: dict[str, dict[str, dict[str, dict[float, float]]]] = {}
    phases: dict[tuple[str, str], float] = {}
    found = list(islice(iter_samples(text, names), SAMPLES + 1))
    if len(found) > SAMPLES:
        return EMPTY_PAGE
    for name, labels, value in found:
        if any(labels.get(label) for label in series.total):
            continue
        if name in starts:
            phase = name, labels.get("phase", "")
            phases[phase] = max(value, phases.get(phase, 0.0))
            continue
        rank, copy = _label_key(labels, series.rank), _label_key(labels, series.same)
        if name in series.histograms:
            bound = _parse_bound(labels.get("le", ""))
            if bound is not None:
                copies = buckets.setdefault(series.histograms[name], {}).setdefault(rank, {})
                at = copies.setdefault(copy, {})
                at[bound] = capped_sum(at.get(bound, 0.0), value)
            continue
        by_copy = values.setdefault((name, rank), {})
        by_copy[copy] = capped_sum(by_copy.get(copy, 0.0), value)
    if not values and not buckets and not phases:
        return None
    largest = {key: max(copies.values()) for key, copies in values.items()}
    return EnginePage(
        engine,
        _sum_samples({key: value for key, value in largest.items() if key[0] in series.counters}, series.counters),
        _sum_samples({key: value for key, value in largest.items() if key[0] in series.gauges}, series.gauges),
        {name: added for name, ranks in buckets.items() if len(added := _merge_histograms(ranks)) <= BUCKETS},
        _start_durations(series.start, phases),
    )


def _start_durations(parts: Mapping[tuple[str, str], str], phases: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Return the duration of each part of an engine's start, in seconds. `parts` maps a pair of series and phase to the name
    of the part; the phase "" stands for all phases of the series that are not listed. `phases` maps a pair of series and
    phase to the seconds that the slowest rank reported.
    """
    found = dict[str, float]()
    for (name, phase), seconds in phases.items():
        part = parts.get((name, phase)) or parts.get((name, ""))
        if part is not None and seconds > 0:
            found[part] = capped_sum(found.get(part, 0.0), seconds)
    return found


def _sum_samples(found: Mapping[tuple[str, str], float], names: Mapping[str, str]) -> dict[str, float]:
    """Return a mapping from the name of each value to the sum of its samples, or to the largest sample if the name is in
    `LARGEST_ONLY`. `found` maps a pair of series and data-parallel rank to a sample. `names` maps a series to the name of
    its value.
    """
    values = dict[str, float]()
    for (series, _), value in found.items():
        name = names[series]
        before = values.get(name, 0.0)
        values[name] = max(before, value) if name in LARGEST_ONLY else capped_sum(before, value)
    return values


def _merge_histograms(ranks: Mapping[str, Mapping[str, Mapping[float, float]]]) -> dict[float, float]:
    """Return one histogram of a leader: the sum of the histograms of its data-parallel ranks. `ranks` maps each rank to the
    copies of its histogram, by the labels that tell these copies apart. If a rank has several copies, only the copy with the
    most observations is used.
    """
    total = dict[float, float]()
    for copies in ranks.values():
        largest = max(copies.values(), key=lambda each: max(each.values(), default=0.0))
        for bound, count in largest.items():
            total[bound] = capped_sum(total.get(bound, 0.0), count)
    return total


def _label_key(labels: Labels, names: frozenset[str]) -> str:
    return ",".join(f"{name}={labels[name]}" for name in sorted(names & labels.keys()))


def _parse_bound(text: str) -> float | None:
    """Return the upper bound of a bucket from the value of its label `le`. The bound may be infinite. Return None if the
    value is not a positive number.
    """
    if not _NUMBER.fullmatch(text):
        return None
    found = float(text)
    return found if 0 < found <= LARGEST or found == math.inf else None
