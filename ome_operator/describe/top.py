"""Compute the metrics of services, groups and nodes that `ome top` shows as rows, or prints for programs. Pure functions.

A number that is unknown is None.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Node, Pod
from ome_operator.core.observed.traffic import (
    CombinedMetrics,
    LeaderNumbers,
    ServiceNumbers,
    client_metrics,
    combine_leaders,
)
from ome_operator.core.status.traffic import percentiles, round_value
from ome_operator.describe import cluster
from ome_operator.describe.tree import GroupView, Tree
from ome_operator.quantity import moment
from ome_operator.util.wording import count

LIVE, STATUS = "live", "status"
Value = float | None


@dataclass(frozen=True)
class TopRow:
    """The metrics of a service, a group or a node."""

    namespace: str
    """Namespace of the service; "" for a node."""
    name: str
    """Name of the service or the node."""
    group: str
    """Role and number of the group; "" for services and nodes."""
    source: str
    """Source of the metrics: `live` if the routers were asked for them now, `status` if they come from status.traffic, ""
    if no metric is known."""
    age: Value
    """Age in seconds of the oldest of the metrics."""
    is_part: bool
    """Whether the sums are incomplete, because the metrics of a router or a leader are unknown."""
    requests_per_second: Value
    prompt_tokens_per_second: Value
    output_tokens_per_second: Value
    running: Value
    waiting: Value
    time_to_first_token: Mapping[str, Mapping[str, float]]
    """Maps each percentile (`p50`, `p95`) to its bounds in seconds (`above`, `upTo`), as in status.traffic."""
    time_between_tokens: Mapping[str, Mapping[str, float]]
    cache_use: Value
    """Used share of the KV cache of the fullest leader, from 0 to 1."""
    gpus: int
    """Number of GPUs of the pods."""
    allocatable: int | None = None
    """Number of allocatable GPUs of a node. None for services and groups, and for a node whose number is unknown."""


class ServiceWithNumbers(NamedTuple):
    """A service, with the metrics that its routers reported when the command requested them."""

    body: Mapping[str, Any]
    tree: Tree
    pods: tuple[Pod, ...]
    numbers: ServiceNumbers | None
    """The metrics that the routers reported. None if no router was asked, or if no response could be used."""


# --- rows ---------------------------------------------------------------------------------------------------------------


def service_rows(services: Iterable[ServiceWithNumbers], now: datetime) -> list[TopRow]:
    """Return a row for each service: its live metrics, otherwise the metrics in its status."""
    return [live_row(service, now) or _stored(service, now) for service in services]


def group_rows(services: Iterable[ServiceWithNumbers], now: datetime) -> list[TopRow]:
    """Return a row for each group of engines. Only live metrics exist for groups."""
    found = []
    for service in services:
        uids = {pod.name: pod.uid for pod in service.pods}
        for part, role, group in service.tree.groups():
            if role.component == keys.ROUTER:
                continue
            place = f"{role.role} {group.group}"
            place += f" of {part.revision}" if len(service.tree.slices) > 1 else ""
            leaders = _leaders(service, [group], uids)
            row = _row(service.tree.namespace, service.tree.name, place, combine_leaders(leaders), group.gpus)
            found.append(_dated(row, leaders, now))
    return found


def node_rows(services: Iterable[ServiceWithNumbers], nodes: Iterable[Node], now: datetime) -> list[TopRow]:
    """Return a row for each node with GPUs or with groups. The metrics of a group that has ranks on several nodes are
    included completely in the row of each of these nodes, because the whole group needs each node.
    """
    on = dict[str, list[LeaderNumbers]]()
    heard = list(services)
    there = {row.name: row for row in cluster.node_rows((service.tree for service in heard), nodes, ())}
    for service in heard:
        uids = {pod.name: pod.uid for pod in service.pods}
        groups = dict[str, list[GroupView]]()
        for _, role, group in service.tree.groups():
            for node in {rank.node for rank in group.ranks} if role.component != keys.ROUTER else ():
                groups.setdefault(node, []).append(group)
        for node, here in groups.items():
            on.setdefault(node, []).extend(_once(_leaders(service, here, uids)))
    found = []
    for name, at in sorted(there.items()):
        if not (name in on or at.held or at.gpus > 0):
            continue
        row = _row("", name, "", combine_leaders(on.get(name, ())), at.held, at.gpus if at.gpus >= 0 else None)
        found.append(_dated(row, on.get(name, ()), now))
    return found


def _once(leaders: Sequence[LeaderNumbers]) -> Sequence[LeaderNumbers]:
    """Return the leaders of a service on which each request is counted once: if there are decode leaders, prefill leaders
    are left out.
    """
    return [each for each in leaders if each.role != "prefill"] or leaders


def _leaders(service: ServiceWithNumbers, groups: Iterable[GroupView], uids: Mapping[str, str]) -> list[LeaderNumbers]:
    known = service.numbers.leaders if service.numbers is not None else {}
    return [known[uid] for group in groups if (uid := uids.get(group.ranks[0].pod, "")) in known]


def live_row(service: ServiceWithNumbers, now: datetime) -> TopRow | None:
    """Return the row of a service with its live metrics; None if no router reported metrics."""
    found = service.numbers
    if found is None or found.at is None:
        return None
    numbers = client_metrics(found)
    row = _row(service.tree.namespace, service.tree.name, "", numbers, _gpus(service.tree))
    is_part = row.is_part or found.routers_heard < found.routers
    return replace(row, source=LIVE, age=max(0.0, now.timestamp() - found.at), is_part=is_part)


def _dated(row: TopRow, leaders: Iterable[LeaderNumbers], now: datetime) -> TopRow:
    times = [part.at for leader in leaders for part in (leader.load, leader.work) if part is not None]
    return replace(row, source=LIVE, age=max(0.0, now.timestamp() - min(times))) if times else row


def _row(
    namespace: str, name: str, group: str, numbers: CombinedMetrics, gpus: int, allocatable: int | None = None
) -> TopRow:
    works, loads = numbers.with_work, numbers.with_load
    return TopRow(
        namespace=namespace,
        name=name,
        group=group,
        source="",
        age=None,
        is_part=0 < works < numbers.leaders or 0 < loads < numbers.leaders,
        requests_per_second=_rounded(numbers.requests),
        prompt_tokens_per_second=_rounded(numbers.prompt_tokens),
        output_tokens_per_second=_rounded(numbers.output_tokens),
        running=numbers.running,
        waiting=numbers.waiting,
        time_to_first_token=percentiles(numbers.first_token),
        time_between_tokens=percentiles(numbers.between_tokens),
        cache_use=_rounded(numbers.cache_use),
        gpus=gpus,
        allocatable=allocatable,
    )


def _stored(service: ServiceWithNumbers, now: datetime) -> TopRow:
    """Return the row of a service from its status. Never raises, even if the status has unexpected content."""
    row = _row(service.tree.namespace, service.tree.name, "", CombinedMetrics(), _gpus(service.tree))
    stored = _map((service.body.get("status") or {}).get("traffic"))
    written = moment(str(stored.get("time") or ""), now)
    if written is None:
        return row
    entries = stored.get("roles")
    roles = [_map(role) for role in entries] if isinstance(entries, list) else []
    counted = [role for role in roles if role.get("name") != "prefill"]
    shares = [share for role in roles if (share := _number(role, "cacheUse")) is not None]
    return replace(
        row,
        source=STATUS,
        age=(now - written).total_seconds(),
        is_part=_lacks(stored, "routersHeard", "routers")
        or any(_lacks(role, part, "leaders") for role in counted for part in ("withLoad", "withWork")),
        requests_per_second=_number(stored, "requestsPerSecond"),
        prompt_tokens_per_second=_number(stored, "promptTokensPerSecond"),
        output_tokens_per_second=_number(stored, "outputTokensPerSecond"),
        running=_sum(counted, "running"),
        waiting=_sum(counted, "waiting"),
        time_to_first_token=_bounds(stored.get("timeToFirstToken")),
        time_between_tokens=_bounds(stored.get("timeBetweenTokens")),
        cache_use=max(shares, default=None),
    )


def _lacks(part: Mapping[str, Any], some: str, all_: str) -> bool:
    have, want = _number(part, some), _number(part, all_)
    return have is not None and want is not None and 0 < have < want


def _sum(parts: Iterable[Mapping[str, Any]], name: str) -> Value:
    known = [value for part in parts if (value := _number(part, name)) is not None]
    return sum(known) if known else None


def _bounds(stored: Any) -> dict[str, dict[str, float]]:
    found = {}
    for name, bounds in _map(stored).items():
        known = {part: value for part in ("above", "upTo") if (value := _number(_map(bounds), part)) is not None}
        if "above" in known:
            found[name] = known
    return found


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(part: Mapping[str, Any], name: str) -> Value:
    value = part.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _rounded(value: Value) -> Value:
    return None if value is None else round_value(value)


def _gpus(tree: Tree) -> int:
    return sum(group.gpus for _, _, group in tree.groups())


def remark(services: Sequence[ServiceWithNumbers], troubles: Mapping[str, str], now: datetime, *, stored: bool) -> str:
    """Return sentences about routers that could not be read, and about services without any metric; "" if there are neither.
    `troubles` maps the UID of a router's pod to the reason why it could not be read, and `stored` states whether the rows
    of these services show `status.traffic` instead.
    """
    messages = [_unread(services, troubles, stored=stored), _without_numbers(services, troubles, now, stored=stored)]
    return "; ".join(sentence for sentence in messages if sentence)


def _unread(services: Sequence[ServiceWithNumbers], troubles: Mapping[str, str], *, stored: bool) -> str:
    if not troubles:
        return ""
    why = next(iter(troubles.values()))
    silent = [service for service in services if _silent(service) and _has_trouble(service, troubles)]
    if not silent:
        return (
            f"{count(len(troubles), 'router')} could not be read, so a number with a + does not include the part of "
            f"every router: {why}"
        )
    instead = "their numbers come from status.traffic" if stored else "groups and nodes do not show their numbers"
    return f"the routers of {len(silent)} of {count(len(services), 'service')} could not be read, so {instead}: {why}"


def _without_numbers(
    services: Sequence[ServiceWithNumbers], troubles: Mapping[str, str], now: datetime, *, stored: bool
) -> str:
    """Return a sentence about the services that have no metric, except those whose routers could not be read. `stored`
    states whether the rows of services show `status.traffic` if there are no live metrics.
    """
    silent = [one for one in services if _silent(one) and not _has_trouble(one, troubles)]
    if stored:
        silent = [one for one in silent if _stored(one, now).source != STATUS]
    reasons = Counter(map(_reason, silent))
    if not reasons:
        return ""
    if len(services) == 1:
        return f"{services[0].tree.namespace}/{services[0].tree.name} has no numbers: {next(iter(reasons))}"
    why = ", ".join(f"{reason} ({number})" for reason, number in reasons.most_common())
    verb = "has" if len(silent) == 1 else "have"
    return f"{len(silent)} of {len(services)} services {verb} no numbers: {why}"


def _silent(service: ServiceWithNumbers) -> bool:
    return service.numbers is None or service.numbers.at is None


def _has_trouble(service: ServiceWithNumbers, troubles: Mapping[str, str]) -> bool:
    return any(pod.uid in troubles for pod in service.pods)


def _reason(service: ServiceWithNumbers) -> str:
    """Return why the routers of a service report no metrics, although none of them failed to answer."""
    routers = [pod for pod in service.pods if pod.component == keys.ROUTER]
    if not routers:
        return "no router runs, and only routers report numbers"
    if not any(pod.ready for pod in routers):
        return "no router is ready"
    if service.numbers is None or not service.numbers.routers_heard:
        return "the reports of its ready routers are too old, or the routers run on simulated nodes"
    return "no engine has reported numbers to its routers yet"
