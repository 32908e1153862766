"""Tests of the facts about pods, from objects as schedulers, kubelets and kwok write them."""

from copy import deepcopy
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.core.observed import from_api
from ome_operator.core.observed import nodes as node_facts

WORKER = {
    keys.SERVICE: "kimi",
    keys.COMPONENT: "decoder",
    keys.REVISION: "abc",
    keys.GROUP_INDEX: "2",
    keys.POD_INDEX: "7",
    keys.MANAGED_BY: keys.MANAGER,
}
LEADER = {**WORKER, keys.WORKER_INDEX: "0", keys.POD_INDEX: "0"}


def body(labels: dict[str, str] = WORKER, status: Any = None, **metadata: Any) -> dict[str, Any]:
    owner = {"kind": "StatefulSet", "name": "kimi-decoder-abc-2-w", "uid": "s", "controller": True}
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "42",
            "labels": labels,
            "ownerReferences": [owner],
            **metadata,
        },
        "spec": {"nodeName": "n1"},
        "status": status or {},
    }


def ready(status: str = "True", **more: Any) -> dict[str, Any]:
    return {"type": "Ready", "status": status, **more}


def container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "ome-container", "ready": False, "restartCount": 0, "state": state, **more}


def test_pod_of_ready_worker_has_group_rank_and_node() -> None:
    pod = from_api.pod(body(status={"phase": "Running", "conditions": [ready()]}))
    assert (pod.namespace, pod.name, pod.uid, pod.version) == ("ns", "p", "u", 42)
    assert (pod.service, pod.component, pod.revision, pod.workload) == ("kimi", "decoder", "abc", "kimi-decoder-abc-2-w")
    assert (pod.group, pod.rank, pod.node) == (2, 7, "n1")
    assert (pod.ready, pod.deleting, pod.grace, pod.reason, pod.message) == (True, False, 0, "", "")


def test_group_of_a_leader_comes_from_its_label() -> None:
    """The group of a leader is read from its label. The pod index of a leader is always 0, so the index says nothing about
    the group.
    """
    pod = from_api.pod(body(LEADER))
    assert (pod.group, pod.rank) == (2, 0)


@pytest.mark.parametrize(
    "labels",
    [
        {**LEADER, keys.POD_INDEX: "1"},
        {**LEADER, keys.POD_INDEX: "x"},
        {**WORKER, keys.POD_INDEX: "0"},
        {**WORKER, keys.WORKER_INDEX: "1", keys.POD_INDEX: "0"},
    ],
    ids=["a leader's set was scaled by hand", "no index", "a worker's set with another start", "a rank that somebody wrote"],
)
def test_pod_with_invalid_rank_still_belongs_to_its_group(labels: dict[str, str]) -> None:
    """A pod with an invalid rank is no rank, but still a pod of its group, because it holds accelerators."""
    pod = from_api.pod(body(labels))
    assert (pod.group, pod.rank) == (2, from_api.NO_NUMBER)


def test_leader_without_group_label_has_no_group() -> None:
    labels = {key: value for key, value in LEADER.items() if key != keys.GROUP_INDEX}
    pod = from_api.pod(body(labels))
    assert (pod.group, pod.rank) == (from_api.NO_NUMBER, 0)


def test_router_pod_has_group_and_rank_0() -> None:
    pod = from_api.pod(body({**WORKER, keys.COMPONENT: "router"}))
    assert (pod.group, pod.rank) == (0, 0)


@pytest.mark.parametrize("labels", [{}, {keys.POD_INDEX: "x"}, {keys.WORKER_INDEX: "0", keys.POD_INDEX: "many"}])
def test_foreign_pods_have_no_group(labels: dict[str, str]) -> None:
    assert from_api.pod(body(labels)).group == from_api.NO_NUMBER


