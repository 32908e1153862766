"""The remembered faults of a node: an entry for each fault, in the status of a NodeFaults object of limited size."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ome_operator import quantity

KIND = "NodeFaults"
NODES = 200
"""Largest number of nodes in a record."""
FAULTS = 16
"""Largest number of faults of a node in a record."""
WORDS = 300
"""Maximum number of characters of a fault's message in a record."""
_MOST_COUNTED = 1000


class Role(NamedTuple):
    """A component of a service in one of its revisions. The failures of a role's groups on a node are counted together."""

    namespace: str
    service: str
    component: str
    revision: str


class RememberedFault(NamedTuple):
    """A fault of a node, with times in seconds since the epoch."""

    kind: str
    """The fault in a word, such as GPUMissing, Error or NotReady."""
    first: float
    last: float
    times: int = 1
    """Number of times that the fault has occurred."""
    role: Role | None = None
    """Role whose groups failed; None for a fault that the node itself reports."""
    message: str = ""
    confirmed: bool = False
    """Whether the role has worked on other nodes since. If so, this node is to blame even if the role also fails on other
    nodes."""


class NodeMemory(NamedTuple):
    """The remembered faults of a node."""

    uid: str
    """UID of the Node object. Another node of the same name begins without faults."""
    faults: tuple[RememberedFault, ...] = ()
    forgiven: float = 0.0
    """Time at which somebody ran `ome nodes forgive`, in seconds since the epoch; 0 if nobody did. Faults from before this
    time are ignored.
    """


Memory = Mapping[str, NodeMemory]
"""The remembered faults of each node, by the name of the node."""


class AvoidingServices(NamedTuple):
    """The services that avoid a node, and the reason."""

    namespace: str
    """Namespace of these services; "" if the services of all namespaces avoid the node."""
    why: str


def summary(avoiders: Iterable[AvoidingServices]) -> str:
    """Return a human-readable text that states which services avoid a node, and why; "" if no service avoids it."""
    return "; ".join(f"{_by(one.namespace)}{one.why}" for one in avoiders)[:WORDS]


def _by(namespace: str) -> str:
    return f"by services of {namespace}: " if namespace else "by all services: "


def status(memory: NodeMemory, avoiders: Sequence[AvoidingServices]) -> dict[str, Any]:
    """Return the status of the NodeFaults object of a node: the remembered faults, and the services that avoid the node."""
    by = [{**({"namespace": one.namespace} if one.namespace else {}), "reason": one.why[:WORDS]} for one in avoiders]
    avoided = {"avoided": summary(avoiders), "avoidedBy": by} if avoiders else {}
    return {"nodeUID": memory.uid, **avoided, "faults": [_written(fault) for fault in memory.faults]}


def avoided_by(found: Mapping[str, Any], namespace: str) -> bool:
    """Return whether the services of a namespace avoid a node, according to the status of its NodeFaults object. Earlier
    versions of the operator stored only the human-readable text, which is parsed here.
    """
    if "avoidedBy" not in found:
        text = str(found.get("avoided") or "")
        return text.startswith(_by("")) or _by(namespace) in text
    entries = found["avoidedBy"]
    named = [one.get("namespace") or "" for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    return "" in named or namespace in named


def parse_node_memory(found: Mapping[str, Any], forgiven: float) -> NodeMemory:
    """Return the remembered faults of a node. `found` is the status of its NodeFaults object, and `forgiven` the time of
    `ome nodes forgive` (`NodeMemory.forgiven`). Invalid entries are skipped, because users can edit the object.
    """
    entries = found.get("faults")
    known = (_read(entry) for entry in (entries if isinstance(entries, list) else ())[:FAULTS])
    return NodeMemory(str(found.get("nodeUID") or ""), tuple(one for one in known if one is not None), forgiven)


def without_common(memory: Memory) -> dict[str, NodeMemory]:
    """Return the memory without the kinds of faults that more than NODES nodes report themselves. There is no space to
    remember such a kind for all of these nodes, and it would displace all failures of services.
    """
    reports = Counter(fault.kind for each in memory.values() for fault in each.faults if fault.role is None)
    common = {kind for kind, number in reports.items() if number > NODES}
    return {
        name: each._replace(faults=tuple(fault for fault in each.faults if fault.role or fault.kind not in common))
        for name, each in memory.items()
    }


def limit_memory(memory: Memory) -> dict[str, NodeMemory]:
    """Return the memory reduced to at most NODES nodes with FAULTS faults each. The latest faults are kept; faults that a
    node itself reports, and nodes with such faults, take precedence over failures of services.
    """
    kept = {name: each._replace(faults=_latest(each.faults)) for name, each in memory.items()}
    if len(kept) <= NODES:
        return kept
    order = sorted(kept, key=lambda name: _rank(name, kept[name].faults))
    return {name: kept[name] for name in sorted(order[:NODES])}


def _rank(name: str, faults: Sequence[RememberedFault]) -> tuple[bool, float, str]:
    own = any(each.role is None for each in faults)
    return not own, -max((each.last for each in faults), default=0.0), name


def _latest(faults: Iterable[RememberedFault]) -> tuple[RememberedFault, ...]:
    kept = sorted(faults, key=lambda each: (each.role is not None, -each.last, each))[:FAULTS]
    return tuple(sorted(kept, key=lambda each: (each.first, each.kind, each.role or ())))


def time(stamp: object) -> float:
    """Return a time in RFC 3339 as seconds since the epoch; 0 if the value is not such a time, or is before the epoch."""
    when = quantity.parse_instant(stamp)
    return 0.0 if when is None else when.timestamp()


def format_time(seconds: float) -> str:
    """Return a time (seconds since the epoch) in RFC 3339, in whole seconds."""
    return quantity.rfc3339(datetime.fromtimestamp(int(seconds), UTC))


def _written(fault: RememberedFault) -> dict[str, Any]:
    role = {} if fault.role is None else fault.role._asdict()
    more = {**role, "message": fault.message, "confirmed": fault.confirmed}
    stored = {"kind": fault.kind, "count": fault.times, "first": format_time(fault.first), "last": format_time(fault.last)}
    return stored | {name: value for name, value in more.items() if value}


def _read(entry: Any) -> RememberedFault | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        return None
    role = Role(*(str(entry.get(name) or "") for name in Role._fields))
    count = entry.get("count")
    return RememberedFault(
        kind=entry["kind"],
        first=time(entry.get("first")),
        last=time(entry.get("last")),
        times=max(1, min(count, _MOST_COUNTED)) if isinstance(count, int) else 1,
        role=role if role.namespace else None,
        message=str(entry.get("message") or "")[:WORDS],
        confirmed=entry.get("confirmed") is True,
    )
