"""Tests of what a pass costs, by counts that are the same on every machine: function calls, and results computed anew."""

import sys
from dataclasses import replace
from typing import Any

import pytest

from bench import offline
from bench.alone import NOW, steady, touched
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
    service, observed = steady(offline.service(scenario.service(1)), deps)
    return service, deps, observed


def calls(groups: int) -> int:
    """Return the number of function calls of a pass over a service of `groups` groups in which nothing has changed."""
    service, deps, observed = ready(groups)
    count = 0

    def counted(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        sync(service, deps, observed, NOW)
    finally:
        sys.setprofile(before)
    return count


def test_a_pass_costs_the_same_for_each_further_group() -> None:
    """Were a group compared with each other group, the second forty groups would cost three times what the first cost."""
    ten, fifty, ninety = (calls(groups) for groups in (10, 50, 90))
    assert ninety - fifty < 1.1 * (fifty - ten)


def test_a_pass_in_which_nothing_changed_computes_only_what_depends_on_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is rendered, parsed, validated or digested again when only a pod has got a new version."""
    service, deps, observed = ready(3)
    anew = list[tuple[Any, ...]]()
    put = memoize._Kept.put

    def noted(cache: Any, key: Any, found: tuple[Any, Any]) -> None:
        anew.append(found[0])
        put(cache, key, found)

    monkeypatch.setattr(memoize._Kept, "put", noted)
    sync(service, deps, touched(observed, 2), NOW)
    assert [args for args in anew if not any(isinstance(arg, Slice) for arg in args)] == []
    assert len(anew) <= 4, "the groups of the revision are counted once, for all decisions"
