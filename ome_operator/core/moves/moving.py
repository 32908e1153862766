"""Decide about the moves of a service in a pass: which roles get an additional group, and which groups leave their nodes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator import keys, names, quantity
from ome_operator.api import InferenceService
from ome_operator.core import group_numbers
from ome_operator.core.moves import messages
from ome_operator.core.moves.causes import causes, group_requests, to_exclude, until_requests
from ome_operator.core.moves.record import Move, Phase, age, format_moves, parse_moves
from ome_operator.core.moves.state_machine import (
    JOIN,
    NOTHING_FIRST,
    MovePolicy,
    MovingRole,
    WaitCondition,
    advance,
    describe_readiness,
    lacks_nodes,
    seconds_until_change,
)
from ome_operator.core.observed.exclusions import MOST, Exclusion
from ome_operator.core.observed.move_requests import LONGEST, SHORTEST, timeout
from ome_operator.core.observed.objects import YIELDS, Manifest, Pod, Taint
from ome_operator.core.observed.slices import Slice, group_number
from ome_operator.core.placement.demand import Demand, demand
from ome_operator.core.reasons import Reason
from ome_operator.core.reconcile.plan import Delete, Patch
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import gpus
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.step import RolloutStep
from ome_operator.core.status.conditions import Condition
from ome_operator.util.memoize import memoize_by_identity


class Moving(NamedTuple):
    """The decision about the moves of a service in this pass."""

    revision: str = ""
    """Revision whose groups move; "" if no group moves."""
    status_moves: tuple[dict[str, Any], ...] = ()
    """The new `status.moves`."""
    extra: Mapping[str, int] = MappingProxyType({})
    """Number of additional groups or routers, beyond the desired number, by component."""
    goes: Mapping[str, int] = MappingProxyType({})
    """The number of the group that is removed now, by component."""
    leaving: Mapping[str, frozenset[int]] = MappingProxyType({})
    """The numbers of the groups that have to leave their nodes, by component."""
    patch: tuple[Patch, ...] = ()
    """Patches that mark the routers' pods that have to be removed first when their Deployment is scaled down."""
    delete: tuple[Delete, ...] = ()
    """Deletions of routers' pods that leave without a replacement."""
    excluded: Exclusion = ()
    """The nodes from which a person asked to move groups. New groups are not placed on them."""
    condition: Condition | None = None
    depends_on_nodes: bool = False
    """Whether the decision depends on the state of nodes, so that a change of a node has to trigger a pass."""
    again: float | None = None


NO_MOVES = Moving()


def enabled(snapshot: Snapshot) -> bool:
    """Return whether the operator moves groups of the service away from nodes. If so, the disruption budgets of the service
    allow no eviction, because the operator removes the groups itself.
    """
    return snapshot.service.spec.moves is not None and snapshot.deps.policy.sees_cluster


def advice(snapshot: Snapshot) -> tuple[str, ...]:
    """Return advice for a service whose field `spec.moves` has no effect, or whose `spec.moves.timeout` is outside the
    permitted range; otherwise ().
    """
    moves = snapshot.service.spec.moves
    if moves is None:
        return ()
    if not snapshot.deps.policy.sees_cluster:
        return ("spec.moves has no effect, because this operator reads no nodes (clusterWideKinds is false)",)
    if moves.timeout is None or SHORTEST <= (asked := quantity.seconds(moves.timeout)) <= LONGEST:
        return ()
    least, most = f"{SHORTEST:.0f}s", f"{LONGEST / 3600:.0f}h"
    used = least if asked < SHORTEST else most
    return (f"spec.moves.timeout is {moves.timeout}, so {used} is used: write a duration from {least} to {most}",)


def decide_moves(snapshot: Snapshot, intent: Intent, step: RolloutStep, *, frozen: bool) -> Moving:
    """Decide about the moves of the groups and routers of a service. While the service has several revisions, nothing moves.
    If `frozen` is true, the stored moves do not change.
    """
    if not enabled(snapshot):
        return NO_MOVES
    before = parse_moves(snapshot.service.status)
    if len(step.keep) != 1 or snapshot.slices.keys() - set(step.keep):
        return Moving(depends_on_nodes=True)  # not needed, because a rollout replaces all groups
    (revision,) = step.keep
    found = snapshot.slices.get(revision, Slice(revision, (), ()))
    roles = [*_groups(snapshot, intent, found, step), *_routers(snapshot, intent, found)]
    first, settings = _first(intent, step, revision), policy(snapshot.service)
    moves: list[Move] = []
    for role in roles:
        move = before.get(role.component)
        move = move if frozen else advance(move, role, settings, first, snapshot.now)
        moves += [move] if move is not None and move.revision == revision else []
    return _moving(snapshot, intent, found, roles, moves, settings, first)


