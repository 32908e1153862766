"""Keep the last passes of each service, within a limit of bytes over all services.

Consecutive passes share the parts that did not change, and the operator's cache contains the newest parts in any case.
Keeping a pass therefore costs only the size of the parts that changed in the next pass; only these sizes are calculated.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import fields, replace
from sys import getsizeof
from types import NoneType
from typing import Any, TypeVar

from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Observed, Ref
from ome_operator.recorder.passes import Pass
from ome_operator.util.memoize import memoize_by_identity

PASSES = 20
"""Maximum number of passes that are kept per service."""
OWN = 4096
"""Number of bytes that a pass is assumed to need in addition to its facts, for its tables and its decision (measured:
docs/recorder.md)."""
NODES = 128
"""Bytes that each node is assumed to need in a copy of the table of nodes."""
_REFERRED = ("models", "runtimes", "weights", "accelerators", "holders")
_SEEN = (
    "children",
    "pods",
    "refusals",
    "accepted",
    "checks",
    "remarks",
    "failures",
    "warnings",
    "strangers",
    "drains",
    "silences",
    "transfers",
    "starts",
)
_BESIDE = {
    Deps: tuple(part.name for part in fields(Deps) if part.name not in (*_REFERRED, "nodes", "judge")),
    Observed: tuple(part.name for part in fields(Observed) if part.name not in (*_SEEN, "ahead")),
}
_SMALL = frozenset({int, bool, float, NoneType})
"""Types whose values need no additional memory, or very little."""
Shown = TypeVar("Shown", Deps, Observed)


class _Service:
    """The recorded passes of a service, the oldest first."""

    def __init__(self, uid: str) -> None:
        self.uid, self.passes, self.costs, self.bytes = uid, deque[Pass](), deque[int](), 0


class Recorder:
    """The recorded passes of all services, with at most `most` bytes; 0 means that nothing is kept.

    If a new pass exceeds the limit, old passes are dropped. If the pass's service uses more than an equal share of the
    limit, its own oldest pass is dropped. Otherwise, the oldest pass of the service that has been idle for the longest time
    is dropped.
    """

    def __init__(self, most: int, passes: int = PASSES) -> None:
        self.most, self._passes = most, passes
        self.bytes = 0
        """Bytes of memory that only the recorder's passes hold."""
        self._services: OrderedDict[Ref, _Service] = OrderedDict()
        self._tables = Counter[int]()
        """Maps the `id` of each copy of the table of nodes to the number of passes that use the copy."""

    def __len__(self) -> int:
        return sum(len(service.passes) for service in self._services.values())

    def services(self) -> tuple[Ref, ...]:
        """Return the services with recorded passes; the service that has been idle for the longest time is first."""
        return tuple(self._services)

    def passes_of(self, ref: Ref) -> tuple[Pass, ...]:
        """Return the passes of a service, the oldest first."""
        service = self._services.get(ref)
        return tuple(service.passes) if service is not None else ()

    def forget(self, ref: Ref) -> None:
        """Drop the passes of a deleted service."""
        if (service := self._services.pop(ref, None)) is not None:
            self.bytes -= service.bytes
            for pass_ in service.passes:
                self._let_go(pass_)

    def add(self, ref: Ref, pass_: Pass) -> None:
        """Add a finished pass. The passes of a deleted service with the same name are dropped first."""
        service = self._services.get(ref)
        if service is None or service.uid != pass_.service.uid:
            self.forget(ref)
            service = self._services[ref] = _Service(pass_.service.uid)
        self._services.move_to_end(ref)
        if service.passes:
            before = service.passes[-1]
            pass_ = _shared(pass_, before)
            if _same(pass_, before):
                service.passes[-1] = pass_._replace(times=before.times + 1)
                return
            self._charge(service, _replaced(before, pass_))
        service.passes.append(pass_)
        service.costs.append(0)
        self._charge(service, OWN)
        self._hold(pass_)
        if len(service.passes) > self._passes:
            self._drop(ref, service)
        while self.bytes > self.most and self._services:
            if len(service.passes) > 1 and service.bytes > self.most / len(self._services):
                self._drop(ref, service)
            else:
                self._drop(*next(iter(self._services.items())))

    def _charge(self, service: _Service, cost: int) -> None:
        """Add `cost` bytes to the newest pass of a service."""
        service.costs[-1] += cost
        service.bytes += cost
        self.bytes += cost

    def _hold(self, pass_: Pass) -> None:
        """Add the bytes of the pass's copy of the table of nodes. Services share copies, so the bytes of each copy are
        added once.
        """
        nodes = pass_.deps.nodes
        if not self._tables[id(nodes)]:
            self.bytes += NODES * len(nodes)
        self._tables[id(nodes)] += 1

    def _let_go(self, pass_: Pass) -> None:
        nodes = pass_.deps.nodes
        self._tables[id(nodes)] -= 1
        if not self._tables[id(nodes)]:
            del self._tables[id(nodes)]
            self.bytes -= NODES * len(nodes)

    def _drop(self, ref: Ref, service: _Service) -> None:
        """Drop the oldest pass of a service."""
        self._let_go(service.passes.popleft())
        cost = service.costs.popleft()
        service.bytes -= cost
        self.bytes -= cost
        if not service.passes:
            del self._services[ref]


