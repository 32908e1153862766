"""What a node's agent reports: the status of its NodeModels object."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ome_operator import keys
from ome_operator.api import FineTunedWeight, Model
from ome_operator.core.weights import mount
from ome_operator.core.weights.mount import node_label, weights

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
    """The whole record; `unused` says which directories no model names."""
    items = sorted(entries, key=lambda one: (one["kind"], one.get("namespace", ""), one["name"]))
    counts = Counter(str(one["state"]) for one in items)
    parts = [f"{counts[state]} {state}" for state in (READY, UPDATING, FAILED) if counts[state]]
    lists = {"models": items, "unused": list(unused)}
    return {"summary": ", ".join(parts) or "none", **{name: some for name, some in lists.items() if some}}


def flips(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether more than progress changed, which somebody may wait for."""
    return _essence(before) != _essence(after)


def _essence(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    moving, every = ("bytes", "speed", "verifiedAt"), (*(status.get("models") or ()), *(status.get("unused") or ()))
    return [{key: value for key, value in one.items() if key not in moving} for one in every]
