"""Evaluate the records of model agents: the labels of a node, and the progress of a model across all nodes."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Any

from ome_operator import keys, names
from ome_operator.core.catalog.agreement import AgreedReports, Pin
from ome_operator.core.observed.objects import NodeHolding, Ref, UnusedWeights
from ome_operator.core.weights.mount import digest_of, place_of

LISTED = 50
"""Maximum number of nodes, or of services that use an object, that the status of the object names. Further nodes and
services are only counted."""
MESSAGE = 300
"""Maximum number of characters of a node's message in the status of a model, which contains the messages of all nodes."""

LABEL_LIMIT = 1000
"""Maximum number of labels for namespaced models on one node. This many labels take about 180 kB, which the kubelet and
every watcher of nodes receive."""


def labels(
    holdings: Iterable[NodeHolding],
    pins: Mapping[Ref, Pin],
    unused: Iterable[UnusedWeights] = (),
    used: Callable[[Ref], bool] = lambda ref: True,
) -> dict[str, str]:
    """Return the labels below `models.ome.io/` for a node. `holdings` is what the agent of the node reports about each
    model.

    Each model has a label with its state, for users' own selectors, and a label for each complete revision, which pods
    require. The label of a revision is kept even if no model names the revision any more. A revision other than the one in
    `pins` is not Ready, regardless of what the agent reports. Namespaced models are labeled only if they are Ready, with at
    most `LABEL_LIMIT` labels. Models that services use (`used`) have the highest precedence, and directories that no model
    names (`unused`) the lowest.
    """
    ordered = sorted(holdings, key=lambda item: (bool(item.ref.namespace) and not used(item.ref), item.ref))
    wanted = [(holding.ref.namespace, _of_model(holding, pins)) for holding in ordered]
    wanted += [(place_of(item.directory), _of_directory(item)) for item in unused]
    clusters = (some for namespace, some in wanted if not namespace)
    return {key: state for some in (*clusters, *_in_turn(wanted)) for key, state in some.items()}


def _of_model(holding: NodeHolding, pins: Mapping[Ref, Pin]) -> dict[str, str]:
    right = holding.ref in pins and pins[holding.ref] == Pin(holding.uri, holding.revision)
    state = holding.state if right or holding.state != keys.MODEL_READY else keys.MODEL_UPDATING
    result = {names.model_label(*holding.ref): state} if state == keys.MODEL_READY or not holding.ref.namespace else {}
    whole = holding.directories if right else ()
    return result | {names.revision_label(*holding.ref, digest_of(directory)): keys.MODEL_READY for directory in whole}


def _of_directory(unused: UnusedWeights) -> dict[str, str]:
    return {names.whole_label(label, digest_of(unused.directory)): keys.MODEL_READY for label in unused.models}


def _in_turn(wanted: Iterable[tuple[str, dict[str, str]]]) -> Iterator[dict[str, str]]:
    """Yield the first label of each namespace, then the second label of each namespace, and so on, up to `LABEL_LIMIT`
    labels in total.
    """
    waiting, room = defaultdict[str, list[dict[str, str]]](list), LABEL_LIMIT
    for namespace, some in wanted:
        if namespace and some:
            waiting[namespace].append(some)
    for at in range(max(map(len, waiting.values()), default=0)):
        for namespace in sorted(waiting):
            if at < len(waiting[namespace]) and len(waiting[namespace][at]) <= room:
                room -= len(waiting[namespace][at])
                yield waiting[namespace][at]


def status(verdict: AgreedReports, directory: str, holdings: Mapping[str, NodeHolding]) -> dict[str, Any]:
    """Return the part of a model's status that comes from the records of agents: the revision that all nodes use, the facts,
    the progress of each node, and a summary.

    `directory` is the digest that agents use as the name of the model's directory. The revision and the facts are kept when
    all records are gone, until the URI of the model changes.
    """
    pin, ready = verdict.pin, [holding for holding in holdings.values() if holding.state == keys.MODEL_READY]
    done = sum(pin == Pin(holding.uri, holding.revision) for holding in ready)
    result: dict[str, Any] = {"facts": verdict.facts} if verdict.facts else {}
    if pin:
        result["weights"] = {**pin._asdict(), "directory": directory}
    if not holdings:
        return result
    if failed := nsmallest(LISTED, (node for node, held in holdings.items() if held.state == keys.MODEL_FAILED)):
        result["nodesFailed"] = failed
    shown = {node: _progress(holdings[node]) for node in nsmallest(LISTED, holdings)}
    return {**result, "nodes": shown, "summary": summary(done, holdings.values())}


def summary(ready: int, holdings: Iterable[NodeHolding]) -> str:
    """Return a summary such as "11/16 nodes, 71 %, 9 min": ready nodes, share of all bytes, and remaining time of the
    slowest node.
    """
    every = list(holdings)
    text = f"{ready}/{len(every)} nodes"
    under_way = [holding for holding in every if holding.state == keys.MODEL_UPDATING]
    if not under_way:
        return text
    total = sum(holding.total for holding in every)
    if total:
        have = sum(
            holding.total if holding.state == keys.MODEL_READY else min(holding.bytes, holding.total) for holding in every
        )
        text += f", {100 * have // total} %"
    left = [
        (holding.total - holding.bytes) / holding.speed
        for holding in under_way
        if holding.speed > 0 and holding.total >= holding.bytes
    ]
    return f"{text}, {duration(max(left))}" if left and len(left) == len(under_way) else text


def duration(seconds: float) -> str:
    """Return a duration as text, in seconds, minutes or hours."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _progress(holding: NodeHolding) -> dict[str, Any]:
    out: dict[str, Any] = {"state": holding.state, "bytes": holding.bytes, "total": holding.total}
    if holding.state == keys.MODEL_UPDATING and holding.speed > 0:
        out["speed"] = f"{holding.speed / 1e6:.0f} MB/s"
        out["eta"] = duration(max(0, holding.total - holding.bytes) / holding.speed)
    if holding.message:
        out["message"] = holding.message[:MESSAGE]
    if holding.verified_at:
        out["verifiedAt"] = holding.verified_at
    return out
