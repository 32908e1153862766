"""Formats results as rows: the figure, what it is compared with, the aim, and whether it was reached."""

from collections.abc import Iterator

from bench import fleet_rows
from bench.counting import Count
from bench.figures import median, percentile
from bench.results import (
    Fetched,
    Linted,
    Paged,
    Planned,
    Quiet,
    Ramp,
    Restart,
    Results,
    SharedDownload,
    SyncTimes,
    TenantWaits,
)
from bench.rows import Row, Section
from bench.scenarios import SCALED, SINGLE

OME = "OME v0.1.5, measured earlier on such a machine, not in this run"
RATIO, LAG_S, ABOVE, BESIDE = 1.25, 2.0, 3.0, 2.0
PLAN_S, LINT_S = 2.0, 2.0
HIDDEN = 0.9
"""Share of the time to read cold weights that the agent's prefetching should hide."""
JUDGED_FROM = 100
"""Number of services for which aims are defined. Results with fewer services only show where time is spent."""


def sections(results: Results) -> list[Section]:
    """Return all results in a fixed order of sections."""
    scenarios = dict.fromkeys(ramp.scenario for ramp in results.ramps)
    found = [_ramp([ramp for ramp in results.ramps if ramp.scenario == scenario]) for scenario in scenarios]
    found.append(Section("When nothing changes", tuple(_still(results))))
    if results.restart:
        found.append(Section(f"Restart with {results.restart.services} services", tuple(_restart(results.restart))))
    if results.alone:
        found.append(Section("`sync` alone, the Kimi service of config/", tuple(_alone(results.alone))))
    if results.fetched:
        found.append(Section("Weights: downloaded and verified, from a hub on loopback", tuple(_fetched(results.fetched))))
    if results.paged:
        title = f"Weights read ahead while an image is pulled for {results.paged[0].pull_s:.0f} s"
        found.append(Section(title, tuple(_paged(results.paged))))
    if results.shared:
        title = f"Weights: {results.shared.nodes} nodes at once, throttled hub"
        found.append(Section(title, tuple(_shared(results.shared))))
    if results.planned:
        found.append(Section("`ome plan`", tuple(_planned(results.planned))))
    if results.linted:
        found.append(Section("`ome lint`", tuple(_linted(results.linted))))
    if results.eyes:
        found.append(Section("A scrape of the operator's metrics, without a cluster", tuple(fleet_rows.eyes(results.eyes))))
    if results.ear is not None:
        found.append(Section("The summaries of routers, without a cluster", tuple(fleet_rows.ear(results.ear))))
    if results.beside:
        found.append(Section("A quiet tenant next to busy tenants", tuple(_beside(results.beside))))
    if results.fleets:
        found.append(
            Section(
                "A growing fleet, without a cluster: exponents by which CPU time grows",
                tuple(fleet_rows.fleets(results.fleets)),
            )
        )
    if results.labelled:
        labelled = results.labelled
        title = f"{labelled.nodes} nodes with labels of {labelled.models} models, {labelled.services} services"
        found.append(Section(title, tuple(fleet_rows.label_rows(labelled))))
    if results.started:
        started = results.started
        title = f"A start: {started.nodes} nodes with labels of {started.models} models, {started.services} services"
        found.append(Section(title, tuple(fleet_rows.start_rows(started))))
    if results.churned:
        title = f"{results.churned.services} services of one pod are created, become Ready and are deleted"
        found.append(Section(title, tuple(fleet_rows.churned(results.churned))))
    return [section for section in found if section.rows]


def _planned(planned: Planned) -> Iterator[Row]:
    title = "Kimi K2 on 16 nodes, from the command's start to its last line"
    yield Row(title, operator=f"{planned.seconds:.1f} s", aim=f"{PLAN_S:.0f} s", met=planned.seconds <= PLAN_S)
    errors = f"throughput {planned.tokens:.0%}, TPOT {planned.tpot:.0%}, TTFT {planned.ttft:.0%}"
    yield Row(
        f"median errors over {planned.rows} published runs, each left out of the fit with its deployment", operator=errors
    )


