"""The text of `ome nodes`."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from ome_operator.describe.cluster import FREE, NodeRow, NodeUse, Totals, totals
from ome_operator.describe.unknown_weights import DENIED
from ome_operator.settings.policy import AGENT_PODS
from ome_operator.util.columns import table
from ome_operator.util.wording import count


def node_table(rows: Sequence[NodeRow]) -> str:
    """Return a line for each node, the moves under way, and a sentence with the sums of GPUs. A node with groups of several
    services has a line for each service.
    """
    lines = [line for row in rows for line in _lines(row)]
    head = ("NODE", "STATE", "PRODUCT", "GPUS", "SERVICE", "GROUPS", "WEIGHTS")
    if not lines:
        return "No node has GPUs, services or weights.\n"
    avoided = "".join(f"{row.name} is avoided {row.avoided}\n" for row in rows if row.avoided)
    moves = "".join(f"{sentence}.\n" for sentence in dict.fromkeys(_moves(rows)))
    return f"{table(head, lines)}\n{moves}{avoided}{_unreported(rows)}{summary(totals(rows))}\n{FREE}\n"


def _moves(rows: Iterable[NodeRow]) -> Iterator[str]:
    """Yield a sentence for each move of a node. A move that concerns several nodes is yielded for each node."""
    return (move.sentence for row in rows for move in (*row.leaving, *row.coming))


def _unreported(rows: Sequence[NodeRow]) -> str:
    """Return a line about the nodes whose weights are unknown; "" if there are no such nodes."""
    number = sum(bool(row.unknown) and DENIED not in row.unknown for row in rows)
    return f"No model agent reports the weights of {count(number, 'node')} now ({AGENT_PODS}).\n" if number else ""


def _lines(row: NodeRow) -> list[tuple[str, ...]]:
    gpus = f"{row.held}/{row.gpus}" if row.gpus >= 0 else f"{row.held}/?"
    services = [(f"{namespace}/{name}", "; ".join(map(_group, uses))) for (namespace, name), uses in _by_service(row.uses)]
    held = "; ".join(f"{held.model} {held.word}" for held in row.weights)
    weights = f"{row.unknown}{f' (before: {held})' if held else ''}" if row.unknown else held or "none"
    first, *others = services or [("–", "–")]
    return [
        (row.name, f"{row.word}, avoided" if row.avoided else row.word, row.product or "–", gpus, *first, weights),
        *(("", "", "", "", *each, "") for each in others),
    ]


def _by_service(uses: Sequence[NodeUse]) -> list[tuple[tuple[str, str], list[NodeUse]]]:
    ordered = sorted(uses, key=lambda use: (use.namespace, use.service))
    return [(key, list(found)) for key, found in groupby(ordered, key=lambda use: (use.namespace, use.service))]


def _group(use: NodeUse) -> str:
    notes = ", ".join(filter(None, (use.reason, use.moves)))
    return f"{use.place} ({notes})" if notes else use.place


def summary(sums: Totals) -> str:
    """Return a sentence with the sums of GPUs."""
    return (
        f"{count(sums.gpus, 'GPU')} on {count(sums.nodes, 'node')}, of which {sums.nodes_ready} ready: {sums.serving} in "
        f"groups that serve, {sums.idle_held} in groups that are not ready, {sums.free} free"
        + (f", {sums.away} free on nodes that accept no pods." if sums.away else ".")
    )
