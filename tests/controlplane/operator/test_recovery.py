"""Tests of lost and hanging ranks: each failure causes one recycle of one group, even if the operator is killed.

Simulated kubelets restart and lose nothing by themselves. So the tests write failures into the status of a pod as a kubelet
does: the exit of a container, or a leader that is not ready.
"""

import itertools
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pytest

from ome_local.kubeapi import ApiError
from tests.support import yamls
from tests.support.fault_bench import Account
from tests.support.kubelet import KWOK, deleted, evicted, exited, lose, reports, silent, tainted, write_status
from tests.support.rig import Manifest, Rig, is_ready, path

NAME = "fall"
QUICK = {"hangTimeout": "2s", "selfHealTimeout": "2s", "forceDeleteAfter": "1s"}


@pytest.fixture(scope="module", autouse=True)
def runtimes(installed: Rig) -> Iterator[None]:
    bodies = [yamls.runtime("r-pairs", size=2, decoder=True), yamls.runtime("r-four", size=4)]
    for body in bodies:
        installed.create(body)
    yield
    for body in bodies:
        installed.delete("ClusterServingRuntime", "", body["metadata"]["name"])


def groups(rig: Rig, namespace: str) -> dict[tuple[str, int], dict[str, Any]]:
    """Return (component, number) -> the entry of a group in the status."""
    found = (rig.get("InferenceService", namespace, NAME) or {}).get("status", {}).get("groups", ())
    return {(one["component"], one["index"]): one for one in found}


def pods(rig: Rig, namespace: str) -> dict[tuple[str, int], dict[int, Manifest]]:
    """Return (component, number of the group) -> rank -> pod."""
    out: dict[tuple[str, int], dict[int, Manifest]] = {}
    for pod in rig.all("Pod", namespace, "component%21=router"):
        labels = pod["metadata"]["labels"]
        rank = int(labels["apps.kubernetes.io/pod-index"])
        out.setdefault((labels["component"], int(labels["ome.io/group"])), {})[rank] = pod
    return out


def uids(members: dict[int, Manifest]) -> dict[int, str]:
    """Return rank -> UID."""
    return {rank: pod["metadata"]["uid"] for rank, pod in sorted(members.items())}


class Fault(NamedTuple):
    """A fault of a rank of a group."""

    rank: int
    happens: Callable[[Rig, Manifest], None]
    cause: str
    """The cause that the status reports."""
    words: str = ""


def delete(rig: Rig, pod: Manifest) -> None:
    """Delete the pod as a user."""
    rig.delete("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])


def drain(rig: Rig, pod: Manifest) -> None:
    """Drain the pod's node like `kubectl drain`, which retries evictions that a budget denies."""
    metadata = {name: pod["metadata"][name] for name in ("name", "namespace")}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}

    def taken() -> bool:
        try:
            rig.api.request("POST", path("Pod", metadata["namespace"], metadata["name"]) + "/eviction", body)
        except ApiError as error:
            if error.code != 429:  # The status of the budget may be older than the readiness of the pods.
                raise
            return False
        return True

    rig.wait("the eviction is taken", taken)


FAULTS = {  # The drain is first, because the disruption budget permits it only while no pod is missing.
    "drained": Fault(1, drain, ""),
    "worker-deleted": Fault(1, delete, "Pod"),
    "leader-deleted": Fault(0, delete, "Pod"),
    "exit-0": Fault(1, lambda rig, pod: write_status(rig, pod, exited), "Completed", "ValueError: lost"),
    "hung": Fault(
        0, lambda rig, pod: write_status(rig, pod, silent), "NotReady", "had been ready, then was not ready for 2 s"
    ),
    "evicted": Fault(1, lambda rig, pod: write_status(rig, pod, evicted), ""),
}


