"""Tests of the benchmark of the operator's records of failures by node (docs/bad-nodes.md), on a small fleet."""

import pytest

from bench import badnodes
from bench.crowd import Crowd, Size


def test_all_failures_are_found_and_all_figures_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("NODES", 40), ("SERVICES", 8), ("FAILURES", 6), ("LOOKS", 3), ("PASSES", 2)):
        monkeypatch.setattr(badnodes, name, number)
    monkeypatch.setattr(badnodes, "CROWD", Crowd(Size(nodes=40, models=1, services=8)))
    found = badnodes.measure()
    assert found.remembered == 18
    assert all(found)
    assert len(badnodes.lines(found)) == 5
