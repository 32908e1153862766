"""Tests of groups in a queue of the real Kueue: a group is admitted completely or not at all, even if it is created again
(docs/placement.md).
"""

import pytest

from ome_operator import keys
from tests.support import queues, yamls
from tests.support.queues import gated, groups, role
from tests.support.rig import Manifest, Rig, is_ready

pytestmark = pytest.mark.timeout(600)


def service(namespace: str, name: str = "kimi", **parts: Manifest) -> Manifest:
    """Return a service with a prefill and a decode group of 16 GPUs each, whose pods wait in the queue of their
    namespace.
    """
    both = {"engine": role(namespace), "decoder": role(namespace), **parts}
    return yamls.service(namespace, name, "split", *both, **both)


def serves(rig: Rig, namespace: str, count: int) -> bool:
    """Return whether this number of groups exists and all of their pods are ready. Raises AssertionError if Kueue has
    reserved quota for a part of a group.
    """
    assert queues.reserved_gpus(rig, namespace) % 16 == 0
    found = groups(rig, namespace)
    return len(found) == count and all(len(pods) == 2 and all(map(is_ready, pods)) for pods in found.values())


def wait_serves(rig: Rig, namespace: str, count: int, seconds: float = 90) -> None:
    rig.wait(f"{count} groups serve", lambda: serves(rig, namespace, count), seconds, often=True)


def uids(rig: Rig, namespace: str) -> set[str]:
    return {pod["metadata"]["uid"] for pods in groups(rig, namespace).values() for pod in pods}


def test_group_is_admitted_completely_when_the_quota_suffices(rig: Rig, namespace: str) -> None:
    queues.create(rig, namespace, 8)
    rig.create(service(namespace))
    rig.wait("two Workloads", lambda: len(queues.workloads(rig, namespace)) == 2, 60)
    before = uids(rig, namespace)
    for _ in range(20):
        found = groups(rig, namespace)
        assert len(found) == 2 and all(gated(pod) for pods in found.values() for pod in pods)
    assert queues.reserved_gpus(rig, namespace) == 0
    assert rig.condition(namespace, "kimi", "EngineReady")["message"].count("SchedulingGated")
    queues.resize(rig, namespace, 32)
    wait_serves(rig, namespace, 2)
    rig.ready(namespace, "kimi", 30)
    assert uids(rig, namespace) == before, "pods that waited in the queue are not created again"
    rig.wait("the quota is used", lambda: queues.reserved_gpus(rig, namespace) == 32, 30)


def admitted(rig: Rig, namespace: str) -> set[str]:
    """Return the components that have a group whose pods are all ready."""
    found = groups(rig, namespace).items()
    return {component for (_, component, _), pods in found if all(map(is_ready, pods)) and len(pods) == 2}


def test_prefill_without_decode_is_released_until_both_can_be_admitted(rig: Rig, namespace: str) -> None:
    queues.create(rig, namespace, 16)
    rig.create(service(namespace))
    (alone,) = rig.wait("one role is admitted", lambda: admitted(rig, namespace), 60)
    condition = {keys.ENGINE: "EngineReady", keys.DECODER: "DecoderReady"}[alone]
    rig.wait_for_condition(
        namespace, "kimi", condition, "WaitingForRoom", "its queue: Kueue admitted only some of the pods", 60
    )
    rig.wait("its quota is free", lambda: not groups(rig, namespace) and not queues.reserved_gpus(rig, namespace), 60)
    queues.resize(rig, namespace, 32)
    wait_serves(rig, namespace, 2, 200)
    rig.ready(namespace, "kimi", 30)


def test_a_recycled_group_returns_within_the_quota(rig: Rig, namespace: str) -> None:
    """A group is recycled in a queue whose quota is exactly as large as the service. It returns after the quota of its old
    pods is released. Simulated pods end as under a kubelet, which removes no finalizers.
    """
    queues.create(rig, namespace, 32)
    rig.create(service(namespace))
    wait_serves(rig, namespace, 2)
    rig.ready(namespace, "kimi", 30)
    before = uids(rig, namespace)
    (decode,) = [pods for (_, component, _), pods in groups(rig, namespace).items() if component == keys.DECODER]
    leader = next(pod["metadata"]["name"] for pod in decode if not pod["metadata"]["name"].endswith("-w-1"))
    rig.delete("Pod", namespace, leader)
    gone = {pod["metadata"]["uid"] for pod in decode}
    rig.wait("decode is new", lambda: not gone & uids(rig, namespace) and serves(rig, namespace, 2), 120, often=True)
    rig.ready(namespace, "kimi", 30)
    assert before - gone <= uids(rig, namespace), "the pods of prefill are the same"