def _linted(linted: Linted) -> Iterator[Row]:
    title = "all of config/, from the command's start to its last line"
    yield Row(title, operator=f"{linted.seconds:.1f} s", aim=f"{LINT_S:.0f} s", met=linted.seconds <= LINT_S)
    said = (
        f"{linted.first * 1000:.1f} ms, then {linted.again * 1000:.1f} ms; without the rules {linted.without * 1000:.1f} ms"
    )
    yield Row(f"CPU of the operator's first pass over a new revision, mean of {linted.services} services", operator=said)


def _beside(tenant_waits: TenantWaits) -> Iterator[Row]:
    others = (
        f"{tenant_waits.models} models and {tenant_waits.services} waiting services, {tenant_waits.edits_a_second:.1f} "
        "edits/s of their runtime"
    )
    for share, aim in ((50, None), (95, BESIDE)):
        alone, beside = percentile(tenant_waits.alone_s, share), percentile(tenant_waits.beside_s, share)
        yield Row(
            f"a service Ready, {share} % of {len(tenant_waits.beside_s)} (floor: alone)",
            floor=f"{alone:.2f} s",
            operator=f"{beside:.2f} s",
            ratio=f"{beside / alone:.2f} x",
            aim="" if aim is None else f"<= {aim:g} x",
            met=None if aim is None else beside / alone <= aim,
        )
    yield Row("the others", operator=others)
    yield Row("the operator meanwhile", operator=f"{100 * tenant_waits.operator_cores:.0f} % of a core")


def _fetched(fetched: list[Fetched]) -> Iterator[Row]:
    for count in dict.fromkeys(fetch.files for fetch in fetched):
        times = {
            side: [fetch.seconds for fetch in fetched if (fetch.side, fetch.files) == (side, count)]
            for side in ("cp", "agent", "huggingface_hub")
        }
        size = next(fetch.bytes for fetch in fetched)
        ratio = f"{median(times['agent']) / median(times['cp']):.2f} x"
        what = f"{count} files, {size >> 20} MiB (floor: cp and sha256sum)"
        yield Row(what, floor=_seconds(times["cp"]), operator=_seconds(times["agent"]), ratio=ratio)
        yield Row("  huggingface_hub, which verifies nothing", operator=_seconds(times["huggingface_hub"]))


def _paged(paged: list[Paged]) -> Iterator[Row]:
    def of(side: str) -> list[Paged]:
        return [run for run in paged if run.side == side]

    cold, prefetched, warm = ([run.seconds for run in of(side)] for side in ("cold", "prefetched", "warm"))
    for what, times in (("cold", cold), ("read by the agent meanwhile", prefetched), ("warm", warm)):
        yield Row(f"the engine reads {paged[0].bytes / 2**30:.1f} GiB, {what}", operator=_seconds(times))
    saved, hideable = median(cold) - median(prefetched), median(cold) - median(warm)
    share = saved / hideable if hideable > 0 else 0.0
    yield Row("hidden", operator=f"{share:.0%}", aim=f">= {HIDDEN:.0%}", met=share >= HIDDEN)
    yield Row("the agent reads", operator=_seconds([run.agent_s for run in of("prefetched")]))
    cached = min(run.cached for run in of("prefetched")) / paged[0].bytes
    yield Row("in the page cache when the engine begins, minimum", operator=f"{cached:.0%}")
    loads = [run.load for run in paged]
    yield Row("load of the machine", operator=f"{min(loads):.1f} to {max(loads):.1f}")


def _shared(shared: SharedDownload) -> Iterator[Row]:
    yield Row("hub alone", operator=f"{shared.alone_s:.1f} s, {shared.alone_sent / shared.bytes:.1f} models sent")
    yield Row("with peers", operator=f"{shared.peers_s:.1f} s, {shared.peers_sent / shared.bytes:.1f} models sent")


