"""Tests of operators that watch single namespaces: their rights are exactly the chart's Roles in these namespaces, with a
small ClusterRole or with none.
"""

import re
import urllib.request
from typing import Any

import pytest
import yaml

from tests.conftest import SOAK
from tests.controlplane.namespaces.conftest import make
from tests.controlplane.operator.test_rbac import (
    asked,
    live_through_everything,
    look_at_every_kind,
    measure,
    what,
)
from tests.support import yamls
from tests.support.rig import IMAGE, ROOT, Rig, probes

HERE = "watchNamespaces={team-a,team-b}"
FLAGS = ("--watch-namespace", "team-a", "--watch-namespace", "team-b")
Right = tuple[str, str, str]
RARE: set[Right] = {
    ("networking.k8s.io", "ingresses", "delete"),
    *(("gateway.networking.k8s.io", "httproutes", verb) for verb in ("list", "delete")),
}
"""Rights of the chart that the services of these tests do not use. tests/controlplane/operator/test_rbac.py checks that
other services need them."""


def rights(rig: Rig, *values: str) -> tuple[set[Right], set[Right]]:
    """Return the operator's rights in the chart: those of its ClusterRole, and those of its Roles in all namespaces except
    its own.
    """
    given = [word for each in values for word in ("--set", each)]
    chart = rig.cluster.helm("template", "ome", str(ROOT / "charts/ome-resources"), "-n", "ome", *IMAGE, *given)
    found: dict[str, set[Right]] = {"ClusterRole": set(), "Role": set()}
    for body in yaml.safe_load_all(chart):
        if not body or body["kind"] not in found or not body["metadata"]["name"].startswith("ome-operator"):
            continue
        if body["metadata"].get("namespace") == "ome":
            continue
        for rule in body["rules"]:
            pairs = [(group, resource) for group in rule["apiGroups"] for resource in rule["resources"]]
            found[body["kind"]] |= {(*pair, verb) for pair in pairs for verb in rule["verbs"]}
    return found["ClusterRole"], found["Role"]


def used(rig: Rig, since: int) -> tuple[set[Right], set[Right]]:
    """Return the rights that the operator has used since the position `since` of the audit log: outside namespaces, and in
    the namespaces of the teams. Fails if a request was denied.
    """
    sent = [each for each in asked(rig, since) if each.namespace != "ome"]
    refused = {what(each) for each in sent if each.code == 403} - {what(each) for each in sent if each.code != 403}
    assert refused == set()
    found: tuple[set[Right], set[Right]] = set(), set()
    for each in sent:
        inside = bool(each.namespace)
        found[inside].add(what(each))
        if each.code == 201:  # An apply that creates an object is logged as a patch, and needs both verbs.
            found[inside].add((*what(each)[:2], "create"))
    found[1].update(("", "pods", verb) for verb in ("get", "list", "watch"))  # rights that the operator grants to routers
    return found


def hold_the_agents_directory(rig: Rig) -> None:
    """Label nodes as if agents had reported that the nodes hold the model. A service reports such nodes in its status."""
    rig.create(yamls.service("team-a", "names-it", "w-pairs"))
    told = rig.wait_for_condition("team-a", "names-it", "ModelReady", "WaitingForNodes", "agents set the label")
    label = re.search(r"the label (\S+)=Ready", told["message"])
    assert label is not None
    rig.cluster.kubectl("label", "nodes", "--all", f"{label[1]}=Ready")
    rig.delete("InferenceService", "team-a", "names-it")
    rig.wait("its pods are gone", lambda: not rig.all("Pod", "team-a"), 60)


