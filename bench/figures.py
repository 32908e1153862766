"""Medians and percentiles."""

from collections.abc import Sequence
from math import log


def median(values: Sequence[float]) -> float:
    """The middle one, or the mean of the two in the middle."""
    return percentile(values, 50)


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between the two nearest values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = (len(ordered) - 1) * share / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The power of the size with which a cost grows, as least squares of their logarithms have it."""
    logs = [(log(size), log(cost)) for size, cost in points]
    middle, mean = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    rises: float = sum((size - middle) * (cost - mean) for size, cost in logs) / sum(
        (size - middle) ** 2 for size, _ in logs
    )
    return rises
