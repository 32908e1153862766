"""Read from a Lease whether its holder still works."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from ome_operator import quantity

LIVES = 3
"""Number of durations of a Lease without a renewal after which its holder is considered gone. A candidate of the election
waits for one duration, measured with its own clock; the others are a margin for readers, whose clocks differ from that of
the holder."""


def renewed(lease: Mapping[str, Any]) -> datetime | None:
    """Return when a Lease was renewed last; None if that is unknown."""
    return quantity.instant((lease.get("spec") or {}).get("renewTime"))


def alive(lease: Mapping[str, Any], now: datetime) -> bool:
    """Return whether the Lease has a holder, and was renewed less than LIVES times its own duration ago. A Lease that was
    released has no holder.
    """
    spec, last = lease.get("spec") or {}, renewed(lease)
    if last is None or not spec.get("holderIdentity"):
        return False
    return now - last < timedelta(seconds=LIVES * float(spec.get("leaseDurationSeconds") or 0))
