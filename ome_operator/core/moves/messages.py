"""Build the condition Moved, which states which groups leave their nodes, why, and what they wait for."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from ome_operator import keys, quantity
from ome_operator.core.moves.record import Move, Phase, age
from ome_operator.core.moves.state_machine import SETTLE, MovePolicy, WaitCondition
from ome_operator.core.reasons import MOVED, Reason, ReasonedMessage, record_of
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


def condition(moves: Mapping[Move, MoveFacts], policy: MovePolicy, first: WaitCondition, now: datetime) -> Condition | None:
    """Return the condition Moved; None if no group moves."""
    reasons = [_why(move, facts, policy, first, now) for move, facts in moves.items() if move.phase is not Phase.RETURNED]
    if not reasons:
        return None
    reasons.sort(key=lambda why: record_of(why.reason).gravity)
    return Condition(MOVED, False, reasons[0].reason, "; ".join(why.sentence for why in reasons))


def _why(move: Move, facts: MoveFacts, policy: MovePolicy, first: WaitCondition, now: datetime) -> ReasonedMessage:
    who = f"router {move.member}" if move.component == keys.ROUTER else f"{facts.title} group {move.member}"
    reason, what = _state(move, facts, policy, first, now)
    others = count(facts.more, "other router" if move.component == keys.ROUTER else "other group")
    more = f"; {others} of the role will be moved afterwards" if facts.more else ""
    return ReasonedMessage(reason, f"{who} leaves node {move.node} ({move.cause}): {what}{more}")


def _state(move: Move, facts: MoveFacts, policy: MovePolicy, first: WaitCondition, now: datetime) -> tuple[str, str]:
    thing = "pod" if move.component == keys.ROUTER else "group"
    known = Progress(
        thing=thing,
        until=phase_end(move, policy, now),
        waits=first.text or f"the groups of its role: {facts.unready}",
        # The message stays the same while one replacement without nodes takes the place of another.
        replacement=f"{thing} {move.replacement}" if move.replacement and not facts.lacks_nodes else "",
        has_nodes=not facts.lacks_nodes,
        lacks=f"free nodes with {count(facts.gpus, 'GPU')}" if facts.gpus else "a node",
        goes=policy.goes,
    )
    sentence = phase_sentence(move, known)
    if move.phase is Phase.STAYING:
        sentence += f"; `ome move --now {move.node}` moves it without a replacement"
    if move.phase is Phase.REPLACING:
        return Reason.NO_SPARE_NODES if facts.lacks_nodes else Reason.MOVING, sentence
    return _REASONS[move.phase], sentence


_REASONS = {
    Phase.SETTLING: Reason.MOVE_PENDING,
    Phase.WAITING: Reason.MOVE_PENDING,
    Phase.LEAVING: Reason.MOVING,
    Phase.STAYING: Reason.MOVE_TIMED_OUT,
}


class Progress(NamedTuple):
    """What is known about the present phase of a move."""

    thing: str
    """The word for what moves: group or pod."""
    until: str
    """Time at which the phase ends if nothing else happens before, in RFC 3339; "" if it is unknown, or if only an event
    ends the phase."""
    waits: str
    """What the phase `Waiting` waits for, worded so that it can follow "waits for"."""
    replacement: str
    """The word and the number, or the name, of the replacement; "" if it does not exist yet."""
    has_nodes: bool
    """Whether the replacement has nodes, or may still get nodes that are free (see `MoveFacts.lacks_nodes`)."""
    lacks: str
    """The nodes that the replacement lacks, worded so that it can follow "waits for"."""
    goes: bool
    """Whether the moving group or pod leaves its node if the phase ends without a replacement."""
    nodes: str = ""
    """The nodes on which the replacement starts; "" if they are not shown."""


def phase_sentence(move: Move, known: Progress) -> str:
    """Return a clause that states what happens in the present phase of a move, without a full stop. The condition Moved and
    the commands use the same clause.
    """
    match move.phase:
        case Phase.SETTLING:
            return f"the move begins if its cause lasts{f' until {known.until}' if known.until else ''}"
        case Phase.WAITING:
            return f"the move waits for {known.waits}"
        case Phase.LEAVING:
            return f"it is removed{' without a replacement' if move.alone else ''} when its requests have ended"
        case Phase.STAYING:
            again = f"; the move is tried again at {known.until}" if known.until else ""
            return f"no replacement became ready, so the {known.thing} stays and serves{again}"
    who = f"its replacement, {known.replacement}," if known.replacement else "its replacement"
    if known.has_nodes:
        where = f" on {known.nodes}" if known.nodes else ""
        return f"{who} is starting{where}, and the {known.thing} leaves when it serves"
    ends = f"; at {known.until} the {known.thing} {'leaves without it' if known.goes else 'stays'}" if known.until else ""
    return f"{who} waits for {known.lacks}{ends}"


def phase_end(move: Move, policy: MovePolicy, now: datetime) -> str:
    """Return the time at which the present phase of a move ends if nothing else happens before, in RFC 3339; "" if only an
    event ends it. The phase `Replacing` ends at this time only if the replacement has no nodes.
    """
    limits = {Phase.SETTLING: SETTLE, Phase.REPLACING: policy.timeout, Phase.STAYING: policy.retry_pause}
    if (seconds := limits.get(move.phase)) is None:
        return ""
    ends = now + timedelta(seconds=seconds - age(move.since, now))
    return quantity.rfc3339(ends)
