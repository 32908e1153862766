"""Build compact representations of nodes, and of the records that agents write about them.

These functions are pure and never raise, as in `from_api`.
"""

from collections.abc import Hashable, ItemsView, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import compress
from operator import ne
from sys import intern
from typing import Any, TypeVar

import msgspec

from ome_operator import keys, quantity
from ome_operator.core.observed import from_api, managed_fields, node_faults
from ome_operator.core.observed.from_api import Body
from ome_operator.core.observed.objects import Node, NodeHolding, NodeRecord, Ref, Taint, UnusedWeights
from ome_operator.util.json_limits import decode_to_depth


def node(body: Body, known: Node | None = None) -> Node:
    """Return the compact representation of a node. Its attribute `ready` is True if the node is Ready and schedulable.
    `known` is the representation of an earlier state of the node; labels that have not changed are taken from it.
    """
    metadata, spec, status = body.get("metadata") or {}, body.get("spec") or {}, body.get("status") or {}
    conditions = {condition.get("type"): condition.get("status") for condition in status.get("conditions") or ()}
    taints = tuple(sorted(_taints(spec)))
    room, gpus = _room(tuple((status.get("allocatable") or {}).items()))
    return Node(
        name=metadata.get("name") or "",
        version=from_api.version(body),
        labels=_labels(metadata.get("labels") or {}, known),
        ready=conditions.get("Ready") == "True" and not spec.get("unschedulable"),
        alive=conditions.get("Ready") == "True",
        gpus=gpus,
        ours=_applied_labels(body),
        move=(metadata.get("annotations") or {}).get(keys.MOVE) or "",
        taints=intern_value(taints),
        room=room,
        uid=from_api.uid(body),
        faults=intern_value(tuple(node_faults.reported_faults(status, taints))),
    )


def _taints(spec: Body) -> Iterable[Taint]:
    for taint in spec.get("taints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute"):
            yield Taint(taint.get("key") or "", taint.get("value") or "", taint["effect"])


@lru_cache(1024)
def _room(allocatable: tuple[tuple[str, Any], ...]) -> tuple[tuple[tuple[str, int], ...], int]:
    """Return the allocatable amounts as `Node.room`, and the number of GPUs among them."""
    room = tuple(sorted((intern(name), quantity.units(name, value)) for name, value in allocatable))
    return room, sum(amount for name, amount in room if name.endswith("/gpu"))


def _applied_labels(body: Body) -> frozenset[str]:
    fields = managed_fields.applied_fields(body) or {}
    return _labels_in_text(bytes(fields)) if isinstance(fields, msgspec.Raw) else _labels_in(fields)


def _labels_in(fields: managed_fields.Fields) -> frozenset[str]:
    return field_names(tuple((fields.get("f:metadata") or {}).get("f:labels") or ()))


@lru_cache(128)
def _labels_in_text(fields: bytes) -> frozenset[str]:
    """Return the labels that the JSON text of a FieldsV1 set names. Results are cached, because the sets of most nodes are
    equal.
    """
    return _labels_in(decode_to_depth(fields) or {})


