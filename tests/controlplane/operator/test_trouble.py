"""Tests of users' mistakes: each is reported as a condition with a message, and disappears after its correction without a
restart.
"""

import time
from pathlib import Path
from typing import Any

import pytest

from ome_local import stages
from tests.support import clusters, yamls
from tests.support.proxy import Answer, Proxy, Sent, Verdict
from tests.support.rig import Rig


@pytest.fixture
def single(rig: Rig, namespace: str) -> Any:
    """Yield the name of a runtime for this test."""
    name = f"single-{namespace}"
    rig.create(yamls.runtime(name))
    yield name
    rig.delete("ClusterServingRuntime", "", name)


def test_service_becomes_ready_if_its_model_and_runtime_are_applied_later(rig: Rig, namespace: str) -> None:
    name = f"late-{namespace}"
    rig.create(yamls.service(namespace, "late", name, model=name))
    rig.wait_for_condition(namespace, "late", "ModelReady", "BaseModelNotFound", f"ClusterBaseModel {name} does not exist")
    rig.wait_for_condition(
        namespace, "late", "RuntimeReady", "RuntimeNotFound", f"ClusterServingRuntime {name} does not exist"
    )
    assert rig.condition(namespace, "late", "Ready")["status"] == "False"
    rig.create(yamls.runtime(name))
    rig.create(yamls.model(name))
    rig.wait_for_condition(namespace, "late", "ModelReady", "WaitingForNodes", "0 nodes")
    for node in rig.all("Node", "")[:2]:
        labels = {f"models.ome.io/clusterbasemodel.{name}": "Ready"}
        rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": labels}})
    rig.ready(namespace, "late")
    rig.delete("ClusterServingRuntime", "", name)
    rig.delete("ClusterBaseModel", "", name)


def test_deleted_runtime_keeps_running_pods(rig: Rig, namespace: str) -> None:
    name = f"brief-{namespace}"
    rig.create(yamls.runtime(name))
    rig.create(yamls.service(namespace, "brief", name))
    rig.ready(namespace, "brief")
    pods = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)}
    rig.delete("ClusterServingRuntime", "", name)
    rig.wait_for_condition(namespace, "brief", "RuntimeReady", "RuntimeNotFound")
    rig.wait_until_quiet()
    assert {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)} == pods
    assert rig.condition(namespace, "brief", "Ready")["status"] == "True"
    rig.create(yamls.runtime(name))
    rig.wait("healed", lambda: rig.condition(namespace, "brief", "RuntimeReady").get("status") == "True")
    assert {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)} == pods
    rig.delete("ClusterServingRuntime", "", name)


