"""Tests of creating, editing, scaling and deleting a service. The operator is killed during each of these, and makes no
unnecessary write.
"""

import itertools
import json
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support import clusters, yamls
from tests.support.rig import Manifest, Rig


@pytest.fixture(scope="module")
def runtimes(installed: Rig) -> Iterator[None]:
    bodies = [yamls.runtime("single"), yamls.runtime("pairs", size=2, decoder=True)]
    for body in bodies:
        installed.create(body)
    yield
    for body in bodies:
        installed.delete("ClusterServingRuntime", "", body["metadata"]["name"])


def image(rig: Rig, namespace: str) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in rig.all("Pod", namespace, "component=engine")}


def revisions(rig: Rig, namespace: str) -> set[str]:
    return {pod["metadata"]["labels"]["ome.io/revision"] for pod in rig.all("Pod", namespace, "component=engine")}


def advice(rig: Rig, namespace: str, name: str) -> str:
    """Return the message of the service's condition Advice."""
    return str(rig.condition(namespace, name, "Advice").get("message", ""))


def engine_pods(rig: Rig, namespace: str) -> set[str]:
    """Return the UIDs of the pods of all groups."""
    pods = rig.all("Pod", namespace, "component!=router,ome.io/managed-by=ome-operator")
    return {pod["metadata"]["uid"] for pod in pods}


def writers(body: Manifest) -> set[str]:
    """Return the field managers that own spec.replicas of an object."""
    return {
        entry["manager"]
        for entry in body["metadata"]["managedFields"]
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {}) and entry.get("subresource") != "status"
    }


def slices(rig: Rig, namespace: str) -> list[Manifest]:
    """Return the EndpointSlices of the Services `bare`, which has no ports, and `named-pods`, in this order."""
    both = "kubernetes.io/service-name in (bare, named-pods)"
    found = json.loads(rig.cluster.kubectl("get", "endpointslices", "-n", namespace, "-o", "json", "-l", both))["items"]
    return sorted(found, key=lambda one: str(one["metadata"]["labels"]["kubernetes.io/service-name"]))


