"""Derive findings from the answers of the ranks, and determine which rank each finding is about (docs/preflight.md)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from ome_operator.preflight.node import Json, finding

NEVER_SLOW = 1e9
"""Bytes per second above which a copy is never reported as slow, because copies use TCP and a single thread."""
SLOW_FACTOR = 4
"""A rank is reported if it is this many times slower than the median of the group. Healthy ranks that share two cores differ
by less."""
SKEW = 2.0
"""Seconds by which a clock may differ from the group's median."""
UNKNOWN = "its name does not resolve"


def clocks(hellos: dict[int, Json]) -> Iterator[Json]:
    """Report clocks that differ from the group's median. With two ranks, it is unknown which clock is right."""
    median = statistics.median(float(hello["skew"]) for hello in hellos.values())
    for rank, hello in sorted(hellos.items()):
        difference = float(hello["skew"]) - (median if len(hellos) > 2 else 0.0)
        if abs(difference) > SKEW:
            reference = "the others" if len(hellos) > 2 else "rank 0"
            yield finding(
                "clock",
                f"its clock is {abs(difference):.1f} s {'ahead of' if difference > 0 else 'behind'} {reference}",
                "check NTP on the node",
                rank,
            )


def links(hellos: dict[int, Json]) -> Iterator[Json]:
    """Report ranks whose slowest link is slower than that of most other ranks."""
    rates = {rank: float(hello["link"]) for rank, hello in hellos.items() if hello.get("link")}
    median = statistics.median_high(rates.values()) if rates else 0.0
    for rank, rate in sorted(rates.items()):
        if rate < median:
            yield finding(
                "links",
                f"its slowest RDMA link runs at {rate:g} Gb/s, but those of most ranks at {median:g} Gb/s",
                "check the cable, the switch port and the PCIe slot of the device",
                rank,
            )


def unreachable(answers: dict[int, Json], host: Callable[[int], str]) -> Iterator[Json]:
    """Report ranks that no other rank reaches, and ranks that reach no other rank."""
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
        yield finding(
            "reach",
            ("it cannot connect to any other rank"),
            "check the network of its node, and the network policies for egress",
            rank,
        )
    for (target, port, reason), ranks in sorted(failed.items()):
        reporting = [rank for rank in ranks if rank not in blind]
        if not reporting:
            continue
        reporters = (
            "no other rank can connect to it"
            if len(reporting) == others > 1
            else f"rank {', '.join(map(str, reporting))} cannot connect to it"
        )
        if reason == UNKNOWN:
            yield finding("names", f"{reporters}: {host(target)} does not resolve", "check DNS on these nodes", target)
        else:
            yield finding("reach", f"{reporters} at port {port}: {reason}",
                          "open the port in network policies and in the firewall of its node", target)  # fmt: skip


def failed_copies(stuck: dict[tuple[int, int], str], answers: dict[int, Json]) -> Iterator[Json]:
    """Report failed test copies of data to ranks that are otherwise reachable."""
    known = {int(target) for answer in answers.values() for target, _, _ in answer.get("failed") or ()}
    for (rank, target), reason in sorted(stuck.items()):
        if target not in known:
            yield finding("copy", f"its data does not arrive at rank {target}: {reason}",
                          "check the MTU of both nodes and of the network between them", rank)  # fmt: skip


def slow_ranks(
    rates: dict[tuple[int, int], float], transport: str = "TCP", never_slow: float = NEVER_SLOW
) -> Iterator[Json]:
    """Report ranks that send or receive far less than the median. With two ranks, report the rank that sends far less than
    it receives.
    """
    for verb, position in (("sends", 0), ("receives", 1)):
        best_rates: dict[int, float] = {}
        for pair, rate in rates.items():
            best_rates[pair[position]] = max(rate, best_rates.get(pair[position], 0.0))
        if len(best_rates) < 2 or (len(best_rates) == 2 and position):
            continue
        median = statistics.median_high(best_rates.values())
        for rank, rate in sorted(best_rates.items()):
            if rate < min(median / SLOW_FACTOR, never_slow):
                yield finding(
                    "copy",
                    f"it {verb} {_speed(rate)} by {transport}, but the median of the group is {_speed(median)}",
                    "check the link, the cable, traffic shaping and the load of its node",
                    rank,
                )


def _speed(rate: float) -> str:
    return f"{rate / 1e9:.1f} GB/s" if rate >= 1e9 else f"{rate / 1e6:.1f} MB/s"