@pytest.mark.skipif(not SOAK, reason="a minute: `make soak` runs it; one role for all, and none, are always tried")
def test_namespaced_operator_with_a_cluster_role_for_cluster_kinds(rig: Rig) -> None:
    values = HERE, "agent.enabled=true", "agent.image.repository=r/agent"
    rig.install(*values)
    mark = rig.cluster.audit_mark()
    rig.start("operator", *FLAGS, "--model-agent")
    hold_the_agents_directory(rig)
    live_through_everything(rig, "team-a")
    look_at_every_kind(rig, "team-a")
    rig.wait_until_quiet()
    outside, inside = used(rig, mark)
    of_cluster, of_teams = rights(rig, *values)
    assert sorted(outside ^ of_cluster) == []
    assert sorted(inside - of_teams) == []
    assert sorted(of_teams - inside - RARE) == []
    assert {each.namespace for each in asked(rig, mark)} == {"", "ome", "team-a", "team-b"}


def test_operator_without_cluster_role_reports_node_state_as_unknown(rig: Rig) -> None:
    """An operator without any ClusterRole cannot read nodes. It reports as unknown everything that only nodes show.
    Services serve nevertheless.
    """
    values = HERE, "clusterWideKinds=false"
    rig.install(*values)
    model, runtime = yamls.model(), yamls.runtime("w-pairs", size=2)
    rig.cluster.apply({**model, "kind": "BaseModel", "metadata": {"name": "tiny", "namespace": "team-a"}})
    rig.cluster.apply({**runtime, "kind": "ServingRuntime", "metadata": {"name": "w-pairs", "namespace": "team-a"}})
    mark = rig.cluster.audit_mark()
    rig.start("operator", *FLAGS, "--no-cluster-wide-kinds")
    live_through_everything(rig, "team-a")
    told = rig.condition("team-a", "role", "ModelReady")
    assert (told["status"], told["reason"]) == ("Unknown", "NodesUnknown")
    assert "models.ome.io/team-a.basemodel.tiny=Ready" in told["message"]
    rig.create(yamls.service("team-b", "far", "w-pairs"))
    rig.wait_for_condition(
        "team-b", "far", "ModelReady", "BaseModelNotFound", "apply a BaseModel of this name in namespace team-b"
    )
    measure(rig, "team-a")
    serving = {"apiVersion": "sglang.ai/v1", "kind": "Serving", "metadata": {"name": "short", "namespace": "team-a"}}
    rig.cluster.apply({**serving, "spec": {"baseModel": "tiny", "runtime": "w-pairs"}})
    asked_for = ("get", "-n", "team-a", "servings.sglang.ai/short", "-o", "jsonpath={.status.conditions[*].type}")
    rig.wait("status of the Serving", lambda: "Ready" in rig.cluster.kubectl(*asked_for))
    rig.cluster.kubectl("delete", "-n", "team-a", "servings.sglang.ai/short")
    hard = {"spec": {"hard": {"pods": "0"}}}
    rig.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "w", "namespace": "team-a"}, **hard})
    rig.create(yamls.service("team-a", "starved", "w-pairs"))
    rig.wait_for_condition("team-a", "starved", "EngineReady", "PodsRefused", "exceeded quota")
    rig.delete("ResourceQuota", "team-a", "w")
    for kind in ("basemodel/tiny", "servingruntime/w-pairs"):
        asked_for = ("get", "-n", "team-a", kind, "-o", "jsonpath={.status.conditions[0].type}")
        rig.wait(f"status of {kind}", lambda words=asked_for: rig.cluster.kubectl(*words) == "Ready")
    rig.wait_until_quiet()
    outside, inside = used(rig, mark)
    of_cluster, of_teams = rights(rig, *values)
    assert of_cluster == outside == set()
    assert sorted(inside - of_teams) == []
    renewal = ("coordination.k8s.io", "leases", "update")  # A claim is renewed after five minutes.
    assert sorted(of_teams - inside - RARE - {renewal}) == []