def test_taken_service_name_is_reported_until_it_is_free(rig: Rig, namespace: str, single: str) -> None:
    stranger = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "taken", "namespace": namespace},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}},
    }
    made = rig.create(stranger)
    rig.create(yamls.service(namespace, "taken", single))
    told = rig.wait_for_condition(namespace, "taken", "Ready", "NameTaken", "Service taken")
    assert "delete or rename this object" in told["message"]
    now = rig.get("Service", namespace, "taken")
    assert now is not None and now["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    rig.delete("Service", namespace, "taken")
    rig.ready(namespace, "taken", 40)


def test_unschedulable_pods_are_reported(rig: Rig, namespace: str) -> None:
    name = f"greedy-{namespace}"
    rig.create(yamls.runtime(name, gpus=9, router=False))
    rig.create(yamls.service(namespace, "greedy", name, "engine"))
    told = rig.wait_for_condition(
        namespace, "greedy", "EngineReady", "DoesNotFit", "9 nvidia.com/gpu: no node has as much; the maximum is 8"
    )
    assert told["message"].startswith("engine needs 1 node with ")
    rig.wait("its pod is made all the same", lambda: len(rig.all("Pod", namespace)) == 1)
    rig.delete("ClusterServingRuntime", "", name)


def test_pods_that_could_not_be_created_are_reported(rig: Rig, namespace: str, single: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": namespace},
        "spec": {"hard": {"pods": "0"}},
    }
    rig.create(quota)
    rig.create(yamls.service(namespace, "quota", single))
    told = rig.wait_for_condition(namespace, "quota", "EngineReady", "PodsRefused", "exceeded quota: none", 30)
    assert told["message"].startswith("engine 0/1: 1 pod cannot be created")
    rig.delete("ResourceQuota", namespace, "none")
    rig.ready(namespace, "quota", 120)


def test_refused_router_pods_are_reported_with_the_reason(rig: Rig, namespace: str, single: str) -> None:
    rig.create(yamls.service(namespace, "refused", single, router={"priorityClassName": "missing"}))
    told = rig.wait_for_condition(
        namespace, "refused", "RouterReady", "PodsRefused", "no PriorityClass with name missing", 30
    )
    assert told["message"].startswith("router 0/1: 1 pod cannot be created")
    rig.patch("InferenceService", namespace, "refused", {"spec": {"router": {"priorityClassName": None}}})
    rig.ready(namespace, "refused", 60)


def test_second_disruption_budget_gives_advice(rig: Rig, namespace: str, single: str) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "extra", "namespace": namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"component": "engine"}}},
    }
    rig.create(budget)
    rig.create(yamls.service(namespace, "drained", single))
    rig.ready(namespace, "drained")
    words = "PodDisruptionBudget extra also selects pods of engine"
    rig.wait("the advice", lambda: words in rig.condition(namespace, "drained", "Advice").get("message", ""))


@pytest.mark.skipif(clusters.MINOR < 32, reason="Kubernetes 1.31 takes templates that it refuses as pods")
def test_refused_dry_run_keeps_the_old_pods(rig: Rig, namespace: str, single: str) -> None:
    rig.create(yamls.service(namespace, "typo", single))
    rig.ready(namespace, "typo")
    pods = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)}
    bad = {"engine": {"runner": {"imagePullPolicy": "Sometimes"}}}
    rig.patch("InferenceService", namespace, "typo", {"spec": bad})
    rig.wait_for_condition(namespace, "typo", "RolledOut", "DryRunRefused", "imagePullPolicy")
    assert rig.condition(namespace, "typo", "Ready")["status"] == "True"
    assert {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace)} == pods
    rig.patch("InferenceService", namespace, "typo", {"spec": {"engine": {"runner": {"imagePullPolicy": "Always"}}}})
    rig.wait("rolled", lambda: rig.condition(namespace, "typo", "RolledOut").get("reason") == "Complete", 40)
    assert not {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace, "component=engine")} & pods


@pytest.mark.skipif(clusters.MINOR < 32, reason="Kubernetes 1.31 takes templates that it refuses as pods")
def test_a_first_apply_that_is_refused(rig: Rig, namespace: str, single: str) -> None:
    bad = {"runner": {"imagePullPolicy": "Sometimes"}}
    rig.create(yamls.service(namespace, "bad", single, engine=bad))
    rig.wait_for_condition(namespace, "bad", "EngineReady", "Invalid", "imagePullPolicy")
    rig.patch("InferenceService", namespace, "bad", {"spec": {"engine": {"runner": None}}})
    rig.ready(namespace, "bad")


def test_misspelled_field_is_reported_with_the_intended_one(rig: Rig, namespace: str, single: str) -> None:
    """A service has a misspelled field of a pod, for which the API server answers 500. The condition names the field that
    was meant, and does not report a failing webhook.
    """
    meant = "did you mean minReplicas?"
    rig.create(yamls.service(namespace, "new", single, engine={"minReplica": 2}))
    rig.wait_for_condition(
        namespace, "new", "EngineReady", "InvalidPod", f"spec.engine.minReplica is not a field of a pod: {meant}"
    )
    rig.patch("InferenceService", namespace, "new", {"spec": {"engine": {"minReplica": None}}})
    rig.ready(namespace, "new")
    pods = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace, "component=engine")}
    rig.patch("InferenceService", namespace, "new", {"spec": {"engine": {"runner": {"envs": []}, "minReplica": 2}}})
    rig.wait_for_condition(
        namespace, "new", "RolledOut", "DryRunRefused", "did you mean"
    )  # the API server names only one field
    told = rig.condition(namespace, "new", "Advice")["message"]
    assert f"spec.engine.minReplica is not a field of a pod: {meant}" in told
    assert "spec.engine.runner.envs is not a field of a pod: did you mean env?" in told
    assert {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace, "component=engine")} == pods


