"""Decide about all groups of a service that are kept: the next state of each group, and how many recycles may run at the
same time.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.restored import other_namespace
from ome_operator.core.reasons import Reason, ReasonedMessage
from ome_operator.core.reconcile.plan import Delete, Event, GroupRecycle, NodeLost, fingerprint
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.recovery import messages
from ome_operator.core.recovery.group import Group, ranks, view
from ome_operator.core.recovery.policy import RecoveryPolicy, policy, without_spare
from ome_operator.core.recovery.record import (
    RECYCLING,
    GroupRecord,
    format_records,
    limit_records,
    parse_records,
    seconds_since,
)
from ome_operator.core.recovery.start import with_expectation, with_start
from ome_operator.core.recovery.state_machine import Transition
from ome_operator.core.recovery.systemic import advance_groups
from ome_operator.core.render import meta
from ome_operator.core.rollout.drain import Held
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.retire import shorten_grace_periods
from ome_operator.core.status.conditions import Condition
from ome_operator.names import role_title

READ_BACK = 0.5
"""Seconds until the next pass after a pass has announced a recycle. The next pass finds the announcement in the stored
status, and deletes pods."""
OVERDUE = 30.0
"""Seconds after the end of its grace period from which a terminating pod on a lost node counts as stuck. A pod that is
not on a lost node, but exceeds the time for its forced deletion, is checked again after the same number of seconds."""


class RoleGroups(NamedTuple):
    """The groups of one component of one revision that are not removed."""

    component: str
    revision: str
    title: str
    """Name of the role in messages: prefill, decode, or engine."""
    size: int
    numbers: tuple[int, ...]
    """The numbers of these groups."""
    statefulset_prefix: str
    """Common prefix of the names of the StatefulSets of these groups."""
    scale: tuple[str, int] | None
    """Name and replicas of the RoleScale of the component; None if the component has no RoleScale."""


@dataclass(frozen=True)
class Recovery:
    """The decisions of a pass about the groups of a service."""

    groups: tuple[dict[str, Any], ...] = ()
    """The new `status.groups`."""
    left_out: int = 0
    """Number of groups for which the status has no space."""
    recycle: tuple[GroupRecycle, ...] = ()
    delete: tuple[Delete, ...] = ()
    """Forced deletions of pods that stay Terminating on lost nodes."""
    events: tuple[Event, ...] = ()
    condition: Condition | None = None
    is_urgent: bool = False
    """Whether a recycle begins, or a group that was ready before has changed its phase. The status must then be written
    at once."""
    again: float | None = None
    """Seconds until the next pass if no event triggers a pass before; None if no pass is due."""
    recycled_groups: tuple[str, ...] = ()
    """Names, in messages, of the groups whose recycle is announced in this pass."""


def recover(snapshot: Snapshot, intent: Intent, held: Held, *, frozen: bool = False) -> Recovery:
    """Decide about every group in `held`, which contains the groups of the kept revisions.

    If `frozen` is true, the decisions are not carried out now: they are reported as what would be done, without an Event.
    """
    service, now = snapshot.service, snapshot.now
    roles = scope(snapshot, intent, held)
    policies = {
        component: without_spare(policy(service, intent.resolved.runtime, component), _template(intent, component))
        for component in (keys.ENGINE, keys.DECODER)
    }
    before = parse_records(service.status)

    found = {one.name: (one, role) for role in roles for one in _groups(snapshot, role)}
    groups = {name: group for name, (group, _) in found.items()}
    steps, systemic = _steps(groups, before, policies, snapshot)
    force = _forced(snapshot.pods, policies, snapshot.is_node_lost, now)
    seen = {name: snapshot.observed.starts.get(group.leader.uid) for name, group in groups.items() if group.leader}
    after = {
        name: with_start(groups[name], before.get(name), with_expectation(step.record, before.values()), seen.get(name), now)
        for name, step in steps.items()
    }
    notes = {name: step.note for name, step in steps.items()}
    goes = {name for name, one in after.items() if one.phase == RECYCLING}
    begun = sorted(name for name in goes if not recycle_announced(before.get(name)))
    recycle = [_recycling(service.name, *found[name], after[name]) for name in sorted(goes.difference(begun))]
    waits = [step.again for step in steps.values() if step.again is not None] + force.again + [READ_BACK] * bool(begun)
    stored, left_out = limit_records(
        format_records([*after.values(), *_carried(before, after, roles, snapshot.slices.keys())])
    )
    return Recovery(
        groups=stored,
        left_out=left_out,
        recycle=tuple(one for one in recycle if one.delete),
        delete=force.delete,
        events=() if frozen else tuple(messages.event(after[name], groups[name]) for name in begun),
        condition=messages.condition(after, groups, policies, [*systemic, *force.stuck], notes, frozen=frozen),
        is_urgent=not frozen and (bool(begun) or any(_moved(before.get(name), one) for name, one in after.items())),
        again=min(waits, default=None),
        recycled_groups=tuple(f"{groups[name].title} of revision {groups[name].revision}" for name in begun),
    )


def _template(intent: Intent, component: str) -> Mapping[str, Any] | None:
    """Return the pod template of a component's leaders in the target revision; None if the component
    has no template there.
    """
    role = intent.roles(intent.target).get(component)
    template: Mapping[str, Any] | None = role.leader["spec"]["template"] if role is not None else None
    return template


def recycle_announced(stored: GroupRecord | None) -> bool:
    """Return whether the stored record of a group announces a recycle. No pod of the group may be deleted before that."""
    return stored is not None and stored.phase == RECYCLING


def _moved(stored: GroupRecord | None, now: GroupRecord) -> bool:
    """Return whether a group that was ready before has changed its phase. `stored` is the stored record; None if the group
    has none.
    """
    return stored is not None and bool(stored.incarnation) and stored.phase != now.phase


def _steps(
    groups: Mapping[str, Group],
    before: Mapping[str, GroupRecord],
    policies: Mapping[str, RecoveryPolicy],
    snapshot: Snapshot,
) -> tuple[dict[str, Transition], list[ReasonedMessage]]:
    """Return the state transition of every group, and messages about faults that affect all groups of a component."""
    steps: dict[str, Transition] = {}
    messages: list[ReasonedMessage] = []
    for component in dict.fromkeys(one.component for one in groups.values()):
        mine = [one for one in groups.values() if one.component == component]
        silences = snapshot.observed.silences
        made, systemic = advance_groups(mine, before, policies[component], snapshot.is_node_lost, snapshot.now, silences)
        steps |= made
        messages += systemic
    return steps, messages


def _carried(
    before: Mapping[str, GroupRecord], after: Mapping[str, GroupRecord], roles: list[RoleGroups], present: Container[str]
) -> list[GroupRecord]:
    """Return the stored records of groups that this pass does not handle, such as groups that are being drained and
    groups of revisions that are being removed. A record is dropped when all objects of its revision are gone.
    """
    wanted = {(role.revision, role.component): role.numbers for role in roles}

    def stays(one: GroupRecord) -> bool:
        return one.revision in present and one.index in wanted.get((one.revision, one.component), (one.index,))

    return [one for name, one in before.items() if name not in after and stays(one)]


def _groups(snapshot: Snapshot, role: RoleGroups) -> list[Group]:
    """Return the groups of a role, without groups that are being drained."""
    observed = snapshot.observed
    mine: dict[int, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.component == role.component and pod.revision == role.revision and 0 <= pod.rank < role.size:
            mine.setdefault(pod.group, []).append(pod)
    service, stored = snapshot.service, [one for one in snapshot.revisions if one.name == role.revision]
    right = not any(other_namespace(one, service.name, service.namespace) for one in stored)
    out = []
    for number in role.numbers:
        members = ranks(mine.get(number, ()))
        if 0 in members and members[0].draining:
            continue
        sets = {pod.uid: observed.children.get(("StatefulSet", pod.workload)) for pod in members.values()}
        drifted = [
            pod.uid
            for pod in members.values()
            if (found := sets[pod.uid]) and found.template and pod.template and pod.template != found.template
        ]
        settled = all(observed.is_intact(found) for found in sets.values() if found is not None)
        out.append(
            Group(
                name=names.leader_pod(role.statefulset_prefix, number),
                component=role.component,
                revision=role.revision,
                number=number,
                size=role.size,
                title=f"{role.title} group {number}",
                pods=members,
                drifted=frozenset(drifted) if settled else frozenset(),
                copied=right and any(pod.contacts for pod in members.values()),
                settled=settled,
            )
        )
    return out


def _recycling(service: str, group: Group, role: RoleGroups, record: GroupRecord) -> GroupRecycle:
    """Return the recycle of a group: the deletions of its recorded pods, and the condition for carrying them out: the group
    still has the state that this pass has seen.
    """
    labels = {**meta.labels(service, group.component, group.revision), keys.GROUP_INDEX: str(group.number)}
    return GroupRecycle(
        delete=shorten_grace_periods(view(group, record).recorded),
        selector=meta.requirement(labels),
        pods=frozenset(fingerprint(pod) for pod in group.pods.values()),
        scale=role.scale,
    )


class _Force(NamedTuple):
    """The decisions about pods that stay Terminating on lost nodes."""

    delete: tuple[Delete, ...]
    stuck: list[ReasonedMessage]
    again: list[float]


def _forced(
    pods: Iterable[Pod], policies: Mapping[str, RecoveryPolicy], lost: Callable[[str], bool], now: datetime
) -> _Force:
    """Return forced deletions of pods on lost nodes, messages about pods that are stuck there, and times of further checks.
    The kubelet of a lost node confirms no deletion, and the replacement of a pod has the name of the pod, so it cannot be
    created before the pod is gone (decisions 6 and 8).
    """
    delete: list[Delete] = []
    stuck: list[ReasonedMessage] = []
    again: list[float] = []
    for pod in pods:
        if not pod.deleting or pod.component not in policies:
            continue
        force, over = policies[pod.component].force, seconds_since(pod.ends, now)
        due = OVERDUE if force is None else force
        if over < due:
            again.append(due - over)
        elif force is not None and lost(pod.node):
            delete.append(Delete("Pod", pod.name, pod.uid, grace=0, guard=NodeLost(pod.node)))
        elif force is not None:
            again.append(OVERDUE)
        if over >= OVERDUE and lost(pod.node):
            leader = names.leader(names.object_prefix(pod.service, pod.component, pod.revision), pod.group)
            how = (
                "remove the Node object, taint it node.kubernetes.io/out-of-service, or set lifecycle.forceDeleteAfter; "
                f"or delete StatefulSet {leader}, so that another group replaces this group"
            )
            stays = f"pod {pod.name} stays Terminating on node {pod.node}, which does not report"
            stuck.append(ReasonedMessage(Reason.STUCK_TERMINATING, f"{stays}: {how}"))
    return _Force(tuple(delete), stuck, again)


def scope(snapshot: Snapshot, intent: Intent, held: Held) -> list[RoleGroups]:
    """Return the groups of every role of the kept revisions. Revisions that are being removed and surplus groups are left
    out, because other steps remove them.
    """
    out = []
    for (revision, component), retained in sorted(held.items()):
        roles = intent.roles(revision)
        scale = snapshot.controlled("RoleScale", names.component(intent.owner.name, component))
        out.append(
            RoleGroups(
                component=component,
                revision=revision,
                title=role_title(component, keys.DECODER in roles),
                size=roles[component].size,
                numbers=retained.numbers,
                statefulset_prefix=names.object_prefix(intent.owner.name, component, revision),
                scale=(scale.name, scale.replicas) if scale is not None else None,
            )
        )
    return out
