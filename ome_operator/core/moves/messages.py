"""Build the condition Moved, which states which groups leave their nodes, why, and what they wait for."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from ome_operator import keys, quantity
from ome_operator.core.moves.record import Move, Phase, age
from ome_operator.core.moves.state_machine import SETTLE, First, MovePolicy
from ome_operator.core.reasons import MOVED, Reason, Why, record_of
from ome_operator.core.status.conditions import Condition
from ome_operator.util.wording import count


class MoveFacts(NamedTuple):
    """The facts about a move that its message needs in addition to the stored state."""

    title: str
    """Name of the role in messages: prefill, decode, engine or router."""
    lacks_nodes: bool
    """Whether the replacement waits for nodes (`state_machine.lacks_nodes`)."""
    gpus: int
    """Number of GPUs of the whole replacement; 0 for a router."""
    unready: str
    more: int
    """Number of other members of the role that have to leave their nodes, too."""


def condition(moves: Mapping[Move, MoveFacts], policy: MovePolicy, first: First, now: datetime) -> Condition | None:
    """Return the condition Moved; None if no group moves."""
    reasons = [_why(move, facts, policy, first, now) for move, facts in moves.items() if move.phase is not Phase.RETURNED]
    if not reasons:
        return None
    reasons.sort(key=lambda why: record_of(why.reason).gravity)
    return Condition(MOVED, False, reasons[0].reason, "; ".join(why.sentence for why in reasons))


def _why(move: Move, facts: MoveFacts, policy: MovePolicy, first: First, now: datetime) -> Why:
    who = f"router {move.member}" if move.component == keys.ROUTER else f"{facts.title} group {move.member}"
    reason, what = _state(move, facts, policy, first, now)
    others = count(facts.more, "other router" if move.component == keys.ROUTER else "other group")
    more = f"; {others} of the role will leave after it" if facts.more else ""
    return Why(reason, f"{who} leaves node {move.node} ({move.cause}): {what}{more}")


def _state(move: Move, facts: MoveFacts, policy: MovePolicy, first: First, now: datetime) -> tuple[str, str]:
    thing = "pod" if move.component == keys.ROUTER else "group"
    end = phase_end(move, policy, now)
    match move.phase:
        case Phase.SETTLING:
            return Reason.MOVE_PENDING, f"the move begins if this lasts for {SETTLE:.0f} s"
        case Phase.WAITING:
            return Reason.MOVE_PENDING, f"the move waits for {first.text or f'the groups of its role: {facts.unready}'}"
        case Phase.LEAVING:
            without = " without a replacement" if move.alone else ""
            return Reason.MOVING, f"it is removed{without} when its requests have ended"
        case Phase.STAYING:
            return Reason.MOVE_TIMED_OUT, (
                f"no replacement became ready, so the {thing} stays and serves. The move is tried again at {end}; `ome move "
                f"--now {move.node}` moves it without a replacement"
            )
    if not facts.lacks_nodes:
        named = f"its replacement, {thing} {move.replacement}," if move.replacement else "its replacement"
        return Reason.MOVING, f"{named} is starting, and the {thing} leaves when it serves"
    room = f"free nodes with {count(facts.gpus, 'GPU')}" if facts.gpus else "a node"
    ends = "leaves without it" if policy.goes else "stays"
    return Reason.NO_SPARE_NODES, f"its replacement waits for {room}; at {end} the {thing} {ends}"


def phase_end(move: Move, policy: MovePolicy, now: datetime) -> str:
    """Return the time at which the present phase of a move ends if nothing else happens before, in RFC 3339; "" if only an
    event ends it. The phase `Replacing` ends at this time only if the replacement has no nodes.
    """
    limits = {Phase.SETTLING: SETTLE, Phase.REPLACING: policy.timeout, Phase.STAYING: policy.pause}
    if (seconds := limits.get(move.phase)) is None:
        return ""
    ends = now + timedelta(seconds=seconds - age(move.since, now))
    return quantity.rfc3339(ends)
