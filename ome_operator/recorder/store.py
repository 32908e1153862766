"""The last passes of each service, within a number of bytes over all services.

Passes of a service share what did not change between them, and what the newest holds is in the operator's cache anyway. So a
pass costs what it has and its successor has not: sizes are taken of facts that were replaced, and of nothing else.
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
"""Passes that are kept of a service at most."""
OWN = 4096
"""Bytes of a pass beside its facts: its tables, and what it decided (measured: docs/recorder.md)."""
NODES = 128
"""Bytes of a copy of the table of nodes, for each node."""
_REFERRED = ("models", "runtimes", "weights", "accelerators", "holders")
_SEEN = ("children", "pods", "refusals", "accepted", "checks", "failures", "warnings", "strangers")
_BESIDE = {
    Deps: tuple(part.name for part in fields(Deps) if part.name not in (*_REFERRED, "nodes", "judge")),
    Observed: tuple(part.name for part in fields(Observed) if part.name not in (*_SEEN, "ahead")),
}
_SMALL = frozenset({int, bool, float, NoneType})
"""Types of what many values share, or what is small."""
Shown = TypeVar("Shown", Deps, Observed)


class _Service:
    """The passes of a service, the oldest first."""

    def __init__(self, uid: str) -> None:
        self.uid, self.passes, self.costs, self.bytes = uid, deque[Pass](), deque[int](), 0


class Recorder:
    """Keeps at most `most` bytes, 0 for nothing. Where that is too little, a service that has more than its share loses its
    oldest pass, else the service that had no pass for the longest time.
    """

    def __init__(self, most: int, passes: int = PASSES) -> None:
        self.most, self._passes = most, passes
        self.bytes = 0
        """That the passes hold, as far as nobody else holds it."""
        self._services: OrderedDict[Ref, _Service] = OrderedDict()
        self._tables = Counter[int]()
        """Copies of the table of nodes, by `id` -> how many passes have it."""

    def __len__(self) -> int:
        return sum(len(service.passes) for service in self._services.values())

    def services(self) -> tuple[Ref, ...]:
        """Those of which passes are kept; who had no pass for the longest time is the first."""
        return tuple(self._services)

    def of(self, ref: Ref) -> tuple[Pass, ...]:
        """The passes of a service, the oldest first."""
        found = self._services.get(ref)
        return tuple(found.passes) if found is not None else ()

    def forget(self, ref: Ref) -> None:
        """A service is gone."""
        if (found := self._services.pop(ref, None)) is not None:
            self.bytes -= found.bytes
            for made in found.passes:
                self._let_go(made)

    def add(self, ref: Ref, made: Pass) -> None:
        """A pass has ended. Another service of that name has passes of its own."""
        mine = self._services.get(ref)
        if mine is None or mine.uid != made.service.uid:
            self.forget(ref)
            mine = self._services[ref] = _Service(made.service.uid)
        self._services.move_to_end(ref)
        if mine.passes:
            before = mine.passes[-1]
            made = _shared(made, before)
            if _same(made, before):
                mine.passes[-1] = made._replace(times=before.times + 1)
                return
            self._charge(mine, _replaced(before, made))
        mine.passes.append(made)
        mine.costs.append(0)
        self._charge(mine, OWN)
        self._hold(made)
        if len(mine.passes) > self._passes:
            self._drop(ref, mine)
        while self.bytes > self.most and self._services:
            if len(mine.passes) > 1 and mine.bytes > self.most / len(self._services):
                self._drop(ref, mine)
            else:
                self._drop(*next(iter(self._services.items())))

    def _charge(self, mine: _Service, cost: int) -> None:
        """What the newest pass of a service costs more."""
        mine.costs[-1] += cost
        mine.bytes += cost
        self.bytes += cost

    def _hold(self, made: Pass) -> None:
        """Services share copies of the table of nodes: each counts once."""
        nodes = made.deps.nodes
        if not self._tables[id(nodes)]:
            self.bytes += NODES * len(nodes)
        self._tables[id(nodes)] += 1

    def _let_go(self, made: Pass) -> None:
        nodes = made.deps.nodes
        self._tables[id(nodes)] -= 1
        if not self._tables[id(nodes)]:
            del self._tables[id(nodes)]
            self.bytes -= NODES * len(nodes)

    def _drop(self, ref: Ref, mine: _Service) -> None:
        """The oldest pass of a service goes."""
        self._let_go(mine.passes.popleft())
        cost = mine.costs.popleft()
        mine.bytes -= cost
        self.bytes -= cost
        if not mine.passes:
            del self._services[ref]


def _shared(made: Pass, before: Pass) -> Pass:
    """A pass that has what is equal from the pass before it."""
    service, decided = made.service, made.decided
    status = _common(service.status, before.service.status)
    if status is before.service.status and _alike(service, before.service):
        service = before.service
    elif status is not service.status:
        service = replace(service, status=status)
    decided = decided._replace(status=_common(decided.status, before.decided.status))
    deps = _with(made.deps, before.deps, _REFERRED)
    return made._replace(service=service, decided=decided, deps=deps, observed=_with(made.observed, before.observed, _SEEN))


def _common(new: Any, old: Any) -> Any:
    """The new value with the equal parts of the old, so that both are kept once."""
    if new == old:
        return old
    if isinstance(new, dict) and isinstance(old, dict):
        return {key: _common(value, old[key]) if key in old else value for key, value in new.items()}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return list(map(_common, new, old))
    return new


def _alike(service: InferenceService, other: InferenceService) -> bool:
    """Whether two of equal status are the same in everything: a server counts a generation for every edit."""
    parts = ("generation", "annotations", "labels", "deleting")
    return service.spec is other.spec and all(getattr(service, part) == getattr(other, part) for part in parts)


def _with(made: Shown, before: Shown, parts: tuple[str, ...]) -> Shown:
    """With equal parts from before; `before` itself where all are equal."""
    theirs = {part: value for part in parts if (value := getattr(before, part)) == getattr(made, part)}
    rest = all(getattr(made, part) == getattr(before, part) for part in _BESIDE[type(made)])
    if rest and len(theirs) == len(parts) and _asked(made) == _asked(before):
        return before
    return replace(made, **theirs)


def _asked(inputs: Deps | Observed) -> Any:
    """What is no plain fact: which copy of the table of nodes and what `judge` said, or what `ahead` said."""
    if isinstance(inputs, Deps):
        return id(inputs.nodes), getattr(inputs.judge, "args", None)
    return getattr(inputs.ahead, "args", None)


def _same(made: Pass, before: Pass) -> bool:
    """Whether a pass saw and decided what the pass before it did, at another time: a wait that it plans is shorter then."""
    return (
        all(getattr(made, part) is getattr(before, part) for part in ("service", "deps", "observed"))
        and made.decided.status is before.decided.status
        and made.decided._replace(again=None) == before.decided._replace(again=None)
    )


def _replaced(before: Pass, after: Pass) -> int:
    """Bytes of what a pass has and its successor has not."""
    found = 0
    if before.service.spec is not after.service.spec:
        found += _size(before.service.spec)
    found += _difference(before.service.status, after.service.status)
    found += _difference(before.decided.status, after.decided.status)
    for part in _SEEN:
        found += _difference(getattr(before.observed, part), getattr(after.observed, part))
    return found + sum(_no_more(getattr(before.deps, part), getattr(after.deps, part)) for part in _REFERRED)


def _no_more(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> int:
    """Bytes of what services may refer to and one refers to no more. Many had the same object before its edit."""
    if old is new:
        return 0
    return getsizeof(old) + sum(_size_of_shared(value) for key, value in old.items() if value is not new.get(key))


def _difference(old: Any, new: Any) -> int:
    """Bytes of what a table or a list has and another has not, the table itself included."""
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
    """Bytes of a value with all that it holds; what stands in it twice counts twice."""
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
