"""The series of engines from which the registry calculates its summary, stored as data.

This module imports no model of a Kubernetes object, because the registry, which runs in every router's pod, imports it.
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document

LARGEST_ONLY = frozenset({"cacheUse"})
"""Gauges that are shares: the value of a leader is that of its fullest data-parallel rank, not the sum over its ranks."""


class EngineSeries(NamedTuple):
    """The series of one engine."""

    rank: frozenset[str]
    """Labels of a data-parallel rank. The values of different ranks are added."""
    same: frozenset[str]
    """Labels of ranks that report the same requests. Of their values only the largest counts."""
    total: frozenset[str]
    """Labels whose empty value marks the total of all other values of the label."""
    counters: Mapping[str, str]
    """Name of a series -> the value to which it is added."""
    gauges: Mapping[str, str]
    """Name of a series -> the value to which it is added."""
    histograms: Mapping[str, str]
    """Name of the series of buckets -> the histogram."""
    start: Mapping[tuple[str, str], str]
    """(name of a series, value of its label `phase`) -> the part of the engine's start. The value is "" if all phases
    belong to the part."""


@cache
def engine_series() -> Mapping[str, EngineSeries]:
    """Return the series of every engine for which data exist, by the prefix of their names (`sglang`, `vllm`)."""
    found = document(package_data.text(__package__, "telemetry.yaml"))
    return {name: _series(entry) for name, entry in found.items()}


def _series(entry: Mapping[str, Mapping[str, list[str]]]) -> EngineSeries:
    return EngineSeries(
        rank=frozenset(entry["rank"]),
        same=frozenset(entry["same"]),
        total=frozenset(entry["total"]),
        counters={name: value for value, names in entry["counters"].items() for name in names},
        gauges={name: value for value, names in entry["gauges"].items() for name in names},
        histograms={f"{name}_bucket": str(value) for value, name in entry["histograms"].items()},
        start={(name, next(iter(phase), "")): part for part, (name, *phase) in entry["start"].items()},
    )
