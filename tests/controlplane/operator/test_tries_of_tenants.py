"""Attempts of a user with the role `edit` in a namespace to affect another namespace, the operator or its nodes.

Each is an attempt of a security review, made with a real token. The namespace admits pods of the level `baseline`.
"""

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ome_operator import keys, names
from tests.controlplane.operator.tries import MERGE, at, of, workload
from tests.support import yamls
from tests.support.identity import Token
from tests.support.rig import Manifest, Rig, path, probe_state

MINE, VICTIM = "team-a", "team-b"
LEVEL = "pod-security.kubernetes.io/enforce"
RIGHTS = "rbac.authorization.k8s.io"


class Tenant:
    """A user of `team-a`. The victim is the service of another user in `team-b`."""

    def __init__(self, rig: Rig, token: Token, victim: Manifest) -> None:
        self.rig, self.token, self.victim = rig, token, victim

    def makes(self, body: Manifest) -> str:
        """Create the object. Return the message with which the API server refuses it; "" if it was created."""
        code, words = self.token.send("POST", path(body["kind"], MINE), body)
        assert code in (201, 403, 422), (code, words)
        return words

    def told(self, kind: str, name: str, *words: str) -> str:
        """Wait until the status of an object in `team-a` contains these words, and return the status."""

        def holds() -> str:
            status = json.dumps((self.rig.get(kind, MINE, name) or {}).get("status", {}))
            return status if all(word in status for word in words) else ""

        return self.rig.wait(f"{kind} {name} says {words}", holds, 40)

    def serves(self, name: str, storage: Manifest, *words: str) -> None:
        """Check a service of a BaseModel that is labeled on nodes: the model is refused at once, or the status of the
        service contains these words and it has no pod.
        """
        model = {"apiVersion": yamls.API, "kind": "BaseModel", "metadata": {"name": name, "namespace": MINE}}
        refused = self.makes({**model, "spec": {"storage": storage, "modelFormat": {"name": "safetensors"}}})
        if refused:
            assert any(word in refused for word in words), refused
            return
        label = {names.model_label("BaseModel", MINE, name): "Ready"}
        for node in self.rig.all("Node", "")[:2]:
            self.rig.patch("Node", "", node["metadata"]["name"], {"metadata": {"labels": label}})
        assert self.makes(yamls.service(MINE, name, "w-tenants", "engine", model=name)) == ""
        self.told("InferenceService", name, *words)
        assert self.rig.all("Pod", MINE, f"{keys.SERVICE}={name}") == []

    def measures(self, name: str, *words: str, **spec: Any) -> None:
        """Check that the status of a BenchmarkJob with this spec contains these words, and that it has no pod."""
        assert self.makes(yamls.benchmark(MINE, name, **spec)) == ""
        self.told("BenchmarkJob", name, *words)
        assert self.rig.all("Pod", MINE, f"{keys.BENCHMARK}={name}") == []


@pytest.fixture(scope="module")
def tenant(installed: Rig) -> Iterator[Tenant]:
    rig = installed
    if not rig.cluster.process("operator"):
        rig.start()
    for name, level in ((MINE, "baseline"), (VICTIM, "privileged")):
        rig.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {LEVEL: level}}})
    rig.create(yamls.runtime("w-tenants"))
    rig.create(of("ServiceAccount", "tenant", MINE))
    edit = {"apiGroup": RIGHTS, "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": MINE}
    rig.create(of("RoleBinding", "tenant", MINE, roleRef=edit, subjects=[subject]))
    rig.create(yamls.service(VICTIM, "victim", "w-tenants"))
    token = Token(rig.cluster.keep_token(MINE, "tenant"))
    yield Tenant(rig, token, rig.ready(VICTIM, "victim", 60))
    rig.ready(VICTIM, "victim")
    for name in (MINE, VICTIM):
        rig.clear(name)
        rig.delete("Namespace", "", name)
    rig.delete("ClusterServingRuntime", "", "w-tenants")


