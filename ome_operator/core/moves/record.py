"""The stored state of a move: an entry of `status.moves`. Nothing else is stored, so an operator that restarts in the
middle of a move continues it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from ome_operator import keys, quantity


class Phase(StrEnum):
    """The phases of a move (docs/moves.md)."""

    SETTLING = "Settling"
    """The cause of the move has not lasted for long enough yet."""
    WAITING = "Waiting"
    """The move waits for something else, such as a rollout."""
    REPLACING = "Replacing"
    """A replacement is created and starts. The group that has to leave still serves."""
    LEAVING = "Leaving"
    """The group that has to leave finishes its requests and is removed."""
    STAYING = "Staying"
    """No replacement became ready, so the group still serves on its node. The move is tried again later."""
    RETURNED = "Returned"
    """The node came back before the replacement served. No other group of the role moves for a while."""


class Move(NamedTuple):
    """The move of a group, or of a router's pod, that leaves its node."""

    component: str
    revision: str
    member: str
    """What moves: the number of the group, or the name of the router's pod."""
    phase: Phase
    since: str
    """When the phase began, in RFC 3339."""
    node: str = ""
    cause: str = ""
    """Why the group has to leave the node, as human-readable text."""
    replacement: str = ""
    """Number of the group, or name of the router's pod, that replaces the member that moves; "" if it does not exist yet."""
    alone: bool = False
    """Whether the group leaves its node although no replacement serves."""
    gone: str = ""
    """Time in RFC 3339 at which the cause disappeared while the replacement was being created or was starting; "" while
    there is a cause."""

    def in_phase(self, phase: Phase, now: datetime, **changes: Any) -> "Move":
        """Return the move in the phase `phase`, which begins now."""
        return self._replace(phase=phase, since=quantity.rfc3339(now), gone="", **changes)

    def without_future_times(self, now: datetime) -> "Move":
        """Return the move with `now` in place of times in the future, which exist only if a clock was set back."""
        text = quantity.rfc3339(now)
        late: dict[str, Any] = {name: text for name in ("since", "gone") if getattr(self, name) > text}
        return self._replace(**late) if late else self


def age(since: str, now: datetime) -> float:
    """Return the seconds since a time in RFC 3339; 0 if it is in the future or invalid."""
    when = quantity.moment(since, now)
    return (now - when).total_seconds() if when is not None else 0.0


def parse_moves(status: Mapping[str, Any]) -> Mapping[str, Move]:
    """Return the moves of the stored status, by component. Invalid entries, which only users can write, are skipped."""
    found = {}
    for one in status.get("moves") or ():
        phase, component = str(one.get("phase")), str(one.get("component"))
        member = one.get("pod") if component == keys.ROUTER else one.get("group")
        if phase in set(Phase) and member is not None:
            found[component] = Move(
                component=component,
                revision=str(one.get("revision") or ""),
                member=str(member),
                phase=Phase(phase),
                since=str(one.get("since") or ""),
                node=str(one.get("node") or ""),
                cause=str(one.get("cause") or ""),
                replacement=str(one.get("replacement") or ""),
                alone=bool(one.get("withoutReplacement")),
                gone=str(one.get("causeGoneSince") or ""),
            )
    return found


def format_moves(moves: Iterable[Move]) -> tuple[dict[str, Any], ...]:
    """Return the moves in the form of the status, without empty fields."""
    return tuple(_written(one) for one in moves)


def _written(one: Move) -> dict[str, Any]:
    member: dict[str, Any] = {"pod": one.member} if one.component == keys.ROUTER else {"group": int(one.member)}
    more = {
        "node": one.node,
        "cause": one.cause,
        "replacement": one.replacement,
        "withoutReplacement": one.alone,
        "causeGoneSince": one.gone,
    }
    named = {"component": one.component, "revision": one.revision, **member, "phase": str(one.phase), "since": one.since}
    return named | {key: value for key, value in more.items() if value}