def _shared(pass_: Pass, before: Pass) -> Pass:
    """Return the pass, with parts that are equal in the previous pass replaced by the previous objects, so that they are
    stored once.
    """
    service, decided = pass_.service, pass_.decided
    status = _common(service.status, before.service.status)
    if status is before.service.status and _alike(service, before.service):
        service = before.service
    elif status is not service.status:
        service = replace(service, status=status)
    decided = decided._replace(status=_common(decided.status, before.decided.status))
    deps = _with(pass_.deps, before.deps, _REFERRED)
    return pass_._replace(
        service=service, decided=decided, deps=deps, observed=_with(pass_.observed, before.observed, _SEEN)
    )


def _common(new: Any, old: Any) -> Any:
    """Return the new value. Parts that are equal in the old value are replaced by the old objects, so that they are stored
    once.
    """
    if new == old:
        return old
    if isinstance(new, dict) and isinstance(old, dict):
        return {key: _common(value, old[key]) if key in old else value for key, value in new.items()}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return list(map(_common, new, old))
    return new


def _alike(service: InferenceService, other: InferenceService) -> bool:
    """Return whether two services with equal status are also equal in all other parts. Their generations are compared, too,
    because the API server increments the generation with each edit.
    """
    parts = ("generation", "annotations", "labels", "deleting")
    return service.spec is other.spec and all(getattr(service, part) == getattr(other, part) for part in parts)


def _with(inputs: Shown, before: Shown, parts: tuple[str, ...]) -> Shown:
    """Return the inputs after equal parts were replaced by the parts of `before`; return `before` itself if all parts are
    equal.
    """
    equal_parts = {part: value for part in parts if (value := getattr(before, part)) == getattr(inputs, part)}
    others_equal = all(getattr(inputs, part) == getattr(before, part) for part in _BESIDE[type(inputs)])
    if others_equal and len(equal_parts) == len(parts) and _asked(inputs) == _asked(before):
        return before
    return replace(inputs, **equal_parts)


def _asked(inputs: Deps | Observed) -> Any:
    """Return the inputs that are not plain facts: for Deps the copy of the table of nodes and the results of `judge`, for
    Observed the result of `ahead`.
    """
    if isinstance(inputs, Deps):
        return id(inputs.nodes), getattr(inputs.judge, "args", None)
    return getattr(inputs.ahead, "args", None)


def _same(pass_: Pass, before: Pass) -> bool:
    """Return whether a pass has the same inputs and decision as the previous pass. The time and the planned wait are
    ignored, because the wait becomes shorter with time.
    """
    return (
        all(getattr(pass_, part) is getattr(before, part) for part in ("service", "deps", "observed"))
        and pass_.decided.status is before.decided.status
        and pass_.decided._replace(again=None) == before.decided._replace(again=None)
    )


def _replaced(before: Pass, after: Pass) -> int:
    """Return the bytes of the parts of `before` that `after` does not contain."""
    total = 0
    if before.service.spec is not after.service.spec:
        total += _size(before.service.spec)
    total += _difference(before.service.status, after.service.status)
    total += _difference(before.decided.status, after.decided.status)
    for part in _SEEN:
        total += _difference(getattr(before.observed, part), getattr(after.observed, part))
    return total + sum(_removed_references(getattr(before.deps, part), getattr(after.deps, part)) for part in _REFERRED)


def _removed_references(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> int:
    """Return the bytes of the objects in `old` that `new` does not reference any more. Sizes are memoized, because many
    services referred to the same object before its edit.
    """
    if old is new:
        return 0
    return getsizeof(old) + sum(_size_of_shared(value) for key, value in old.items() if value is not new.get(key))


def _difference(old: Any, new: Any) -> int:
    """Return the bytes of the items of a table or list `old` that `new` does not contain, including the table itself."""
    if old is new:
        return 0
    if isinstance(old, dict) and isinstance(new, dict):
        return getsizeof(old) + sum(_difference(value, new.get(key)) for key, value in old.items())
    if isinstance(old, list | tuple) and not hasattr(old, "_fields") and isinstance(new, list | tuple):
        kept = set(map(id, new))
        return getsizeof(old) + sum(_size(value) for value in old if id(value) not in kept)
    return _size(old)


@memoize_by_identity(16, grows=False)
def _size_of_shared(value: Any) -> int:
    return _size(value)


def _size(value: Any) -> int:
    """Return the bytes of a value with all its contents; a part that occurs twice is counted twice."""
    kind = type(value)
    if kind is str:
        return getsizeof(value)
    if kind in _SMALL:
        return 0
    if kind is dict:
        return getsizeof(value) + sum(map(_size, value)) + sum(map(_size, value.values()))
    if isinstance(value, list | tuple | frozenset | set):
        return getsizeof(value) + sum(map(_size, value))
    if isinstance(value, Mapping):
        return getsizeof(value) + sum(map(_size, value.values()))
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return getsizeof(value) + _size(vars(value)) + _size(getattr(value, "model_extra", None))
    return getsizeof(value)