def _ramp(ramps: list[Ramp]) -> Section:
    floors, operators = ([ramp for ramp in ramps if ramp.side == side] for side in ("floor", "operator"))
    rows = list(_times(floors, operators))
    if operators:
        rows += _readiness(operators)
        rows += _costs(operators)
    rows += _deletions(floors, operators)
    return Section(f"{ramps[0].title}: {ramps[0].pods} pods", tuple(rows))


def _times(floors: list[Ramp], operators: list[Ramp]) -> Iterator[Row]:
    slow, fast = ([ramp.pods_s for ramp in side] for side in (operators, floors))
    ratio = median(slow) / median(fast) if slow and fast else None
    first = (floors + operators)[0]
    judged = first.services >= JUDGED_FROM
    yield Row(
        "last pod Ready",
        floor=_seconds(fast),
        operator=_seconds(slow),
        ratio="" if ratio is None else f"{ratio:.2f} x",
        aim=f"<= {RATIO} x" if judged else "",
        met=ratio <= RATIO if judged and ratio is not None else None,
        ome="127.6 s" if _known(first) else "",
    )
    at_pace = _at_pace(floors, operators)
    if at_pace is not None:
        paces = [f"{median([each.pace_ms for each in side]):.2f} ms" for side in (floors, operators)]
        yield Row("pace of a core (less is faster); at one pace", *paces, ratio=f"{at_pace:.2f} x")
    floor_cpu, cpu = ([sum(ramp.servers_cpu_s.values()) for ramp in side] for side in (floors, operators))
    yield Row("CPU of the control plane until the last pod is Ready", floor=_seconds(floor_cpu), operator=_seconds(cpu))


def _at_pace(floors: list[Ramp], operators: list[Ramp]) -> float | None:
    """Return the ratio of the operator's time to the floor's, corrected for the speed of the machine during each side; None
    if the speed is not known.
    """
    slow, fast = ([ramp.pods_s / ramp.pace_ms for ramp in side if ramp.pace_ms] for side in (operators, floors))
    return median(slow) / median(fast) if slow and fast else None


def _readiness(operators: list[Ramp]) -> Iterator[Row]:
    lags = [lag for ramp in operators for lag in ramp.lags_s]
    judged = operators[0].services >= JUDGED_FROM
    yield Row("service Ready after its last pod, median", operator=f"{median(lags):.2f} s")
    yield Row(
        "the slowest service",
        operator=f"{max(lags):.2f} s (99 %: {percentile(lags, 99):.2f} s)",
        aim=f"<= {LAG_S:.0f} s",
        met=max(lags) <= LAG_S if judged else None,
    )


def _known(ramp: Ramp) -> bool:
    """Return whether published measurements of OME with the same services exist, so that the report can compare this result
    with them.
    """
    return ramp.scenario == SINGLE[100].key


def _costs(operators: list[Ramp]) -> Iterator[Row]:
    known, services = _known(operators[0]), operators[0].services
    counts = [(ramp, ramp.count) for ramp in operators if ramp.count]
    yield Row(
        "API requests per service",
        operator=f"{median([count.requests / services for _, count in counts]):.1f}",
        ome="95" if known else "",
    )
    above = median([(count.writes - count.created) / services for _, count in counts])
    writes = median([count.writes / services for _, count in counts])
    objects = median([count.created / services for _, count in counts])
    yield Row(
        "writes per service",
        operator=f"{writes:.1f} for {objects:g} objects",
        ratio=f"{above:+.1f}",
        aim=f"<= {ABOVE:.0f} above",
        met=above <= ABOVE if services >= JUDGED_FROM else None,
        ome="33" if known else "",
    )
    used = [ramp.usage for ramp in operators if ramp.usage]
    yield Row(
        "CPU of the operator (its start included)",
        operator=_seconds([usage.cpu_s for usage in used]),
        ome="15.6 s" if known else "",
    )
    yield Row(
        "peak memory of the operator",
        operator=f"{max(usage.peak_mib for usage in used):.0f} MiB",
        ome="132 MiB" if known else "",
    )
    refused = sum(count.refused for _, count in counts)
    complaints = sum(ramp.complaints for ramp in operators)
    if refused or complaints:
        yield Row("refused requests; warnings in its log", operator=f"{refused}; {complaints}")
    if not all(ramp.settled for ramp in operators):
        yield Row("writes ended", operator="not within a minute", aim="yes", met=False)


