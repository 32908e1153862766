"""Tests of the comparison of two outcomes."""

from typing import Any

import pytest

from ome_operator.describe.changes import changes
from ome_operator.describe.outcome import TargetOutcome


def outcome(probes: dict[str, Any]) -> TargetOutcome:
    template = {"spec": {"containers": [{"name": "main", **probes}]}}
    body = {"kind": "StatefulSet", "metadata": {"name": "a"}, "spec": {"template": template}}
    return TargetOutcome("", {}, (body,), (), ())


@pytest.mark.parametrize("shared", [True, False])
def test_repeated_python_object_is_written_twice_without_yaml_anchors(shared: bool) -> None:
    """If a template contains the same Python object twice, its text contains the object twice and no YAML anchors. Anchors
    would look like a change in the output of `ome diff`.
    """
    probe = {"httpGet": {"path": "/health"}}
    new = {"livenessProbe": probe, "readinessProbe": probe if shared else {"httpGet": {"path": "/health"}}}
    (change,) = changes(outcome({"livenessProbe": {"httpGet": {"path": "/health"}}}), outcome(new))
    edits = [line for line in change.lines if line[0] in "+-"]
    assert [line.split() for line in edits] == [["+", "readinessProbe:"], ["+", "httpGet:"], ["+", "path:", "/health"]]
