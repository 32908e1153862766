"""Tests of the faults that a node itself reports."""

from typing import Any

import pytest

from ome_operator.core.observed import nodes
from ome_operator.core.observed.node_faults import FAULTY

NAME = {"metadata": {"name": "n", "uid": "u"}}


def faults(status: dict[str, Any], *taints: str) -> dict[str, str]:
    """Return the faults of a node."""
    spec = {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}
    return dict(nodes.node({**NAME, "spec": spec, "status": status}).faults)


@pytest.mark.parametrize("kind", FAULTY)
def test_a_condition_of_a_known_type(kind: str) -> None:
    bad, good = FAULTY[kind], {"True": "False", "False": "True"}[FAULTY[kind]]
    assert faults({"conditions": [{"type": kind, "status": bad, "message": "m"}]}) == {kind: f"the condition is {bad} (m)"}
    for status in (good, "Unknown"):
        assert faults({"conditions": [{"type": kind, "status": status}]}) == {}
    assert faults({}, f"example.com/{kind}") == {kind: f"taint example.com/{kind}"}


def test_unknown_conditions_and_taints_are_not_faults() -> None:
    others = [{"type": kind, "status": "True"} for kind in ("MemoryPressure", "Ready", "MyOwn", "")]
    assert faults({"conditions": others}, "nvidia.com/gpu", "node.kubernetes.io/unschedulable") == {}


@pytest.mark.parametrize(
    ("capacity", "allocatable", "said"),
    [
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "7"}, "only 7 of 8 nvidia.com/gpu are allocatable"),
        ({"amd.com/gpu": "8"}, {"amd.com/gpu": "0"}, "only 0 of 8 amd.com/gpu are allocatable"),
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "8"}, ""),
        ({"nvidia.com/gpu": "8"}, {}, ""),
        ({"cpu": "64"}, {"cpu": "63"}, ""),
    ],
)
def test_missing_gpus_of_node_are_a_fault(capacity: dict[str, str], allocatable: dict[str, str], said: str) -> None:
    found = faults({"capacity": capacity, "allocatable": allocatable})
    assert found == ({"GPUMissing": said} if said else {})


def test_the_uid_of_the_node_is_kept() -> None:
    assert nodes.node(NAME).uid == "u"