def _deletions(floors: list[Ramp], operators: list[Ramp]) -> Iterator[Row]:
    bare, ours = ([ramp.deletion.seconds for ramp in side if ramp.deletion] for side in (floors, operators))
    if bare or ours:
        ratio = f"{median(ours) / median(bare):.2f} x" if bare and ours else ""
        yield Row("deletion of everything", floor=_seconds(bare), operator=_seconds(ours), ratio=ratio)


def _still(results: Results) -> Iterator[Row]:
    if results.idle:
        yield _writes(f"writes a minute, {results.idle.services} services, idle", results.idle, "")
    if results.scaled:
        what = f"writes a minute, {results.scaled.services} services, HPA statuses change every 15 s"
        yield _writes(what, results.scaled, "1,721" if results.scaled.services == SCALED.services else "")
    for name, quiet in (("idle", results.idle), ("moving", results.scaled)):
        if quiet:
            share = 100 * quiet.cpu_s / quiet.seconds
            reads = (quiet.count.requests - quiet.count.writes) * 60 / quiet.seconds
            text = f"{share:.1f} % of a core; {reads:.0f} reads, {quiet.count.lease * 60 / quiet.seconds:.0f} for the Lease"
            yield Row(f"beside it, a minute, {name}", operator=text)


def _writes(description: str, quiet: Quiet, ome: str) -> Row:
    rate = quiet.writes_a_minute
    detail = f" ({_top(quiet.count)})" if rate else ""
    return Row(description, operator=f"{rate:g}{detail}", aim="0", met=rate == 0, ome=ome)


def _restart(restart: Restart) -> Iterator[Row]:
    counted = restart.count
    others = sum(counted.others.values())
    named = ", ".join(f"{number} {what}" for what, number in counted.others.items())
    yield Row(
        "requests",
        operator=f"{counted.requests}: {', '.join(f'{number} {verb}' for verb, number in counted.verbs.items())}",
        ome="2,360",
    )
    yield Row(
        "writes", operator=f"{counted.writes}{' (' + _top(counted) + ')' if counted.writes else ''}", aim="0",
        met=counted.writes == 0, ome="700",
    )  # fmt: skip
    yield Row(
        "reads that are neither lists nor watches",
        operator=f"{others}{' (' + named + ')' if others else ''}",
        aim="0",
        met=others == 0,
    )
    yield Row("discovery; for the Lease", operator=f"{counted.discovery}; {counted.lease}")
    yield Row("from its start until it leads", operator=f"{restart.lead_s:.1f} s; {restart.usage.cpu_s:.1f} s of CPU")
    yield Row("peak memory", operator=f"{restart.usage.peak_mib:.0f} MiB")


def _alone(alone: SyncTimes) -> Iterator[Row]:
    yield Row("one call, nothing to do", operator=f"{alone.steady_us:,.0f} us")
    yield Row("one call, everything is new", operator=f"{alone.first_us:,.0f} us")
    yield Row("its ControllerRevision", operator=f"{alone.revision_bytes:,} bytes")


def _top(counted: Count) -> str:
    return ", ".join(f"{number} {what}" for what, number in list(counted.written.items())[:3])


def _seconds(values: list[float]) -> str:
    """Return the median, and the range of the repetitions."""
    if not values:
        return ""
    spread = f" ({min(values):.1f}–{max(values):.1f})" if len(values) > 1 else ""
    return f"{median(values):.1f} s{spread}"