def pods_of_the_victim(rig: Rig) -> set[str]:
    return {pod["metadata"]["uid"] for pod in rig.all("Pod", VICTIM)}


# --- tries ---------------------------------------------------------------------------------------------------------------


def model_on_a_claim_of_another_namespace(tenant: Tenant) -> None:
    tenant.serves("claim", {"storageUri": f"pvc://{VICTIM}:weights/x"}, "ClaimInOtherNamespace", f"namespace {VICTIM}")


def results_on_a_claim_of_another_namespace(tenant: Tenant) -> None:
    out = {"storageUri": f"pvc://{VICTIM}:results/x"}
    tenant.measures("claim", "PlaceNotServed", f"names a claim of namespace {VICTIM}", outputLocation=out)


def up_from_a_claim(tenant: Tenant) -> None:
    tenant.serves("sub", {"storageUri": "pvc://weights/../../x"}, "a path without")


def up_from_a_directory(tenant: Tenant) -> None:
    tenant.serves("up", {"storageUri": "local:///models/../etc", "path": "/models/../etc"}, "..")


def results_outside_of_their_folder(tenant: Tenant) -> None:
    words = "spec.resultFolderName ../../etc names a folder outside of the output location"
    tenant.measures("folder", "PlaceNotServed", words, resultFolderName="../../etc")


def results_beside_their_claim(tenant: Tenant) -> None:
    out = {"storageUri": "pvc://x/../../y"}
    assert 'a path without ".."' in tenant.makes(yamls.benchmark(MINE, "beside", outputLocation=out))


def model_in_a_directory_of_the_system(tenant: Tenant) -> None:
    tenant.serves("etc", {"storageUri": "local:///etc", "path": "/etc"}, "InvalidModel", "belongs to the operating system")


def results_in_a_directory_of_the_system(tenant: Tenant) -> None:
    tenant.measures("etc", "PodsRefused", "PodSecurity", outputLocation={"storageUri": "local:///etc"})


def workload_of_the_victims_service(tenant: Tenant) -> None:
    """A tenant creates a StatefulSet that names the victim's service as its owner. Kubernetes' garbage collector deletes the
    StatefulSet, because its owner is in another namespace, and the victim's pods stay.
    """
    before = pods_of_the_victim(tenant.rig)
    owner = {"apiVersion": yamls.API, "kind": "InferenceService", "name": "victim", "uid": tenant.victim["metadata"]["uid"]}
    labels = {keys.SERVICE: "victim", keys.MANAGED_BY: keys.MANAGER, keys.COMPONENT: "engine"}
    body = workload(
        "StatefulSet", "false-child", MINE, {"labels": labels, "ownerReferences": [{**owner, "controller": True}]}
    )
    assert tenant.makes(body) == ""
    tenant.rig.wait("it is collected", lambda: tenant.rig.get("StatefulSet", MINE, "false-child") is None, 90)
    assert pods_of_the_victim(tenant.rig) == before


def job_of_a_name_that_is_taken(tenant: Tenant) -> None:
    theirs = workload("Job", "benchmark-taken", MINE)
    theirs["spec"]["template"]["spec"]["nodeSelector"] = {"no": "node"}
    assert tenant.makes(theirs) == ""
    tenant.measures("taken", "NameTaken", "benchmark-taken exists but was not created for this BenchmarkJob")
    assert keys.BENCHMARK not in (tenant.rig.get("Job", MINE, "benchmark-taken") or {})["metadata"].get("labels", {})


def taken(name: str, service: str) -> Callable[[Tenant], None]:
    """Return an attempt with a Service whose name the operator needs for a service."""

    def attempt(tenant: Tenant) -> None:
        body = of("Service", name, MINE, spec={"ports": [{"port": 81}], "selector": {"mine": "yes"}})
        assert tenant.makes(body) == ""
        assert tenant.makes(yamls.service(MINE, service, "w-tenants")) == ""
        tenant.told("InferenceService", service, "NameTaken", f"Service {name}")
        found = tenant.rig.get("Service", MINE, name) or {}
        assert found["spec"]["selector"] == {"mine": "yes"} and [port["port"] for port in found["spec"]["ports"]] == [81]

    return attempt


