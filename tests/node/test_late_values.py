"""Tests of values in pods that the API server accepts and a real node rejects: `lint/pod_tables.py:LATE`."""

import json
from typing import Any

import pytest

from ome_local.cluster import Cluster
from ome_operator.lint.pod_tables import LATE
from ome_operator.lint.pod_values import refusals
from tests.node.test_pods import eventually, inside, pod, wait_ready
from tests.support.busybox import REFERENCE

_MOUNT = {"container": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}}
WRONG: dict[str, dict[str, Any]] = {
    "Container.image": {"container": {"image": "Wrong Name:1"}},
    "Container.workingDir": {"container": {"workingDir": "relative"}},
    "EmptyDirVolumeSource.medium": {**_MOUNT, "volumes": [{"name": "v", "emptyDir": {"medium": "memory"}}]},
    "ConfigMapVolumeSource.name": {**_MOUNT, "volumes": [{"name": "v", "configMap": {"name": "My_Map"}}]},
    "SecretVolumeSource.secretName": {**_MOUNT, "volumes": [{"name": "v", "secret": {"secretName": "My_Secret"}}]},
    "ConfigMapProjection.name": {
        **_MOUNT, "volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "My_Map"}}]}}],
    },
    "SecretProjection.name": {
        **_MOUNT, "volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "My_Secret"}}]}}],
    },
    "PersistentVolumeClaimVolumeSource.claimName": {
        **_MOUNT, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "My_Claim"}}],
    },
    "TopologySpreadConstraint.topologyKey": {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "a b", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ]
    },
}  # fmt: skip
"""Field -> a pod that cannot start only because of the value of this field."""
NOT_HERE = {
    "Capabilities.add": "the pod starts, and lacks the capability",
    "ImageVolumeSource.reference": "such volumes are switched off in this version",
}
"""Field of LATE -> why WRONG has no pod for it."""


def test_every_late_field_has_a_test_pod() -> None:
    assert {".".join(field) for field in LATE} == {*WRONG, *NOT_HERE}


def test_node_starts_no_pod_with_a_late_refused_value(real: Cluster) -> None:
    specs = {
        f"late-{number}": (field, pod(f"late-{number}", "sleep 600", **given))
        for number, (field, given) in enumerate(WRONG.items())
    }
    real.apply(*(made for _, made in specs.values()))
    for name, (field, made) in specs.items():
        (found,) = refusals(made["spec"])
        assert found.late, field
        eventually(f"{field}: the cause is an event", lambda name=name: bool(_warnings(real, name)), 60.0)
    real.apply(pod("late-fine", "sleep 600"))
    wait_ready(real, "late-fine")
    assert [field for name, (field, _) in specs.items() if _runs(real, name)] == [] and _runs(real, "late-fine")


def _warnings(cluster: Cluster, name: str) -> list[str]:
    """Return the messages of the warnings about a pod."""
    selector = f"involvedObject.name={name},type=Warning"
    events = json.loads(cluster.kubectl("get", "events", "--field-selector", selector, "-o", "json"))["items"]
    return [str(event["message"]) for event in events]


def _runs(cluster: Cluster, name: str) -> bool:
    """Return whether a container of the pod runs or has run."""
    states = "jsonpath={.status.containerStatuses[*].state.running}{.status.containerStatuses[*].lastState}"
    return "startedAt" in cluster.kubectl("get", "pod", name, "-o", states).replace('"startedAt":"1970-01-01T00:00:00Z"', "")


@pytest.mark.parametrize(("added", "has"), [("SYS_PTRACE", True), ("CAP_SYS_PTRACE", False), ("SYS_PTRAC", False)])
def test_capability_name_has_no_prefix(real: Cluster, added: str, has: bool) -> None:
    """The API server accepts a capability with the prefix CAP_ or with a misspelled name, but the capability has no effect
    in the container. With the right name it has an effect. The test uses SYS_PTRACE, which is the capability with number
    19.
    """
    name = f"cap-{added.lower().replace('_', '-')}"
    real.apply(pod(name, "sleep 600", container={"image": REFERENCE, "securityContext": {"capabilities": {"add": [added]}}}))
    wait_ready(real, name)
    effective = int(inside(real, name, "grep CapEff /proc/1/status").split()[1], 16)
    assert bool(effective >> 19 & 1) is has
