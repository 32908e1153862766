"""Describes nodes with their groups and weights, the weights of each model on all nodes, and the services that wait."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.core.catalog.node_models import duration, summary
from ome_operator.core.observed.objects import Node, NodeHolding, NodeRecord, Ref
from ome_operator.core.reasons import READY, ROLLED_OUT, SCALED, State
from ome_operator.describe import states
from ome_operator.describe.actions import CommandBuilder
from ome_operator.describe.causes import causes
from ome_operator.describe.moves import MoveView
from ome_operator.describe.text import numbers
from ome_operator.describe.tree import GroupView, Rank, Tree
from ome_operator.describe.unknown_weights import UnknownWeights
from ome_operator.util.wording import count


class NodeUse(NamedTuple):
    """The ranks of a group that run on a node."""

    namespace: str
    service: str
    place: str
    """The role, the group and the ranks, as text. The text also contains the revision if the service has objects of
    several revisions."""
    gpus: int
    state: State
    reason: str
    """The reason why a rank is not ready; "" if all of the ranks are ready."""
    serves: bool = False
    """Whether all ranks of the group are ready, including those on other nodes."""
    moves: str = ""
    """Whether the group leaves the node ("leaves"), or which group it replaces ("replaces decode 0"); "" if the group does
    not move.
    """

    @property
    def gpu_state(self) -> State:
        """The state of the GPUs of these ranks. The GPUs of ready ranks count as waiting while another rank of the group is
        not ready, even if that rank is on another node. The function `totals` counts GPUs in the same way.
        """
        return State.WAITING if self.state is State.READY and not self.serves else self.state

    @property
    def group(self) -> str:
        """The role and the group, as text."""
        return self.place.partition(" · ")[0]


@dataclass(frozen=True)
class ModelHolding:
    """The weights of a model on a node, or across all nodes."""

    model: str
    """Name of the model. It includes the namespace if the model has one."""
    state: State
    word: str
    """State of the weights: Ready, Updating or Failed. For all nodes of a model, the text is a summary."""
    part: float
    """Fraction of the weights' bytes that is on the node, from 0 to 1."""
    said: str
    """The bytes that are on the node, the speed of the download and the remaining time; or the error."""


@dataclass(frozen=True)
class NodeRow:
    """A row in the table of nodes."""

    name: str
    state: State
    word: str
    """State of the node: ready, cordoned or lost; `not known` if the user may not list nodes."""
    product: str
    gpus: int
    """Number of allocatable GPUs of the node; -1 if unknown."""
    uses: tuple[NodeUse, ...]
    weights: tuple[ModelHolding, ...]
    avoided: str = ""
    """Which services exclude the node from new groups, and why; "" if new groups can be placed on the node."""
    unknown: str = ""
    """If the node's agent does not report: the models in the node's labels, or the reason why the weights are unknown. ""
    if the agent reports."""

    leaving: tuple[MoveView, ...] = ()
    """The moves of the groups and routers that leave this node."""
    coming: tuple[MoveView, ...] = ()
    """The moves whose replacements have pods on this node."""

    @property
    def held(self) -> int:
        """Number of GPUs on the node that pods of services use."""
        return sum(use.gpus for use in self.uses)


def node_rows(
    trees: Iterable[Tree],
    nodes: Iterable[Node],
    records: Iterable[NodeRecord],
    avoided: Mapping[str, str] = MappingProxyType({}),
    unknown: Mapping[str, UnknownWeights] = MappingProxyType({}),
    moves: Iterable[MoveView] = (),
) -> list[NodeRow]:
    """Return a row for each node with GPUs, services or weights. The rows are sorted by name, and nodes without GPUs are
    last. `avoided` maps the name of each node that is excluded from new groups to a text that states by whom and why.
    `unknown` maps the name of each node whose weights are unknown to the reason, and `moves` are the moves under way.
    """
    uses, known = _uses(trees), {node.name: node for node in nodes}
    held = {record.node: record.holdings for record in records}
    names = sorted({*uses, *held, *(name for name, node in known.items() if node.gpus)})
    under_way = list(moves)
    found = [
        replace(
            _moving(_row(name, known.get(name), uses.get(name, ()), held.get(name, ())), under_way),
            avoided=avoided.get(name, ""),
            unknown=unknown[name].text if name in unknown else "",
        )
        for name in names
    ]
    return sorted(found, key=lambda row: row.gpus == 0)


