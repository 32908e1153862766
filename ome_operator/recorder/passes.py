"""A recorded reconciliation pass: the inputs that `sync` read, and its decision."""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Epoch, Node, Observed, Ref
from ome_operator.core.observed.validation import RevisionUnderTest, ValidationResult
from ome_operator.core.reconcile.plan import Plan
from ome_operator.recorder.decision import Decision, decision, failed_decision

K = TypeVar("K")
V = TypeVar("V")


ResultKey = tuple[str, int]
"""Name of a revision, and the number of its parts that were validated. The number distinguishes a validation with the router
from a validation without the router."""


class Pass(NamedTuple):
    """The inputs of `sync`, and its decision."""

    now: datetime
    service: InferenceService
    deps: Deps
    """The objects outside the service that this pass read. All nodes are included; `relevant_nodes` selects the nodes
    that affect the decision."""
    observed: Observed
    """The observed state of the service. `observed.ahead` and `deps.judge` return the recorded results."""
    decided: Decision
    times: int = 1
    """Number of consecutive passes with the same inputs and decision; `now` is the time of the last of these passes."""


class TrackedMapping(Mapping[K, V]):
    """A mapping that records which keys were read. The operator changes the underlying mapping, so the object must not be
    used after the pass.
    """

    __slots__ = ("_all", "_asked", "_of")

    def __init__(self, of: Mapping[K, V]) -> None:
        self._of, self._asked, self._all = of, set[K](), False

    def __getitem__(self, key: K) -> V:
        self._asked.add(key)
        return self._of[key]

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, or `default` if the key does not exist."""
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
        """Return all keys."""
        self._all = True
        return self._of.keys()

    def values(self) -> ValuesView[V]:
        """Return all values."""
        self._all = True
        return self._of.values()

    def items(self) -> ItemsView[K, V]:
        """Return all keys with their values."""
        self._all = True
        return self._of.items()

    def read_entries(self) -> dict[K, V]:
        """Return the entries that the pass has read; all entries if it has read all keys or values. Keys that do not exist
        are left out.
        """
        return dict(self._of) if self._all else {key: self._of[key] for key in self._asked if key in self._of}


class SharedNodes:
    """Copies of the tables of nodes. The operator changes these tables in place, so a pass that reads nodes needs a copy;
    all services share the copy until the next change.
    """

    def __init__(self) -> None:
        self._of: object = None
        self._nodes: dict[str, Node] = {}
        self._holders: dict[str, AbstractSet[str]] = {}

    def nodes(self, deps: Deps) -> Mapping[str, Node]:
        """Return a copy of all nodes. After a change of any node, `deps.nodes` is a new object, and another copy is made."""
        if self._of is not deps.nodes:
            self._of, self._nodes, self._holders = deps.nodes, dict(deps.nodes), {}
        return self._nodes

    def holder(self, label: str, names: AbstractSet[str]) -> AbstractSet[str]:
        """Return the names of the nodes that have a label, as a copy. Call `nodes` first: it detects changes, including
        changes of labels, because labels are part of a node.
        """
        if label not in self._holders:
            self._holders[label] = frozenset(names)
        return self._holders[label]


class PassRecorder:
    """A recorder of one pass: `sync` receives its `deps` and `observed`, which record what `sync` reads."""

    def __init__(self, service: InferenceService, deps: Deps, observed: Observed) -> None:
        self._service, self._deps, self._observed, self._said = service, deps, observed, ""
        self._models, self._runtimes, self._weights = (
            TrackedMapping(deps.models),
            TrackedMapping(deps.runtimes),
            TrackedMapping(deps.weights),
        )
        self._accelerators, self._holders = TrackedMapping(deps.accelerators), TrackedMapping(deps.holders)
        self._judged = dict[ResultKey, ValidationResult]()
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

    def _ahead(self, versions: Mapping[Ref, Epoch]) -> str:
        self._said = self._observed.ahead(versions)
        return self._said

    def _judge(self, revision_under_test: RevisionUnderTest) -> ValidationResult:
        verdicts = self._judged[_of(revision_under_test)] = self._deps.judge(revision_under_test)
        return verdicts

    def finish_pass(self, now: datetime, plan: Plan | Exception, around: SharedNodes) -> Pass:
        """Return the finished pass. `plan` is the plan or the exception with which the pass ended."""
        nodes, observed_now = around.nodes(self._deps), self._observed
        visible = "", self._service.namespace
        deps = replace(
            self._deps,
            models={ref: object_ for ref, object_ in self._models.read_entries().items() if ref.namespace in visible},
            runtimes={ref: object_ for ref, object_ in self._runtimes.read_entries().items() if ref.namespace in visible},
            weights=self._weights.read_entries(),
            accelerators=self._accelerators.read_entries(),
            nodes=nodes,
            holders={label: around.holder(label, names) for label, names in self._holders.read_entries().items()},
            judge=partial(recorded_result, self._judged),
        )
        observed = replace(
            observed_now,
            accepted=dict(observed_now.accepted),
            failures=dict(observed_now.failures),
            strangers=dict(observed_now.strangers),
            drains=dict(observed_now.drains),
            silences=dict(observed_now.silences),
            transfers=dict(observed_now.transfers),
            starts=dict(observed_now.starts),
            ahead=partial(recorded_ahead, self._said),
        )
        decided = failed_decision(plan) if isinstance(plan, Exception) else decision(plan)
        return Pass(now, self._service, deps, observed, decided)


def recorded_ahead(message: str, _: Mapping[Ref, Epoch]) -> str:
    """Implement `Observed.ahead` of a recorded pass: return the recorded message."""
    return message


def recorded_result(
    results: Mapping[ResultKey, ValidationResult], revision_under_test: RevisionUnderTest
) -> ValidationResult:
    """Implement `Deps.judge` of a recorded pass: return the recorded result, or an empty result if there is none."""
    return results.get(_of(revision_under_test), ValidationResult())


def _of(revision_under_test: RevisionUnderTest) -> ResultKey:
    return revision_under_test.revision, len(revision_under_test.parts)


def relevant_nodes(pass_: Pass) -> Mapping[str, Node]:
    """Return the nodes on which the decision of a pass may depend: all nodes if the pass read nodes, failed, waited for
    capacity or ranked accelerator classes, otherwise the nodes of its pods.
    """
    deps, placement = pass_.deps, pass_.service.status.get("placement")
    if pass_.decided.nodes or pass_.decided.error or placement or deps.accelerators:
        return deps.nodes
    pod_nodes = {pod.node for pod in pass_.observed.pods}
    return {name: node for name, node in deps.nodes.items() if name in pod_nodes}
