"""Compares the operator's Role with the requests that the operator has sent, according to the audit log of its cluster."""

import yaml

from ome_local import stages
from ome_local.audit_log import Request
from tests.controlplane.operator.test_recovery import delete, pods, uids
from tests.support import yamls
from tests.support.rig import IMAGE, ROOT, USER, Rig


def what(one: Request) -> tuple[str, str, str]:
    """Return API group, resource with its subresource, and verb of a request."""
    return one.group, one.resource + (f"/{one.subresource}" if one.subresource else ""), one.verb


def asked(rig: Rig, since: int = 0) -> list[Request]:
    """Return the operator's requests, without those that ask for its own user, which every user may send."""
    sent = rig.cluster.audit(since)
    return [one for one in sent if one.user == USER and one.resource not in ("", "selfsubjectreviews")]


def live_through_everything(rig: Rig, namespace: str) -> None:
    """Cause every effect that a plan can have: services are created, recycled, adopted, edited and scaled, one has no
    router, and one has a full history of revisions.
    """
    engine = {"minReplicas": 2, "maxReplicas": 3, "annotations": {"ome.io/ssh-keys": "ssh"}}
    body = yamls.service(namespace, "role", "w-pairs", engine=engine)
    rig.create(body)
    rig.ready(namespace, "role")
    rig.wait("scale status", lambda: (rig.get("RoleScale", namespace, "role-engine") or {}).get("status"))
    lose_a_rank(rig, namespace)
    rig.delete("InferenceService", namespace, "role", propagationPolicy="Orphan")
    rig.wait("deleted", lambda: rig.get("InferenceService", namespace, "role") is None)
    rig.create(body)
    rig.ready(namespace, "role", 40)
    rig.patch("InferenceService", namespace, "role", {"spec": {"engine": {"minReplicas": 1, "maxReplicas": 1}}})
    rig.wait("one group", lambda: len(rig.all("Pod", namespace, "component=engine")) == 2)
    rig.patch("InferenceService", namespace, "role", {"spec": {"router": None}})
    ours = "ome.io/managed-by=ome-operator"  # The chart may have bound a Role here as well.
    rig.wait("no router", lambda: not rig.all("Deployment", namespace) and not rig.all("RoleBinding", namespace, ours))
    rig.cluster.set_stages(stages.terminate(2, {"component": "engine"}))  # so that workers outlive their leader
    rig.patch("InferenceService", namespace, "role", {"spec": {"engine": {"runner": {"image": "engine:2"}}}})
    rig.wait("rolled", lambda: rig.condition(namespace, "role", "RolledOut").get("reason") == "Complete", 40)
    rig.cluster.set_stages()
    for number in range(12):
        edit = {"rollout": {"paused": True}, "engine": {"runner": {"image": f"engine:{number}"}}}
        rig.patch("InferenceService", namespace, "role", {"spec": edit})
        rig.wait_until_quiet(0.5)

    def kept() -> int:
        owners = [one["metadata"]["ownerReferences"][0]["kind"] for one in rig.all("ControllerRevision", namespace)]
        return owners.count("InferenceService")  # StatefulSets also create ControllerRevisions.

    rig.wait("ten revisions kept", lambda: kept() == 10)
    scale_by_itself(rig, namespace)


def scale_by_itself(rig: Rig, namespace: str) -> None:
    """Cause an autoscaler to be created, adopted by the next service of the same name, and deleted."""
    body = yamls.service(namespace, "auto", "w-pairs", "engine", engine={"maxReplicas": 2, "scaleMetric": "cpu"})
    rig.create(body)
    rig.ready(namespace, "auto", 40)
    rig.delete("InferenceService", namespace, "auto", propagationPolicy="Orphan")
    rig.wait("deleted", lambda: rig.get("InferenceService", namespace, "auto") is None)
    former = rig.all("HorizontalPodAutoscaler", namespace)
    assert [scaler["metadata"]["name"] for scaler in former] == ["auto-engine"]
    rig.create(body)
    rig.ready(namespace, "auto", 40)
    rig.patch("InferenceService", namespace, "auto", {"spec": {"engine": {"scaleMetric": None}}})
    rig.wait("no autoscaler", lambda: not rig.all("HorizontalPodAutoscaler", namespace))
    rig.delete("InferenceService", namespace, "auto")


def lose_a_rank(rig: Rig, namespace: str) -> None:
    """Cause a recycle of the group, in which the operator deletes the other rank."""
    before = pods(rig, namespace)["engine", 0]
    delete(rig, before[1])

    def others() -> bool:
        now = pods(rig, namespace).get(("engine", 0), {})
        return now.keys() == before.keys() and not {*uids(now).values()} & {*uids(before).values()}

    rig.wait("both ranks are others", others)
    rig.ready(namespace, "role", 40)


