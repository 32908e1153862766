"""Tests of adopting a cluster on which OME has run. The tests depend on each other: they are the steps of one migration, in
the order in which a user performs them.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from ome_local.cluster import Cluster
from ome_operator.kube.resources import path
from tests.support import ome, yamls
from tests.support.rig import Rig

SPACE = "chat"


class Adopting:
    """The command `ome adopt` for the cluster of the tests."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.user = json.loads(cluster.kubectl("auth", "whoami", "-o", "json"))["status"]["userInfo"]["username"]

    def __call__(self, *words: str, code: int = 0) -> str:
        """Run `ome adopt` and return its output; the exit code must be `code`."""
        done = subprocess.run(
            [sys.executable, "-m", "ome_operator", "adopt", *words],
            env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        assert "Traceback" not in said
        print(said)
        return said

    def writes(self, *words: str, code: int = 0) -> tuple[list[str], str]:
        """Return the writes of one call according to the audit log, and the output of the command."""
        mark = self.cluster.audit_mark()
        said = self(*words, code=code)
        rig = Rig(self.cluster)
        marker = f"marker-{mark}"
        rig.get("Namespace", "", marker)  # Audit events are in order, but are written after the responses.
        rig.wait("the marker", lambda: any(one.name == marker for one in self.cluster.audit(mark)))
        mine = [one for one in self.cluster.audit(mark) if one.user == self.user and one.is_write]
        mine = [one for one in mine if one.resource != "subjectaccessreviews"]  # a review, which stores nothing
        return [f"{one.verb} {one.resource}/{one.name}" for one in mine], said


@pytest.fixture(scope="module")
def rig(cluster: Cluster) -> Iterator[Rig]:
    """Yield a cluster with OME's CRDs, objects and controller, on which this project's operator has never run."""
    rig = Rig(cluster)
    for name in (SPACE, "ome"):
        rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    ome.write(
        cluster,
        ome.crd("InferenceService", "ome-crd"),
        ome.crd("ClusterBaseModel", "old-crds"),
        ome.crd("ClusterServingRuntime", "ome-crd", ome.dead_conversion()),
        ome.crd("AcceleratorClass"),
        ome.crd("TrainingJob", "ome-crd"),
        ome.crd("LeaderWorkerSet"),
        ome.controller(1),
    )
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(ome.rights()))
    cluster.await_crds()
    yield rig
    rig.stop()


@pytest.fixture(scope="module")
def adopt(rig: Rig) -> Adopting:
    """Return the command `ome adopt` for the cluster of these tests."""
    return Adopting(rig.cluster)


def crd(rig: Rig, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rig.cluster.kubectl("get", "crd", f"{name}.ome.io", "-o", "json"))
    return found


def serving(rig: Rig, service: str) -> int:
    """Return the number of ready endpoints of a Service."""
    slices = Rig(rig.cluster).api.get(path("EndpointSlice", SPACE) + f"?labelSelector=kubernetes.io/service-name={service}")
    ends = [end for one in slices["items"] for end in one["endpoints"] or ()]
    return sum(end["conditions"]["ready"] for end in ends)


@contextmanager
def watching(look: Callable[[], int]) -> Iterator[list[int]]:
    """Call `look` repeatedly until the `with` block ends, and yield the list of its results."""
    seen: list[int] = []
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.02):
            seen.append(look())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def finalized(body: dict[str, Any], *finalizers: str, **spec: Any) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "finalizers": list(finalizers)}, "spec": {**body["spec"], **spec}}


def test_adopt_refuses_to_write_while_ome_runs(rig: Rig, adopt: Adopting) -> None:
    """`ome adopt` refuses to write while OME's controller runs. A tenant's Deployment that has nothing of OME's controller
    but its label is reported, and does not prevent the adoption.
    """
    decoy = ome.controller(1)
    rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}})
    rig.create({**decoy, "metadata": {**decoy["metadata"], "namespace": "tenant", "name": "decoy"}})
    wrote, said = adopt.writes(code=1)
    assert "kubectl -n ome scale deployment ome-controller-manager --replicas=0" in said
    assert "Deployment tenant/decoy has the label of OME's controller, but may not write services: ignored" in said
    assert wrote == []
    rig.cluster.kubectl("-n", "ome", "scale", "deployment", "ome-controller-manager", "--replicas=0")
    rig.wait("stopped", lambda: not rig.all("Pod", "ome"))