def _moving(row: NodeRow, moves: Iterable[MoveView]) -> NodeRow:
    """Return the row with the moves that concern its node."""
    leaving = tuple(move for move in moves if row.name in move.nodes)
    coming = tuple(move for move in moves if row.name in move.replacement_nodes)
    if not (leaving or coming):
        return row
    words = {(move.namespace, move.service, _of_use(move.replacement)): f"replaces {move.place}" for move in coming}
    words |= {(move.namespace, move.service, _of_use(move.place)): "leaves" for move in leaving}
    uses = (use._replace(moves=words.get((use.namespace, use.service, use.group), "")) for use in row.uses)
    return replace(row, uses=tuple(uses), leaving=leaving, coming=coming)


def _of_use(place: str) -> str:
    """Return the place of a move (`MoveView.place`) in the form of `NodeUse.group`, in which all routers of a node are one
    group.
    """
    return keys.ROUTER if place.startswith(f"{keys.ROUTER} ") else place


def _row(name: str, node: Node | None, uses: Iterable[NodeUse], holdings: Iterable[NodeHolding]) -> NodeRow:
    state, word = State.OFF, "not known"
    if node is not None:
        state, word = (State.READY, "ready") if node.ready else (State.HELD, "cordoned")
        if not node.alive:
            state, word = State.BROKEN, "lost"
    return NodeRow(
        name=name,
        state=state,
        word=word,
        product=_product(node) if node is not None else "",
        gpus=node.gpus if node is not None else -1,
        uses=tuple(uses),
        weights=tuple(map(_weights, sorted(holdings, key=lambda held: held.ref))),
    )


def _product(node: Node) -> str:
    """Return the model of a node's GPUs; "" if no label states it."""
    return next((node.labels[label] for label in keys.GPU_PRODUCTS if label in node.labels), "")


def _uses(trees: Iterable[Tree]) -> dict[str, list[NodeUse]]:
    """Return the ranks of services on each node, by name of the node."""
    found = defaultdict[str, list[NodeUse]](list)
    for tree in trees:
        for part, role, group in tree.groups():
            on = defaultdict[str, list[Rank]](list)
            for rank in group.ranks:
                on[rank.node].append(rank)
            revision = f" · {part.revision}" if len(tree.slices) > 1 else ""
            for node, ranks in on.items():
                if node:
                    found[node].append(_use(tree, role.role, group, ranks, revision))
    return found


def _use(tree: Tree, role: str, group: GroupView, ranks: list[Rank], revision: str) -> NodeUse:
    place = role
    if role != keys.ROUTER:
        place += f" {group.group} · {'rank' if len(ranks) == 1 else 'ranks'} {numbers(rank.rank for rank in ranks)}"
    place += revision
    bad = [rank for rank in ranks if not rank.ready]
    reason = bad[0].reason if bad else "draining" if any(rank.draining for rank in ranks) else ""
    state = states.for_reason(reason) if bad else State.ROLLING if reason else State.READY
    gpus = sum(rank.gpus for rank in ranks)
    return NodeUse(tree.namespace, tree.name, place, gpus, state, reason, serves=group.ready)


_OF_WEIGHTS = {keys.MODEL_READY: State.READY, keys.MODEL_UPDATING: State.STARTING, keys.MODEL_FAILED: State.BROKEN}


def _weights(node_holding: NodeHolding) -> ModelHolding:
    state = _OF_WEIGHTS.get(node_holding.state, State.OFF)
    ready = state is State.READY
    message = (
        format_bytes(node_holding.total)
        if ready
        else f"{format_bytes(node_holding.bytes)} of {format_bytes(node_holding.total)}"
    )
    if state is State.STARTING and node_holding.speed > 0:
        left = duration(max(0, node_holding.total - node_holding.bytes) / node_holding.speed)
        message += f", {node_holding.speed / 1e6:.0f} MB/s, {left} left"
    if node_holding.message:
        message += f": {node_holding.message}"
    return ModelHolding(
        _called(node_holding.ref),
        state,
        node_holding.state,
        1.0 if ready else _part(node_holding.bytes, node_holding.total),
        message,
    )


def _called(ref: Ref) -> str:
    return f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name


def _part(some: int, all_: int) -> float:
    return min(1.0, max(0.0, some / all_)) if all_ > 0 else 0.0