def look_at_every_kind(rig: Rig, namespace: str) -> None:
    """Cause statuses of the kinds that no service of the suite uses, and a read of the events of a workload without pods."""
    accelerator = ROOT / "config/accelerators/nvidia-h200.yaml"
    rig.cluster.kubectl("apply", "-f", str(accelerator))
    here = {"namespace": namespace}
    model, runtime = yamls.model("w-base"), yamls.runtime("w-runtime")
    rig.cluster.apply({**model, "kind": "BaseModel", "metadata": {**model["metadata"], **here}})
    rig.cluster.apply({**runtime, "kind": "ServingRuntime", "metadata": {**runtime["metadata"], **here}})
    label_a_node(rig)
    measure(rig, namespace)
    hard = {"spec": {"hard": {"pods": "0"}}}
    rig.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "w", "namespace": namespace}, **hard})
    rig.create(yamls.service(namespace, "starved", "w-pairs"))
    rig.wait_for_condition(namespace, "starved", "EngineReady", "PodsRefused", "exceeded quota")
    for kind in ("basemodel/w-base", "servingruntime/w-runtime"):
        asked = ("get", "-n", namespace, kind, "-o", "jsonpath={.status.conditions[*].type}")
        rig.wait(f"status of {kind}", lambda asked=asked: "Ready" in rig.cluster.kubectl(*asked).split())
    asked = ("get", "acceleratorclass", "-o", "jsonpath={.items[0].status.availableAccelerators}")
    rig.wait("accelerators counted", lambda: rig.cluster.kubectl(*asked) == "128")
    short_kinds_and_weights(rig, namespace)


def short_kinds_and_weights(rig: Rig, namespace: str) -> None:
    """Create objects of group sglang.ai, and cause the status of weights that were trained on a model."""
    storage = {"storageUri": "hf://test/w", "path": "/weights/w"}
    spec = {"baseModelRef": {"name": "tiny"}, "modelType": "LoRA", "storage": storage, "hyperParameters": {}}
    rig.cluster.apply({"apiVersion": yamls.API, "kind": "FineTunedWeight", "metadata": {"name": "w"}, "spec": spec})
    short = {"apiVersion": "sglang.ai/v1", "kind": "ClusterBaseModel", "metadata": {"name": "w-short"}}
    rig.cluster.apply({**short, "spec": {"source": {"huggingface": {"repo": "test/w"}}}})
    serving = {**short, "kind": "Serving", "metadata": {"name": "w-short", "namespace": namespace}}
    rig.cluster.apply({**serving, "spec": {"baseModel": "w-short", "runtime": "w-pairs"}})
    for kind in ("finetunedweight/w", "clusterbasemodels.sglang.ai/w-short", "servings.sglang.ai/w-short"):
        asked = ("get", "-n", namespace, kind, "-o", "jsonpath={.status.conditions[*].type}")
        rig.wait(f"status of {kind}", lambda asked=asked: "Ready" in rig.cluster.kubectl(*asked))
    rig.cluster.kubectl("delete", "-n", namespace, "servings.sglang.ai/w-short")
    rig.cluster.kubectl("delete", "finetunedweight/w", "clusterbasemodels.sglang.ai/w-short")


def measure(rig: Rig, namespace: str) -> None:
    """Cause a Job to be created, and a Job of another owner with the same name to be read."""
    box = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
    metadata = {"name": "benchmark-taken", "namespace": namespace}
    rig.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": box}}})
    for name, state in (("taken", "Pending"), ("w", "Completed")):
        rig.create(yamls.benchmark(namespace, name))
        asked = ("get", "benchmarkjob", name, "-n", namespace, "-o", "jsonpath={.status.state}")
        rig.wait(f"{name} {state}", lambda asked=asked, state=state: rig.cluster.kubectl(*asked) == state)
        rig.delete("BenchmarkJob", namespace, name)
    rig.delete("Job", namespace, "benchmark-taken")


def label_a_node(rig: Rig) -> None:
    """Write a record in which the agent of a node reports a model, and wait until the node has the label for it."""
    records, node = "/apis/ome.io/v1beta1/nodemodels", rig.all("Node", "")[0]["metadata"]["name"]
    rig.api.request("POST", records, {"apiVersion": yamls.API, "kind": "NodeModels", "metadata": {"name": node}})
    model = {"kind": "ClusterBaseModel", "name": "told", "uri": "hf://a/b", "state": "Failed", "message": "no"}
    report(rig, node, {"models": [model]})
    asked = ("get", "node", node, "-o", r"jsonpath={.metadata.labels.models\.ome\.io/clusterbasemodel\.told}")
    rig.wait("label", lambda: rig.cluster.kubectl(*asked) == "Failed")


def report(rig: Rig, node: str, status: dict[str, object]) -> None:
    """Write a status into the record of a node, as its agent does."""
    where, merge = f"/apis/ome.io/v1beta1/nodemodels/{node}/status", "application/merge-patch+json"
    rig.api.request("PATCH", where, {"status": status}, merge)


def allow_a_removal(rig: Rig) -> None:
    """Cause the operator to permit the removal of a directory that an agent offers and that no pod mounts."""
    node = rig.all("Node", "")[0]["metadata"]["name"]
    offered = {"directory": "/models/.ome/unused", "offer": "2026-01-01T00:00:00Z"}
    report(rig, node, {"unused": [offered]})
    rig.wait("leave", lambda: (rig.get("NodeModels", "", node) or {}).get("spec", {}).get("remove") == [offered])