def test_each_failure_causes_one_recycle_of_one_group(rig: Rig, namespace: str) -> None:
    """Each fault recycles its own group once. All faults happen at once; one more group and the decoder have none."""
    parts = {"minReplicas": len(FAULTS) + 1, "lifecycle": QUICK}
    rig.create(yamls.service(namespace, NAME, "r-pairs", "engine", "decoder", "router", engine=parts))
    settled(rig, namespace)
    before, told = pods(rig, namespace), groups(rig, namespace)
    for number, fault in enumerate(FAULTS.values()):
        fault.happens(rig, before["engine", number][fault.rank])
    for number in range(len(FAULTS)):
        back(rig, namespace, number)
    now, after = pods(rig, namespace), groups(rig, namespace)
    for number, (name, fault) in enumerate(FAULTS.items()):
        hit = after["engine", number]
        assert hit["recycles"] == 1, name
        assert fault.cause in hit["lastFailure"]["reason"], name
        assert fault.words in hit["lastFailure"]["message"], name
        assert not set(uids(now["engine", number]).values()) & gone(fault, before["engine", number]), name
    for key in (("engine", len(FAULTS)), ("decoder", 0)):
        assert uids(now[key]) == uids(before[key]) and after[key] == told[key]
    events = [one["message"] for one in rig.all("Event", namespace) if one["reason"] == "GroupRecycled"]
    assert len(events) == len(FAULTS) == len(set(events)), events
    assert rig.condition(namespace, NAME, "Recovered")["status"] == "True"
    rig.wait_until_quiet()


def gone(fault: Fault, before: dict[int, Manifest]) -> set[str]:
    """Return the UIDs of the pods that must be gone, which excludes pods whose container was restarted in place."""
    return {uid for rank, uid in uids(before).items() if fault.cause != "Completed" or rank != fault.rank}


def back(rig: Rig, namespace: str, number: int, seconds: float = 30) -> None:
    """Wait until a group is Ready again after its second start."""

    def holds() -> bool:
        one = groups(rig, namespace).get(("engine", number), {})
        return one.get("phase") == "Ready" and one.get("incarnation") == 2

    rig.wait(f"group {number} is back", holds, seconds)


def test_operator_killed_during_a_recycle_deletes_no_pod_twice(rig: Rig, namespace: str) -> None:
    """The operator is killed after two of three deletions; it deletes none of the replacements afterwards."""
    rig.create(yamls.service(namespace, NAME, "r-four", engine={"lifecycle": QUICK}))
    settled(rig, namespace)
    old = uids(pods(rig, namespace)["engine", 0])
    keep = pods(rig, namespace)["engine", 0][3]["metadata"]["name"]
    shield = forbid(rig, keep)
    try:
        delete(rig, pods(rig, namespace)["engine", 0][1])

        def halfway() -> dict[int, str] | None:
            now = uids(pods(rig, namespace)["engine", 0])
            return now if len(now) == 4 and [rank for rank in now if now[rank] == old[rank]] == [3] else None

        new = rig.wait("all but one are new", halfway)
        assert new
        mark = rig.cluster.audit_mark()
        rig.restart()
        rig.wait("it goes on", lambda: any((one.verb, one.code) == ("delete", 422) for one in rig.requests(mark)))
        assert uids(pods(rig, namespace)["engine", 0]) == new
        assert groups(rig, namespace)["engine", 0]["phase"] == "Recycling"
    finally:
        shield()
    back(rig, namespace, 0)
    now = uids(pods(rig, namespace)["engine", 0])
    assert {rank: now[rank] for rank in (0, 1, 2)} == {rank: new[rank] for rank in (0, 1, 2)}
    assert now[3] != old[3]
    assert groups(rig, namespace)["engine", 0]["recycles"] == 1