def format_bytes(amount: int) -> str:
    """Return a number of bytes in decimal units (MB, GB, TB)."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if amount >= factor:
            return f"{amount / factor:.{2 if unit == 'TB' else 0}f} {unit}"
    return f"{amount} B"


def models(records: Iterable[NodeRecord]) -> list[ModelHolding]:
    """Return one summary for each model, across all nodes on which agents manage the model."""
    by_model = defaultdict[Ref, list[NodeHolding]](list)
    for record in records:
        for held in record.holdings:
            by_model[held.ref].append(held)
    return [_over_nodes(ref, by_model[ref]) for ref in sorted(by_model)]


def _over_nodes(ref: Ref, holdings: list[NodeHolding]) -> ModelHolding:
    ready = sum(held.state == keys.MODEL_READY for held in holdings)
    failed = sum(held.state == keys.MODEL_FAILED for held in holdings)
    state = State.BROKEN if failed else State.READY if ready == len(holdings) else State.STARTING
    total = sum(held.total for held in holdings)
    have = sum(held.total if held.state == keys.MODEL_READY else min(held.bytes, held.total) for held in holdings)
    word = "Failed" if failed else "Ready" if state is State.READY else "Updating"
    message = summary(ready, holdings) + (f"; failed on {failed}" if failed else "")
    return ModelHolding(_called(ref), state, word, _part(have, total) if total else ready / len(holdings), message)


FREE = "Free GPUs are those that no pod of these services uses; `ome fit -f FILE` also counts the GPUs of all other pods."
"""The sentence with which commands and pages state which GPUs they count as free. They do not read the pods of other
software, because a list of the pods of all namespaces is expensive, and a page is updated every few seconds."""


@dataclass(frozen=True)
class Totals:
    """Sums of the GPUs of all nodes whose number of GPUs is known."""

    gpus: int
    serving: int
    """Number of GPUs in ready groups."""
    idle_held: int
    """Number of GPUs that pods of groups that are not ready use. These GPUs serve no requests."""
    free: int
    """Number of free GPUs on nodes that accept pods (`FREE`)."""
    away: int
    """Number of free GPUs on nodes that are cordoned or lost."""
    nodes: int
    nodes_ready: int


def totals(found: Iterable[NodeRow]) -> Totals:
    """Return the sums of GPUs over the nodes in the rows `found`."""
    known = [row for row in found if row.gpus > 0]
    serving = sum(use.gpus for row in known for use in row.uses if use.serves)
    free = {row.name: max(0, row.gpus - row.held) for row in known}
    away = sum(free[row.name] for row in known if row.state is not State.READY)
    return Totals(
        gpus=sum(row.gpus for row in known),
        serving=serving,
        idle_held=sum(row.held for row in known) - serving,
        free=sum(free.values()) - away,
        away=away,
        nodes=len(known),
        nodes_ready=sum(row.state is State.READY for row in known),
    )


class Wait(NamedTuple):
    """A service that waits, and the reason for which it waits."""

    namespace: str
    service: str
    place: str
    gpus: int
    """Number of GPUs in groups of the service that are not ready."""
    reason: str
    said: tuple[str, ...]
    since: str
    """Time since which the service is not complete, in RFC 3339; "" if unknown."""
    command: str


def external_waits(seen: Iterable[tuple[Tree, Mapping[str, Any]]], shell: CommandBuilder) -> Iterator[Wait]:
    """Yield the services that wait for something outside their control. Services that have waited longest come first."""
    found = [wait for tree, body in seen for wait in _waits(tree, body, shell)]
    yield from sorted(found, key=lambda wait: (wait.since or "9", wait.namespace, wait.service))


def _condition(conditions: Iterable[Mapping[str, Any]], type_: str) -> Mapping[str, Any]:
    return next((condition for condition in conditions if condition.get("type") == type_), {})


def _waits(tree: Tree, body: Mapping[str, Any], shell: CommandBuilder) -> Iterator[Wait]:
    status = body.get("status") or {}
    conditions = status.get("conditions") or ()
    told = defaultdict[tuple[str, tuple[str, ...], str], list[str]](list)
    known = [_condition(conditions, name) for name in (SCALED, READY, ROLLED_OUT)]
    since = next((one.get("lastTransitionTime") for one in known if one.get("status") == "False"), None)
    first = (status.get("placement") or {}).get("first") or since or ""
    for cause in causes(tree, conditions, shell):
        if cause.state is State.WAITING:
            said = cause.lacks or ((cause.message,) if cause.message else ())
            command = cause.command or shell("ome", "explain", tree.name, "-n", tree.namespace)
            told[cause.reason, said, command].append(cause.place)
    gpus = sum(group.gpus for _, _, group in tree.groups() if not group.ready)
    for (reason, said, command), places in told.items():
        place = places[0] + (f" and {count(len(places) - 1, 'group')} more" if len(places) > 1 else "")
        yield Wait(tree.namespace, tree.name, place, gpus, reason, said, first, command)
