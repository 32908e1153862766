"""A pass as it is kept: what `sync` looked at, and what it decided."""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Epoch, Node, Observed, Ref
from ome_operator.core.observed.validation import Asked, Verdict
from ome_operator.core.reconcile.plan import Plan
from ome_operator.recorder.decision import Decision, decision, failed

K = TypeVar("K")
V = TypeVar("V")


Judged = tuple[str, int]
"""A revision, and how many parts of it were shown: with its router, and without."""


class Pass(NamedTuple):
    """What `sync` was given, and what it decided."""

    now: datetime
    service: InferenceService
    deps: Deps
    """Of what services may refer to, what this pass looked at. All nodes: `looked_at` says which count."""
    observed: Observed
    """`ahead` always answers what it answered in this pass, as `deps.judge` does."""
    decided: Decision
    times: int = 1
    """How many passes in a row saw and decided just this; `now` is the moment of the last."""


class Noted(Mapping[K, V]):
    """A mapping that notes what was asked for. The operator changes the one behind it, so nobody keeps this."""

    __slots__ = ("_all", "_asked", "_of")

    def __init__(self, of: Mapping[K, V]) -> None:
        self._of, self._asked, self._all = of, set[K](), False

    def __getitem__(self, key: K) -> V:
        self._asked.add(key)
        return self._of[key]

    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key; `default` without it."""
        self._asked.add(key)
        return self._of.get(key, default)

    def __contains__(self, key: object) -> bool:
        self._asked.add(key)  # type: ignore[arg-type]
        return key in self._of

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[K]:
        self._all = True
        return iter(self._of)

    def keys(self) -> KeysView[K]:
        """All keys."""
        self._all = True
        return self._of.keys()

    def values(self) -> ValuesView[V]:
        """All values."""
        self._all = True
        return self._of.values()

    def items(self) -> ItemsView[K, V]:
        """All keys with their values."""
        self._all = True
        return self._of.items()

    def noted(self) -> dict[K, V]:
        """What was found so far of what was asked for."""
        return dict(self._of) if self._all else {key: self._of[key] for key in self._asked if key in self._of}


class Around:
    """What all services share and the operator changes in place: copies, made when a pass first asks after a change."""

    def __init__(self) -> None:
        self._of: object = None
        self._nodes: dict[str, Node] = {}
        self._holders: dict[str, AbstractSet[str]] = {}

    def nodes(self, deps: Deps) -> Mapping[str, Node]:
        """All nodes. `deps.nodes` is another object after a change of any node."""
        if self._of is not deps.nodes:
            self._of, self._nodes, self._holders = deps.nodes, dict(deps.nodes), {}
        return self._nodes

    def holder(self, label: str, names: AbstractSet[str]) -> AbstractSet[str]:
        """The nodes with a label, which is a part of a node: another set is another set of nodes. After `nodes`."""
        if label not in self._holders:
            self._holders[label] = frozenset(names)
        return self._holders[label]


class Ear:
    """A pass that is being made: `deps` and `observed` go to `sync`, and note what it looks at."""

    def __init__(self, service: InferenceService, deps: Deps, observed: Observed) -> None:
        self._service, self._deps, self._observed, self._said = service, deps, observed, ""
        self._models, self._runtimes, self._weights = Noted(deps.models), Noted(deps.runtimes), Noted(deps.weights)
        self._accelerators, self._holders = Noted(deps.accelerators), Noted(deps.holders)
        self._judged = dict[Judged, Verdict]()
        self.deps = replace(
            deps,
            models=self._models,
            runtimes=self._runtimes,
            weights=self._weights,
            accelerators=self._accelerators,
            holders=self._holders,
            judge=self._judge,
        )
        self.observed = replace(observed, ahead=self._ahead)

    def _ahead(self, asked: Mapping[Ref, Epoch]) -> str:
        self._said = self._observed.ahead(asked)
        return self._said

    def _judge(self, asked: Asked) -> Verdict:
        said = self._judged[_of(asked)] = self._deps.judge(asked)
        return said

    def heard(self, now: datetime, plan: Plan | Exception, around: Around) -> Pass:
        """The pass, which ended in a plan or an error."""
        nodes, seen = around.nodes(self._deps), self._observed
        visible = "", self._service.namespace
        deps = replace(
            self._deps,
            models={ref: found for ref, found in self._models.noted().items() if ref.namespace in visible},
            runtimes={ref: found for ref, found in self._runtimes.noted().items() if ref.namespace in visible},
            weights=self._weights.noted(),
            accelerators=self._accelerators.noted(),
            nodes=nodes,
            holders={label: around.holder(label, names) for label, names in self._holders.noted().items()},
            judge=partial(verdict, self._judged),
        )
        observed = replace(
            seen,
            accepted=dict(seen.accepted),
            failures=dict(seen.failures),
            strangers=dict(seen.strangers),
            ahead=partial(answer, self._said),
        )
        decided = failed(plan) if isinstance(plan, Exception) else decision(plan)
        return Pass(now, self._service, deps, observed, decided)


def answer(said: str, _: Mapping[Ref, Epoch]) -> str:
    """What `Observed.ahead` of a kept pass is: what it said then."""
    return said


def verdict(said: Mapping[Judged, Verdict], asked: Asked) -> Verdict:
    """What `Deps.judge` of a kept pass is: what it said then; nothing of what was not asked."""
    return said.get(_of(asked), Verdict())


def _of(asked: Asked) -> Judged:
    return asked.revision, len(asked.parts)


def looked_at(made: Pass) -> Mapping[str, Node]:
    """The nodes that a pass may rest on: all where it asked or waited for room or ranked classes, else those of its pods."""
    deps, waits = made.deps, made.service.status.get("placement")
    if made.decided.nodes or made.decided.error or waits or deps.accelerators:
        return deps.nodes
    mine = {pod.node for pod in made.observed.pods}
    return {name: node for name, node in deps.nodes.items() if name in mine}