@pytest.mark.usefixtures("runtimes")
class TestLife:
    def test_repeated_reconciliation_and_restart_write_nothing(self, rig: Rig, namespace: str) -> None:
        rig.create(yamls.service(namespace, "calm", "pairs", "engine", "decoder", "router"))
        rig.ready(namespace, "calm")
        rig.wait_until_quiet()
        mark = rig.cluster.audit_mark()
        rig.patch("InferenceService", namespace, "calm", {"metadata": {"annotations": {"note": "a"}}})
        rig.restart(signal.SIGTERM, "ome_operator")  # The sets of addresses are stored in another order.
        rig.wait_for_leader()
        rig.wait_until_quiet(5)
        sent = rig.requests(mark)
        assert [(one.verb, one.resource, one.name) for one in sent if one.is_write] == []
        assert {one.verb for one in sent if one.resource} == {"list", "watch"}  # apart from requests of API discovery

    def test_number_of_writes_stays_within_the_limit(self, rig: Rig, namespace: str) -> None:
        mark = rig.cluster.audit_mark()
        rig.create(yamls.service(namespace, "frugal", "single"))
        rig.ready(namespace, "frugal")
        rig.wait_until_quiet()
        sent = [one for one in rig.requests(mark) if one.is_write and one.namespace == namespace]
        statuses = [one for one in sent if one.subresource == "status"]
        objects = {(one.resource, one.name) for one in sent if one.subresource != "status"}
        assert len(sent) - len(objects) <= 3, sorted((one.verb, one.resource, one.name, one.subresource) for one in sent)
        assert statuses

    @pytest.mark.skipif(clusters.MINOR > 36, reason="Kubernetes 1.37 leaves both slices alone")
    def test_endpoint_slice_of_the_headless_service_is_not_rewritten(self, rig: Rig, namespace: str) -> None:
        """Kubernetes rewrites the EndpointSlice of a Service without ports on every resync. The operator's Service for the
        names of pods has a port, so its EndpointSlice is not rewritten. The test compares both kinds of Services.
        """
        rig.create(yamls.service(namespace, "named", "pairs", "engine"))
        rig.ready(namespace, "named")
        ours = rig.get("Service", namespace, "named-pods")
        assert ours
        spec = {name: value for name, value in ours["spec"].items() if name in ("publishNotReadyAddresses", "selector")}
        metadata = {"name": "bare", "namespace": namespace}
        rig.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {**spec, "clusterIP": "None"}})
        rig.wait("both pods in both", lambda: [len(one["endpoints"] or ()) for one in slices(rig, namespace)] == [2, 2])
        time.sleep(2.0)  # until Kubernetes has checked both again
        bare, named = slices(rig, namespace)
        notes = itertools.count()

        def looked() -> bool:
            for name in ("named-pods", "bare"):
                rig.patch("Service", namespace, name, {"metadata": {"annotations": {"note": str(next(notes))}}})
            return slices(rig, namespace)[0] != bare

        rig.wait("it looked", looked)
        assert slices(rig, namespace)[1] == named

    @pytest.mark.parametrize("kill", [False, True], ids=["undisturbed", "operator-killed"])
    def test_edit_creates_a_new_revision_without_simultaneous_slices(self, rig: Rig, namespace: str, kill: bool) -> None:
        rig.create(yamls.service(namespace, "edit", "pairs", "engine", "decoder", "router"))
        rig.ready(namespace, "edit")
        before = revisions(rig, namespace)
        rig.patch("InferenceService", namespace, "edit", {"spec": {"engine": {"runner": {"image": "engine:2"}}}})
        seen: list[frozenset[str]] = []

        def rolled() -> bool:
            here = rig.all("Pod", namespace, "component in (engine,decoder)".replace(" ", "%20"))
            seen.append(frozenset(pod["metadata"]["labels"]["ome.io/revision"] for pod in here))
            return len(here) == 4 and not seen[-1] & before

        if kill:
            rig.restart()
        rig.wait("the new revision alone", rolled, 40, often=True)
        rig.ready(namespace, "edit")
        assert all(len(revision) <= 1 for revision in seen), seen
        assert image(rig, namespace) == {"engine:1", "engine:2"} or image(rig, namespace) == {"engine:2"}
        condition = rig.condition(namespace, "edit", "RolledOut")
        assert condition["status"] == "True"

    @pytest.mark.parametrize("kill", [False, True], ids=["undisturbed", "operator-killed"])
    def test_scale_down_removes_the_highest_numbered_groups_completely(self, rig: Rig, namespace: str, kill: bool) -> None:
        rig.create(yamls.service(namespace, "scale", "pairs", "engine", engine={"minReplicas": 3}))
        rig.ready(namespace, "scale")
        pods = rig.all("Pod", namespace, "component=engine")
        labels = {one["metadata"]["uid"]: one["metadata"]["labels"] for one in pods}
        assert sorted(of_pod["ome.io/group"] for of_pod in labels.values()) == ["0", "0", "1", "1", "2", "2"]
        kept = {uid for uid, of_pod in labels.items() if of_pod["ome.io/group"] == "0"}
        rig.patch("InferenceService", namespace, "scale", {"spec": {"engine": {"minReplicas": 1}}})
        if kill:
            rig.restart()
        rig.wait("one group", lambda: len(rig.all("Pod", namespace, "component=engine")) == 2, 30)
        assert {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace, "component=engine")} == kept
        rig.wait("its StatefulSets", lambda: len(rig.all("StatefulSet", namespace)) == 2, 10)
        rig.patch("InferenceService", namespace, "scale", {"spec": {"engine": {"minReplicas": 2}}})
        rig.wait("two groups", lambda: len(rig.all("Pod", namespace, "component=engine")) == 4, 30)

    def test_role_scale_sets_the_number_of_groups(self, rig: Rig, namespace: str) -> None:
        rig.create(
            yamls.service(namespace, "auto", "single", engine={"minReplicas": 1, "maxReplicas": 4, "scaleMetric": "cpu"})
        )
        rig.ready(namespace, "auto")
        target = rig.get("HorizontalPodAutoscaler", namespace, "auto-engine")["spec"]["scaleTargetRef"]  # type: ignore[index]
        assert (target["kind"], target["name"]) == ("RoleScale", "auto-engine")
        rig.delete("HorizontalPodAutoscaler", namespace, "auto-engine")
        rig.cluster.kubectl("scale", "-n", namespace, "rolescale/auto-engine", "--replicas=3")
        rig.wait("three", lambda: len(rig.all("Pod", namespace, "component=engine")) == 3)
        rig.wait("its autoscaler is back", lambda: rig.get("HorizontalPodAutoscaler", namespace, "auto-engine"))
        rig.wait(
            "nobody serves metrics here, which its condition says",
            lambda: "HorizontalPodAutoscaler auto-engine does not scale: " in advice(rig, namespace, "auto"),
            60,
        )

        def told() -> bool:
            status = (rig.get("RoleScale", namespace, "auto-engine") or {}).get("status", {})
            return status.get("replicas") == 3 and "worker-index=0" in status.get("selector", "")

        rig.wait("scale status", told)
        rig.patch("InferenceService", namespace, "auto", {"spec": {"engine": {"maxReplicas": 1}}})
        rig.wait("no scale object", lambda: rig.get("RoleScale", namespace, "auto-engine") is None)
        rig.wait("one again", lambda: len(rig.all("Pod", namespace, "component=engine")) == 1)

    def test_role_without_autoscaler_is_scaled_manually(self, rig: Rig, namespace: str) -> None:
        rig.create(yamls.service(namespace, "hand", "single", engine={"minReplicas": 1, "maxReplicas": 2}))
        rig.ready(namespace, "hand")
        assert rig.all("HorizontalPodAutoscaler", namespace) == []
        rig.cluster.kubectl("scale", "-n", namespace, "rolescale/hand-engine", "--replicas=2")
        rig.wait("two", lambda: len(rig.all("Pod", namespace, "component=engine")) == 2)
        rig.cluster.kubectl("scale", "-n", namespace, "rolescale/hand-engine", "--replicas=7")
        told = "RoleScale hand-engine asks for 7 groups, but spec.engine has minReplicas 1 and maxReplicas 2: 2 are used"
        rig.wait("it is said that seven are too many", lambda: told in advice(rig, namespace, "hand"))

    def test_routers_are_scaled_manually_and_each_number_has_one_writer(self, rig: Rig, namespace: str) -> None:
        bounds = {"minReplicas": 1, "maxReplicas": 4}
        rig.create(yamls.service(namespace, "ways", "pairs", "engine", "decoder", "router", router=bounds))
        rig.ready(namespace, "ways")
        engines = engine_pods(rig, namespace)
        assert (rig.get("RoleScale", namespace, "ways-router") or {})["spec"] == {"replicas": 1}
        rig.cluster.kubectl("scale", "-n", namespace, "rolescale/ways-router", "--replicas=3")
        rig.wait("three routers", lambda: len(rig.all("Pod", namespace, "component=router")) == 3)
        rig.restart()
        rig.cluster.kubectl("scale", "-n", namespace, "rolescale/ways-router", "--replicas=2")
        rig.wait("two routers", lambda: len(rig.all("Pod", namespace, "component=router")) == 2)

        def counted() -> bool:
            status = (rig.get("RoleScale", namespace, "ways-router") or {}).get("status", {})
            return status.get("replicas") == 2 and "component=router" in status.get("selector", "")

        rig.wait("its status", counted)
        assert engine_pods(rig, namespace) == engines
        (deployment,) = rig.all("Deployment", namespace)
        assert writers(deployment) == {"ome-operator"}
        assert writers(rig.get("RoleScale", namespace, "ways-router") or {}) == {"kubectl"}

    def test_deleted_service_leaves_no_objects(self, rig: Rig, namespace: str) -> None:
        rig.create(yamls.service(namespace, "gone", "pairs", "engine", "decoder", "router"))
        rig.ready(namespace, "gone")
        rig.wait_until_quiet()
        mark = rig.cluster.audit_mark()
        rig.delete("InferenceService", namespace, "gone")
        kinds = (
            "Pod", "StatefulSet", "Deployment", "Service", "PodDisruptionBudget", "Role", "RoleBinding",
            "ControllerRevision",
        )  # fmt: skip
        rig.wait("everything gone", lambda: not any(rig.all(kind, namespace) for kind in kinds), 40)
        assert [one for one in rig.requests(mark) if one.is_write and one.namespace == namespace] == []

    def test_service_deleted_and_applied_again_becomes_ready(self, rig: Rig, namespace: str) -> None:
        body = yamls.service(namespace, "phoenix", "single")
        rig.create(body)
        rig.ready(namespace, "phoenix")
        rig.delete("InferenceService", namespace, "phoenix")
        new = rig.create(body)
        rig.ready(namespace, "phoenix", 40)
        owners = {one["metadata"]["ownerReferences"][0]["uid"] for one in rig.all("StatefulSet", namespace)}
        assert owners == {new["metadata"]["uid"]}

    def test_new_service_adopts_orphaned_objects_of_the_same_name(self, rig: Rig, namespace: str) -> None:
        body = yamls.service(namespace, "orphan", "single")
        rig.create(body)
        rig.ready(namespace, "orphan")
        rig.wait_until_quiet()
        pods = {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace, "component=engine")}
        rig.delete("InferenceService", namespace, "orphan", propagationPolicy="Orphan")
        rig.wait("deleted", lambda: rig.get("InferenceService", namespace, "orphan") is None)
        new = rig.create(body)
        rig.ready(namespace, "orphan", 40)
        owners = {one["metadata"]["ownerReferences"][0]["uid"] for one in rig.all("StatefulSet", namespace)}
        assert owners == {new["metadata"]["uid"]}
        assert {pod["metadata"]["uid"] for pod in rig.all("Pod", namespace, "component=engine")} == pods
