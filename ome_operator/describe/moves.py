"""Describes the moves of a service that are under way: which groups and routers leave which nodes, until when they wait, and
on which nodes their replacements run (docs/moves.md).
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ome_operator import keys, names
from ome_operator.api import InferenceService, Invalid
from ome_operator.core.moves.messages import Progress, phase_end, phase_sentence
from ome_operator.core.moves.moving import policy
from ome_operator.core.moves.record import Move, Phase, parse_moves
from ome_operator.core.moves.state_machine import MovePolicy
from ome_operator.core.reasons import FROZEN
from ome_operator.describe.text import combine_names
from ome_operator.describe.tree import Rank, Tree


class MoveView(NamedTuple):
    """The move of a group, or of a router's pod, that leaves its nodes."""

    namespace: str
    service: str
    place: str
    """The role and the number of the group, or "router" and the name of the pod."""
    phase: str
    since: str
    """Time at which the phase began, in RFC 3339."""
    until: str
    """Time at which the phase ends if nothing else happens before, in RFC 3339; "" if only an event ends the phase."""
    node: str
    """The node that causes the move. The group leaves all of its nodes, because it has to leave this node."""
    cause: str
    nodes: tuple[str, ...]
    """The nodes that the group leaves."""
    replacement: str
    """The group or router's pod that replaces the moving group or pod, in the form of `place`; "" if
    it does not exist yet.
    """
    replacement_nodes: tuple[str, ...]
    said: str
    """The event that the move waits for, as human-readable text."""

    @property
    def sentence(self) -> str:
        """What happens to the group, as human-readable text."""
        leaves = combine_names(self.nodes) or self.node
        because = f"{self.node}: {self.cause}" if self.nodes != (self.node,) else self.cause
        return f"{self.namespace}/{self.service} {self.place} leaves {leaves} ({because}), {self.phase}: {self.said}"


def moves_under_way(tree: Tree, body: Mapping[str, Any], now: datetime) -> list[MoveView]:
    """Return the moves of a service that are under way. `body` is the service as the API server returns it. Never raises,
    even if the status has unexpected content.
    """
    status = body.get("status") or {}
    stored = [move for move in parse_moves(status).values() if move.phase is not Phase.RETURNED]
    if not stored:
        return []
    parsed = InferenceService.parse(body)
    settings = None if isinstance(parsed, Invalid) or parsed.spec.moves is None else policy(parsed)
    conditions = status.get("conditions") or ()
    held = any(said.get("type") == FROZEN and said.get("status") == "True" for said in conditions)
    return [_view(tree, move, settings, now, held=held) for move in stored]


def _view(tree: Tree, move: Move, settings: MovePolicy | None, now: datetime, *, held: bool) -> MoveView:
    mine = list(_ranks(tree, move, move.member))
    others = list(_ranks(tree, move, move.replacement)) if move.replacement else []
    placed = bool(others) and all(rank.node for rank in others)
    waits = settings is not None and not held and not (move.phase is Phase.REPLACING and placed)
    until = phase_end(move, settings, now) if settings is not None and waits else ""
    replacement = _place(tree, move, move.replacement) if move.replacement else ""
    known = Progress(
        thing="pod" if move.component == keys.ROUTER else "group",
        until=until,
        waits=_WAITS,
        replacement=replacement,
        has_nodes=placed,
        lacks="free nodes",
        goes=settings is not None and settings.goes,
        nodes=combine_names(_nodes(others)),
    )
    return MoveView(
        namespace=tree.namespace,
        service=tree.name,
        place=_place(tree, move, move.member),
        phase=str(move.phase),
        since=move.since,
        until=until,
        node=move.node,
        cause=move.cause,
        nodes=_nodes(mine) or ((move.node,) if move.node else ()),
        replacement=replacement,
        replacement_nodes=_nodes(others),
        said="nothing moves while the service is frozen" if held else phase_sentence(move, known),
    )


_WAITS = "the end of a rollout or a pause, or until all groups of the role are ready"
"""What a move in the phase `Waiting` may wait for. The condition Moved states which of these events it waits for."""


def _ranks(tree: Tree, move: Move, member: str) -> Iterator[Rank]:
    """Yield the pods of a group, or the pod of a router, in the role and the revision of a move."""
    for part, role, group in tree.groups():
        if (part.revision, role.component) != (move.revision, move.component):
            continue
        if role.component == keys.ROUTER:
            yield from (rank for rank in group.ranks if rank.pod == member)
        elif str(group.group) == member:
            yield from group.ranks


def _nodes(ranks: list[Rank]) -> tuple[str, ...]:
    return tuple(sorted({rank.node for rank in ranks if rank.node}))


def _place(tree: Tree, move: Move, member: str) -> str:
    disaggregated = any(role.component == keys.DECODER for part in tree.slices for role in part.roles)
    return f"{names.role_title(move.component, disaggregated)} {member}"