def forbid(rig: Rig, pod: str) -> Callable[[], None]:
    """Deny every deletion of this pod until the returned function is called."""
    name, api = f"keep-{next(_NUMBER)}", "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "this", "expression": f"request.name == '{pod}'"}],
        "validations": [{"expression": "false", "message": "kept by a test"}],
    }
    policy = {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    binding = {**policy, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound}
    rig.cluster.apply(policy)
    rig.cluster.apply(binding)
    namespace = next(one["metadata"]["namespace"] for one in rig.all("Pod", "") if one["metadata"]["name"] == pod)

    def holds() -> bool:
        try:
            rig.api.request("DELETE", path("Pod", namespace, pod) + "?dryRun=All")
        except ApiError as error:
            return "kept by a test" in str(error)
        return False

    rig.wait("the policy holds", holds)

    def lift() -> None:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            rig.cluster.kubectl("delete", kind, name)

    return lift


_NUMBER = itertools.count()


def test_terminating_pod_on_a_lost_node_is_force_deleted_by_policy(rig: Rig, namespace: str) -> None:
    rig.create(yamls.service(namespace, NAME, "r-pairs", "engine", engine={"lifecycle": QUICK}))
    settled(rig, namespace)
    old = pods(rig, namespace)["engine", 0]
    node = old[1]["spec"]["nodeName"]
    lose(rig, node)
    try:
        delete(rig, old[1])
        back(rig, namespace, 0, 60)
        now = pods(rig, namespace)["engine", 0]
        assert not set(uids(now).values()) & set(uids(old).values())
        assert now[1]["spec"]["nodeName"] != node
        assert groups(rig, namespace)["engine", 0]["recycles"] == 1
    finally:
        rig.patch("Node", "", node, {"metadata": {"annotations": {KWOK: "fake"}}})
        rig.cluster.set_stages()
        rig.wait("the node is back", lambda: reports(rig, node))


@pytest.mark.parametrize("happens", [tainted, deleted])
def test_lost_node_causes_one_recycle_of_each_of_its_groups(
    rig: Rig, namespace: str, account: Account, happens: Callable[[Rig, str], AbstractContextManager[None]]
) -> None:
    rig.create(yamls.service(namespace, NAME, "r-pairs", engine={"minReplicas": 3, "lifecycle": QUICK}))
    settled(rig, namespace)
    before = pods(rig, namespace)
    nodes = {key: [pod["spec"]["nodeName"] for _, pod in sorted(members.items())] for key, members in before.items()}
    apart = [worker for leader, worker in nodes.values() if leader != worker]
    node = next(iter(apart), nodes["engine", 0][0])  # Kubernetes 1.37 places both ranks of a group on one node.
    hit = {key for key, of_group in nodes.items() if node in of_group}
    with account.fault(f"node {happens.__name__}"), happens(rig, node):
        for _, number in hit:
            back(rig, namespace, number, 150)
    now, told = pods(rig, namespace), groups(rig, namespace)
    for key, group in told.items():
        whole = set(nodes[key]) == {node}  # A group that loses all ranks at once may return without a deletion.
        assert group.get("recycles", 0) in ({0, 1} if whole else {int(key in hit)}), key
    for key, members in now.items():
        assert not hit & {key} or not set(uids(members).values()) & set(uids(before[key]).values()), "whole groups"
        assert key in hit or uids(members) == uids(before[key]), "a group on other nodes"
    rig.wait_until_quiet()


@pytest.mark.parametrize("down", [False, True], ids=["operator-runs", "operator-down"])
def test_ranks_with_a_foreign_template_change_are_recreated(rig: Rig, namespace: str, account: Account, down: bool) -> None:
    """A template is edited while a rank is lost. Only the group of this rank is created again, from the right template."""
    rig.create(yamls.service(namespace, NAME, "r-pairs", engine={"minReplicas": 2, "lifecycle": QUICK}))
    settled(rig, namespace)
    before = pods(rig, namespace)
    lost = before["engine", 0][1]
    if down:
        rig.stop(signal.SIGKILL)
    wrong = {"spec": {"template": {"spec": {"containers": [{**yamls.container(), "image": "stranger:1"}]}}}}
    with account.fault("template changed, rank lost"):
        for name in (pod["metadata"]["ownerReferences"][0]["name"] for pod in before["engine", 0].values()):
            rig.patch("StatefulSet", namespace, name, wrong)
        delete(rig, lost)
        if down:
            rig.wait("a strange rank", lambda: "stranger:1" in images(rig, namespace))
            rig.start()

        def well() -> bool:
            now = groups(rig, namespace)["engine", 0]
            return now["phase"] == "Ready" and now["incarnation"] >= 2 and images(rig, namespace) == {"engine:1"}

        rig.wait("the group is back, as it should be", well, 60)
    assert uids(pods(rig, namespace)["engine", 1]) == uids(before["engine", 1])
    assert not set(uids(pods(rig, namespace)["engine", 0]).values()) & set(uids(before["engine", 0]).values())
    rig.wait_until_quiet()


@pytest.mark.parametrize(
    ("leads", "becomes"), [(True, {0: 3, 1: 0}), (False, {0: 0, 1: 1})], ids=["of-a-leader", "of-workers"]
)
def test_deleted_statefulset_affects_only_its_own_group(
    rig: Rig, namespace: str, account: Account, leads: bool, becomes: dict[int, int]
) -> None:
    """Only the group of a deleted StatefulSet is created again. If the StatefulSet was the leader's, the new group gets
    an unused number.
    """
    rig.create(yamls.service(namespace, NAME, "r-pairs", "engine", engine={"minReplicas": 3, "lifecycle": QUICK}))
    settled(rig, namespace)
    numbers = {0, 1, 2}
    for number, comes in becomes.items():
        before = pods(rig, namespace)
        numbers = numbers - {number} | {comes}
        with account.fault(f"StatefulSet {'of a leader' if leads else 'of workers'} deleted"):
            rig.delete("StatefulSet", namespace, stateful_sets(rig, namespace)[number, leads])
            old = set(uids(before["engine", number]).values())

            def whole(numbers: set[int] = numbers, old: set[str] = old) -> bool:
                told = groups(rig, namespace)
                there = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace) if is_ready(pod)}
                ready = {key[1] for key, group in told.items() if group["phase"] == "Ready"}
                return len(told) == 3 and ready == numbers and len(there) == 6 and not there & old

            rig.wait(f"group {number} was made again, as {comes}", whole, 60)
        now = pods(rig, namespace)
        assert all(uids(now[key]) == uids(before[key]) for key in before if key[1] != number), "groups that nobody touched"
        pairs = {(left, leader) for left in numbers for leader in (True, False)}
        assert set(stateful_sets(rig, namespace)) == pairs
    rig.wait_until_quiet()


