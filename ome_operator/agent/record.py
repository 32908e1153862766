"""Build the status of the node's NodeModels object, in which an agent reports the models of its node."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ome_operator import keys
from ome_operator.core.weights import mount
from ome_operator.core.weights.mount import AnyModel, node_label, place_of, weights

MAX_BYTES = 900 * 1024
"""Maximum bytes of a record. etcd accepts objects of up to 1.5 MiB, and the object also contains its managedFields."""
MAX_MESSAGE = 300
"""Maximum characters of a model's message in the record and in a log. The record contains the messages of all models."""
Entry = Mapping[str, Any]
"""An item of a list in the record."""
READY, UPDATING, FAILED = keys.MODEL_READY, keys.MODEL_UPDATING, keys.MODEL_FAILED


@dataclass
class Report:
    """The state of one model on this node."""

    state: str = UPDATING
    revision: str = ""
    directories: tuple[str, ...] = ()
    bytes: int = 0
    total: int = 0
    speed: float = 0.0
    message: str = ""
    verified_at: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def shorten_text(text: str) -> str:
    """Return a text, cut to `MAX_MESSAGE` characters. The record and the logs repeat texts that users write, and these
    texts may have any length.
    """
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


def directory(model: AnyModel, roots: tuple[str, ...]) -> str:
    """Return the path of the directory of a model's revision, in the form in which the stored revisions of services
    contain this path.
    """
    return mount.directory(weights(model)._asdict(), True, roots)


def label(model: AnyModel) -> str:
    """Return the key of the node label of a model, which is also the model's name on a disk."""
    return node_label(model.kind, model.namespace, model.name)


def entry(model: AnyModel, report: Report) -> dict[str, Any]:
    """Return the item of one model in the record, without fields whose values are not known."""
    identity = weights(model)
    speed = int(report.speed) if report.state == UPDATING else 0
    fields: dict[str, Any] = {
        "kind": identity.kind,
        "namespace": identity.namespace,
        "name": identity.name,
        "uri": identity.uri,
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
    return {key: value for key, value in fields.items() if value not in ("", [], {}) and not (key == "speed" and not value)}


def status(
    entries: Iterable[Mapping[str, Any]],
    unused: Iterable[Mapping[str, Any]] = (),
    prefetch: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the complete record, which is never longer than `MAX_BYTES`. `unused` lists the directories that no model
    uses, and `prefetch` is what `Prefetcher.status` returns.
    """
    items = sorted(entries, key=lambda item: (item["kind"], item.get("namespace", ""), item["name"]))
    counts = Counter(str(item["state"]) for item in items)
    parts = [f"{counts[state]} {state}" for state in (READY, UPDATING, FAILED) if counts[state]]
    unused_items = list(unused)
    kept_unused = _drop_from_largest(unused_items, MAX_BYTES // 2, lambda item: place_of(item["directory"]))
    kept_models = _models_that_fit(items, MAX_BYTES - _length(kept_unused) - _length(dict(prefetch)))
    for label, count in (("", len(items) - len(kept_models)), ("unused directories ", len(unused_items) - len(kept_unused))):
        if count:
            parts.append(f"{count} {label}not listed because the record would be too long")
    fields = {"models": kept_models, "unused": kept_unused, "prefetch": dict(prefetch)}
    return {"summary": ", ".join(parts) or "none", **{name: value for name, value in fields.items() if value}}


def _models_that_fit(items: Sequence[Entry], limit: int) -> list[Entry]:
    """Return the models that fit into `limit` bytes. If the list is too long, first the facts are dropped, then the
    messages, then models.
    """
    kept = list(items)
    for dropped in ("facts", "message"):
        if _length(kept) <= limit:
            return kept
        kept = [{key: value for key, value in item.items() if key != dropped or not item.get("namespace")} for item in kept]
    return _drop_from_largest(kept, limit, lambda item: str(item.get("namespace", "")))


def _drop_from_largest(items: Sequence[Entry], limit: int, group: Callable[[Entry], str]) -> list[Entry]:
    """Return the items that fit into `limit` bytes. The last items of the namespaces with the most items are dropped first;
    items of cluster-scoped models are dropped last.
    """
    sizes, by_group = [_length(item) for item in items], defaultdict[str, list[int]](list)
    for index, item in enumerate(items):
        by_group[group(item)].append(index)
    total, dropped = sum(sizes), set[int]()
    while total > limit and by_group:
        largest = max(by_group, key=lambda name: (bool(name), len(by_group[name]), name))
        dropped.add(last := by_group[largest].pop())
        total -= sizes[last]
        if not by_group[largest]:
            del by_group[largest]
    return [item for index, item in enumerate(items) if index not in dropped]


def _length(value: Any) -> int:
    """Return the length of a value in bytes as compact JSON, plus a comma."""
    return len(json.dumps(value, separators=(",", ":"))) + 1


def essential_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether more than progress changed, so that the record must be written without delay."""
    return _essence(before) != _essence(after)


def _essence(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    progress_fields, items = ("bytes", "speed", "verifiedAt"), (*(status.get("models") or ()), *(status.get("unused") or ()))
    return [{key: value for key, value in item.items() if key not in progress_fields} for item in items]
