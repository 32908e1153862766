"""The steps that take a slice away, each derived from what is still there (decisions 6 and 9).

A slice goes in this order: its router, until no router pod object is left; its leaders; its workers, which ignore SIGTERM
and would hold their GPUs for the whole grace period; and only when no pod object of it is left may another slice start.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Child, Pod
from ome_operator.core.observed.slices import Slice, is_leader_set
from ome_operator.core.plan import Delete, Guard
from ome_operator.core.render import meta

WORKER_GRACE = 1
"""Seconds for ranks above 0 whose leader is gone."""


class Step(NamedTuple):
    """The next step of taking a slice away."""

    delete: tuple[Delete, ...]
    waits_for: str
    """What is going, for people; "" when nothing of the slice is left."""


def retire(service: str, one: Slice) -> Step:
    """The next step of taking a whole slice away."""
    routers = [child for child in one.workloads if child.kind == "Deployment"]
    leaders = [child for child in one.workloads if is_leader_set(child)]
    workers = [child for child in one.workloads if child.kind == "StatefulSet" and not is_leader_set(child)]
    budgets = [child for child in one.workloads if child.kind == "PodDisruptionBudget"]
    router_pods = [pod for pod in one.pods if pod.component == keys.ROUTER]
    leader_pods = [pod for pod in one.pods if pod.component != keys.ROUTER and pod.rank == 0]
    rest = [pod for pod in one.pods if pod.component != keys.ROUTER and pod.rank > 0]
    if routers or router_pods:
        return Step(_deletes(routers), _gone("router draining", one.revision, router_pods))
    if leaders or leader_pods:
        guard = Guard(meta.requirement(meta.labels(service, keys.ROUTER, one.revision)))
        return Step(_deletes(leaders, guard), _gone("leaders ending", one.revision, leader_pods))
    if workers:
        guard = Guard(meta.requirement({**meta.labels(service, revision=one.revision), keys.WORKER_INDEX: "0"}))
        return Step(_deletes(workers, guard), _gone("workers ending", one.revision, rest))
    if rest:  # only now: a StatefulSet that still exists would replace them
        return Step(hurry(rest), _gone("workers ending", one.revision, rest))
    return Step(_deletes(budgets), "")


def hurry(pods: Iterable[Pod]) -> tuple[Delete, ...]:
    """Deletes pods with a short grace unless they have it already."""
    return tuple(
        Delete("Pod", pod.name, pod.uid, grace=WORKER_GRACE) for pod in pods if not pod.deleting or pod.grace > WORKER_GRACE
    )


def _deletes(children: Iterable[Child], guard: Guard | None = None) -> tuple[Delete, ...]:
    return tuple(Delete(child.kind, child.name, child.uid, guard=guard) for child in children if not child.deleting)


def _gone(what: str, revision: str, pods: list[Pod]) -> str:
    where = sorted({pod.node for pod in pods if pod.node})
    place = f" on {', '.join(where[:3])}{' …' if len(where) > 3 else ''}" if where else ""
    number = f", {len(pods)} pod{'s' if len(pods) > 1 else ''}{place}" if pods else ""
    return f"old {what} (revision {revision}{number})"


def leftovers(service: str, component: str, wanted: int, one: Slice) -> Step:
    """Orderly removal of the groups from `wanted` on, after the leaders' replicas were lowered: workers go last."""
    delete: list[Delete] = []
    waiting: list[str] = []
    lead = {pod.group: pod for pod in one.pods if pod.component == component and pod.rank == 0}
    for child in one.workloads:
        group = child.labels.get(keys.GROUP_INDEX, "")
        if child.kind != "StatefulSet" or child.labels.get(keys.COMPONENT) != component or not group.isdigit():
            continue
        if int(group) < wanted:
            continue
        if int(group) in lead:
            waiting.append(f"leader {lead[int(group)].name} to be gone")
        elif not child.deleting:
            selector = {**meta.labels(service, component, one.revision), keys.WORKER_INDEX: "0", keys.POD_INDEX: group}
            delete.append(Delete("StatefulSet", child.name, child.uid, guard=Guard(meta.requirement(selector))))
    kept = {int(c.labels[keys.GROUP_INDEX]) for c in one.workloads if keys.GROUP_INDEX in c.labels and not c.deleting}
    gone = [
        pod
        for pod in one.pods
        if pod.component == component and pod.rank > 0 and pod.group >= wanted and pod.group not in kept | lead.keys()
    ]
    return Step((*delete, *hurry(gone)), "; ".join(waiting))