def test_leader_statefulset_scaled_to_two_gets_one_pod_again(rig: Rig, namespace: str) -> None:
    """A leader's StatefulSet that is scaled to two gets one pod again. No group is recycled for a pod that is no rank."""
    rig.create(yamls.service(namespace, NAME, "r-pairs", "engine", engine={"minReplicas": 2, "lifecycle": QUICK}))
    settled(rig, namespace)
    rig.wait_until_quiet()
    before, told = named(rig, namespace), groups(rig, namespace)
    leader = stateful_sets(rig, namespace)[0, True]
    mark = rig.cluster.audit_mark()
    rig.cluster.kubectl("scale", "-n", namespace, f"statefulset/{leader}", "--replicas=2")

    def put_back() -> bool:
        found = rig.get("StatefulSet", namespace, leader) or {}
        same = found["metadata"]["generation"] == found["status"].get("observedGeneration")
        return found["spec"]["replicas"] == 1 and same and named(rig, namespace) == before

    rig.wait("its single pod is left", put_back)
    rig.wait_until_quiet()
    assert put_back()
    assert groups(rig, namespace) == told
    assert [sent.verb for sent in rig.requests(mark) if sent.is_write and sent.resource == "statefulsets"] == ["patch"]


def stateful_sets(rig: Rig, namespace: str) -> dict[tuple[int, bool], str]:
    """Return (number of the group, whether it is the StatefulSet of the leader) -> name."""
    found = [body["metadata"] for body in rig.all("StatefulSet", namespace)]
    return {(int(each["labels"]["ome.io/group"]), not each["name"].endswith("-w")): each["name"] for each in found}


def named(rig: Rig, namespace: str) -> dict[str, str]:
    """Return name -> UID of all pods."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)}


def settled(rig: Rig, namespace: str) -> None:
    """Wait until the service is ready and its groups are recorded."""
    rig.ready(namespace, NAME, 60)
    rig.wait("recorded", lambda: all(one.get("phase") == "Ready" for one in groups(rig, namespace).values()))


def images(rig: Rig, namespace: str) -> set[str]:
    """Return the images of all ranks."""
    return {pod["spec"]["containers"][0]["image"] for members in pods(rig, namespace).values() for pod in members.values()}
