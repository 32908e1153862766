"""The series of engines from which the registry calculates its summary, stored as data.

This module imports no model of a Kubernetes object, because the registry, which runs in every router's pod, imports it.
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document

LARGEST_ONLY = frozenset({"cacheUse"})
"""Gauges that are fractions. The value of a leader is the largest value of its data-parallel ranks, not their sum."""


class EngineSeries(NamedTuple):
    """The series of one engine."""

    rank: frozenset[str]
    """Labels that distinguish data-parallel ranks. Values with different labels are added."""
    same: frozenset[str]
    """Labels that distinguish ranks that report the same requests. Only the largest of their values is used."""
    total: frozenset[str]
    """Labels with which a sample can be a total: if the value of the label is empty, the sample is the sum over all other
    values."""
    counters: Mapping[str, str]
    """Maps the name of a series to the name of the registry's counter to which its values are added."""
    gauges: Mapping[str, str]
    """Maps the name of a series to the name of the registry's gauge to which its values are added."""
    histograms: Mapping[str, str]
    """Maps the name of a series of histogram buckets to the name of the registry's histogram."""
    start: Mapping[tuple[str, str], str]
    """Maps (name of a series, value of its label `phase`) to a part of the engine's start. The value of the label is ""
    if all phases belong to this part."""


@cache
def engine_series() -> Mapping[str, EngineSeries]:
    """Return the series of every engine for which data exist, by the prefix of the names of the series (`sglang`,
    `vllm`).
    """
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
