"""What people write: lengths, workloads, seconds; a sentence for what cannot be meant."""

import math
import re
from collections.abc import Mapping
from typing import Any

from ome_operator.sizing.loop import Load
from ome_operator.sizing.refused import PlanRefused

_AMOUNT = re.compile(r"([+-]?\d+(?:[.,_]\d+)*)\s*([A-Za-z]*)")
_TOKENS = {"": 1, "k": 1000, "K": 1000, "M": 10**6}
_SECONDS = {"s": 1.0, "ms": 1e-3, "m": 60.0, "min": 60.0}
MOST_TOKENS = 10**8
_SUM = 1e-3
"""How far shares may be from 1 together."""
_FIELDS = ("in", "out", "share", "hit")


def workload(text: str, cached: float = 0.0) -> Load:
    """`2000/100`, `30k/2k`: tokens in and out."""
    parts = text.split("/")
    if len(parts) != 2:
        raise PlanRefused(f"The workload {text!r} is not IN/OUT: 2000/100 and 30k/2k are.")
    return _load({"in": parts[0], "out": parts[1], "hit": cached})


def mix(data: Any, name: str) -> tuple[Load, ...]:
    """The workloads of a file: a list of maps with `in`, `out`, `share` and, where prompts have a cached prefix, `hit`."""
    if not isinstance(data, list) or not data or not all(isinstance(each, Mapping) for each in data):
        raise PlanRefused(f"{name} is no list of workloads: - {{in: 2000, out: 100, share: 1}} is such a list.")
    for each in data:
        if unknown := [str(key) for key in each if key not in _FIELDS]:
            raise PlanRefused(f"{name} has {unknown[0]}, and a workload has {', '.join(_FIELDS)}.")
        if missing := [key for key in _FIELDS[: 3 if len(data) > 1 else 2] if key not in each]:
            raise PlanRefused(f"{name} has a workload without {missing[0]}.")
    loads = tuple(_load(each) for each in data)
    whole = sum(load.share for load in loads)
    if abs(whole - 1) > _SUM:
        raise PlanRefused(f"The shares of {name} are {whole:g} together, and have to be 1.")
    return loads


def _load(said: Mapping[str, Any]) -> Load:
    share = _share(said.get("share", 1.0), "share")
    if share <= 0:
        raise PlanRefused("A share has to be above 0.")
    return Load(tokens(str(said["in"])), tokens(str(said["out"])), hit(said.get("hit", 0.0)), share)


def hit(value: Any) -> float:
    """The share of prompts that a cache of prefixes has."""
    found = _share(value, "hit")
    if found >= 1:
        raise PlanRefused("A hit has to be below 1, for the last token of a prompt is always read.")
    return found


def _share(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise PlanRefused(f"The {what} {value!r} is no number from 0 to 1.")
    return float(value)


def means(loads: tuple[Load, ...]) -> Load:
    """A load of mean lengths."""
    prompt = sum(load.share * load.prompt for load in loads)
    read = sum(load.share * load.read for load in loads)
    return Load(prompt, sum(load.share * load.answer for load in loads), 1 - read / prompt)


def tokens(text: str) -> float:
    """A length: 2000, 30k."""
    number = _amount(text, _TOKENS, "a length in tokens")
    if not 1 <= number <= MOST_TOKENS:
        raise PlanRefused(f"A length of {number:,.0f} tokens cannot be planned for: from 1 to {MOST_TOKENS:,} can.")
    return number


def seconds(text: str, default: str, what: str) -> float:
    """A time: 2, 2s, 500ms; a bare number is in `default`."""
    number = _amount(text, {"": _SECONDS[default], **_SECONDS}, what)
    if number <= 0:
        raise PlanRefused(f"{what} of {text} cannot be kept: it has to be above 0.")
    return number


def _amount(text: str, units: Mapping[str, float], what: str) -> float:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise PlanRefused(f"{text!r} is not {what}: 2000 is a number.")
    if found[2] not in units:
        known = ", ".join(unit for unit in units if unit)
        raise PlanRefused(f"{text!r} has the unit {found[2]}, which is not known: {known} are.")
    try:
        number = float(found[1].replace("_", "").replace(",", "")) * units[found[2]]
    except ValueError:
        raise PlanRefused(f"{text!r} is not {what}: 2000 is a number.") from None
    if not math.isfinite(number):
        raise PlanRefused(f"{text!r} is not {what}: it is too large.")
    return number
