"""Tests of each merge rule of the contract, with the runtime below and the service above."""

from typing import Any

import pytest

from ome_operator.core.podspec.merge import into_container, merge, merge_layers

CASES: dict[str, tuple[Any, Any, Any]] = {
    "scalars are replaced": ({"a": 1}, {"a": 2}, {"a": 2}),
    "maps merge": (
        {"nodeSelector": {"a": "1", "b": "1"}},
        {"nodeSelector": {"b": "2"}},
        {"nodeSelector": {"a": "1", "b": "2"}},
    ),
    "deep maps merge": (
        {"resources": {"limits": {"cpu": 1, "gpu": 8}}},
        {"resources": {"limits": {"cpu": 2}}},
        {"resources": {"limits": {"cpu": 2, "gpu": 8}}},
    ),
    "env merges by name, in the lower order, new ones behind": (
        {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
        {"env": [{"name": "C", "value": "2"}, {"name": "A", "value": "2"}]},
        {"env": [{"name": "A", "value": "2"}, {"name": "B", "value": "1"}, {"name": "C", "value": "2"}]},
    ),
    "a value replaces a valueFrom": (
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
        {"env": [{"name": "A", "value": "2"}]},
        {"env": [{"name": "A", "value": "2"}]},
    ),
    "a valueFrom replaces a value": (
        {"env": [{"name": "A", "value": "1"}]},
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    ),
    "volumes merge by name and have one source": (
        {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "b", "hostPath": {"path": "/b"}}]},
        {"volumes": [{"name": "b", "emptyDir": {}}, {"name": "shm", "emptyDir": {"sizeLimit": "1Gi"}}]},
        {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}, {"name": "b", "emptyDir": {}}]},
    ),
    "volumeMounts merge by path": (
        {"volumeMounts": [{"name": "a", "mountPath": "/x", "readOnly": True}]},
        {"volumeMounts": [{"name": "b", "mountPath": "/x"}, {"name": "a", "mountPath": "/y"}]},
        {"volumeMounts": [{"name": "b", "mountPath": "/x", "readOnly": True}, {"name": "a", "mountPath": "/y"}]},
    ),
    "ports merge by number and protocol, TCP where none is said": (
        {"ports": [{"containerPort": 1, "protocol": "TCP"}, {"containerPort": 1, "protocol": "UDP"}]},
        {"ports": [{"containerPort": 1, "name": "http"}]},
        {"ports": [{"containerPort": 1, "protocol": "TCP", "name": "http"}, {"containerPort": 1, "protocol": "UDP"}]},
    ),
    "command is replaced": ({"command": ["a", "b"]}, {"command": ["c"]}, {"command": ["c"]}),
    "args are replaced": ({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
    "tolerations are replaced": (
        {"tolerations": [{"key": "a"}]},
        {"tolerations": [{"key": "b"}]},
        {"tolerations": [{"key": "b"}]},
    ),
    "a probe has one handler": (
        {"readinessProbe": {"httpGet": {"path": "/"}, "periodSeconds": 5}},
        {"readinessProbe": {"exec": {"command": ["x"]}}},
        {"readinessProbe": {"periodSeconds": 5, "exec": {"command": ["x"]}}},
    ),
    "a probe of the same handler merges": (
        {"readinessProbe": {"httpGet": {"path": "/", "port": 1}}},
        {"readinessProbe": {"httpGet": {"port": 2}, "periodSeconds": 9}},
        {"readinessProbe": {"httpGet": {"path": "/", "port": 2}, "periodSeconds": 9}},
    ),
    "containers merge by name": (
        {"containers": [{"name": "a", "image": "1", "env": [{"name": "A", "value": "1"}]}]},
        {"containers": [{"name": "b"}, {"name": "a", "env": [{"name": "B", "value": "1"}]}]},
        {
            "containers": [
                {"name": "a", "image": "1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
                {"name": "b"},
            ]
        },
    ),
    "templates pass through": ({"args": []}, {"args": ["{{ messages[0] }}"]}, {"args": ["{{ messages[0] }}"]}),
}


@pytest.mark.parametrize("case", CASES)
def test_merge_prefers_upper_and_keeps_inputs(case: str) -> None:
    lower, upper, merged = CASES[case]
    before = repr((lower, upper))
    assert merge(lower, upper) == merged
    assert repr((lower, upper)) == before


def test_absent_layers_are_skipped_and_later_ones_win() -> None:
    assert merge_layers(None, {"a": 1}, {}, {"a": 2, "b": 1}, None) == {"a": 2, "b": 1}


def test_runner_becomes_first_container_and_its_args_are_appended() -> None:
    pod = {"containers": [{"name": "side"}, {"name": "main", "image": "i", "args": ["a"], "command": ["x"]}]}
    merged = into_container(pod, {"name": "main", "args": ["b"], "command": ["y"]}, "default")
    main = {"name": "main", "image": "i", "args": ["a", "b"], "command": ["y"]}
    assert merged == {"containers": [main, {"name": "side"}]}


def test_unnamed_runner_gets_the_default_name() -> None:
    assert into_container({}, {"image": "i"}, "main") == {"containers": [{"image": "i", "name": "main"}]}