def test_scaling_of_groups_reserves_and_releases_quota(rig: Rig, namespace: str) -> None:
    queues.create(rig, namespace, 64)
    scaled = role(namespace, minReplicas=1, maxReplicas=3, autoscaler={"class": "External"})
    rig.create(service(namespace, decoder=scaled))
    wait_serves(rig, namespace, 2)
    for replicas in (2, 1, 3):
        rig.patch("RoleScale", namespace, "kimi-decoder", {"spec": {"replicas": replicas}})
        wait_serves(rig, namespace, 1 + replicas)
        rig.wait("the quota follows", lambda count=1 + replicas: queues.reserved_gpus(rig, namespace) == 16 * count, 30)
    names = {name for name in queues.workloads(rig, namespace) if "-decoder-" in name}
    assert sorted(name.rpartition("-")[2] for name in names) == ["0", "1", "2"]
    # The group in the middle is the least useful one when its pods are marked for draining, so scaling removes it.
    middle = next(name for name in names if name.endswith("-1"))
    notes = {"metadata": {"annotations": {keys.DRAINING: "2026-01-01T00:00:00Z"}}}
    rig.patch("Pod", namespace, f"{middle}-0", notes)
    rig.patch("RoleScale", namespace, "kimi-decoder", {"spec": {"replicas": 2}})
    rig.wait("the middle is gone", lambda: middle not in queues.workloads(rig, namespace), 90)
    wait_serves(rig, namespace, 3)
    assert {name for name in queues.workloads(rig, namespace) if "-decoder-" in name} == names - {middle}
    rig.patch("RoleScale", namespace, "kimi-decoder", {"spec": {"replicas": 3}})
    wait_serves(rig, namespace, 4)
    assert {name for name in queues.workloads(rig, namespace) if "-decoder-" in name} == names
    rig.wait("the quota follows", lambda: queues.reserved_gpus(rig, namespace) == 64, 30)


def test_a_rollout_needs_no_more_quota_than_the_service(rig: Rig, namespace: str) -> None:
    queues.create(rig, namespace, 32)
    rig.create(service(namespace))
    wait_serves(rig, namespace, 2)
    rig.ready(namespace, "kimi", 30)
    (before,) = {revision for revision, _, _ in groups(rig, namespace)}
    change = {"spec": {"engine": {"runner": {"env": [{"name": "A", "value": "1"}]}}}}
    rig.patch("InferenceService", namespace, "kimi", change)

    def replaced() -> bool:
        found = {revision for revision, _, _ in groups(rig, namespace)}
        return serves(rig, namespace, 2) and before not in found

    rig.wait("the new revision serves", replaced, 120, often=True)
    rig.ready(namespace, "kimi", 30)
    rig.wait("the old quota is free", lambda: queues.reserved_gpus(rig, namespace) == 32, 30)


