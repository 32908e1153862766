"""How many services an edit that they share may have reached at a time (docs/rollouts.md, decisions 30).

Pure counting: the numbers and moments come from what services say of themselves, and nothing is remembered.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from ome_operator import keys, quantity
from ome_operator.api import Invalid
from ome_operator.api.values import DURATION, matches

_SIZE = re.compile(r"([1-9][0-9]{0,8})(%?)")
_is_duration = matches(DURATION)
LONGEST = 30 * 24 * 3600.0
"""Seconds that a bake may take: what is longer was not meant."""
_RISE = "such as 1, 5%, 25%, 100%"


class Terms(NamedTuple):
    """How an edit goes on from service to service."""

    waves: tuple[str, ...] = ("1", "5%", "25%", "100%")
    """Where each wave ends: a number of services, or a percentage of those that the edit changes."""
    bake: float = 300.0
    """Seconds for which the services of a wave have to be whole before the next begins."""
    at_once: int = 0
    """Most services on their way at a time; 0: as many as the wave has."""


class CurrentWave(NamedTuple):
    """Which wave it is."""

    wave: int
    """From 1."""
    of: int
    size: int
    """Services that are reached when it ends, those of the waves before included."""
    room: int
    """How many more may begin now."""
    until: datetime | None = None
    """Until when this wave bakes; None while it is not whole, and of the last."""

    def again(self, now: datetime) -> float | None:
        """Seconds until the next wave begins by itself."""
        return None if self.until is None else max(0.0, (self.until - now).total_seconds())


def sizes(waves: Iterable[str], total: int) -> list[int]:
    """Where each wave ends, for so many services: each at least a service later than the former, the last with all."""
    ends: list[int] = []
    for wave in (*waves, "100%"):
        former = ends[-1] if ends else 0
        if former >= total:
            break
        ends.append(min(total, max(former + 1, quantity.part(wave, total, up=True))))
    return ends


def decide(
    terms: Terms, total: int, whole: Sequence[datetime], under_way: int, failed: int, now: datetime
) -> CurrentWave | None:
    """Which wave it is, and how many more services may begin; None without any service.

    `total`: services that the edit changes or has changed. `whole`: since when those are whole that are, sorted.
    `under_way`: those that have begun and are not whole, also those that were and have lost a group. `failed`: those that
    stop it.
    """
    ends = sizes(terms.waves, total)
    for number, size in enumerate(ends, 1):
        if len(whole) < size:
            room = size - len(whole) - under_way - failed
            if terms.at_once:
                room = min(room, terms.at_once - under_way)
            return CurrentWave(number, len(ends), size, 0 if failed else max(0, room))
        baked = whole[size - 1] + timedelta(seconds=terms.bake)
        if number < len(ends) and now < baked:
            return CurrentWave(number, len(ends), size, 0, baked)
    return CurrentWave(len(ends), len(ends), total, 0) if ends else None


def wave_of(terms: Terms, total: int, place: int) -> tuple[int, int]:
    """(the wave in which the service at this place of the order is, from 1; how many waves there are)."""
    ends = sizes(terms.waves, total)
    return next((number for number, size in enumerate(ends, 1) if size >= place), max(1, len(ends))), max(1, len(ends))


def read(text: str) -> tuple[str, ...] | Invalid:
    """The waves that a person wrote, separated by commas."""
    found = tuple(part.strip() for part in text.split(","))
    highest = {"": 0, "%": 0}
    for wave in found:
        matched = _SIZE.fullmatch(wave)
        if matched is None or (matched[2] and int(matched[1]) > 100):
            return Invalid(f"{wave or 'nothing'} is no wave: write a number of services from 1, or 1% to 100%, {_RISE}")
        if int(matched[1]) <= highest[matched[2]] or highest["%"] == 100:
            return Invalid(f"{', '.join(found)} does not rise: each wave ends later than the wave before, {_RISE}")
        highest[matched[2]] = int(matched[1])
    return found


def read_bake(text: str) -> float | Invalid:
    """The seconds of a bake that a person wrote."""
    if len(text) > 64 or not _is_duration(text):
        return Invalid(f'{text[:64] or "nothing"} is no duration: write it such as "90s", "15m" or "1h30m"')
    if (found := quantity.seconds(text)) > LONGEST:
        return Invalid(f"{text} is longer than a bake may be: write at most {LONGEST / 3600:.0f}h")
    return found


def terms(notes: Mapping[str, str], default: Terms) -> tuple[Terms, tuple[str, ...]]:
    """What the annotations of an object say, else the default; and a sentence for each that cannot be read."""
    said: list[str] = []
    if (text := notes.get(keys.WAVES)) is not None:
        waves = read(text)
        if isinstance(waves, Invalid):
            said.append(f"annotation {keys.WAVES}: {waves.why}; the waves of the operator count")
        else:
            default = default._replace(waves=waves)
    if (text := notes.get(keys.BAKE)) is not None:
        bake = read_bake(text)
        if isinstance(bake, Invalid):
            said.append(f"annotation {keys.BAKE}: {bake.why}; the bake of the operator counts")
        else:
            default = default._replace(bake=bake)
    return default, tuple(said)