def node_record(body: Body) -> NodeRecord:
    """Return the compact representation of an agent's record of its node."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    return NodeRecord(
        node=(body.get("metadata") or {}).get("name") or "",
        uid=from_api.uid(body),
        version=from_api.version(body),
        holdings=tuple(map(_holding, status.get("models") or ())),
        unused=tuple(map(_unused, status.get("unused") or ())),
        remove=frozenset((item.get("directory") or "", item.get("offer") or "") for item in spec.get("remove") or ()),
        created=(body.get("metadata") or {}).get("creationTimestamp") or "",
        prefetch=tuple(spec.get("prefetch") or ()) if (status.get("prefetch") or {}).get("limit") else None,
    )


def _unused(item: Body) -> UnusedWeights:
    models, paths = (tuple(item.get(name) or ()) for name in ("models", "paths"))
    return UnusedWeights(item.get("directory") or "", models, paths, item.get("offer") or "")


def _holding(item: Body) -> NodeHolding:
    return NodeHolding(
        ref=Ref(item.get("kind") or "", item.get("namespace") or "", item.get("name") or ""),
        uri=item.get("uri") or "",
        revision=item.get("revision") or "",
        state=item.get("state") or "",
        directories=tuple(item.get("directories") or ()),
        bytes=item.get("bytes") or 0,
        total=item.get("total") or 0,
        speed=item.get("speed") or 0,
        message=item.get("message") or "",
        verified_at=item.get("verifiedAt") or "",
        facts=item.get("facts"),
    )


T = TypeVar("T", bound=Hashable)


class Labels(Mapping[str, str]):
    """Labels of a node, as a read-only mapping that shares memory with the labels of other nodes. It equals a dict with
    the same entries.
    """

    __slots__ = ("_places", "_values")

    def __init__(self, labels: Mapping[str, str], known: "Labels | None" = None) -> None:
        """Initialize the labels. `known` are labels of an earlier state of the node. If they have the same keys in the same
        order, their keys are shared. `known` is None if there is no earlier state.
        """
        if known is None or tuple(known._places) != tuple(labels):
            self._places: dict[str, int] = _places(tuple(sorted(labels)))
            self._values: tuple[str, ...] = tuple(map(intern, map(str, map(labels.__getitem__, self._places))))
            return
        self._places = known._places
        values = zip(known._values, labels.values(), strict=True)
        self._values = tuple([old if old == new else intern(str(new)) for old, new in values])

    def __getitem__(self, key: str) -> str:
        return self._values[self._places[key]]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or `default`. This method replaces the method of Mapping, which is ten times slower
        because it raises and catches an exception.
        """
        position = self._places.get(key)
        return default if position is None else self._values[position]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def items(self) -> ItemsView[str, str]:
        """Return the keys with their values."""
        return dict(zip(self._places, self._values, strict=True)).items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Labels):
            same_keys = self._places is other._places or self._places.keys() == other._places.keys()
            return same_keys and self._values == other._values
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # like all mappings

    def __repr__(self) -> str:
        return repr(dict(self.items()))


def _labels(labels: Mapping[str, str], node: Node | None) -> Labels:
    """Return the labels of a node. If they are equal to the labels of `node`, the earlier state of the node, return the
    labels object of the earlier state. `node` is None if there is no earlier state.
    """
    known = node.labels if node is not None and isinstance(node.labels, Labels) else None
    found = Labels(labels, known)
    return known if known is not None and known == found else found


def differing_keys(some: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """Return the keys that only one of two mappings has, or whose values differ.

    Labels with the same keys are compared value by value, because an event of a node with 200 labels usually changes one
    value.
    """
    if isinstance(some, Labels) and isinstance(others, Labels) and some._places is others._places:
        return [] if some is others else list(compress(some._places, map(ne, some._values, others._values)))
    return sorted({key for key, _ in some.items() ^ others.items()})


def intern_value(value: T) -> T:
    """Return an equal value that is already in use if there is one, to save memory."""
    result: T = _known(value)
    return result


@lru_cache(4096)
def _known(value: Any) -> Any:
    return value


@lru_cache(1024)
def _places(keys: tuple[str, ...]) -> dict[str, int]:
    return {intern(str(key)): position for position, key in enumerate(keys)}


@lru_cache(128)
def field_names(fields: tuple[str, ...]) -> frozenset[str]:
    """Return the keys that a FieldsV1 set names. Results are cached, because most events of a node, and most nodes of a
    pool, have the same set.
    """
    return intern_value(frozenset(intern(field[2:]) for field in fields if field.startswith("f:")))


def clear_caches() -> None:
    """Clear the caches of shared values."""
    _known.cache_clear()
    _places.cache_clear()
    field_names.cache_clear()
    _room.cache_clear()
    _labels_in_text.cache_clear()