@pytest.mark.parametrize("odd", [{}, {"metadata": None}, {"metadata": {"labels": None}, "spec": None, "status": None}])
def test_invalid_objects_become_empty_records(odd: dict[str, Any]) -> None:
    assert from_api.pod(odd).uid == ""
    assert node_facts.node(odd).name == ""
    assert from_api.child("StatefulSet", odd).owned == ""
    assert from_api.status_writers(odd) == ()


SCHEDULER = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
STARTED = "2026-01-01T00:00:10Z"
SPEC = {"containers": [{"name": "ome-container"}, {"name": "beside"}]}
TRACEBACK = """UserWarning: GGUF is for others
  warnings.warn("…")
Traceback (most recent call last):
  File "server.py", line 1, in <module>
ValueError: Unrecognized model in /models/x.

[2026-01-01 00:00:00] kill_process_tree called
"""
RUNNING = container({"running": {"startedAt": STARTED}}, started=True)
OOM = {"exitCode": 137, "reason": "OOMKilled", "message": ""}
DIED = {"exitCode": 1, "reason": "Error", "message": "CUDA out of memory\n"}

CASES = {
    "the scheduler finds no node": (
        {"spec": {}},
        {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SCHEDULER}],
        },
        ("Unschedulable", SCHEDULER),
    ),
    "nobody has looked at it yet": ({"spec": {}}, {"phase": "Pending"}, ("Pending", "")),
    "containers are being created": (
        {},
        {"phase": "Pending", "containerStatuses": [container({"waiting": {"reason": "ContainerCreating"}})]},
        ("ContainerCreating", "waiting for container ome-container"),
    ),
    "bound, and the kubelet has not spoken": ({}, {"phase": "Pending"}, ("ContainerCreating", "")),
    "it runs again after it died: how it died stays in sight": (
        {},
        {
            "phase": "Running",
            "conditions": [ready("False", lastTransitionTime="2026-01-01T00:00:01Z")],
            "containerStatuses": [{**RUNNING, "lastState": {"terminated": DIED}, "restartCount": 1}],
        },
        ("Error", "container ome-container exited with code 1: CUDA out of memory; it was restarted"),
    ),
    "and for want of memory, many times": (
        {},
        {
            "phase": "Running",
            "containerStatuses": [container({"running": {}}, lastState={"terminated": OOM}, restartCount=7)],
        },
        ("OOMKilled", "container ome-container exited with code 137 (OOMKilled); it was restarted, so far 7 times"),
    ),
    "of a pod that was ready after that, readiness counts": (
        {},
        {
            "phase": "Running",
            "conditions": [ready("False", lastTransitionTime="2026-01-01T01:00:00Z", message="containers with unready")],
            "containerStatuses": [{**RUNNING, "lastState": {"terminated": DIED}, "restartCount": 1}],
        },
        ("NotReady", "containers with unready"),
    ),
    "the image does not exist": (
        {},
        {
            "phase": "Pending",
            "containerStatuses": [
                container({"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x:1"'}})
            ],
        },
        ("ImagePullBackOff", 'container ome-container: Back-off pulling image "x:1"'),
    ),
    "it crashes again and again: its last words count, not the kubelet's back-off": (
        {},
        {
            "phase": "Running",
            "containerStatuses": [
                container(
                    {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}},
                    lastState={"terminated": DIED},
                    restartCount=4,
                )
            ],
        },
        ("CrashLoopBackOff", "container ome-container exited with code 1: CUDA out of memory"),
    ),
    "of a long log the line that names the error": (
        {},
        {"phase": "Failed", "containerStatuses": [container({"terminated": {**DIED, "message": TRACEBACK}})]},
        ("Error", "container ome-container exited with code 1: ValueError: Unrecognized model in /models/x."),
    ),
    "it was killed and is about to be restarted": (
        {},
        {"phase": "Running", "containerStatuses": [container({"terminated": OOM})]},
        ("OOMKilled", "container ome-container exited with code 137 (OOMKilled)"),
    ),
    "an engine that exits with 0 has failed too": (
        {},
        {"phase": "Running", "containerStatuses": [container({"terminated": {"exitCode": 0, "reason": "Completed"}})]},
        ("Completed", "container ome-container exited with code 0"),
    ),
    "a finished init container is no failure": (
        {},
        {
            "phase": "Pending",
            "initContainerStatuses": [
                {"name": "i", "ready": True, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
            ],
            "containerStatuses": [container({"waiting": {"reason": "PodInitializing"}})],
        },
        ("Starting", "waiting for container ome-container"),
    ),
    "evicted": (
        {},
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
        ("Evicted", "The node was low on resource: memory."),
    ),
    "failed for good": (
        {},
        {"phase": "Failed", "containerStatuses": [container({"terminated": DIED})]},
        ("Error", "container ome-container exited with code 1: CUDA out of memory"),
    ),
    "it runs and loads weights": (
        {},
        {
            "phase": "Running",
            "conditions": [ready("False", lastTransitionTime="2026-01-01T00:00:01Z")],
            "containerStatuses": [RUNNING],
        },
        ("Starting", "waiting for container ome-container"),
    ),
    "it was ready and is not any more": (
        {},
        {
            "phase": "Running",
            "conditions": [ready("False", lastTransitionTime="2026-01-01T01:00:00Z", message="containers with unready")],
            "containerStatuses": [RUNNING],
        },
        ("NotReady", "containers with unready"),
    ),
    "its node is lost": (
        {},
        {"phase": "Running", "conditions": [ready("Unknown", message="Kubelet stopped posting")]},
        ("NodeLost", "Kubelet stopped posting"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_pod_is_not_ready_with_reason(case: str) -> None:
    changes, status, wanted = CASES[case]
    pod = from_api.pod({**body(status=deepcopy(status)), **changes})  # type: ignore[dict-item]
    assert (pod.ready, (pod.reason, pod.message)) == (False, wanted)


def test_deleted_pod_is_terminating_with_grace_period() -> None:
    boxes = [container({}, restartCount=2), container({}, name="sidecar", restartCount=1)]
    status = {"conditions": [ready()], "containerStatuses": boxes}
    pod = from_api.pod(body(status=status, deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=30))
    assert (pod.deleting, pod.grace, pod.ready, pod.reason, pod.restarts) == (True, 30, True, "Terminating", 2)


def test_last_termination_of_the_main_container_is_kept_while_it_runs() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "message": "a\nb\n", "finishedAt": STARTED}
    main = container({"running": {"startedAt": STARTED}}, restartCount=1, lastState={"terminated": ended})
    beside = container({"terminated": {"exitCode": 1, "finishedAt": STARTED}}, name="beside")
    pod = from_api.pod(body(status={"phase": "Running", "containerStatuses": [beside, main]}) | {"spec": SPEC})
    assert pod.ending == ("ome-container", "OOMKilled", 137, "a\nb", STARTED)
    assert (pod.restarts, pod.running, pod.over) == (1, True, False)


def test_probed_is_true_if_the_main_container_has_a_probe() -> None:
    main, beside = {"name": "main"}, {"name": "beside", "readinessProbe": {"tcpSocket": {"port": 1}}}
    probe = {"httpGet": {"path": "/health", "port": 1}}
    ready, start = main | {"readinessProbe": probe}, main | {"startupProbe": probe}
    for boxes, wanted in (([main, beside], False), ([ready, beside], True), ([start], True), ([], False)):
        assert from_api.pod(body() | {"spec": {"containers": boxes}}).probed is wanted


def test_eviction_reason_of_a_pod_is_kept() -> None:
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "lastTransitionTime": STARTED}
    pod = from_api.pod(body(status={"conditions": [{**taken, "message": "no"}]}, deletionTimestamp=STARTED))
    assert pod.ending == ("", "DeletionByTaintManager", None, "no", STARTED)
    assert pod.ends == STARTED
    pod = from_api.pod(body(status={"phase": "Failed", "reason": "Evicted", "message": "disk"}))
    assert pod.over and pod.ending == ("", "Evicted", None, "disk", "")
