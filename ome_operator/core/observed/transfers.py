"""Pairs of a prefill and a decode leader between which transfers of KV caches fail, as routers' registries report them
(docs/telemetry.md).
"""

from collections.abc import Mapping
from typing import NamedTuple

PAIRS = 32
"""Maximum number of failing pairs in a summary."""


class FailingPair(NamedTuple):
    """A pair of a prefill and a decode leader between which transfers of KV caches fail, and how many probes of these
    transfers failed. Leaders are named by the marks of their UIDs (`names.public_digest`).
    """

    prefill: str
    decode: str
    probes: int
    """Number of probes of the pair that the registry remembers. The registry remembers only the latest probes."""
    failed: int
    """Number of failures among these probes."""
    prefill_works_with: str = ""
    """A decode leader to which the prefill leader transfers without failure; "" if none is known."""
    decode_works_with: str = ""
    """A prefill leader from which the decode leader gets KV caches without failure; "" if none is known."""


Transfers = Mapping[str, tuple[FailingPair, ...]]
"""The failing pairs that registries report, by the UID of the router's pod."""