def page(rig: Rig) -> str:
    """Return the metrics of the operator that was started last."""
    with urllib.request.urlopen(f"http://127.0.0.1:{rig.metrics_port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def watched(rig: Rig) -> dict[str, float]:
    """Return, for each namespace, whether it is watched."""
    found = re.findall(r'ome_namespace_watched\{namespace="([^"]+)"\} (\S+)', page(rig))
    return {name: float(value) for name, value in found}


def test_namespace_may_be_absent_created_deleted_and_recreated(rig: Rig) -> None:
    rig.install("watchNamespaces={team-a}")
    rig.start("operator", "--watch-namespace", "team-a", "--watch-namespace", "late")
    rig.create(yamls.service("team-a", "first", "w-pairs"))
    rig.ready("team-a", "first")
    rig.wait("the metric", lambda: watched(rig) == {"team-a": 1.0, "late": 0.0})
    assert (
        "namespace late is not watched: the namespace does not exist, or has no RoleBinding"
        in rig.cluster.log("operator").read_text()
    )
    for service in ("first", "second"):
        make(rig, "late")
        rig.install("watchNamespaces={team-a,late}")
        rig.create(yamls.service("late", service, "w-pairs"))
        rig.ready("late", service, 60)
        assert watched(rig) == {"team-a": 1.0, "late": 1.0}
        rig.delete("Namespace", "", "late")
        rig.wait("late is gone", lambda: rig.get("Namespace", "", "late") is None, 60)
        rig.wait("it is noticed", lambda: watched(rig)["late"] == 0.0, 90)
    rig.patch("InferenceService", "team-a", "first", {"spec": {"engine": {"runner": {"image": "engine:2"}}}})
    rig.wait("team-a goes on", lambda: rig.condition("team-a", "first", "RolledOut").get("reason") == "Complete", 60)
    log = rig.cluster.log("operator").read_text()
    assert "Traceback" not in log and "CRITICAL" not in log


def writers(rig: Rig, since: int) -> dict[tuple[str, str], set[str]]:
    """Return (namespace, name) -> accounts, for each object that operators wrote."""
    found: dict[tuple[str, str], set[str]] = {}
    for each in rig.cluster.audit(since):
        aside = ("leases", "selfsubjectreviews")
        if (
            each.is_write
            and each.user.startswith("system:serviceaccount:ome:")
            and each.resource not in aside
            and not probes(each)
        ):
            found.setdefault((each.namespace, each.name), set()).add(each.user.rpartition(":")[2])
    return found


def uids(rig: Rig, service: str) -> set[str]:
    selector = f"ome.io/inferenceservice={service}"
    return {each["metadata"]["uid"] for each in rig.all("Pod", "team-a", selector)}


def test_operators_of_two_classes_write_only_their_own_objects(rig: Rig) -> None:
    """The operators have different classes, and both manage all namespaces. Each writes only objects of its own class. A
    service can change its class without a restart of its pods.
    """
    rig.install()
    chart = str(ROOT / "charts/ome-resources")
    sets = ("--set", "operator.external=true", "--set", "operatorClass=blue")
    rig.cluster.helm("upgrade", "--install", "ome-blue", chart, "-n", "ome", *sets)
    blue: dict[str, Any] = {"labels": {"ome.io/operator-class": "blue"}}
    mark = rig.cluster.audit_mark()
    rig.start("operator")
    rig.start("second", "--operator-class", "blue", kubeconfig=rig.cluster.keep_token("ome", "ome-operator-blue"))
    plain, theirs = yamls.service("team-a", "plain", "w-pairs"), yamls.service("team-a", "theirs", "w-pairs")
    rig.create(plain)
    rig.create({**theirs, "metadata": {**theirs["metadata"], **blue}})
    private = yamls.runtime("private")
    rig.create({**private, "metadata": {**private["metadata"], **blue}})
    for name in ("plain", "theirs"):
        rig.ready("team-a", name, 60)
    rig.create(yamls.service("team-a", "stranger", "private"))
    rig.wait_for_condition("team-a", "stranger", "RuntimeReady", "RuntimeNotFound")
    rig.delete("InferenceService", "team-a", "stranger")
    asked_for = ("get", "clusterservingruntime", "private", "-o", "jsonpath={.status.conditions[0].type}")
    rig.wait("its status", lambda: rig.cluster.kubectl(*asked_for) != "")
    rig.wait_until_quiet()
    wrote = writers(rig, mark)
    assert {name: users for name, users in wrote.items() if len(users) > 1} == {}
    assert wrote["team-a", "plain"] == wrote["", "w-pairs"] == {"ome-operator"}
    assert wrote["team-a", "theirs"] == wrote["", "private"] == {"ome-operator-blue"}

    before, mark = uids(rig, "plain"), rig.cluster.audit_mark()
    rig.patch("InferenceService", "team-a", "plain", {"metadata": blue})
    rig.patch("InferenceService", "team-a", "plain", {"spec": {"router": {"minReplicas": 2, "maxReplicas": 2}}})
    rig.wait("two routers", lambda: len(rig.all("Pod", "team-a", "component=router,ome.io/inferenceservice=plain")) == 2)
    rig.ready("team-a", "plain", 60)
    assert before < uids(rig, "plain"), "no pod was restarted"
    assert writers(rig, mark)["team-a", "plain"] == {"ome-operator-blue"}
    rig.delete("ClusterServingRuntime", "", "private")
    rig.cluster.helm("uninstall", "ome-blue", "-n", "ome")


def test_operator_of_the_same_class_in_another_namespace_is_reported(rig: Rig) -> None:
    """Another operator of the same class runs with an administrator's kubeconfig, and its Lease is in another namespace. The
    operator reports it together with its user.
    """
    rig.install()
    rig.start("operator")
    rig.wait_for_leader()
    rig.start("second", "--namespace-of-lease", "team-b", kubeconfig=rig.cluster.kubeconfig)
    said = rig.cluster.log("second")

    def says(words: str) -> bool:
        return words in said.read_text()

    rig.wait(
        "a rival",
        lambda: says(
            "another operator without a class, like this operator, works in this cluster: Lease ome/ome-operator of operator"
        ),
    )
    assert re.search(r"working as (?!system:serviceaccount)\S+, with all rights of this user", said.read_text())
    assert says("`ome kubeconfig --serviceaccount team-b/ome-operator` makes")
    assert 'ome_rivals{namespace="ome"} 1.0' in page(rig)
    assert "working as system:serviceaccount:ome:ome-operator" in rig.cluster.log("operator").read_text()


@pytest.mark.parametrize("watch", ["team-b", "team-a"])
def test_namespaced_operators_without_cluster_role_detect_each_other_by_claims(watch: str, rig: Rig) -> None:
    rig.install("watchNamespaces={team-a,team-b}", "clusterWideKinds=false")
    rig.start("operator", "--no-cluster-wide-kinds", "--watch-namespace", "team-a")
    rig.wait_for_leader()
    rig.wait("its claim", lambda: "ome-operator-claim" in rig.cluster.kubectl("get", "leases", "-n", "team-a"))
    more = ("--no-cluster-wide-kinds", "--watch-namespace", watch, "--namespace-of-lease", "team-b")
    rig.start("second", *more, kubeconfig=rig.cluster.kubeconfig)
    rig.wait_for_leader()
    met = 'ome_rivals{namespace="team-a"} 1.0'
    if watch == "team-a":
        rig.wait("it is said", lambda: met in page(rig))
    else:
        rig.wait("its own claim", lambda: "ome-operator-claim" in rig.cluster.kubectl("get", "leases", "-n", "team-b"))
        assert met not in page(rig)


@pytest.mark.parametrize("words", [("--no-cluster-wide-kinds",), ("--watch-namespace", "A b"), ("--operator-class", "A b")])
def test_impossible_options_are_refused_with_a_message(words: tuple[str, ...], rig: Rig) -> None:
    rig.start("operator", *words)
    rig.wait("it ends", lambda: not rig.cluster.process("operator"))
    assert words[0] in rig.cluster.log("operator").read_text()
