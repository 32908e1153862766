"""What the agents' records come to: labels of a node, and how far a model is over all nodes."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Any, NamedTuple

from ome_operator import keys, names
from ome_operator.core.observed.objects import Holding, Ref, Unused
from ome_operator.core.weights.mount import digest_of, place_of

LISTED = 50
"""Nodes and users that a status names; beyond that it only counts them."""


MOST = 1000
"""Labels of a node for models of namespaces: some 180 kB, which its kubelet and whoever watches nodes carry along."""


class Pin(NamedTuple):
    """The one revision that all nodes are to hold."""

    uri: str
    revision: str


def labels(
    holdings: Iterable[Holding],
    pins: Mapping[Ref, Pin],
    unused: Iterable[Unused] = (),
    used: Callable[[Ref], bool] = lambda ref: True,
) -> dict[str, str]:
    """Labels below `models.ome.io/` of the node with this record.

    Two per model: its state, for users' own selectors; and one for every revision that is whole, which pods require, also
    when no model names it any more. A revision that differs from what the other nodes hold under the same URI is not Ready,
    whatever its agent says. What namespaces have is labelled where it is Ready, and up to `MOST` labels: what is `used` by a
    service first, and what no model names last.
    """
    mine = sorted(holdings, key=lambda item: (bool(item.ref.namespace) and not used(item.ref), item.ref))
    wanted = [(holding.ref.namespace, _of_model(holding, pins)) for holding in mine]
    wanted += [(place_of(item.directory), _of_directory(item)) for item in unused]
    clusters = (some for namespace, some in wanted if not namespace)
    return {key: state for some in (*clusters, *_in_turn(wanted)) for key, state in some.items()}


def _of_model(holding: Holding, pins: Mapping[Ref, Pin]) -> dict[str, str]:
    right = holding.ref in pins and pins[holding.ref] == Pin(holding.uri, holding.revision)
    state = holding.state if right or holding.state != keys.MODEL_READY else keys.MODEL_UPDATING
    said = {names.model_label(*holding.ref): state} if state == keys.MODEL_READY or not holding.ref.namespace else {}
    whole = holding.directories if right else ()
    return said | {names.revision_label(*holding.ref, digest_of(directory)): keys.MODEL_READY for directory in whole}


def _of_directory(unused: Unused) -> dict[str, str]:
    return {names.whole_label(label, digest_of(unused.directory)): keys.MODEL_READY for label in unused.models}


def _in_turn(wanted: Iterable[tuple[str, dict[str, str]]]) -> Iterator[dict[str, str]]:
    """The first of each namespace, then the second of each, and so on, while there is room."""
    waiting, room = defaultdict[str, list[dict[str, str]]](list), MOST
    for namespace, some in wanted:
        if namespace and some:
            waiting[namespace].append(some)
    for at in range(max(map(len, waiting.values()), default=0)):
        for namespace in sorted(waiting):
            if at < len(waiting[namespace]) and len(waiting[namespace][at]) <= room:
                room -= len(waiting[namespace][at])
                yield waiting[namespace][at]


def pin(uri: str, status: Mapping[str, Any], holdings: Mapping[str, Holding]) -> Pin | None:
    """The revision that the first agent found under the URI; it stays until the URI is another."""
    known = status.get("weights") or {}
    if known.get("uri") == uri and known.get("revision"):
        return Pin(uri, known["revision"])
    first = min((node for node, held in holdings.items() if held.uri == uri and held.revision), default=None)
    return None if first is None else Pin(uri, holdings[first].revision)


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
    if failed := nsmallest(LISTED, (node for node, held in holdings.items() if held.state == keys.MODEL_FAILED)):
        told["nodesFailed"] = failed
    shown = {node: _progress(holdings[node]) for node in nsmallest(LISTED, holdings)}
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