POWERFUL = [{"apiGroups": [RIGHTS], "resources": ["roles", "rolebindings"], "verbs": ["get", "create", "patch"]}]


def may_bind(tenant: Tenant) -> bool:
    """Return whether the tenant may create RoleBindings, which the role `edit` does not permit."""
    ref, to = {"apiGroup": RIGHTS, "kind": "ClusterRole", "name": "view"}, {"kind": "ServiceAccount", "name": "tenant"}
    body = of("RoleBinding", "mine", MINE, roleRef=ref, subjects=[{**to, "namespace": MINE}])
    return tenant.token.send("POST", f"{at('RoleBinding', '', MINE)}?dryRun=All", body)[0] == 201


def rights_of_a_role_with_the_name_of_a_routers(tenant: Tenant) -> None:
    """A tenant creates a Role with the name of the Role that the operator creates for routers, and with rights that the
    operator itself has. The API server would let the operator bind this Role to the tenant, but the operator does not
    bind it.
    """
    before = tenant.rig.create(of("Role", "dep-router", MINE, rules=POWERFUL))
    body = yamls.service(MINE, "dep", "w-tenants", "engine", router={"serviceAccountName": "tenant"})
    body["spec"]["engine"] = {}
    assert tenant.makes(body) == ""
    tenant.told("InferenceService", "dep", "NameTaken", "Role dep-router")
    tenant.rig.wait_until_quiet()
    assert tenant.rig.get("RoleBinding", MINE, "dep-router") is None
    assert not may_bind(tenant)
    assert (tenant.rig.get("Role", MINE, "dep-router") or {})["rules"] == before["rules"]


def rights_of_a_role_that_comes_after_the_binding(tenant: Tenant) -> None:
    body = yamls.service(MINE, "late", "w-tenants", "engine", router={"serviceAccountName": "tenant"})
    assert tenant.makes(body) == ""
    rig = tenant.rig
    rig.wait("a binding of our own Role", lambda: rig.get("RoleBinding", MINE, "late-router"))
    where = path("Role", MINE, "late-router")
    rig.stop()  # so that the operator does not create its own Role again before the tenant's Role exists
    rig.api.request("DELETE", where)
    rig.create(of("Role", "late-router", MINE, rules=POWERFUL))
    rig.start()
    rig.wait_for_leader()
    rig.wait("the binding is gone", lambda: rig.get("RoleBinding", MINE, "late-router") is None)
    assert not may_bind(tenant)


def what_another_namespace_has(tenant: Tenant) -> None:
    """A tenant's BenchmarkJobs name services of another namespace: one that is Ready, one that waits, and one that does not
    exist. Apart from the name, the answers are equal, so the tenant learns nothing about them.
    """
    tenant.rig.create(yamls.service(VICTIM, "waits", "no-such-runtime"))
    said_of = {}
    for name in ("victim", "waits", "absent"):
        endpoint = {"inferenceService": {"name": name, "namespace": VICTIM}}
        assert tenant.makes(yamls.benchmark(MINE, f"of-{name}", endpoint=endpoint)) == ""
        tenant.told("BenchmarkJob", f"of-{name}", "ServiceNotFound")
        status = (tenant.rig.get("BenchmarkJob", MINE, f"of-{name}") or {})["status"]
        for condition in status["conditions"]:
            condition.pop("lastTransitionTime")
        said_of[name] = json.dumps(status).replace(f"{VICTIM}/{name}", "IT")
    assert len(set(said_of.values())) == 1, said_of
    assert all(not name.startswith("benchmark-of") for name in jobs(tenant))
    note = {"metadata": {"annotations": {keys.BENCHMARK_NAMESPACES: f"x, {MINE}"}}}
    tenant.rig.patch("InferenceService", VICTIM, "victim", note)
    tenant.rig.wait("it is let in", lambda: "benchmark-of-victim" in jobs(tenant), 60)
    assert "benchmark-of-waits" not in jobs(tenant)


