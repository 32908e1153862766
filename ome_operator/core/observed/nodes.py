"""Slim facts of nodes from watched bodies: pure and total, as those of `from_api`."""

from collections.abc import Hashable, ItemsView, Iterable, Iterator, Mapping
from functools import lru_cache
from sys import intern
from typing import Any, TypeVar

from ome_operator import quantity
from ome_operator.core.observed import from_api, managed_fields
from ome_operator.core.observed.from_api import Body
from ome_operator.core.observed.objects import Node, Taint


def node(body: Body) -> Node:
    """A node, ready when the scheduler may put pods on it."""
    metadata, spec, status = body.get("metadata") or {}, body.get("spec") or {}, body.get("status") or {}
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
    allocatable = status.get("allocatable") or {}
    return Node(
        name=metadata.get("name") or "",
        version=from_api.version(body),
        labels=Labels(metadata.get("labels") or {}),
        ready=conditions.get("Ready") == "True" and not spec.get("unschedulable"),
        alive=conditions.get("Ready") == "True",
        gpus=sum(quantity.units(name, value) for name, value in allocatable.items() if name.endswith("/gpu")),
        ours=_applied_labels(body),
        taints=shared(tuple(sorted(_taints(spec)))),
        room=shared(tuple(sorted((intern(name), quantity.units(name, value)) for name, value in allocatable.items()))),
    )


def _taints(spec: Body) -> Iterable[Taint]:
    for taint in spec.get("taints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute"):
            yield Taint(taint.get("key") or "", taint.get("value") or "", taint["effect"])


def _applied_labels(body: Body) -> frozenset[str]:
    fields = managed_fields.applied_fields(body) or {}
    return named(tuple((fields.get("f:metadata") or {}).get("f:labels") or ()))


T = TypeVar("T", bound=Hashable)


class Labels(Mapping[str, str]):
    """Labels of a node: read as any mapping, equal to a dict with the same entries, and never changed."""

    __slots__ = ("_places", "_values")

    def __init__(self, found: Mapping[str, str]) -> None:
        self._places = _places(tuple(sorted(found)))
        self._values = tuple(map(intern, map(str, map(found.__getitem__, self._places))))

    def __getitem__(self, key: str) -> str:
        return self._values[self._places[key]]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key; `default` without it. (That of Mapping raises and catches, which costs ten times as much.)"""
        place = self._places.get(key)
        return default if place is None else self._values[place]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def items(self) -> ItemsView[str, str]:
        """Keys with their values."""
        return dict(zip(self._places, self._values, strict=True)).items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Labels):
            return self._values == other._values and self._places.keys() == other._places.keys()
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # as of every mapping

    def __repr__(self) -> str:
        return repr(dict(self.items()))


def differing(some: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """Keys that only some or only others have, or whose values differ. Labels with the same keys are compared value by
    value: an event of a node with 200 labels changes a value.
    """
    if isinstance(some, Labels) and isinstance(others, Labels) and some._places is others._places:
        rows = zip(some._places, some._values, others._values, strict=True)
        return [key for key, value, other in rows if value != other]
    return sorted({key for key, _ in some.items() ^ others.items()})


def shared(value: T) -> T:
    """An equal value that others have too, if there is one."""
    found: T = _known(value)
    return found


@lru_cache(4096)
def _known(value: Any) -> Any:
    return value


@lru_cache(1024)
def _places(keys: tuple[str, ...]) -> dict[str, int]:
    return {intern(str(key)): place for place, key in enumerate(keys)}


@lru_cache(128)
def named(fields: tuple[str, ...]) -> frozenset[str]:
    """Keys that a set of FieldsV1 names: most events of a node, and most nodes of a pool, have the same."""
    return shared(frozenset(intern(field[2:]) for field in fields if field.startswith("f:")))


def forget() -> None:
    """Share with nothing that was seen so far."""
    _known.cache_clear()
    _places.cache_clear()
    named.cache_clear()
