"""Parse the options of `ome plan`: lengths, workloads and times. Invalid values raise PlanRefused."""

import math
import re
from collections.abc import Mapping
from typing import Any

from ome_operator.sizing.errors import PlanRefused
from ome_operator.sizing.queueing import Load

_AMOUNT = re.compile(r"([+-]?\d+(?:[.,_]\d+)*)\s*([A-Za-z]*)")
_TOKENS = {"": 1, "k": 1000, "K": 1000, "M": 10**6}
_SECONDS = {"s": 1.0, "ms": 1e-3, "m": 60.0, "min": 60.0}
MOST_TOKENS = 10**8
_SUM = 1e-3
"""Largest accepted difference between the sum of all shares and 1."""
_FIELDS = ("in", "out", "share", "hit")


def workload(text: str, cached: float = 0.0) -> Load:
    """Return the load for a text such as `2000/100` or `30k/2k`, which contains the numbers of input and output tokens.
    `cached` is the hit rate of the prefix cache, which the option `--prefix-hit` states.
    """
    parts = text.split("/")
    if len(parts) != 2:
        raise PlanRefused(f"The workload {text!r} is not IN/OUT: write tokens in and out, such as 2000/100 or 30k/2k.")
    return _load({"in": parts[0], "out": parts[1], "hit": parse_hit_rate(cached, "--prefix-hit")})


def parse_workload(data: Any, name: str) -> tuple[Load, ...]:
    """Return the loads of a workload file. The file contains a list of maps with the fields `in`, `out`, `share` and, for
    prompts with a cached prefix, `hit`. `name` is the name of the file for messages.
    """
    if not isinstance(data, list) or not data or not all(isinstance(each, Mapping) for each in data):
        raise PlanRefused(f"{name} is not a list of workloads: write, for example, - {{in: 2000, out: 100, share: 1}}.")
    for each in data:
        if unknown := [str(key) for key in each if key not in _FIELDS]:
            raise PlanRefused(
                f"{name} has the unknown field {unknown[0]}: the fields of a workload are {', '.join(_FIELDS)}."
            )
        if missing := [key for key in _FIELDS[: 3 if len(data) > 1 else 2] if key not in each]:
            raise PlanRefused(f"{name} has a workload without the field {missing[0]}.")
    loads = tuple(_load(each) for each in data)
    whole = sum(load.share for load in loads)
    if abs(whole - 1) > _SUM:
        raise PlanRefused(f"The shares of {name} add up to {whole:g}, and must add up to 1.")
    return loads


def _load(facts: Mapping[str, Any]) -> Load:
    share = _share(facts.get("share", 1.0), "The share")
    if share <= 0:
        raise PlanRefused("A share of a workload is not above 0: write a positive number.")
    return Load(tokens(str(facts["in"])), tokens(str(facts["out"])), parse_hit_rate(facts.get("hit", 0.0)), share)


def parse_hit_rate(value: Any, title: str = "The hit") -> float:
    """Return the hit rate as a number from 0 to below 1. The hit rate is the fraction of the prompt tokens that the prefix
    cache holds. `title` names the field or the option for messages.
    """
    found = _share(value, title)
    if found >= 1:
        raise PlanRefused(
            "A hit rate must be below 1, because the last token of a prompt is always computed: write a number below 1."
        )
    return found


def _share(value: Any, title: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise PlanRefused(f"{title} {value!r} is not a number from 0 to 1.")
    return float(value)


def mean_load(loads: tuple[Load, ...]) -> Load:
    """Return a load with the mean lengths of all requests."""
    prompt = sum(load.share * load.prompt for load in loads)
    read = sum(load.share * load.computed_tokens for load in loads)
    return Load(prompt, sum(load.share * load.answer for load in loads), 1 - read / prompt)


def tokens(text: str) -> float:
    """Return the number of tokens for a text such as 2000 or 30k."""
    number = _amount(text, _TOKENS, "a length in tokens")
    if not 1 <= number <= MOST_TOKENS:
        raise PlanRefused(f"A length of {number:,.0f} tokens is out of range: write a number from 1 to {MOST_TOKENS:,}.")
    return number


def seconds(text: str, default: str, option: str) -> float:
    """Return the number of seconds for a text such as 2, 2s or 500ms. A number without a unit is in the unit `default`.
    `option` is the name of the option for messages.
    """
    number = _amount(text, {"": _SECONDS[default], **_SECONDS}, f"a time for {option}")
    if number <= 0:
        raise PlanRefused(f"{option} is {text}: write a number above 0.")
    return number


def _amount(text: str, units: Mapping[str, float], expected: str) -> float:
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise PlanRefused(f"{text!r} is not {expected}: write a number such as 2000.")
    if found[2] not in units:
        known = ", ".join(unit for unit in units if unit)
        raise PlanRefused(f"{text!r} has the unknown unit {found[2]}: the units are {known}.")
    try:
        number = float(found[1].replace("_", "").replace(",", "")) * units[found[2]]
    except ValueError:
        raise PlanRefused(f"{text!r} is not {expected}: write a number such as 2000.") from None
    if not math.isfinite(number):
        raise PlanRefused(f"{text!r} is not {expected}, because it is too large: write a smaller number.")
    return number