def forget_what_led_here(rig: Rig, namespace: str) -> None:
    """Create an Ingress and an HTTPRoute as an operator with another `exposure` would have left them; the chart's value is
    `none` now.
    """
    rig.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(yamls.route_crd()))
    rig.wait("HTTPRoutes can be stored", lambda: rig.is_kind_stored("HTTPRoute"))
    service = rig.get("InferenceService", namespace, "role") or {}
    owner = {"apiVersion": yamls.API, "kind": "InferenceService", "name": "role", "uid": service["metadata"]["uid"]}
    labels = {"ome.io/managed-by": "ome-operator", "ome.io/inferenceservice": "role"}
    metadata = {"name": "role", "namespace": namespace, "labels": labels, "ownerReferences": [{**owner, "controller": True}]}
    spec = {"defaultBackend": {"service": {"name": "role", "port": {"number": 80}}}}
    ingress = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": spec}
    rig.create({**ingress, "metadata": metadata})
    rig.create({**ingress, "metadata": {"name": "theirs", "namespace": namespace, "labels": labels}})
    rig.create({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": metadata, "spec": {}})
    rig.restart()
    for kind in ("Ingress", "HTTPRoute"):
        rig.wait(f"{kind} gone", lambda kind=kind: rig.get(kind, namespace, "role") is None)
    assert rig.get("Ingress", namespace, "theirs"), "an object with copied labels does not belong to the operator"


def test_operator_role_contains_exactly_the_used_permissions(rig: Rig, namespace: str) -> None:
    rig.create(yamls.runtime("w-pairs", size=2))
    live_through_everything(rig, namespace)
    look_at_every_kind(rig, namespace)
    allow_a_removal(rig)
    forget_what_led_here(rig, namespace)
    rig.delete("ClusterServingRuntime", "", "w-pairs")
    rig.wait_until_quiet()
    sent = asked(rig)
    # Another test of this cluster may have run the operator with Ingresses or HTTPRoutes; the next test checks their rights.
    sent = [one for one in sent if one.resource not in ("ingresses", "httproutes") or what(one)[2] in ("list", "delete")]
    used = {what(one) for one in sent}
    # An apply that creates an object is logged as a patch with status 201, and needs both verbs.
    used |= {(group, resource, "create") for group, resource, _ in {what(one) for one in sent if one.code == 201}}
    used |= {
        ("", "pods", verb) for verb in ("get", "list", "watch")
    }  # The operator must have the rights that it grants to routers.
    # Failures of nodes are stored, and deleted hours later: test_bad_nodes and unit tests check these requests.
    used |= {("ome.io", "nodefaults", verb) for verb in ("create", "patch", "delete")}
    used.add(("ome.io", "nodefaults/status", "patch"))
    refused = {what(one) for one in sent if one.code == 403} - {what(one) for one in sent if one.code != 403}
    assert refused == set()  # (An API server that has just started denies every request for a moment.)
    chart = rig.cluster.helm("template", "ome", str(ROOT / "charts/ome-resources"), "-n", "ome", *IMAGE)
    granted = {
        (group, resource, verb)
        for body in yaml.safe_load_all(chart)
        if body and body["kind"] in ("ClusterRole", "Role") and body["metadata"]["name"].startswith("ome-operator")
        for rule in body["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert used - granted == set()
    unused = sorted(" ".join(one) for one in granted - used)
    assert unused == [], "\n".join(unused)


def test_exposure_permissions_exist_only_with_the_chart_value(rig: Rig) -> None:
    def chart(*values: str) -> str:
        sets = [part for value in values for part in ("--set", f"exposure.{value}")]
        return rig.cluster.helm("template", "ome", str(ROOT / "charts/ome-resources"), "-n", "ome", *IMAGE, *sets)

    def rights(text: str, resource: str) -> list[str]:
        roles = [body for body in yaml.safe_load_all(text) if body and body["kind"] == "ClusterRole"]
        rules = [rule for body in roles for rule in body["rules"] if resource in rule["resources"]]
        return [verb for rule in rules for verb in rule["verbs"]]

    everything, former = ["get", "list", "watch", "create", "patch", "delete"], ["list", "delete"]
    assert rights(chart(), "ingresses") == rights(chart(), "httproutes") == former and "--expose" not in chart()
    none = chart("removeFormer=false")
    assert "ingresses" not in none and "httproutes" not in none
    ingress = chart("kind=Ingress", "domain=models.example.com")
    assert (rights(ingress, "ingresses"), rights(ingress, "httproutes")) == (everything, former)
    assert "--expose=Ingress" in ingress and "--expose-domain=models.example.com" in ingress
    route = chart("kind=HTTPRoute", "domain=models.example.com", "gateway=infra/edge")
    assert (rights(route, "ingresses"), rights(route, "httproutes")) == (former, everything)
    assert "--gateway=infra/edge" in route
