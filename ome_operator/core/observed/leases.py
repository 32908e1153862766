"""Read from a Lease whether its holder still works."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from ome_operator import quantity

LIVES = 3
"""A holder is considered gone if it has not renewed its Lease for this many times the duration of the Lease
(`leaseDurationSeconds`). Candidates of the election wait for a single duration, because each of them measures with its
own clock. Readers compare the holder's time with their own clocks, so they need a margin."""


def renewal_time(lease: Mapping[str, Any]) -> datetime | None:
    """Return when a Lease was renewed last; None if that is unknown."""
    return quantity.parse_instant((lease.get("spec") or {}).get("renewTime"))


def is_alive(lease: Mapping[str, Any], now: datetime) -> bool:
    """Return whether the Lease has a holder, and was renewed less than LIVES times its own duration ago. A Lease that was
    released has no holder.
    """
    spec, last = lease.get("spec") or {}, renewal_time(lease)
    if last is None or not spec.get("holderIdentity"):
        return False
    return now - last < timedelta(seconds=LIVES * float(spec.get("leaseDurationSeconds") or 0))