def weights_of_another_namespaces_model(tenant: Tenant) -> None:
    """A tenant names fine-tuned weights of a BaseModel `ft-base` of `team-b` in a service whose own model has the same
    name. The service reports WrongBaseModel and gets no pod.
    """
    storage = {"storageUri": "local:///mnt/models/ft-b", "path": "/mnt/models/ft-b"}
    spec = {"baseModelRef": {"name": "ft-base"}, "modelType": "LoRA", "storage": storage, "hyperParameters": {}}
    tenant.rig.create({"apiVersion": yamls.API, "kind": "FineTunedWeight", "metadata": {"name": "ft-b"}, "spec": spec})
    try:
        model = {"apiVersion": yamls.API, "kind": "BaseModel", "metadata": {"name": "ft-base", "namespace": MINE}}
        own = {"storageUri": "pvc://weights/x"}
        assert tenant.makes({**model, "spec": {"storage": own, "modelFormat": {"name": "safetensors"}}}) == ""
        service = yamls.service(MINE, "ft", "w-tenants", "engine", model="ft-base")
        service["spec"]["model"]["fineTunedWeights"] = ["ft-b"]
        assert tenant.makes(service) == ""
        tenant.told("InferenceService", "ft", "WrongBaseModel", f"not on model ft-base of namespace {MINE}")
        assert tenant.rig.all("Pod", MINE, f"{keys.SERVICE}=ft") == []
    finally:
        tenant.rig.delete("FineTunedWeight", "", "ft-b")


def jobs(tenant: Tenant) -> list[str]:
    return [job["metadata"]["name"] for job in tenant.rig.all("Job", MINE)]


def forbidden(method: str, where: str, body: Any = None, content: str = "application/json") -> Callable[[Tenant], None]:
    """Return an attempt to write something that the role `edit` does not permit."""

    def attempt(tenant: Tenant) -> None:
        node = tenant.rig.all("Node", "")[0]["metadata"]["name"]
        code, words = tenant.token.send(method, where.replace("NODE", node), body, content)
        assert code == 403 and "cannot" in words, (code, words)

    return attempt


REVISION = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "x"}, "revision": 1, "data": {}}
RECORD = {"apiVersion": yamls.API, "kind": "NodeModels", "metadata": {"name": "x"}}
LABEL = {"metadata": {"labels": {"models.ome.io/clusterbasemodel.tiny": "Ready"}}}
TRIES: dict[str, Callable[[Tenant], None]] = {
    "a model on a claim of another namespace": model_on_a_claim_of_another_namespace,
    "results on a claim of another namespace": results_on_a_claim_of_another_namespace,
    "`..` in a path of a claim": up_from_a_claim,
    "`..` in a path of a node": up_from_a_directory,
    "`..` in the folder of results": results_outside_of_their_folder,
    "`..` in the claim of results": results_beside_their_claim,
    "a model in /etc": model_in_a_directory_of_the_system,
    "results in /etc": results_in_a_directory_of_the_system,
    "a workload whose owner is the victim": workload_of_the_victims_service,
    "the name of a Job": job_of_a_name_that_is_taken,
    "the name of the URL's Service": taken("front", "front"),
    "the name of a component's Service": taken("comp-engine", "comp"),
    "the name of a Role": rights_of_a_role_with_the_name_of_a_routers,
    "the name of a Role, later": rights_of_a_role_that_comes_after_the_binding,
    "what another namespace has": what_another_namespace_has,
    "weights of another namespace's model": weights_of_another_namespaces_model,
    "ControllerRevisions": forbidden("POST", f"/apis/apps/v1/namespaces/{MINE}/controllerrevisions", REVISION),
    "NodeModels": forbidden("POST", "/apis/ome.io/v1beta1/nodemodels", RECORD),
    "labels of nodes": forbidden("PATCH", "/api/v1/nodes/NODE", LABEL, MERGE),
    "statuses of pods": forbidden("PATCH", f"/api/v1/namespaces/{MINE}/pods/x/status", {"status": {}}, MERGE),
}