def add_replacements(step: RolloutStep, moving: Moving) -> RolloutStep:
    """Return the step of the rollout with one more desired group for each role in which a replacement of a moving group is
    created.
    """
    if moving.revision not in step.groups or not any(moving.extra.get(role) for role in step.groups[moving.revision]):
        return step
    share = {role: count + moving.extra.get(role, 0) for role, count in step.groups[moving.revision].items()}
    return replace(step, groups={**step.groups, moving.revision: share})


def exclude_nodes(intent: Intent, moving: Moving) -> Intent:
    """Return the intent in which new groups also exclude the nodes `moving.excluded`, from which a person asked to move
    groups. These nodes may still accept pods; a node with a taint or a cordon keeps pods away by itself.
    """
    if not moving.excluded:
        return intent
    nodes = sorted({*intent.fit.excluded, *moving.excluded})[:MOST]
    return replace(intent, fit=intent.fit._replace(excluded=tuple(nodes)))


def _moving(
    snapshot: Snapshot,
    intent: Intent,
    found: Slice,
    roles: Iterable[MovingRole],
    moves: list[Move],
    settings: MovePolicy,
    first: WaitCondition,
) -> Moving:
    named = {role.component: role for role in roles}
    extra = {one.component: 1 for one in moves if one.phase is Phase.REPLACING}
    router = next((one for one in moves if one.component == keys.ROUTER and one.phase is Phase.LEAVING), None)
    pods = [pod for pod in found.pods if pod.component == keys.ROUTER and not pod.deleting]
    delete: tuple[Delete, ...] = ()
    if router is not None and router.alone:
        delete = tuple(Delete("Pod", pod.name, pod.uid) for pod in pods if pod.name == router.member)
    elif router is not None and not any(pod.name == router.member and pod.yields for pod in pods):
        extra[keys.ROUTER] = 1  # the Deployment keeps one more replica until the ReplicaSet has seen the mark
    goes = {one.component: int(one.member) for one in moves if one.phase is Phase.LEAVING and one is not router}
    waits = [seconds_until_change(one, named[one.component], settings, snapshot.now) for one in moves]
    nodes = filter(None, map(snapshot.deps.nodes.get, {pod.node for pod in found.pods}))
    texts = [snapshot.service.annotations.get(keys.MOVE) or "", *(node.move for node in nodes if node.move)]
    waits.append(until_requests(texts, snapshot.now))
    return Moving(
        revision=found.revision,
        status_moves=format_moves(moves),
        extra=extra,
        goes=goes,
        leaving={
            role.component: frozenset(map(int, role.causes)) for role in named.values() if role.component != keys.ROUTER
        },
        patch=tuple(_marks(pods, router.member if router is not None and not router.alone else "")),
        delete=delete,
        excluded=tuple(sorted({node for role in named.values() for node in role.excluded})) if extra or goes else (),
        condition=messages.condition(
            {one: _facts(one, named[one.component], found, intent, snapshot.now) for one in moves},
            settings,
            first,
            snapshot.now,
        ),
        depends_on_nodes=True,
        again=min((wait for wait in waits if wait is not None), default=None),
    )


def _facts(move: Move, role: MovingRole, found: Slice, intent: Intent, now: datetime) -> messages.MoveFacts:
    roles = intent.roles(found.revision)
    return messages.MoveFacts(
        title=names.role_title(move.component, keys.DECODER in roles),
        lacks_nodes=lacks_nodes(move, role, now),
        gpus=gpus(roles[move.component]) if move.component in roles else 0,
        unready=describe_readiness(move, role),
        more=len(role.causes.keys() - {move.member}),
    )


def _marks(pods: Iterable[Pod], leaves: str) -> Iterable[Patch]:
    """Yield the patches that mark the pod `leaves` as the pod that the ReplicaSet has to remove first, and remove this mark
    from other pods.
    """
    for pod in pods:
        if (pod.name == leaves) != pod.yields:
            value = None if pod.yields else YIELDS
            yield Patch("Pod", pod.name, pod.uid, {"metadata": {"annotations": {keys.DELETION_COST: value}}})


def _first(intent: Intent, step: RolloutStep, revision: str) -> WaitCondition:
    """Return the condition for which a move of a group of this revision has to wait, such as the end of a rollout;
    `NOTHING_FIRST` if it need not wait.
    """
    if step.reason or step.rolls or revision != intent.target:
        return WaitCondition(f"the rollout of revision {intent.target}", ends=True)
    return WaitCondition("the end of the pause (spec.rollout.paused)") if intent.strategy.paused else NOTHING_FIRST


def policy(service: InferenceService) -> MovePolicy:
    """Return the settings of a service that has the field `spec.moves`."""
    moves = service.spec.moves
    assert moves is not None
    return MovePolicy(timeout(moves), moves.without_replacement == "Go")


