"""What the answers of the ranks mean: whom a finding is about (docs/preflight.md)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from ome_operator.preflight.node import Json, finding

FAST = 1e9
"""Bytes a second that are never called slow: the copy goes through TCP and a single thread."""
SLOW = 4
"""So many times slower than the median is told: healthy ranks that share two cores differ by less."""
SKEW = 2.0
"""Seconds by which a clock may differ from the group's median."""
UNKNOWN = "its name does not resolve"


def clocks(hellos: dict[int, Json]) -> Iterator[Json]:
    """Clocks that differ from the group's median; of two ranks nobody knows whose clock is right."""
    middle = statistics.median(float(said["skew"]) for said in hellos.values())
    for rank, said in sorted(hellos.items()):
        off = float(said["skew"]) - (middle if len(hellos) > 2 else 0.0)
        if abs(off) > SKEW:
            than = "the others" if len(hellos) > 2 else "rank 0"
            yield finding("clock", f"its clock is {abs(off):.1f} s {'before' if off > 0 else 'behind'} {than}",
                          "look at NTP on the node", rank)  # fmt: skip


def links(hellos: dict[int, Json]) -> Iterator[Json]:
    """Ranks whose slowest link is slower than that of most others."""
    rates = {rank: float(said["link"]) for rank, said in hellos.items() if said.get("link")}
    middle = statistics.median_high(rates.values()) if rates else 0.0
    for rank, rate in sorted(rates.items()):
        if rate < middle:
            yield finding("links", f"its slowest RDMA link runs at {rate:g} Gb/s, and at {middle:g} on most ranks",
                          "look at cable, switch port and PCIe slot of the device", rank)  # fmt: skip


def unreached(answers: dict[int, Json], host: Callable[[int], str]) -> Iterator[Json]:
    """Who is not reached, or reaches nobody."""
    failed: dict[tuple[int, int, str], list[int]] = {}
    for rank, answer in answers.items():
        for target, port, reason in answer.get("failed") or ():
            failed.setdefault((int(target), int(port), str(reason)), []).append(rank)
    others = len(answers) - 1
    blind = {
        rank
        for rank in answers
        if others > 1 and len({target for (target, _, _), ranks in failed.items() if rank in ranks}) == others
    }
    for rank in sorted(blind):
        yield finding("reach", "it reaches no other rank", "look at its node's network, and at egress policies", rank)
    for (target, port, reason), ranks in sorted(failed.items()):
        left = [rank for rank in ranks if rank not in blind]
        if not left:
            continue
        who = "no rank reaches it" if len(left) == others > 1 else f"rank {', '.join(map(str, left))} does not reach it"
        if reason == UNKNOWN:
            yield finding("names", f"{who}: {host(target)} does not resolve", "look at DNS of these nodes", target)
        else:
            yield finding("reach", f"{who} at port {port}: {reason}",
                          "open the port in network policies and in the firewall of its node", target)  # fmt: skip


def lost(stuck: dict[tuple[int, int], str], answers: dict[int, Json]) -> Iterator[Json]:
    """Copies that do not come through to ranks that are reached otherwise."""
    known = {int(target) for answer in answers.values() for target, _, _ in answer.get("failed") or ()}
    for (rank, target), reason in sorted(stuck.items()):
        if target not in known:
            yield finding("copy", f"what it sends to rank {target} does not come through: {reason}",
                          "look at the MTU of both nodes and of the network between them", rank)  # fmt: skip


def slow(rates: dict[tuple[int, int], float], how: str = "TCP", fast: float = FAST) -> Iterator[Json]:
    """Ranks that send or take far less than the median; of two ranks, who sends far less than it gets."""
    for word, end in (("sends", 0), ("takes", 1)):
        best: dict[int, float] = {}
        for pair, rate in rates.items():
            best[pair[end]] = max(rate, best.get(pair[end], 0.0))
        if len(best) < 2 or (len(best) == 2 and end):
            continue
        middle = statistics.median_high(best.values())
        for rank, rate in sorted(best.items()):
            if rate < min(middle / SLOW, fast):
                yield finding("copy", f"it {word} {_speed(rate)} by {how}, and the median of the group is {_speed(middle)}",
                              "look at its node: link, cable, traffic shaping, load", rank)  # fmt: skip


def _speed(rate: float) -> str:
    return f"{rate / 1e9:.1f} GB/s" if rate >= 1e9 else f"{rate / 1e6:.1f} MB/s"
