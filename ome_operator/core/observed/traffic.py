"""Combine the summaries of routers' registries into metrics of leaders and of whole services (docs/telemetry.md).

Pure functions. A metric that nobody reported is None, and is never replaced by 0.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from ome_operator import keys, names
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.telemetry import Buckets, LeaderLoad, RouterReport, WorkRates, is_fresh

_Number = TypeVar("_Number", int, float)
COMING = ("adding", "waiting")
"""States of leaders that have no requests yet."""


class BucketBounds(NamedTuple):
    """The bounds of the bucket that contains a percentile, in seconds."""

    above: float
    up_to: float
    """The upper bound; infinite for the last bucket."""


class LeaderNumbers(NamedTuple):
    """The newest metrics that routers report about one leader."""

    role: str
    """Role of the leader: prefill or decode; engine without disaggregation."""
    load: LeaderLoad | None = None
    work: WorkRates | None = None


class CombinedMetrics(NamedTuple):
    """The metrics of several leaders together. A sum covers only the leaders that reported the metric; the sum is None if
    no leader reported the metric.
    """

    leaders: int = 0
    with_load: int = 0
    """Number of leaders whose number of requests is known."""
    with_work: int = 0
    """Number of leaders whose rates of tokens are known."""
    requests: float | None = None
    """Requests per second."""
    prompt_tokens: float | None = None
    """Tokens of prompts per second."""
    output_tokens: float | None = None
    """Generated tokens per second."""
    running: int | None = None
    waiting: int | None = None
    cache_use: float | None = None
    """Used share of the KV cache, from 0 to 1, of the leader that uses the largest share of its KV cache."""
    first_token: tuple[Buckets, ...] = ()
    """Histograms of the time to the first token, in seconds."""
    between_tokens: tuple[Buckets, ...] = ()
    """Histograms of the time between two tokens, in seconds."""


class ServiceNumbers(NamedTuple):
    """The metrics of one service: of its routers, and of each of its leaders."""

    routers: int
    """Number of routers that are ready."""
    routers_heard: int
    """Number of ready routers whose summaries the operator has received recently."""
    requests: float | None
    """Requests per second that arrive at the routers."""
    leaders: Mapping[str, LeaderNumbers]
    """The metrics of the leaders to which routers can send requests, by the UID of the leader's pod."""
    at: float | None
    """Time of the oldest metric of the service, in seconds since the epoch; None if no metric is known."""


def traffic(reports: Mapping[str, RouterReport], pods: Iterable[Pod], now: float) -> ServiceNumbers:
    """Return the metrics of the service to which the pods `pods` belong. `reports` maps UIDs of routers' pods to the reports
    of their registries. Metrics that are too old are left out, and reports about pods that are not leaders of the service
    are ignored.
    """
    pods = [*pods]
    routers = [pod.uid for pod in pods if pod.component == keys.ROUTER and pod.ready]
    known = [reports[uid] for uid in routers if uid in reports and is_fresh(reports[uid].at, now)]
    arrivals = [report.work for report in known if report.work is not None and is_fresh(report.work.at, now)]
    marks = {names.public_digest(pod.uid): pod.uid for pod in pods if pod.component != keys.ROUTER and pod.rank == 0}
    leaders = {uid: found for mark, uid in marks.items() if (found := _leader(known, mark, now)) is not None}
    times = [part.at for part in arrivals]
    times += [part.at for leader in leaders.values() for part in (leader.load, leader.work) if part is not None]
    return ServiceNumbers(
        routers=len(routers),
        routers_heard=len(known),
        requests=_sum(work.rates.get("requests") for work in arrivals),
        leaders=leaders,
        at=min(times, default=None),
    )