def _groups(snapshot: Snapshot, intent: Intent, found: Slice, step: RolloutStep) -> Iterable[MovingRole]:
    """Yield the observed groups of the engine and of the decoder of the target revision."""
    requests = group_requests(snapshot.service.annotations.get(keys.MOVE) or "", snapshot.now)
    failed = {
        (group.get("component"), str(group.get("index") or 0))
        for group in snapshot.service.status.get("groups") or ()
        if group.get("revision") == found.revision and group.get("recycles")
    }
    for name, role in intent.roles(found.revision).items():
        if name not in step.groups[found.revision]:
            continue
        pods = group_numbers.pods(name, found)
        asks = demand(role.leader["spec"]["template"], True)
        workers = demand(role.worker["spec"]["template"], True) if role.worker is not None else asks
        ready = group_numbers.ready_groups(name, role.size, found)
        found_causes = causes(
            pods,
            lambda pod: str(pod.group),
            snapshot.deps.nodes,
            _tolerates(asks, workers),
            {number: at for (component, number), at in requests.items() if component == name},
            snapshot.now,
            on_cordon=_on_cordon(snapshot.service),
        )
        existing = [str(number) for number in sorted(group_numbers.existing_groups(name, found))]
        yield MovingRole(
            component=name,
            revision=found.revision,
            wanted=step.groups[found.revision][name],
            existing=tuple(existing),
            left={str(child) for child in map(group_number, group_numbers.statefulsets(name, found))}
            | {str(pod.group) for pod in pods},
            ready=_names(ready),
            joined=_names(_joined(pods, ready, snapshot.now)),
            placed=_names(group_numbers.on_nodes(name, role.size, found)),
            unschedulable={str(pod.group) for pod in pods if _unschedulable(pod)},
            failed={number for component, number in failed if component == name},
            newest=_newest(existing, {str(pod.group): pod.times.created for pod in pods if pod.rank == 0}),
            causes=found_causes,
            excluded=to_exclude(pods, lambda pod: str(pod.group), found_causes, snapshot.deps.nodes),
        )


def _routers(snapshot: Snapshot, intent: Intent, found: Slice) -> Iterable[MovingRole]:
    """Yield the observed router pods of the target revision, if it has any."""
    pods = [pod for pod in found.pods if pod.component == keys.ROUTER]
    if intent.router is None or not pods:
        return
    present = {pod.name: pod for pod in pods if not (pod.deleting or pod.over)}
    ready = {name for name, pod in present.items() if pod.ready}
    asks = _router_demand(intent.router.leader)
    yield MovingRole(
        component=keys.ROUTER,
        revision=found.revision,
        wanted=intent.groups.get(keys.ROUTER, 0),
        existing=tuple(sorted(present)),
        left={pod.name for pod in pods},
        ready=ready,
        joined={name for name in ready if _has_joined(present[name], snapshot.now)},
        placed={name for name, pod in present.items() if pod.node},
        unschedulable={name for name, pod in present.items() if _unschedulable(pod)},
        failed=(),
        newest=_newest(sorted(present), {name: pod.times.created for name, pod in present.items()}),
        causes=causes(
            present.values(),
            lambda pod: pod.name,
            snapshot.deps.nodes,
            asks.tolerates,
            {},
            snapshot.now,
            on_cordon=_on_cordon(snapshot.service),
        ),
    )


@memoize_by_identity(1024)
def _router_demand(pod: Manifest) -> Demand:
    return demand({"spec": pod}, True)


def _on_cordon(service: InferenceService) -> bool:
    return bool(service.spec.moves and service.spec.moves.on_cordon)


def _tolerates(leader: Demand, worker: Demand) -> Callable[[Taint], bool]:
    """Return the function that returns whether all pods of a group tolerate a taint."""

    def both(taint: Taint) -> bool:
        return leader.tolerates(taint) and worker.tolerates(taint)

    return both


def _names(numbers: Iterable[int]) -> frozenset[str]:
    return frozenset(map(str, numbers))


def _joined(pods: Iterable[Pod], ready: Iterable[int], now: datetime) -> set[int]:
    """Return the ready groups whose leaders have been ready for at least `JOIN` seconds."""
    return set(ready) - {pod.group for pod in pods if pod.rank == 0 and not _has_joined(pod, now)}


def _has_joined(pod: Pod, now: datetime) -> bool:
    """Return whether a ready pod has been ready for at least `JOIN` seconds; True if the time is unknown."""
    return not pod.times.ready or age(pod.times.ready, now) >= JOIN


def _newest(existing: Iterable[str], created: Mapping[str, str]) -> str:
    """Return the group or router's pod that was created last. A group without a pod is treated as the newest; of equally
    new groups, the last in `existing` is returned.
    """
    order = list(existing)
    return max(order, key=lambda name: (created.get(name) or "~", order.index(name)), default="")


def _unschedulable(pod: Pod) -> bool:
    """Return whether the scheduler found no node for a pod."""
    return pod.reason == Reason.UNSCHEDULABLE and not pod.deleting


def drop_leaving(moving: Moving, revision: str, component: str, order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the group numbers `order` without the group of this component that a move removes now."""
    if revision != moving.revision:
        return order
    return tuple(number for number in order if number != moving.goes.get(component))