def test_permanently_refused_deletion_is_reported(rig: Rig, namespace: str, single: str, tmp_path: Path) -> None:
    rig.create(yamls.service(namespace, "stuck", single))
    rig.ready(namespace, "stuck")
    rig.stop()
    proxy, asked = Proxy(rig.kubeconfig), list[float]()

    def judge(sent: Sent) -> Verdict:
        if sent.method != "DELETE" or "/deployments/" not in sent.path:
            return None
        asked.append(time.monotonic())
        return Answer(409, "Conflict")

    proxy.start()
    try:
        rig.start(kubeconfig=proxy.kubeconfig(tmp_path / "kubeconfig"))
        with proxy.judging(judge):
            rig.patch("InferenceService", namespace, "stuck", {"spec": {"router": None}})
            told = rig.wait_for_condition(namespace, "stuck", "RolledOut", "Conflict", "cannot be deleted: by a test")
            assert told["message"].startswith("Deployment stuck-router-")
            assert rig.condition(namespace, "stuck", "Ready")["status"] == "True"
            rig.wait("it is tried later", lambda: len(asked) > 4)
        assert asked[-1] - asked[-2] > 4.0 > asked[1] - asked[0]
        rig.wait("it goes", lambda: rig.condition(namespace, "stuck", "RolledOut").get("reason") == "Complete", 30)
        assert not rig.all("Deployment", namespace)
    finally:
        rig.stop()
        proxy.stop()


def test_children_edited_or_deleted_by_other_clients_are_repaired(rig: Rig, namespace: str, single: str) -> None:
    rig.create(yamls.service(namespace, "drift", single))
    rig.ready(namespace, "drift")
    rig.wait_until_quiet()
    rig.patch("Service", namespace, "drift", {"spec": {"selector": {"component": "nothing"}}})
    front = lambda: (rig.get("Service", namespace, "drift") or {}).get("spec", {}).get("selector", {})  # noqa: E731
    rig.wait("selector restored", lambda: front().get("component") == "router")
    rig.patch("Service", namespace, "drift", {"metadata": {"labels": {"theirs": "stays"}}})
    name = rig.all("StatefulSet", namespace)[0]["metadata"]["name"]
    rig.delete("StatefulSet", namespace, name)

    def back() -> int:
        found = rig.get("StatefulSet", namespace, name) or {}
        return int(found.get("status", {}).get("readyReplicas", 0))

    rig.wait("StatefulSet back", back)
    assert rig.get("Service", namespace, "drift")["metadata"]["labels"]["theirs"] == "stays"  # type: ignore[index]


