"""Tests that a merged pod spec has the API server's spelling, and nothing that server-side apply refuses."""

from typing import Any

import pytest

from ome_operator.core.podspec.canonical import canonical_pod

CASES: dict[str, tuple[Any, Any]] = {
    "nulls go": ({"a": None, "b": {"c": None, "d": 1}}, {"b": {"d": 1}}),
    "quantities": (
        {"resources": {"limits": {"cpu": "1000m", "memory": "1024Mi", "x": None}}, "emptyDir": {"sizeLimit": "0.5Gi"}},
        {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "emptyDir": {"sizeLimit": "512Mi"}},
    ),
    "downward API": (
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x", "apiVersion": "v1"}}}]},
    ),
    "divisors": (
        {"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}},
    ),
    "values of variables are texts": (
        {"env": [{"name": "A", "value": 1}, {"name": "B", "value": True}, {"name": "C"}, {"name": "D", "value": 0.5}]},
        {
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "value": "true"},
                {"name": "C", "value": ""},
                {"name": "D", "value": "0.5"},
            ]
        },
    ),
    "arguments are texts": ({"args": ["--port", 80, True]}, {"args": ["--port", "80", "true"]}),
    "ports say TCP": ({"ports": [{"containerPort": 1}]}, {"ports": [{"containerPort": 1, "protocol": "TCP"}]}),
    "empty maps that mean something stay": ({"emptyDir": {}}, {"emptyDir": {}}),
}


@pytest.mark.parametrize("case", CASES)
def test_canonical_pod_is_idempotent(case: str) -> None:
    pod, tidied = CASES[case]
    assert canonical_pod(pod) == (tidied, ())
    assert canonical_pod(tidied) == (tidied, ())


def test_last_duplicate_is_used_and_duplicates_are_reported() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}, {"name": "A", "value": "2"}]
    mounts = [{"name": "x", "mountPath": "/m"}, {"name": "y", "mountPath": "/m"}]
    pod, said = canonical_pod({"env": env, "volumeMounts": mounts})
    assert pod["env"] == [{"name": "B", "value": "1"}, {"name": "A", "value": "2"}]
    assert pod["volumeMounts"] == [{"name": "y", "mountPath": "/m"}]
    assert said == ("env A is set twice: the last value is used", "volumeMounts /m is set twice: the last value is used")


def test_last_port_with_a_duplicate_name_is_used_and_unnamed_ports_are_kept() -> None:
    ports = [
        {"containerPort": 1, "name": "http"},
        {"containerPort": 2, "name": "http"},
        {"containerPort": 3},
        {"containerPort": 4},
    ]
    pod, said = canonical_pod({"ports": ports})
    assert [one["containerPort"] for one in pod["ports"]] == [2, 3, 4]
    assert said == ("ports http is set twice: the last value is used",)