@pytest.mark.parametrize("what", TRIES)
def test_attack_by_tenant_is_refused(tenant: Tenant, what: str) -> None:
    TRIES[what](tenant)


# --- forged managedFields -------------------------------------------------------------------------------------------------

FORGED: dict[str, Manifest] = {
    "a key that is there": {"f:spec": {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}}}}},
    "a key that is not there": {"f:spec": {"f:ports": {'k:{"port":1,"protocol":"UDP"}': {".": {}, "f:name": {}}}}},
    "a key of another shape": {"f:spec": {"f:ports": {'k:{"a":{"b":[1]}}': {}}}},
    "an index": {"f:spec": {"f:ports": {"i:0": {}}}},
    "an index far away": {"f:spec": {"f:ports": {"i:999999999": {"f:port": {}}}}},
    "a value": {"f:spec": {"f:ports": {'v:{"port":80}': {}}}},
    "a value of a map": {"f:spec": {"f:selector": {'v:"x"': {}}}},
    "an index of owners": {"f:metadata": {"f:ownerReferences": {"i:0": {}, 'k:{"uid":"x"}': {}}}},
}


@pytest.fixture(scope="module")
def forged(tenant: Tenant) -> str:
    """Return the name of a service of the tenant for which the operator has created a Service."""
    assert tenant.makes(yamls.service(MINE, "forged", "w-tenants")) == ""
    tenant.rig.wait("its Service", lambda: tenant.rig.get("Service", MINE, "forged"))
    return "forged"


@pytest.mark.parametrize("what", FORGED)
def test_forged_managed_fields_do_not_stop_the_operator(tenant: Tenant, forged: str, what: str) -> None:
    """The tenant forges the operator's own entry in managedFields. The operator continues to work, and reverts what the
    tenant changes afterwards.

    The API server may drop an entry that names no field of the object. Then the Service counts as a foreign object, which
    the status of the service reports.
    """
    rig, where = tenant.rig, at("Service", forged, MINE)
    process = rig.cluster.process("operator")
    found = rig.get("Service", MINE, forged) or {}
    entry = {"manager": keys.MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    entry |= {"fieldsV1": FORGED[what]}
    others = [entry for entry in found["metadata"]["managedFields"] if entry["manager"] != keys.MANAGER]
    # The API server processes managedFields only if something else changes, too.
    body = {"metadata": {"managedFields": [*others, entry], "annotations": {"forged": what}}}
    code, words = tenant.token.send("PATCH", where, body, MERGE)
    assert code in (200, 400, 422), (code, words)
    assert tenant.token.send("PATCH", where, {"spec": {"selector": {"stranger": "x"}}}, MERGE)[0] == 200

    def answered() -> bool:
        now = rig.get("Service", MINE, forged) or {}
        if keys.MANAGER not in [entry["manager"] for entry in now["metadata"]["managedFields"]]:
            return "NameTaken" in [rig.condition(MINE, forged, type_).get("reason") for type_ in ("Ready", "RolledOut")]
        return "stranger" not in now["spec"]["selector"]

    rig.wait("what a stranger changed is mended, or told", answered)
    assert probe_state(rig.port) == "leading" and rig.cluster.process("operator") == process
    with urllib.request.urlopen(f"http://127.0.0.1:{rig.port}/healthz", timeout=5) as answer:
        assert answer.read() == b"ok"
