"""Pairs of a prefill and a decode leader whose transfers fail, as routers' registries report them (docs/telemetry.md)."""

from collections.abc import Mapping
from typing import NamedTuple

PAIRS = 32
"""Maximum number of failing pairs in a summary."""


class FailingPair(NamedTuple):
    """The probes of a pair that fails. Leaders are named by the marks of their UIDs (`names.mark`)."""

    prefill: str
    decode: str
    probes: int
    """Number of the last probes that are counted."""
    failed: int
    """How many of them failed."""
    prefill_works_with: str = ""
    """A decode leader to which the prefill leader transfers without failure; "" if none is known."""
    decode_works_with: str = ""
    """A prefill leader from which the decode leader gets KV caches without failure; "" if none is known."""


Transfers = Mapping[str, tuple[FailingPair, ...]]
"""UID of a router's pod -> the failing pairs that its registry reports."""