def test_pods_of_revisions_from_an_earlier_operator_have_no_pod_group(rig: Rig, namespace: str) -> None:
    """The pods of a revision that an earlier operator stored belong to no pod group of Kueue. Kueue admits such pods one by
    one, which the condition Advice reports, and the operator deletes the pods of a group of which only a part is admitted.
    """
    queues.create(rig, namespace, 16)
    rig.stop()
    rig.create(service(namespace))
    rig.start("operator", "--gang-timeout", "3600")
    rig.wait("the groups exist", lambda: len(uids(rig, namespace)) == 4, 60)
    rig.stop()
    (stored,) = [one for one in rig.all("ControllerRevision", namespace, keys.SERVICE) if "workloads" in one["data"]]
    for one in rig.all("StatefulSet", namespace):
        rig.delete("StatefulSet", namespace, one["metadata"]["name"])
    rig.wait("nothing is left", lambda: not uids(rig, namespace) and not queues.reserved_gpus(rig, namespace), 60)
    rig.delete("ControllerRevision", namespace, stored["metadata"]["name"])
    metadata = {name: stored["metadata"][name] for name in ("name", "namespace", "labels", "ownerReferences", "annotations")}
    roles = stored["data"]["workloads"]
    data = {**stored["data"], "workloads": {name: without(one) for name, one in roles.items()}}
    rig.create({**stored, "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "data": data})
    rig.start("operator", "--gang-timeout", "1")
    rig.wait("half of the pods run", lambda: len(running(rig, namespace)) == 2, 60)
    assert not any(keys.KUEUE_GROUP in pod["metadata"]["labels"] for pod in running(rig, namespace))
    rig.wait("they are released", lambda: not groups(rig, namespace) and not queues.reserved_gpus(rig, namespace), 90)
    assert "Kueue admits the pods of prefill one by one" in rig.condition(namespace, "kimi", "Advice")["message"]
    queues.resize(rig, namespace, 32)
    change = {"spec": {"engine": {"runner": {"env": [{"name": "A", "value": "1"}]}}}}
    rig.patch("InferenceService", namespace, "kimi", change)
    wait_serves(rig, namespace, 2, 200)
    assert len(queues.workloads(rig, namespace)) == 2
    assert "one by one" not in rig.condition(namespace, "kimi", "Advice").get("message", "")


def running(rig: Rig, namespace: str) -> list[Manifest]:
    return [pod for pods in groups(rig, namespace).values() for pod in pods if not gated(pod)]


def without(stored: Manifest) -> Manifest:
    return {name: value for name, value in stored.items() if name != "podGroup"}


def test_service_preempted_by_kueue_returns(rig: Rig, namespace: str) -> None:
    """Kueue deletes the pods of the service with the lower priority. New pods wait in the queue until the other service is
    deleted.
    """
    queues.create(rig, namespace, 32, preempts=True)
    rig.create(service(namespace))
    wait_serves(rig, namespace, 2)
    rig.ready(namespace, "kimi", 30)
    first = uids(rig, namespace)
    name = queues.priority(rig, namespace, 1000)
    high = {"labels": {keys.KUEUE_LABEL: namespace, "kueue.x-k8s.io/priority-class": name}}
    rig.create(service(namespace, "high", engine=high, decoder=high))
    rig.ready(namespace, "high", 120)
    assert not first & uids(rig, namespace)
    rig.delete("InferenceService", namespace, "high")
    rig.ready(namespace, "kimi", 200)
    wait_serves(rig, namespace, 2, 60)


def test_pod_group_over_both_roles_would_keep_quota_of_a_deleted_group(rig: Rig, namespace: str) -> None:
    """The test shows why each engine group is a pod group of its own in Kueue: if prefill and decode were one pod group, the
    quota of a deleted group would stay reserved.
    """
    queues.create(rig, namespace, 64)
    marks = {"kueue.x-k8s.io/pod-suspending-parent": "test", keys.KUEUE_COUNT: "4", keys.KUEUE_SERVING: "true"}
    labels = {keys.KUEUE_GROUP: "first", keys.KUEUE_MANAGED: "true", keys.KUEUE_LABEL: namespace}
    for name in ("prefill", "decode"):
        rig.create(queues.stateful_set(namespace, name, labels, marks))
    rig.wait("all run", lambda: ready_pods(rig, namespace) == 4, 60)
    rig.wait("the quota is used", lambda: queues.reserved_gpus(rig, namespace) == 32, 30)
    rig.delete("StatefulSet", namespace, "decode")
    rig.wait("decode is gone", lambda: len(rig.all("Pod", namespace)) == 2, 60)
    condition = "WaitingForReplacementPods"
    rig.wait("Kueue waits", lambda: queues.condition(queues.workloads(rig, namespace)["first"], condition) == "True", 30)
    assert queues.reserved_gpus(rig, namespace) == 32
    rig.delete("StatefulSet", namespace, "prefill")
    rig.wait("the quota is free", lambda: not queues.reserved_gpus(rig, namespace), 60)


def test_pod_of_a_pod_group_without_suspending_parent_never_terminates(rig: Rig, namespace: str) -> None:
    """The test shows why pods have the annotation pod-suspending-parent. Without it, Kueue's finalizer stays until a
    replacement exists, but a StatefulSet creates the replacement only when the pod is gone.
    """
    queues.create(rig, namespace, 64)
    marks = {keys.KUEUE_COUNT: "2", keys.KUEUE_SERVING: "true"}
    labels = {keys.KUEUE_GROUP: "plain", keys.KUEUE_LABEL: namespace}
    rig.create(queues.stateful_set(namespace, "plain", labels, marks))
    rig.wait("all run", lambda: ready_pods(rig, namespace) == 2, 60)
    rig.delete("Pod", namespace, "plain-0")

    def failed() -> Manifest | None:
        pod = rig.get("Pod", namespace, "plain-0")
        return pod if pod and pod["status"]["phase"] == "Failed" else None

    pod = rig.wait("the pod has ended", failed, 30)
    assert pod is not None
    assert pod["metadata"]["finalizers"] == ["kueue.x-k8s.io/managed"]
    with pytest.raises(AssertionError, match="not within"):
        rig.wait("the pod is gone", lambda: failed() is None, 10)
    rig.delete("StatefulSet", namespace, "plain")
    for name in ("plain-0", "plain-1"):
        rig.patch("Pod", namespace, name, {"metadata": {"finalizers": None}})


def ready_pods(rig: Rig, namespace: str) -> int:
    return sum(map(is_ready, rig.all("Pod", namespace)))
