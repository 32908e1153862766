"""Compute how many services an edit of a shared object may have reached at a time (docs/rollouts.md, decisions 30).

The computation is stateless: all numbers and times come from the services.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from ome_operator import keys, quantity
from ome_operator.api import Invalid
from ome_operator.api.values import DURATION, full_match

_SIZE = re.compile(r"([1-9][0-9]{0,8})(%?)")
_is_duration = full_match(DURATION)
LONGEST = 30 * 24 * 3600.0
"""Longest allowed bake time in seconds. A longer time is treated as a mistake."""
PATIENCE = timedelta(minutes=30)
"""How long a wave waits for a service whose pods wait for a volume, a quota or a node that does not depend on the edit."""
_RISE = "such as 1, 5%, 25%, 100%"


class WaveTerms(NamedTuple):
    """The rules by which an edit is rolled out from service to service."""

    waves: tuple[str, ...] = ("1", "5%", "25%", "100%")
    """The end of each wave, as a number of services or as a percentage of the services that the edit changes."""
    bake: float = 300.0
    """Seconds for which the services of a wave have to be complete before the next wave begins."""
    at_once: int = 0
    """Largest number of services that may be changed at the same time; 0 to use the size of the wave."""


class CurrentWave(NamedTuple):
    """The wave that the rollout of an edit has reached."""

    wave: int
    """Number of the wave, starting at 1."""
    of: int
    size: int
    """Number of services that have the edit when this wave ends, including the services of earlier waves."""
    room: int
    """How many more services may begin with the edit now."""
    until: datetime | None = None
    """When the bake time of this wave ends; None while the wave is not complete, and for the last wave."""

    def seconds_until_next_wave(self, now: datetime) -> float | None:
        """Return the seconds until the bake time ends and the next wave begins; None if no bake time is running."""
        return None if self.until is None else max(0.0, (self.until - now).total_seconds())


def sizes(waves: Iterable[str], total: int) -> list[int]:
    """Return the number of services with which each wave ends, out of `total` services. Each wave adds at least one
    service, and the last wave ends with all services.
    """
    ends: list[int] = []
    for wave in (*waves, "100%"):
        former = ends[-1] if ends else 0
        if former >= total:
            break
        ends.append(min(total, max(former + 1, quantity.share_of(wave, total, up=True))))
    return ends


def present_wave(
    terms: WaveTerms, total: int, whole: Sequence[datetime], under_way: int, failed: int, now: datetime, lacking: int = 0
) -> CurrentWave | None:
    """Return the present wave, including the number of services that may begin now; None if there are no services.

    total        Number of services that the edit changes or has changed.
    whole        Since when each complete service has been complete, in ascending order.
    under_way    Number of services that have begun and are not complete, including services that have lost a group since.
    failed       Number of services that failed with the edit. If there is any, no further service may begin.
    lacking      Number of the services `under_way` whose pods have waited for a volume, a quota or a node for `PATIENCE`.
                 From the second wave on, a wave can be complete without these services, as long as they are at most a tenth
                 of all services (or one service).
    """
    ends, passed = sizes(terms.waves, total), min(lacking, max(1, total // 10))
    for number, size in enumerate(ends, 1):
        least = size if number == 1 else max(ends[0], size - passed)
        if len(whole) < least:
            room = size - len(whole) - under_way - failed
            if terms.at_once:
                room = min(room, terms.at_once - under_way + passed)
            return CurrentWave(number, len(ends), size, 0 if failed else max(0, room))
        baked = whole[least - 1] + timedelta(seconds=terms.bake)
        if number < len(ends) and now < baked:
            return CurrentWave(number, len(ends), size, 0, baked)
    return CurrentWave(len(ends), len(ends), total, 0) if ends else None


def wave_of(terms: WaveTerms, total: int, place: int) -> tuple[int, int]:
    """Return the number of the wave that contains the service at position `place` (from 1), and the number of waves."""
    ends = sizes(terms.waves, total)
    return next((number for number, size in enumerate(ends, 1) if size >= place), max(1, len(ends))), max(1, len(ends))


def parse_waves(text: str) -> tuple[str, ...] | Invalid:
    """Parse the waves that a person wrote, separated by commas. Return the reason as Invalid if they are not valid."""
    found = tuple(part.strip() for part in text.split(","))
    highest = {"": 0, "%": 0}
    for wave in found:
        matched = _SIZE.fullmatch(wave)
        if matched is None or (matched[2] and int(matched[1]) > 100):
            return Invalid(
                f"{wave or 'an empty text'} is not a wave: write a number of services of at least 1, or 1% to 100%, {_RISE}"
            )
        if int(matched[1]) <= highest[matched[2]] or highest["%"] == 100:
            return Invalid(
                f"{', '.join(found)} does not increase: each wave must cover more services than the wave before, {_RISE}"
            )
        highest[matched[2]] = int(matched[1])
    return found


def read_bake(text: str) -> float | Invalid:
    """Parse a bake time that a person wrote, and return it in seconds. Return the reason as Invalid if it is not valid."""
    if len(text) > 64 or not _is_duration(text):
        return Invalid(f'{text[:64] or "an empty text"} is not a duration: write one such as "90s", "15m" or "1h30m"')
    if (found := quantity.seconds(text)) > LONGEST:
        return Invalid(f"{text} is longer than the maximum bake time: write at most {LONGEST / 3600:.0f}h")
    return found


def terms(notes: Mapping[str, str], default: WaveTerms) -> tuple[WaveTerms, tuple[str, ...]]:
    """Return the rules from the annotations of an object, with `default` in place of missing or invalid values, and a
    sentence for each annotation that is not valid. `notes` are these annotations.
    """
    messages: list[str] = []
    if (text := notes.get(keys.WAVES)) is not None:
        waves = parse_waves(text)
        if isinstance(waves, Invalid):
            messages.append(f"annotation {keys.WAVES}: {waves.why}; the waves that the operator is configured with are used")
        else:
            default = default._replace(waves=waves)
    if (text := notes.get(keys.BAKE)) is not None:
        bake = read_bake(text)
        if isinstance(bake, Invalid):
            messages.append(
                f"annotation {keys.BAKE}: {bake.why}; the bake time that the operator is configured with is used"
            )
        else:
            default = default._replace(bake=bake)
    return default, tuple(messages)
