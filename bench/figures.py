"""Medians and percentiles."""

from collections.abc import Sequence


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