def _leader(reports: Iterable[RouterReport], mark: str, now: float) -> LeaderNumbers | None:
    """Return the newest metrics of the leader with the mark `mark` (`names.public_digest` of its UID) that any router
    reported; None if no router may send requests to this leader. Every router reports about every leader of its revision, so
    metrics from different routers are not added up.
    """
    found = [each for report in reports if (each := report.leaders.get(mark)) is not None and each.state not in COMING]
    if not found:
        return None
    loads = [each.load for each in found if each.load is not None and is_fresh(each.load.at, now)]
    works = [each.work for each in found if each.work is not None and each.work.rates and is_fresh(each.work.at, now)]
    role = found[0].role if found[0].role in ("prefill", "decode") else keys.ENGINE
    return LeaderNumbers(
        role, max(loads, key=lambda load: load.at, default=None), max(works, key=lambda work: work.at, default=None)
    )


def combine_leaders(leaders: Iterable[LeaderNumbers]) -> CombinedMetrics:
    """Return the metrics of several leaders together, as `CombinedMetrics` describes them."""
    leaders = [*leaders]
    loads = [each.load for each in leaders if each.load is not None]
    works = [each.work for each in leaders if each.work is not None]
    shares = [load.cache_use for load in loads if load.cache_use is not None]
    return CombinedMetrics(
        leaders=len(leaders),
        with_load=len(loads),
        with_work=len(works),
        requests=_sum(work.rates.get("requests") for work in works),
        prompt_tokens=_sum(work.rates.get("promptTokens") for work in works),
        output_tokens=_sum(work.rates.get("outputTokens") for work in works),
        running=_sum(load.running for load in loads),
        waiting=_sum(load.waiting for load in loads),
        cache_use=max(shares, default=None),
        first_token=_histograms(works, "firstToken"),
        between_tokens=_histograms(works, "betweenTokens"),
    )


def by_role(service_numbers: ServiceNumbers) -> dict[str, CombinedMetrics]:
    """Return the metrics of each role, sorted by the name of the role."""
    roles = sorted({leader.role for leader in service_numbers.leaders.values()})
    return {
        role: combine_leaders(leader for leader in service_numbers.leaders.values() if leader.role == role) for role in roles
    }


def client_metrics(service_numbers: ServiceNumbers) -> CombinedMetrics:
    """Return the metrics of the service as its clients see them.

    With disaggregation, every request is processed by a prefill leader and by a decode leader, so only the metrics of decode
    leaders are combined. There are two exceptions: the requests per second are those that arrive at the routers, and the
    used share of the KV cache is the largest share of any leader, prefill leaders included.
    """
    counted = combine_leaders(leader for leader in service_numbers.leaders.values() if leader.role != "prefill")
    return counted._replace(
        requests=service_numbers.requests, cache_use=combine_leaders(service_numbers.leaders.values()).cache_use
    )


def percentile(histograms: Iterable[Buckets], share: float) -> BucketBounds | None:
    """Return the bounds of the bucket that contains the percentile `share` (0.95 for the 95th) of all observations in the
    histograms; None if there are no observations.

    A summary contains only the buckets with observations. The lower bounds of all observations are sorted, and the upper
    bounds are sorted separately. The result is the pair of values at the position of the percentile. This method is correct
    even if the histograms have different buckets.
    """
    lower, upper = list[tuple[float, float]](), list[tuple[float, float]]()
    for buckets in histograms:
        before = 0.0
        for bound, count in buckets:
            lower.append((before, count))
            upper.append((bound, count))
            before = bound
    total = sum(count for _, count in upper)
    return BucketBounds(_at(lower, share * total), _at(upper, share * total)) if total > 0 else None


def _at(bounds: Iterable[tuple[float, float]], position: float) -> float:
    """Return the smallest bound at which the running sum of the counts reaches `position`. `bounds` are pairs of a bound and
    a count.
    """
    below, found = 0.0, 0.0
    for bound, count in sorted(bounds):
        below, found = below + count, bound
        if below >= position:
            break
    return found


def _histograms(works: Iterable[WorkRates], name: str) -> tuple[Buckets, ...]:
    return tuple(work.histograms[name] for work in works if work.histograms.get(name))


def _sum(values: Iterable[_Number | None]) -> _Number | None:
    """Return the sum of the known values; None if all values are unknown (None)."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None
