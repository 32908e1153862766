"""Compute the steps that remove all objects of a revision from the cluster, except the stored revision itself. Each step is
derived from the objects that still exist (decisions 6 and 9).

A revision is removed in this order: its router, then, when all pods of the router are gone, its leaders, and last its
workers. The workers are deleted with a short grace period, because they ignore SIGTERM and would hold their GPUs for the
complete grace period. Another revision may start only when all pods of this revision are gone.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ome_operator import keys
from ome_operator.core.group_numbers import WORKER_GRACE, is_leader, pods, statefulsets
from ome_operator.core.observed.objects import Child, Pod
from ome_operator.core.observed.slices import Slice, group_number, is_leader_set
from ome_operator.core.reconcile.plan import Delete, Guard, NodeLost
from ome_operator.core.render import meta
from ome_operator.util.wording import count


class Retirement(NamedTuple):
    """The next step of the removal of a revision."""

    delete: tuple[Delete, ...]
    waits_for: str
    """A human-readable text about what is being removed; "" if the revision has neither pods nor workloads with pods any
    more."""


def retire_revision(service: str, slice_: Slice) -> Retirement:
    """Return the next step that removes objects of a revision. After the last step, no object of the revision is left.
    `service` is the name of the service.
    """
    routers = [child for child in slice_.workloads if child.kind == "Deployment"]
    leaders = [child for child in slice_.workloads if is_leader_set(child)]
    workers = [child for child in slice_.workloads if child.kind == "StatefulSet" and not is_leader_set(child)]
    budgets = [child for child in slice_.workloads if child.kind == "PodDisruptionBudget"]
    router_pods = [pod for pod in slice_.pods if pod.component == keys.ROUTER]
    leader_pods = [pod for pod in slice_.pods if pod.component != keys.ROUTER and pod.rank == 0]
    rest = [pod for pod in slice_.pods if pod.component != keys.ROUTER and pod.rank > 0]
    if routers or router_pods:
        return Retirement(_deletes(routers), _gone("router draining", slice_.revision, router_pods))
    if leaders or leader_pods:
        guard = Guard(meta.requirement(meta.labels(service, keys.ROUTER, slice_.revision)))
        return Retirement(_deletes(leaders, guard), _gone("leaders ending", slice_.revision, leader_pods))
    if workers:
        guard = Guard(meta.requirement({**meta.labels(service, revision=slice_.revision), keys.WORKER_INDEX: "0"}))
        return Retirement(_deletes(workers, guard), _gone("workers ending", slice_.revision, rest))
    if rest:  # not earlier: a StatefulSet that still exists would recreate deleted pods
        return Retirement(shorten_grace_periods(rest), _gone("workers ending", slice_.revision, rest))
    return Retirement(_deletes(budgets), "")


def discard(slice_: Slice) -> tuple[Delete, ...]:
    """Return the deletions, in a single step, of all objects of a revision that must not run at all
    (`Snapshot.restored_revisions`).

    Pods of controllers other than the workloads in `slice_` are not deleted here: the pods of a router, which belong to a
    ReplicaSet, end with its Deployment.
    """
    uids = {child.uid for child in slice_.workloads}
    mine = [pod for pod in slice_.pods if not pod.workload_uid or pod.workload_uid in uids]
    routers = [pod for pod in mine if pod.component == keys.ROUTER and not pod.deleting]
    engines = shorten_grace_periods(pod for pod in mine if pod.component != keys.ROUTER)
    return (*_deletes(slice_.workloads), *engines, *(Delete("Pod", pod.name, pod.uid) for pod in routers))


def shorten_grace_periods(pods: Iterable[Pod]) -> tuple[Delete, ...]:
    """Return the deletions of the pods with the grace period `WORKER_GRACE`. Pods that are already being deleted with a
    grace period that is not longer are left out.
    """
    return tuple(
        Delete("Pod", pod.name, pod.uid, grace=WORKER_GRACE) for pod in pods if not pod.deleting or pod.grace > WORKER_GRACE
    )


def _deletes(children: Iterable[Child], guard: Guard | NodeLost | None = None) -> tuple[Delete, ...]:
    return tuple(Delete(child.kind, child.name, child.uid, guard=guard) for child in children if not child.deleting)


def _gone(phase: str, revision: str, pods: list[Pod]) -> str:
    where = sorted({pod.node for pod in pods if pod.node})
    place = f" on {', '.join(where[:3])}{' …' if len(where) > 3 else ''}" if where else ""
    number = f", {count(len(pods), 'pod')}{place}" if pods else ""
    return f"old {phase} (revision {revision}{number})"


def remove_extra_groups(
    service: str, component: str, kept: Collection[int], slice_: Slice, abandoned: Collection[str] = ()
) -> tuple[Delete, ...]:
    """Return the next step of the removal of the groups of a role that are not `kept`: first the leaders, then the
    workers of leaders that are gone. The workers of an earlier group whose number a kept group has are removed, too.

    `abandoned` contains the UIDs of pods that should have ended, but whose nodes do not report. Workers do not wait for the
    end of a leader in `abandoned`, because they would hold the accelerators of healthy nodes.
    """
    goes = [
        child
        for child in statefulsets(component, slice_)
        if (group := group_number(child)) is not None and group not in kept
    ]
    gone = [pod for pod in pods(component, slice_) if pod.group not in kept]
    leaders = [child for child in goes if is_leader_set(child)]
    led = {*map(group_number, leaders)}
    leads = led | {pod.group for pod in gone if pod.rank == 0 and pod.uid not in abandoned}
    nodes = {pod.group: pod.node for pod in gone if pod.rank == 0 and pod.uid in abandoned}
    workers = [child for child in goes if not is_leader_set(child) and group_number(child) not in leads]
    replaced = {group_number(child) for child in goes if not child.deleting}  # a StatefulSet would recreate its pods
    # The garbage collector may be slow, and it leaves orphans: a leader pod without its StatefulSet is deleted here.
    alone = [pod for pod in gone if is_leader(pod) and pod.group not in led and not pod.deleting]
    rest = [pod for pod in gone if pod.rank > 0 and pod.group not in leads | replaced]
    delete = [*_deletes(leaders), *(Delete("Pod", pod.name, pod.uid) for pod in alone)]
    for child in workers:
        group = group_number(child)
        guard = NodeLost(nodes[group]) if group in nodes else _leader_gone(service, component, slice_.revision, child)
        delete += _deletes([child], guard)
    return (*delete, *shorten_grace_periods((*rest, *_left_workers(component, kept, slice_))))


def _left_workers(component: str, kept: Collection[int], slice_: Slice) -> list[Pod]:
    """Return the terminating workers of earlier groups whose numbers groups in `kept` have now: their StatefulSet and their
    leader are gone.

    They occupy nodes, and the workers of the new group have the same names, so the new group could not be placed before
    their whole grace period is over. A leader that may still have requests keeps its workers: a leader that is ready, that
    terminates, or whose StatefulSet is gone.
    """
    uids = {child.uid for child in statefulsets(component, slice_)}
    mine = [pod for pod in pods(component, slice_) if pod.group in kept]
    led = {pod.group for pod in mine if pod.rank == 0 and (pod.ready or pod.deleting or pod.workload_uid not in uids)}
    return [pod for pod in mine if pod.rank > 0 and pod.deleting and pod.workload_uid not in uids and pod.group not in led]


def _leader_gone(service: str, component: str, revision: str, workers: Child) -> Guard:
    """Return the guard of the deletion of `workers`, the StatefulSet of a group's workers: no pod of the group's leader may
    exist.
    """
    mark = {keys.WORKER_INDEX: "0", keys.GROUP_INDEX: str(group_number(workers))}
    return Guard(meta.requirement({**meta.labels(service, component, revision), **mark}))
