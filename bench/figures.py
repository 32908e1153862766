"""Medians and percentiles."""

from collections.abc import Sequence
from math import log


def median(values: Sequence[float]) -> float:
    """Return the median: the middle value, or the mean of the two middle values."""
    return percentile(values, 50)


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile by linear interpolation between the two nearest values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = (len(ordered) - 1) * share / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """Return the exponent of the power law by which a cost grows with the size, as a least-squares fit of the logarithms."""
    logs = [(log(size), log(cost)) for size, cost in points]
    middle, mean = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    rises: float = sum((size - middle) * (cost - mean) for size, cost in logs) / sum(
        (size - middle) ** 2 for size, _ in logs
    )
    return rises
