"""Rows about fleets: the cost of nodes, models and services as their number grows."""

from collections.abc import Iterator

from bench.figures import exponent, median
from bench.results import Churned, Eyed, Fleet, Heard, Labelled, Started, Wave
from bench.rows import Row

EXPONENT, STALL_S, LABELS_S, REST_MIB, SCRAPE_MS = 1.1, 0.25, 5.0, 600, 100.0
GROWN, START_TIMES = 1.1, 1.5
EDIT_S, EDIT_TIMES = 1.0, 2.0
"""Aims for the time until the operator has acted on an edit while labels are set. The longer of two times is permitted:
EDIT_S seconds, or EDIT_TIMES times as long as the bare requests alone take.
"""


def label_rows(found: Labelled) -> Iterator[Row]:
    """Yield a row for each wave of labels, and a row for the edits during each wave."""
    for wave in found.waves:
        yield Row(
            f"labels set {wave.what}: {wave.changes} requests in {wave.seconds:.1f} s",
            operator=f"{wave.cpu_s:.1f} s of CPU",
            aim=f"<= {LABELS_S:g} s",
            met=wave.cpu_s <= LABELS_S,
        )
        slowest, floor = max(wave.edits_s, default=0.0), max(wave.floors_s, default=0.0)
        yield Row(
            f"  the slowest of {len(wave.edits_s)} edits of a service meanwhile (floor: as many bare requests)",
            f"{floor:.2f} s" if floor else "",
            operator=f"{slowest:.2f} s" if wave.edits_s else "none ended",
            ratio=f"{slowest / floor:.2f} x" if floor else "",
            aim=f"<= {EDIT_S:g} s or {EDIT_TIMES:g} x",
            met=bool(wave.edits_s) and slowest <= max(EDIT_S, EDIT_TIMES * floor),
        )
    yield Row("peak memory", operator=f"{found.peak_mib:.0f} MiB")


def start_rows(found: Started) -> Iterator[Row]:
    """Yield the medians of several starts of the operator, and of a bare client that lists the same objects."""
    floor, ours = median(found.lists_s), median(found.starts_s)
    yield Row(
        "until it leads and knows all objects (floor: the same lists, decoded)",
        f"{floor:.1f} s",
        f"{ours:.1f} s",
        ratio=f"{ours / floor:.2f} x",
        aim=f"<= {START_TIMES:g} x",
        met=ours <= START_TIMES * floor,
    )
    yield Row("peak memory", operator=f"{found.peak_mib:.0f} MiB")


def churned(found: Churned) -> Iterator[Row]:
    """Yield the memory that the operator keeps for deleted services."""
    first, half, last = found.rounds_mib[0], found.rounds_mib[(len(found.rounds_mib) - 1) // 2], found.rounds_mib[-1]
    yield Row(
        "memory after all of them (floor: after half of them)",
        f"{half:.0f} MiB",
        f"{last:.0f} MiB",
        ratio=f"{last / half:.2f} x",
        aim=f"<= {GROWN:g} x",
        met=last / half <= GROWN,
    )
    yield Row("  after the first round, and the maximum", operator=f"{first:.0f} MiB, {found.peak_mib:.0f} MiB")
    beside = f"{found.pace:.1f} services a second, {found.objects} objects, {found.cpu_s:.0f} s of CPU"
    yield Row("  the operator meanwhile", operator=beside)


def fleets(fleets: list[Fleet]) -> Iterator[Row]:
    """Yield a row for each wave of events, and the costs of the largest fleets."""
    *grown, largest, known = fleets
    for at, wave in enumerate(known.waves):
        powers = {name: _power(grown, name, at) for name in known.size}
        told = ", ".join(f"{name} {power:.2f}" for name, power in powers.items() if power is not None)
        worst = max((power for power in powers.values() if power is not None), default=0.0)
        yield Row(wave.what, operator=told or "too little", aim=f"<= {EXPONENT}", met=worst <= EXPONENT)
    stall, what = max((wave.stall_s, _stalled(wave, fleet)) for fleet in fleets for wave in fleet.waves)
    yield Row("the longest stall", operator=what, aim=f"<= {STALL_S} s", met=stall <= STALL_S)
    cost = {wave.what: wave.cpu_s for wave in known.waves}
    yield Row(
        "labels of all models are set on all nodes",
        operator=f"{cost['labels set']:.1f} s of CPU: {_sized(known)}",
        aim=f"<= {LABELS_S} s",
        met=cost["labels set"] <= LABELS_S,
    )
    yield Row("its start (floor: decoding its lists)", f"{known.decode_s:.2f} s", f"{cost['start']:.2f} s of CPU")
    yield Row(
        f"memory at rest, 20,000 pods: {_sized(largest)}",
        operator=f"{largest.rest_mib:.0f} MiB",
        aim=f"<= {REST_MIB} MiB",
        met=largest.rest_mib <= REST_MIB,
    )
    yield Row("  the most at its start", operator=f"{largest.peak_mib:.0f} MiB")
    yield Row("the largest status", operator=f"{max(fleet.status_bytes for fleet in fleets):,} bytes")


def _power(fleets: list[Fleet], name: str, wave: int) -> float | None:
    """Return the exponent with which the cost of a wave grows in a dimension, calculated from the three largest sizes; None
    if the cost is negligible.
    """
    line = sorted((fleet.size[name], fleet.waves[wave].cpu_s) for fleet in fleets if fleet.grows == name)[-3:]
    return exponent(line) if len(line) > 1 and line[-1][1] > 0.02 else None


def _stalled(wave: Wave, fleet: Fleet) -> str:
    where = f", in {wave.where}" if wave.where else ""
    return f"{wave.stall_s:.2f} s ({wave.garbage_s:.2f} s of it garbage collection): {wave.what}, {_sized(fleet)}{where}"


def _sized(fleet: Fleet) -> str:
    return " x ".join(f"{number} {name}" for name, number in fleet.size.items() if number)


def eyes(found: list[Eyed]) -> Iterator[Row]:
    """Yield the cost of a scrape for each number of services."""
    for each in found:
        what = f"{each.services} services of 11 pods, 200 nodes: {each.series} series, {each.kib:.0f} KiB"
        yield Row(what, operator=f"{each.scrape_ms:.0f} ms", aim=f"<= {SCRAPE_MS:.0f} ms", met=each.scrape_ms <= SCRAPE_MS)
        stall = f"{each.stall_ms:.1f} ms"
        met = each.stall_ms <= 25
        yield Row("  the longest time for which the loop is blocked", operator=stall, aim="<= 25 ms", met=met)
        yield Row("  what the metrics add to a pass", operator=f"{each.pass_us:.0f} us")


def ear(heard: Heard) -> Iterator[Row]:
    """Yield the cost of the summaries of routers."""
    fresh = heard.fresh == heard.routers
    yield Row(f"{heard.routers} routers, every 5 s: fresh numbers at any time", operator=f"of {heard.fresh}", met=fresh)
    yield Row("  CPU of the operator", operator=f"{heard.share:.3f} of a core", aim="<= 0.1", met=heard.share <= 0.1)
    yield Row("  memory, connections included", operator=f"{heard.mib:.0f} MiB")
    yield Row("  the oldest fresh summary", operator=f"{heard.oldest_s:.1f} s")
    yield Row("  reconciliations because numbers changed", operator=f"{heard.dirty}", aim="0", met=heard.dirty == 0)