def test_adopt_migrates_cluster_and_second_run_writes_nothing(rig: Rig, adopt: Adopting) -> None:
    ome.write(
        rig.cluster,
        finalized(yamls.model(), "clusterbasemodels.ome.io/finalizer", "example.com/theirs"),
        finalized(yamls.model("gone"), "clusterbasemodels.ome.io/finalizer"),
        finalized(yamls.runtime("small"), onlyOme="precious"),
        finalized(yamls.service(SPACE, "kimi", "small"), "inferenceservice.finalizers"),
        *ome.webhooks(),
    )
    rig.delete("ClusterBaseModel", "", "gone")
    wrote, said = adopt.writes("--dry-run", code=1)
    assert wrote == []
    assert "would  remove ValidatingWebhookConfiguration inferenceservice.ome.io" in said
    assert "ClusterServingRuntime small has fields that the new schema would remove: spec.onlyOme" in said
    assert "would  replace the schema of CRD clusterservingruntimes.ome.io and its conversion webhook" in said

    said = adopt(code=1)
    assert "default" in json.dumps(crd(rig, "clusterservingruntimes")["spec"]), "nothing is replaced before --yes"
    kinds = rig.cluster.kubectl("get", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "-o", "name")
    assert [line for line in kinds.split() if "ome.io" in line] == []
    assert "stranger.example.com" in kinds

    rig.patch("ClusterServingRuntime", "", "small", {"spec": {"onlyOme": None}})
    wrote, said = adopt.writes(code=1)
    assert "update customresourcedefinitions/inferenceservices.ome.io" in wrote and len(wrote) == 7
    assert (
        "ClusterBaseModel gone, whose deletion is pending: it is then deleted with all objects that it owns: pass --yes"
        in said
    )
    assert rig.get("ClusterBaseModel", "", "gone") is not None
    wrote, said = adopt.writes("--yes")
    assert wrote == ["patch clusterbasemodels/gone"]
    assert "helm upgrade --install ome-crd charts/ome-crd -n ome" in said
    assert rig.get("ClusterBaseModel", "", "gone") is None

    model, service = rig.get("ClusterBaseModel", "", "tiny"), rig.get("InferenceService", SPACE, "kimi")
    assert model is not None and model["metadata"]["finalizers"] == ["example.com/theirs"]
    assert service is not None and "finalizers" not in service["metadata"]
    runtimes = crd(rig, "clusterservingruntimes")
    assert runtimes["spec"]["conversion"]["strategy"] == "None"
    spec = runtimes["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert '"default"' not in json.dumps(spec) and "onlyOme" not in json.dumps(runtimes["spec"])
    assert crd(rig, "trainingjobs")["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    wrote, said = adopt.writes()
    assert wrote == [], said


def test_helm_takes_the_crds_over(rig: Rig, adopt: Adopting) -> None:
    before = crd(rig, "inferenceservices")["metadata"]["uid"]
    rig.install()
    assert crd(rig, "inferenceservices")["metadata"]["uid"] == before
    assert rig.get("InferenceService", SPACE, "kimi") is not None
    wrote, said = adopt.writes()
    assert wrote == [], said


def test_service_is_taken_over_when_its_new_pods_are_ready(rig: Rig, adopt: Adopting) -> None:
    for node in rig.all("Node", ""):
        rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": yamls.READY}})
    service = rig.get("InferenceService", SPACE, "kimi")
    assert service is not None
    ome.write_ome_status(rig.cluster, service)
    written = ome.write(rig.cluster, *ome.children(service, "engine", "router"), ome.group(service, "kimi-decoder"))
    made = {(one["kind"], one["metadata"]["name"]): one for one in written}
    assert "nothing was removed" in adopt("service", f"{SPACE}/kimi", "--timeout", "0", code=1)
    rig.start()
    rig.wait("new pods", lambda: rig.condition(SPACE, "kimi", "RolledOut").get("status") == "True")
    taken = rig.condition(SPACE, "kimi", "Ready")
    assert taken["reason"] == "NameTaken" and f"ome adopt service {SPACE}/kimi" in taken["message"]
    for kind, name in made:
        kept = rig.api.get(path(kind, SPACE, name))
        assert kept["metadata"]["uid"] == made[kind, name]["metadata"]["uid"], "kept until new pods are ready"
    wrote, _ = adopt.writes("service", "--all", "--dry-run")
    assert wrote == []

    rig.wait("the old router serves", lambda: serving(rig, "kimi"))
    with watching(lambda: serving(rig, "kimi")) as seen:
        said = adopt("service", f"{SPACE}/kimi")
    assert "remove Deployment kimi-engine" in said
    assert len(seen) > 10 and min(seen) >= 1, "a router answered at every moment"
    assert not rig.api.get(path("LeaderWorkerSet", SPACE))["items"]
    for name in ("kimi", "kimi-engine", "kimi-router"):
        old, new = made["Service", name], rig.get("Service", SPACE, name)
        assert new is not None and new["metadata"]["uid"] == old["metadata"]["uid"]
        assert new["spec"]["clusterIP"] == old["spec"]["clusterIP"]
        assert new["spec"]["selector"]["ome.io/managed-by"] == "ome-operator"
    front = rig.get("Service", SPACE, "kimi")
    assert front is not None and [one["port"] for one in front["spec"]["ports"]] == [80, 8080]
    account = rig.get("ServiceAccount", SPACE, "kimi-router")
    assert account is not None and account["metadata"]["uid"] == made["ServiceAccount", "kimi-router"]["metadata"]["uid"]
    rig.ready(SPACE, "kimi")
    rig.wait("OME's words are gone", lambda: not rig.condition(SPACE, "kimi", "IngressReady"))
    rig.wait("no HPA that nobody asked for", lambda: not rig.all("HorizontalPodAutoscaler", SPACE))
    left = {one["metadata"]["name"] for one in rig.all("Deployment", SPACE)}
    assert left & {"kimi-engine", "kimi-router"} == set() and len(left) == 1
    budgets = rig.all("PodDisruptionBudget", SPACE)
    assert {one["metadata"]["labels"].get("ome.io/managed-by") for one in budgets} == {"ome-operator"}
    rig.wait_until_quiet()
    for words in ((), ("service", "--all")):
        wrote, said = adopt.writes(*words)
        assert wrote == [], said


def test_adopt_with_replace_removes_old_pods_first(rig: Rig, adopt: Adopting) -> None:
    rig.stop()
    rig.create(yamls.runtime("large", gpus=8))
    service = rig.create(yamls.service(SPACE, "large", "large", engine={"minReplicas": 16}))
    ome.write(rig.cluster, *ome.children(service, "engine", "router", groups=16, gpus=8))
    rig.wait("old pods", lambda: len(rig.all("Pod", SPACE, "ome.io/inferenceservice=large")) == 17)
    rig.start()
    rig.wait_for_condition(SPACE, "large", "EngineReady", "Unschedulable", "Insufficient nvidia.com/gpu")
    said = adopt("service", f"{SPACE}/large", "--timeout", "1", code=1)
    assert "Insufficient nvidia.com/gpu" in said and "pass --replace to remove the old pods first" in said
    assert rig.get("Deployment", SPACE, "large-engine") is not None
    said = adopt("service", f"{SPACE}/large", "--replace")
    assert "the service is down until its new pods are ready" in said
    rig.ready(SPACE, "large", 60)
    assert rig.get("Deployment", SPACE, "large-engine") is None


def test_running_ome_controller_elsewhere_is_detected_by_its_writes(rig: Rig, adopt: Adopting) -> None:
    rig.stop()
    rig.cluster.kubectl("-n", "ome", "delete", "deployment", "ome-controller-manager")
    rig.create(yamls.service(SPACE, "busy", "small"))
    where = ("isvc", "busy", "-n", SPACE, "--subresource=status", "--field-manager=manager", "--type=merge")
    rig.cluster.kubectl("patch", *where, "-p", '{"status":{"url":"http://x"}}')
    wrote, said = adopt.writes(code=1)
    assert wrote == [] and f"manager wrote the status of {SPACE}/busy" in said
    adopt("--force")
