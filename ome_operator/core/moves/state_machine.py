"""State machine of the moves of a role: compute the next state of a move from the stored state and the observed groups.

At most one group of a role moves at a time. The group is removed only while enough other groups of the role serve (as many
as the role should have), unless the user permits a move without a replacement.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from ome_operator import quantity
from ome_operator.core.moves.causes import NO_PRECEDENCE, LeavingCause
from ome_operator.core.moves.record import Move, Phase, age
from ome_operator.core.observed.move_requests import TIMEOUT

SETTLE = 15.0
"""Seconds for which a cause has to last before a move begins. The cause also has to be gone for this time before a move
ends."""
JOIN = 15.0
"""Seconds for which a group has to be ready before another group leaves. Within this time, the registry, which lists pods
every 3 s, finds the leader, and the router adds the leader to its list."""
PAUSE = 300.0
"""Seconds for which no group of the role moves after a move has ended because the node came back. The same number is the
minimum pause before a move that found no nodes is tried again. Both pauses limit how often a replacement is created in
vain."""
START = 7200.0
"""Seconds within which a replacement that is on nodes has to serve."""
SCHEDULED = 10.0
"""Seconds within which the pods of a replacement are usually created and assigned to nodes if free nodes exist."""


class MovePolicy(NamedTuple):
    """The settings of a service for its moves."""

    timeout: float = TIMEOUT
    """Seconds for which a replacement may wait for nodes."""
    goes: bool = False
    """Whether a group leaves without a replacement if the replacement has found no nodes when the timeout ends. Otherwise
    the group stays on its node."""

    @property
    def retry_pause(self) -> float:
        """Seconds for which a group stays before its move is tried again."""
        return max(self.timeout, PAUSE)


class MovingRole(NamedTuple):
    """The observed members of a role: its groups, named by their numbers, or the router pods, named by their names."""

    component: str
    revision: str
    wanted: int
    existing: tuple[str, ...]
    """The members that exist and are not being removed, in the order of their numbers."""
    left: Collection[str]
    """The members of which at least one object (a StatefulSet or a pod) still exists."""
    ready: Collection[str]
    joined: Collection[str]
    """The members that have been ready for `JOIN` seconds."""
    placed: Collection[str]
    """The members all of whose pods are on nodes."""
    unschedulable: Collection[str]
    """The members with a pod for which the scheduler found no node."""
    failed: Collection[str]
    """The groups that were recycled."""
    newest: str
    """The existing member that was created last."""
    causes: Mapping[str, LeavingCause]
    excluded: Collection[str] = ()
    """The nodes from which a person asked to move groups. No replacement is placed on them."""


class WaitCondition(NamedTuple):
    """A condition for which a move has to wait, such as the end of a rollout."""

    text: str = ""
    """The event that the move waits for, worded so that it can follow "waits for"; "" if the move need not wait."""
    ends: bool = False
    """Whether a move that has to wait removes its replacement if the replacement is already starting. Otherwise the move
    keeps the replacement and waits before its next step."""


NOTHING_FIRST = WaitCondition()


def advance(move: Move | None, role: MovingRole, policy: MovePolicy, first: WaitCondition, now: datetime) -> Move | None:
    """Return the next state of the move of a role; None if no group of the role has to move. `move` is the stored state,
    None if nothing moves.
    """
    if move is not None and (move.revision != role.revision or _over(move, role) or _overtaken(move, role)):
        move = None
    if move is None and (move := _next(role, now)) is None:
        return None
    move, cause = move.without_future_times(now), role.causes.get(move.member)
    if cause is not None:
        move = move._replace(node=cause.node, cause=cause.text, gone="")
        if cause.now and move.phase is not Phase.LEAVING:
            move = move.in_phase(Phase.LEAVING, now, alone=True)
    reached = _STEPS[move.phase](move, role, policy, first, now)
    if reached is None:
        return advance(None, role, policy, first, now)
    if reached.phase is not move.phase and reached.phase in (Phase.WAITING, Phase.REPLACING):
        return advance(reached, role, policy, first, now)
    return reached._replace(replacement=_replacement(reached, role))


def _over(move: Move, role: MovingRole) -> bool:
    """Return whether the move of a group has ended: the group is gone, or something other than this move is removing it."""
    return move.member not in (role.left if move.phase is Phase.LEAVING else role.existing)


def _overtaken(move: Move, role: MovingRole) -> bool:
    """Return whether the move of another group takes the place of the present move, because a person asked for the other
    move and its cause has a higher precedence. The present move keeps its place while its group is leaving. While the
    replacement of its group is starting, only a move without a replacement takes its place.
    """
    name = _first_to_leave(role)
    if name in (None, move.member) or move.phase is Phase.LEAVING:
        return False
    cause, own = role.causes[name], role.causes.get(move.member)
    urgent = cause.precedence > (own.precedence if own is not None else NO_PRECEDENCE)
    return urgent and (cause.now or move.phase is not Phase.REPLACING)


def _first_to_leave(role: MovingRole) -> str | None:
    """Return the group that has to leave first: a group that leaves without a replacement, otherwise a group whose move a
    person requested, otherwise the group with the lowest number. Return None if no group has to leave.
    """
    names = [name for name in role.existing if name in role.causes] if role.wanted else []
    return max(names, key=lambda name: role.causes[name].precedence, default=None)


def _next(role: MovingRole, now: datetime) -> Move | None:
    """Return the move of the group that has to leave first. Return None if no group has to leave."""
    name = _first_to_leave(role)
    if name is None:
        return None
    cause = role.causes[name]
    return Move(role.component, role.revision, name, Phase.SETTLING, quantity.rfc3339(now), cause.node, cause.text)


def _settling(move: Move, role: MovingRole, policy: MovePolicy, first: WaitCondition, now: datetime) -> Move | None:
    cause = role.causes.get(move.member)
    if cause is None:
        return None
    return move.in_phase(Phase.WAITING, now) if cause.is_requested or age(move.since, now) >= SETTLE else move


def _waiting(move: Move, role: MovingRole, policy: MovePolicy, first: WaitCondition, now: datetime) -> Move | None:
    if move.member not in role.causes:
        return None
    return move if first.text or describe_readiness(move, role) else move.in_phase(Phase.REPLACING, now)


def _replacing(move: Move, role: MovingRole, policy: MovePolicy, first: WaitCondition, now: datetime) -> Move | None:
    if first.ends:
        return move.in_phase(Phase.WAITING, now) if move.member in role.causes else None
    if move.member not in role.causes:
        move = move if move.gone else move._replace(gone=quantity.rfc3339(now))
        return move.in_phase(Phase.RETURNED, now) if age(move.gone, now) >= SETTLE else move
    if first.text:
        return move
    if len(_others(role.joined, move)) >= role.wanted:
        return move.in_phase(Phase.LEAVING, now)
    replacement, waited = _replacement(move, role), age(move.since, now)
    if replacement in role.failed or waited >= policy.timeout + START:
        return move.in_phase(Phase.STAYING, now)
    if replacement in role.placed or waited < policy.timeout:
        return move
    return move.in_phase(Phase.LEAVING, now, alone=True) if policy.goes else move.in_phase(Phase.STAYING, now)


def _leaving(move: Move, role: MovingRole, policy: MovePolicy, first: WaitCondition, now: datetime) -> Move | None:
    serves = move.alone or len(_others(role.ready, move)) >= role.wanted
    return move if serves or move.member not in role.existing else move.in_phase(Phase.REPLACING, now)


def _staying(move: Move, role: MovingRole, policy: MovePolicy, first: WaitCondition, now: datetime) -> Move | None:
    if move.member not in role.causes:
        return None
    return move.in_phase(Phase.WAITING, now) if age(move.since, now) >= policy.retry_pause else move


def _returned(move: Move, role: MovingRole, policy: MovePolicy, first: WaitCondition, now: datetime) -> Move | None:
    cause = role.causes.get(move.member)
    if cause is not None and cause.is_requested:
        return move.in_phase(Phase.WAITING, now)
    return None if age(move.since, now) >= PAUSE else move


_STEPS = {
    Phase.SETTLING: _settling,
    Phase.WAITING: _waiting,
    Phase.REPLACING: _replacing,
    Phase.LEAVING: _leaving,
    Phase.STAYING: _staying,
    Phase.RETURNED: _returned,
}


def describe_readiness(move: Move, role: MovingRole) -> str:
    """Return how many groups of the role are ready, such as "2 of 3 ready". Return "" if as many groups as the role should
    have are ready, and the moving group is one of them.
    """
    ready = sum(name in role.ready for name in role.existing)
    return "" if ready >= role.wanted and move.member in role.ready else f"{ready} of {role.wanted} ready"


def lacks_nodes(move: Move, role: MovingRole, now: datetime) -> bool:
    """Return whether the replacement waits for nodes: the scheduler found no node for one of its pods, or the pods have been
    on no nodes for longer than `SCHEDULED` seconds. Before that, pods may have no node although nodes are free.
    """
    if move.phase is not Phase.REPLACING or move.replacement in role.placed:
        return False
    return move.replacement in role.unschedulable or age(move.since, now) >= SCHEDULED


def _others(names: Collection[str], move: Move) -> list[str]:
    return [name for name in names if name != move.member]


def _replacement(move: Move, role: MovingRole) -> str:
    """Return the member that replaces the member that moves: the newest member, if there are more members than the role
    should have; "" if there is no replacement yet.
    """
    if move.phase not in (Phase.REPLACING, Phase.LEAVING) or move.alone:
        return ""
    more = len(role.existing) > role.wanted or move.member not in role.existing
    return role.newest if more and role.newest != move.member else ""


def seconds_until_change(move: Move, role: MovingRole, policy: MovePolicy, now: datetime) -> float | None:
    """Return the seconds until the passing of time alone can change the state; None if only an event can change it."""
    passed = age(move.since, now)
    limits = {
        Phase.SETTLING: [SETTLE - passed],
        Phase.REPLACING: [SCHEDULED - passed, policy.timeout - passed, policy.timeout + START - passed],
        Phase.STAYING: [policy.retry_pause - passed],
        Phase.RETURNED: [PAUSE - passed],
    }.get(move.phase, [])
    if move.gone:
        limits.append(SETTLE - age(move.gone, now))
    if move.phase is Phase.REPLACING and set(role.ready) - set(role.joined):
        limits.append(JOIN)
    return min((limit for limit in limits if limit > 0), default=None)
