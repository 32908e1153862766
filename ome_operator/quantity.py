"""Arithmetic on Kubernetes quantities (`1000m`, `1.5Gi`, `2e3`), durations (`1h30m`) and times.

The API server stores quantities in canonical form (`1000m` becomes `1`), so manifests are rendered in that form. Otherwise
an applied manifest would always differ from the stored object.
"""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
}
_LARGEST = 2**63 - 1
"""The largest quantity. The API server replaces larger values by this value."""
LONGEST = 100 * 365 * 86400.0
"""The longest duration in seconds (a hundred years). Longer durations are shortened to this value, so that the result can
be added to any time that `parse_instant` returns."""
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
_DURATION = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?0*[0-9]{1,3})|([KMGTPE]i)|([numkMGTPE]))?$")
"""Matches a quantity. An exponent has at most three digits, because more would keep a processor busy for minutes."""
_LONGEST = 128
"""Maximum length of a quantity in characters. A whole number has at most as many digits as 64 bits can represent. Texts of
times that are longer are not cached."""


def _split(quantity: Any) -> tuple[Fraction, str] | None:
    """Return the value and the family of the suffix ("binary", "decimal", "exponent"); None if the text is not a
    quantity.
    """
    text = str(quantity).strip()
    return _read(text) if len(text) <= _LONGEST else None


@lru_cache(4096)
def _read(text: str) -> tuple[Fraction, str] | None:
    """Return the value and the suffix family of a quantity. Results are cached, because the same amounts occur in every pod
    and fractions are expensive. Return None if the text is not a quantity.
    """
    found = _QUANTITY.match(text)
    if not found:
        return None
    number, exponent, binary, decimal = found.groups()
    if exponent:
        return _capped(Fraction(number) * Fraction(10) ** int(exponent[1:])), "exponent"
    if binary:
        return _capped(Fraction(number) * _BINARY[binary]), "binary"
    return _capped(Fraction(number) * _DECIMAL[decimal or ""]), "decimal"


def _capped(value: Fraction) -> Fraction:
    return max(Fraction(-_LARGEST), min(value, Fraction(_LARGEST)))


def is_valid(quantity: Any) -> bool:
    """Return whether the value is a quantity of a reasonable length."""
    return _split(quantity) is not None


def whole_number(number: Any) -> int | None:
    """Return a whole number without a sign, of at most 64 bits, from a number or a text; None for anything else."""
    if not isinstance(number, int | str):
        return None
    text = number if isinstance(number, str) else str(number) if abs(number) < 10**19 else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else None


def parse(quantity: Any) -> Fraction:
    """Return the number that a quantity represents. Return 0 for a value that is not a quantity; the API server rejects
    such a value later.
    """
    parts = _split(quantity)
    return parts[0] if parts else Fraction(0)


def canonical_text(quantity: Any) -> str:
    """Return the form in which the API server stores a quantity. Text that is not a quantity is returned unchanged."""
    parts = _split(quantity)
    return str(quantity) if parts is None else _spelled(*parts)


@lru_cache(4096)
def _spelled(value: Fraction, family: str) -> str:
    if value == 0:
        return "0"
    if family == "binary" and value.denominator == 1 and abs(value) >= 1024:
        for suffix, factor in reversed(_BINARY.items()):
            if value % factor == 0:
                return f"{value // factor}{suffix}"
        return str(value)
    if family == "exponent":
        return _exponent(value)
    for suffix, unit in reversed(_DECIMAL.items()):
        if value % unit == 0:
            return f"{value // unit}{suffix}"
    return f"{_away_from_zero(value / _DECIMAL['n'])}n"


def _exponent(value: Fraction) -> str:
    power = 18
    while power > -9 and value % Fraction(10) ** power:
        power -= 3
    mantissa = _away_from_zero(value / Fraction(10) ** power)
    return f"{mantissa}e{power}" if power else str(mantissa)


def _away_from_zero(value: Fraction) -> int:
    """Round a number away from zero at the ninth decimal as the API server does, so that nobody gets less than requested."""
    return math.ceil(value) if value > 0 else math.floor(value)


@lru_cache(4096)
def units(resource: str, quantity: Any) -> int:
    """Return an amount of a resource as the scheduler counts it: CPUs in thousandths, everything else in whole units,
    rounded up.
    """
    return math.ceil(parse(quantity) * (1000 if resource == "cpu" else 1))


def resource_maximums(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the amount of each resource that a container may use: its limit, or its request if there is no limit."""
    resources = container.get("resources") or {}
    return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


def gpus(container: Mapping[str, Any]) -> int:
    """Return the number of accelerators of a container: the sum of its `<vendor>/gpu` limits, or of its requests if there
    are no limits.
    """
    return int(sum(parse(amount) for name, amount in resource_maximums(container).items() if name.endswith("/gpu")))


def seconds(duration: str) -> float:
    """Return the number of seconds of a duration such as `90s` or `1h30m`. The text must have the format of
    `api.values.Duration`. The result is at most `LONGEST`.
    """
    parts = re.findall(r"(?<![0-9.])([0-9.]++)([a-zµ]++)", duration)
    return min(sum(float(number) * _DURATION[unit] for number, unit in parts), LONGEST)


def share_of(value: int | str, whole: int, *, up: bool) -> int:
    """Return `value` as a number. A percentage (`"25%"`) is converted to a share of `whole`, rounded up if `up` is True,
    otherwise down. Raises ValueError for a text that is neither an integer nor a percentage.
    """
    text = str(value)
    if not text.endswith("%"):
        return int(text)
    percent = int(text[:-1]) * whole
    return -(-percent // 100) if up else percent // 100


def rfc3339(when: datetime) -> str:
    """Format a time in UTC as the API writes times, in whole seconds: the result may be up to one second early."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_instant(text: object) -> datetime | None:
    """Parse a time in RFC 3339. Return None if the value, which anybody may have written, is not such a time, has no time
    zone, or is a time before 1970 or after the year 8999.

    Every returned time can be converted to UTC and to seconds since the epoch. The limits are necessary because Python
    parses times such as `0001-01-01T00:00:00+23:59`, and raises OverflowError when such a time is converted.
    """
    when = _time(text)
    return when if when is not None and when.tzinfo is not None else None


def _time(text: object) -> datetime | None:
    """Parse a time in RFC 3339, with or without a time zone. Return None under the other conditions under which
    `parse_instant` returns None.
    """
    if not isinstance(text, str):
        return None
    return _parsed(text) if len(text) <= _LONGEST else _parsed.__wrapped__(text)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> datetime | None:
    """Parse a time. A pass reads the same times of pods and of the status again and again, so results are cached. Return
    None if the text is not a time, or if the time is not plausible.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when if _EARLIEST <= when.replace(tzinfo=when.tzinfo or UTC) < _LATEST else None


def moment(text: object, now: datetime) -> datetime | None:
    """Parse a time that must be before `now`. Return None if the value, which anybody may have written, is not such a
    time.

    A time in the future is rejected because it means that a clock was set back, and a timeout that begins at that time would
    last too long.
    """
    when = _time(text)
    return when if when is not None and (when.tzinfo is None) == (now.tzinfo is None) and when <= now else None
