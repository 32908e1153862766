"""What a node's agent reports: the status of its NodeModels object."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ome_operator import keys
from ome_operator.api import FineTunedWeight, Model
from ome_operator.core.weights import mount
from ome_operator.core.weights.mount import node_label, place_of, weights

MOST = 900 * 1024
"""Bytes of a record: etcd takes 1.5 MiB for an object, which carries its managedFields besides."""
MESSAGE = 300
"""Characters of a message of a model, in the record, which holds those of all models, and in a log."""
Entry = Mapping[str, Any]
"""An item of a list of the record."""
READY, UPDATING, FAILED = keys.MODEL_READY, keys.MODEL_UPDATING, keys.MODEL_FAILED


@dataclass
class Report:
    """How far one model is on this node."""

    state: str = UPDATING
    revision: str = ""
    directories: tuple[str, ...] = ()
    bytes: int = 0
    total: int = 0
    speed: float = 0.0
    message: str = ""
    verified_at: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def shortened(text: str) -> str:
    """A text of strangers that a record and a log can hold: they may write as much as they like, and it is repeated."""
    return text if len(text) <= MESSAGE else f"{text[: MESSAGE - 1]}…"


Held = Model | FineTunedWeight
"""What has weights on nodes."""


def directory(model: Held, roots: tuple[str, ...]) -> str:
    """Directory of a model's revision, as stored revisions of services call it."""
    return mount.directory(weights(model)._asdict(), True, roots)


def label(model: Held) -> str:
    """The node label of a model, which is its name on a disk too."""
    return node_label(model.kind, model.namespace, model.name)


def entry(model: Held, report: Report) -> dict[str, Any]:
    """One item of the record; what is not known is left out."""
    one = weights(model)
    speed = int(report.speed) if report.state == UPDATING else 0
    said: dict[str, Any] = {
        "kind": one.kind,
        "namespace": one.namespace,
        "name": one.name,
        "uri": one.uri,
        "revision": report.revision,
        "state": report.state,
        "directories": list(report.directories),
        "bytes": report.bytes,
        "total": report.total,
        "speed": speed,
        "message": report.message,
        "verifiedAt": report.verified_at,
        "facts": dict(report.facts),
    }
    return {key: value for key, value in said.items() if value not in ("", [], {}) and not (key == "speed" and not value)}


def status(entries: Iterable[Mapping[str, Any]], unused: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The whole record; `unused` says which directories no model names. It is never longer than `MOST` bytes."""
    items = sorted(entries, key=lambda item: (item["kind"], item.get("namespace", ""), item["name"]))
    counts = Counter(str(item["state"]) for item in items)
    parts = [f"{counts[state]} {state}" for state in (READY, UPDATING, FAILED) if counts[state]]
    every = list(unused)
    left = _shared(every, MOST // 2, lambda item: place_of(item["directory"]))
    kept = _fitting(items, MOST - _length(left))
    for what, gone in (("", len(items) - len(kept)), ("unused directories ", len(every) - len(left))):
        if gone:
            parts.append(f"{gone} {what}left out, for the record would be too long")
    lists = {"models": kept, "unused": left}
    return {"summary": ", ".join(parts) or "none", **{name: some for name, some in lists.items() if some}}


def _fitting(items: Sequence[Entry], room: int) -> list[Entry]:
    """The models of a record that fits: where it does not, without facts, then messages, then models."""
    kept = list(items)
    for less in ("facts", "message"):
        if _length(kept) <= room:
            return kept
        kept = [{key: value for key, value in item.items() if key != less or not item.get("namespace")} for item in kept]
    return _shared(kept, room, lambda item: str(item.get("namespace", "")))


def _shared(items: Sequence[Entry], room: int, place: Callable[[Entry], str]) -> list[Entry]:
    """Those that fit: without the last of the namespaces that have the most. What is the whole cluster's goes last."""
    sizes, places = [_length(item) for item in items], defaultdict[str, list[int]](list)
    for at, item in enumerate(items):
        places[place(item)].append(at)
    total, gone = sum(sizes), set[int]()
    while total > room and places:
        most = max(places, key=lambda name: (bool(name), len(places[name]), name))
        gone.add(last := places[most].pop())
        total -= sizes[last]
        if not places[most]:
            del places[most]
    return [item for at, item in enumerate(items) if at not in gone]


def _length(value: Any) -> int:
    """Bytes as JSON has them, and a comma."""
    return len(json.dumps(value, separators=(",", ":"))) + 1


def flips(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether more than progress changed, which somebody may wait for."""
    return _essence(before) != _essence(after)


def _essence(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    moving, every = ("bytes", "speed", "verifiedAt"), (*(status.get("models") or ()), *(status.get("unused") or ()))
    return [{key: value for key, value in one.items() if key not in moving} for one in every]
