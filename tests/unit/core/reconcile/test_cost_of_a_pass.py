"""Tests of what a pass costs, by counts that are the same on every machine: instructions, and results computed anew."""

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from bench import offline
from bench.alone import NOW, steady_state, with_newer_pod
from bench.scenarios import HOLDS, SINGLE, catalog
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.observed.slices import Slice
from ome_operator.core.reconcile.sync import sync
from ome_operator.lint.validator import Validator
from ome_operator.util import memoize


def ready(groups: int) -> tuple[InferenceService, Deps, Observed]:
    """Return a service of `groups` groups and a router in which everything exists and is ready."""
    scenario = replace(SINGLE[1], groups=groups)
    deps = replace(offline.dependencies(catalog(), HOLDS, 4), judge=Validator())
    service, observed = steady_state(offline.service(scenario.service(1)), deps)
    return service, deps, observed


def steps(groups: int) -> int:
    """Return the number of instructions of the interpreter in a pass over a service of `groups` groups in which nothing has
    changed.
    """
    service, deps, observed = ready(groups)
    count = 0

    def counted(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return counted

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        sync(service, deps, observed, NOW)
    finally:
        sys.settrace(before)
    return count


def test_cost_of_a_reconciliation_is_linear_in_groups() -> None:
    """The instructions of a pass grow linearly with the number of groups. If each group were compared with each other
    group, the second hundred groups would cost more than the first hundred.
    """
    few, more, most = (steps(groups) for groups in (10, 110, 210))
    assert most - more < 1.1 * (more - few)


def test_unchanged_reconciliation_recomputes_only_what_depends_on_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing has changed except the version of a pod, a reconciliation does not render, parse, validate or digest
    anything again.
    """
    service, deps, observed = ready(3)
    anew = list[tuple[Any, ...]]()
    put = memoize._Kept.put

    def noted(cache: Any, key: Any, found: tuple[Any, ...]) -> None:
        anew.append(found[:-1])
        put(cache, key, found)

    monkeypatch.setattr(memoize._Kept, "put", noted)
    sync(service, deps, with_newer_pod(observed, 2), NOW)
    assert [args for args in anew if not any(isinstance(arg, Slice) for arg in args)] == []
    assert len(anew) <= 4, "the groups of the revision are counted once, for all decisions"
