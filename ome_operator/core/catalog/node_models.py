"""What the agents' records come to: labels of a node, and how far a model is over all nodes."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed.objects import Holding, Ref, Unused
from ome_operator.core.weights.mount import digest_of

LISTED = 50
"""Nodes and users that a status names; beyond that it only counts them."""


class Pin(NamedTuple):
    """The one revision that all nodes are to hold."""

    uri: str
    revision: str


def labels(holdings: Iterable[Holding], pins: Mapping[Ref, Pin], unused: Iterable[Unused] = ()) -> dict[str, str]:
    """Labels below `models.ome.io/` of the node with this record.

    Two per model: its state, for users' own selectors; and one for every revision that is whole, which pods require, also
    when no model names it any more. A revision that differs from what the other nodes hold under the same URI is not Ready,
    whatever its agent says.
    """
    kept = [(label, digest_of(one.directory)) for one in unused for label in one.models]
    found = {names.whole_label(label, digest): keys.MODEL_READY for label, digest in kept}
    for one in holdings:
        right = one.ref in pins and pins[one.ref] == Pin(one.uri, one.revision)
        state = one.state if right or one.state != keys.MODEL_READY else keys.MODEL_UPDATING
        found[names.model_label(*one.ref)] = state
        for directory in one.directories if right else ():
            found[names.revision_label(*one.ref, digest_of(directory))] = keys.MODEL_READY
    return found


def pin(uri: str, status: Mapping[str, Any], holdings: Mapping[str, Holding]) -> Pin | None:
    """The revision that the first agent found under the URI; it stays until the URI is another."""
    known = status.get("weights") or {}
    if known.get("uri") == uri and known.get("revision"):
        return Pin(uri, known["revision"])
    found = (holdings[node] for node in sorted(holdings))
    return next((Pin(uri, one.revision) for one in found if one.uri == uri and one.revision), None)


def status(uri: str, directory: str, before: Mapping[str, Any], holdings: Mapping[str, Holding]) -> dict[str, Any]:
    """The part of a model's status that comes from records: the pinned revision, facts, progress per node, the summary.
    `directory`: the digest that agents give its directory.

    Pin and facts outlive the records, until the URI is another.
    """
    chosen = pin(uri, before, holdings)
    done = [one for one in holdings.values() if one.state == keys.MODEL_READY and chosen == Pin(one.uri, one.revision)]
    kept = before.get("facts") if (before.get("weights") or {}).get("uri", uri) == uri else None
    facts = next((one.facts for one in done if one.facts), None) or kept
    told: dict[str, Any] = {"facts": facts} if facts else {}
    if chosen:
        told["weights"] = {**chosen._asdict(), "directory": directory}
    if not holdings:
        return told
    if failed := sorted(node for node, one in holdings.items() if one.state == keys.MODEL_FAILED)[:LISTED]:
        told["nodesFailed"] = failed
    shown = {node: _progress(one) for node, one in sorted(holdings.items())[:LISTED]}
    return {**told, "nodes": shown, "summary": summary(len(done), holdings.values())}


def summary(ready: int, holdings: Iterable[Holding]) -> str:
    """Such as "11/16 nodes, 71 %, 9 min": nodes that are ready, share of all bytes, time until the slowest is done."""
    every = list(holdings)
    text = f"{ready}/{len(every)} nodes"
    under_way = [one for one in every if one.state == keys.MODEL_UPDATING]
    if not under_way:
        return text
    total = sum(one.total for one in every)
    if total:
        have = sum(one.total if one.state == keys.MODEL_READY else min(one.bytes, one.total) for one in every)
        text += f", {100 * have // total} %"
    left = [(one.total - one.bytes) / one.speed for one in under_way if one.speed > 0 and one.total >= one.bytes]
    return f"{text}, {duration(max(left))}" if left and len(left) == len(under_way) else text


def duration(seconds: float) -> str:
    """In the largest unit that says enough."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _progress(one: Holding) -> dict[str, Any]:
    out: dict[str, Any] = {"state": one.state, "bytes": one.bytes, "total": one.total}
    if one.state == keys.MODEL_UPDATING and one.speed > 0:
        out["speed"] = f"{one.speed / 1e6:.0f} MB/s"
        out["eta"] = duration(max(0, one.total - one.bytes) / one.speed)
    if one.message:
        out["message"] = one.message
    if one.verified_at:
        out["verifiedAt"] = one.verified_at
    return out