def test_a_runtime_edit_reaches_its_services_in_waves(rig: Rig, namespace: str, single: str) -> None:
    """An edit of a runtime that three services use is rolled out in waves. The first wave is a single service. After it has
    been complete for the bake time, the second wave updates the other two together.
    """
    names = ["one", "two", "three"]
    for name in names:
        rig.create(yamls.service(namespace, name, single))
    for name in names:
        rig.ready(namespace, name)
    notes = {"ome.io/rollout-waves": "1, 100%", "ome.io/rollout-bake": "4s"}
    rig.patch("ClusterServingRuntime", "", single, {"metadata": {"annotations": notes}})
    rig.patch("ClusterServingRuntime", "", single, {"spec": {"engineConfig": {"runner": yamls.container(image="engine:9")}}})
    seen: list[dict[str, Any]] = []

    def rolled() -> bool:
        pods = rig.all("Pod", namespace, "component=engine")
        stay = [pod["metadata"] for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        whole = {item["labels"]["ome.io/inferenceservice"] for item in stay}
        new = [pod for pod in pods if pod["spec"]["containers"][0]["image"] == "engine:9"]
        seen.append({"away": len(names) - len(whole), "new": len(new), **waves(rig, single)})
        return len(pods) == len(new) == 3

    rig.wait("the first wave bakes", lambda: not rolled() and waves(rig, single).get("state") == "Baking", 60, often=True)
    assert waves(rig, single)["done"] == 1 and max(item["new"] for item in seen) == 1
    assert max(item["away"] for item in seen) <= 1
    rig.restart()  # the bake time continues after a restart of the operator
    rig.wait("all on the new runtime", rolled, 60)
    rig.wait("all are done", lambda: waves(rig, single).get("state") == "Complete")
    for name in names:
        rig.ready(namespace, name)
    said = waves(rig, single)
    assert (said["wave"], said["waves"], said["done"], said["services"], said["failed"]) == (2, 2, 3, 3, 0)
    told = [item["reason"] for item in rig.all("Event", "default") if item["involvedObject"]["name"] == single]
    # An event is sent after the status is written. The operator was killed after the first wave, so that event may be lost.
    assert (told.count("WaveBegins"), told.count("WaveStopped")) == (2, 0) and told.count("WaveWhole") >= 1


def waves(rig: Rig, runtime: str) -> dict[str, Any]:
    """Return the progress of the last edit of a runtime, from the runtime's status."""
    body = rig.get("ClusterServingRuntime", "", runtime) or {}
    return dict((body.get("status") or {}).get("rollout") or {})


def test_runtime_edit_that_fails_everywhere_stops_at_the_first_service(rig: Rig, namespace: str, single: str) -> None:
    for name in ("one", "two"):
        rig.create(yamls.service(namespace, name, single))
    for name in ("one", "two"):
        rig.ready(namespace, name)
    never = {"engineConfig": {"annotations": {stages.START_DELAY: "1h"}}}
    rig.patch("ClusterServingRuntime", "", single, {"spec": never})
    rig.wait("one waits", lambda: waits(rig, namespace) is not None)
    waiting = waits(rig, namespace)
    other = "two" if waiting == "one" else "one"
    rig.wait("the other comes up", lambda: rolled(rig, namespace, other) == "Progressing", 40)
    rig.restart()  # the order of the services is the same after a restart of the operator
    rig.wait_for_condition(
        namespace, str(waiting), "RolledOut", "WaitingForTurn", f"wave 2 of 2 of ClusterServingRuntime {single}"
    )
    rig.wait("the runtime says so", lambda: waves(rig, single).get("rolling") == 1)
    assert rig.condition(namespace, str(waiting), "Ready")["status"] == "True"
    rig.patch("ClusterServingRuntime", "", single, {"spec": {"engineConfig": {"annotations": None}}})
    rig.wait("both whole", lambda: {rolled(rig, namespace, name) for name in ("one", "two")} == {"Complete"}, 60)


def rolled(rig: Rig, namespace: str, name: str) -> str:
    """Return the reason of the service's condition RolledOut."""
    return str(rig.condition(namespace, name, "RolledOut").get("reason", ""))


def waits(rig: Rig, namespace: str) -> str | None:
    """Return the service that waits for the second wave; None if there is none. For a moment after the edit, the service
    that will be the first wave may also wait.
    """
    return next((name for name in ("one", "two") if "wave 2 of 2" in told(rig, namespace, name)), None)


def told(rig: Rig, namespace: str, name: str) -> str:
    """Return the message of the service's condition RolledOut."""
    return str(rig.condition(namespace, name, "RolledOut").get("message", ""))
