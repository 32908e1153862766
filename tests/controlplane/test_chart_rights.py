"""Tests of the rights that the chart gives to the operator, agents, users and tenants. They need no cluster."""

import json
from typing import Any

import pytest

from ome_operator.controllers.pod_dry_runs import covers_all_pods
from tests.support.chart import AGENT, CHART, helm, names, only, pod, rendered

ALL = {"agent": {"enabled": True, "image": {"repository": "r/agent"}}, "admissionPolicy": {"tenants": ["team-a"]}}
"""Values that enable all policies of the chart."""


def test_helm_test_may_read_only_the_operator_service() -> None:
    """The pod of `helm test` may read only the operator's own Service. Its rights are created and deleted with the pod, and
    an operator outside the cluster has no such pod.
    """
    made = rendered()
    role = only(made, "Role", "ome-test")
    assert role["rules"][1]["resourceNames"] == ["ome-test"]
    assert {body["kind"] for body in made if "helm.sh/hook" in (body["metadata"].get("annotations") or {})} == {
        "ServiceAccount", "Role", "RoleBinding", "Pod",
    }  # fmt: skip
    (box,) = only(made, "Pod")["spec"]["containers"]
    compile(box["args"][0], "helm-test.py", "exec")
    assert not [body for body in rendered(operator={"external": True}) if body["kind"] == "Pod"]


def test_agent_namespace_is_refused_as_a_tenant_namespace() -> None:
    """The chart refuses the agents' own namespace in the list of tenants' namespaces. The pods of agents write on nodes,
    so the policy for tenants' namespaces would reject them.
    """
    done = helm("template", "ome", str(CHART), "-n", "ome", "--set", "image.repository=r/op,admissionPolicy.tenants={ome}")
    assert done.returncode != 0 and "admissionPolicy.tenants names ome" in done.stderr


def test_tenant_policy_contains_the_agent_roots() -> None:
    made = rendered(agent={"roots": ["/raid"]}, admissionPolicy_tenants=["team-a"])
    policy = only(made, "ValidatingAdmissionPolicy", "ome-tenants")["spec"]
    assert policy["variables"][0] == {"name": "roots", "expression": '["/raid"]'}
    (selected,) = policy["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert selected["values"] == ["team-a"]
    assert not [body for body in rendered() if body["metadata"]["name"] == "ome-tenants"]


def test_observe_mode_permits_writes_only_of_statuses_and_the_lease() -> None:
    made = rendered(operator_observe=True, rbac_ownerReferencesPermissionEnforcement=True, exposure_kind="Ingress")
    args = pod(made)["containers"][0]["args"]
    assert "--observe" in args and not [word for word in args if word.startswith("--observe-namespace")]
    roles = [body for body in made if body["kind"] in ("ClusterRole", "Role") and body["metadata"]["name"] in _bound(made)]
    writes = {
        (resource, verb)
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
    assert {(resource, verb) for resource, verb in writes if not resource.endswith("/status")} == {
        ("leases", "create"),
        ("leases", "update"),
    }
    assert ("inferenceservices/status", "patch") in writes and ("rolescales/status", "patch") not in writes


def _bound(made: list[dict[str, Any]]) -> set[str]:
    """Return the names of the roles that are bound to the operator's service account."""
    return {
        body["roleRef"]["name"]
        for body in made
        if body["kind"] in ("ClusterRoleBinding", "RoleBinding") and body["subjects"][0]["name"] == "ome-operator"
    }


def granted(role: dict[str, Any]) -> set[tuple[str, str]]:
    return {(kind, verb) for rule in role["rules"] for kind in rule["resources"] for verb in rule["verbs"]}


def test_cluster_role_has_no_namespaced_kinds_with_watch_namespaces() -> None:
    made = rendered(watchNamespaces=["a", "b"])
    everywhere, cluster = only(rendered(), "ClusterRole", "ome-operator"), only(made, "ClusterRole", "ome-operator")
    assert {kind for kind, _ in granted(cluster)} == {
        "clusterbasemodels", "clusterservingruntimes", "acceleratorclasses", "finetunedweights", "nodes", "nodemodels",
        "validatingadmissionpolicies", "validatingadmissionpolicybindings", "leases",
        "clusterbasemodels/status", "clusterservingruntimes/status", "acceleratorclasses/status", "finetunedweights/status",
    }  # fmt: skip
    assert {("nodes", "patch"), ("nodemodels", "patch")} & granted(cluster) == set(), "no rights to label nodes"
    roles = [body for body in made if body["kind"] == "Role" and body["metadata"]["name"] == "ome-operator"]
    assert [body["metadata"]["namespace"] for body in roles] == ["a", "b"]
    assert roles[0]["rules"] != roles[1]["rules"], "each Role names its own namespace"
    both = granted(roles[0]) | granted(cluster)
    assert ("leases", "create") not in both, "only operators without a ClusterRole need claims"
    memory = {("nodefaults", verb) for verb in ("list", "create", "patch", "delete")} | {("nodefaults/status", "patch")}
    assert granted(everywhere) - both == {("nodes", "patch"), ("nodemodels", "patch")} | memory
    assert names(made, "ClusterRole") == {
        ("", name) for name in ("ome-operator", "ome-edit", "ome-view", "ome-catalog-view")
    }
    args = pod(made)["containers"][0]["args"]
    assert {"--watch-namespace=a", "--watch-namespace=b"} <= set(args) and "--no-cluster-wide-kinds" not in args


@pytest.mark.parametrize("places", [[], ["a", "b"]])
def test_pods_proxy_permission_exists_only_with_the_chart_value(places: list[str]) -> None:
    """The operator may `get pods/proxy` only with `registry.podsProxy`, and only an operator outside the cluster may have
    this value. With a list of namespaces, it has the right only there.
    """
    outside = {"operator": {"external": True}, "watchNamespaces": places}
    for made in (rendered(watchNamespaces=places), rendered(**outside)):
        assert "pods/proxy" not in {kind for rule in rules(made, "ome-operator") for kind in rule.get("resources", [])}
    made = rendered(**outside, registry_podsProxy=True)
    having = {
        (body["kind"], body["metadata"].get("namespace", "")): [
            rule for rule in body["rules"] if "pods/proxy" in rule["resources"]
        ]
        for body in made
        if "pods/proxy" in json.dumps(body.get("rules", [])) and body["metadata"]["name"] == "ome-operator"
    }
    rule = {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]}
    assert having == {place: [rule] for place in ([("Role", each) for each in places] or [("ClusterRole", "")])}
    refused = helm("template", "ome", str(CHART), "-n", "ome", "--set", "image.repository=r/op,registry.podsProxy=true")
    assert refused.returncode != 0 and "registry.podsProxy needs operator.external=true" in refused.stderr


def test_chart_can_be_installed_without_cluster_wide_objects() -> None:
    values = {"watchNamespaces": ["a"], "clusterWideKinds": False}
    made = rendered(**values, admissionPolicy_enabled=False, rbac_aggregateToUserRoles=False)
    assert [body["kind"] for body in made if "namespace" not in body["metadata"]] == []
    assert "--no-cluster-wide-kinds" in pod(made)["containers"][0]["args"]


def test_every_policy_fails_closed_and_names_the_operator_account() -> None:
    """Every admission policy denies requests if it cannot be evaluated. It names the operator's account, because a group
    would include other users.
    """
    made = rendered(**ALL)
    policies = [body for body in made if body["kind"] == "ValidatingAdmissionPolicy"]
    assert len(policies) >= 8 and {body["spec"]["failurePolicy"] for body in policies} == {"Fail"}
    bindings = [body["spec"] for body in made if body["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert {body["policyName"] for body in bindings} == {body["metadata"]["name"] for body in policies}
    assert all(body["validationActions"] == ["Deny"] for body in bindings)
    for body in policies:
        said = json.dumps(body["spec"].get("matchConditions") or [])
        of_tenants = body["metadata"]["name"].endswith("tenants")
        assert of_tenants or "request.userInfo.username == 'system:serviceaccount:ome:" in said, body["metadata"]["name"]
        assert "userInfo.groups" not in json.dumps(body["spec"])


def test_no_policy_uses_operator_objects_as_parameters() -> None:
    """No admission policy has the objects of the operator as parameters. A policy is evaluated once for each of its
    parameters, so the cost of creating services would grow quadratically.
    """
    made = rendered(**ALL)
    asks = {each["metadata"]["name"]: each["spec"]["paramRef"] for each in made if "paramRef" in each.get("spec", {})}
    not_ours = {"key": "ome.io/managed-by", "operator": "NotIn", "values": ["ome-operator"]}
    assert {name: ref["selector"] for name, ref in asks.items()} == {
        "ome-operator-bindings": {"matchExpressions": [not_ours]}
    }
    policy = only(made, "ValidatingAdmissionPolicy", "ome-operator-bindings")["spec"]["matchConstraints"]
    assert policy["objectSelector"] == {"matchLabels": {"ome.io/managed-by": "ome-operator"}}


def rules(made: list[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
    roles = [
        body for body in made if body["kind"] in ("Role", "ClusterRole") and body["metadata"]["name"].startswith(prefix)
    ]
    assert roles, prefix
    return [rule for body in roles for rule in body["rules"]]


def test_operator_cannot_extend_its_rights_or_read_secrets() -> None:
    """The operator cannot extend its own rights: it may not bind, escalate or impersonate. It may create Secrets but not
    read them, or do neither with `rbac.createSecrets: false`. The rights are those in docs/security.md.
    """
    made = rendered()
    rights = {(what, verb) for rule in rules(made, "ome-operator") for what in rule["resources"] for verb in rule["verbs"]}
    assert not {verb for _, verb in rights} & {"escalate", "bind", "impersonate", "deletecollection", "*"}
    assert {verb for what, verb in rights if what == "secrets"} == {"create"}
    assert {verb for what, verb in rights if what == "pods"} == {"get", "list", "watch", "patch", "delete", "create"}
    assert {verb for what, verb in rights if what == "resourcequotas"} == {"list"}
    assert not {verb for what, verb in rights if what in ("clusterbasemodels", "inferenceservices")} & {"delete"}
    assert not [body for body in made if "Webhook" in body["kind"]]
    without = rules(rendered(rbac={"createSecrets": False}), "ome-operator")
    assert not [rule for rule in without if "secrets" in rule["resources"]]


def test_moves_need_no_eviction_permission() -> None:
    """The operator removes groups and changes their disruption budgets itself, so it needs no permission for evictions.
    `ome move SERVICE GROUP` needs the role of users. `ome move NODE` needs the rights of an administrator, because no role
    of the chart permits patches of nodes.
    """
    made = rendered()
    rights = {(what, verb) for rule in rules(made, "ome-operator") for what in rule["resources"] for verb in rule["verbs"]}
    assert {("pods", "delete"), ("pods", "patch"), ("poddisruptionbudgets", "patch"), ("nodes", "list")} <= rights
    assert not [what for what, _ in rights if what.startswith("pods/") and what != "pods/log"]
    users = {(what, verb) for rule in rules(made, "ome-edit") for what in rule["resources"] for verb in rule["verbs"]}
    assert ("inferenceservices", "patch") in users
    assert not [what for what, _ in users if what in ("nodes", "poddisruptionbudgets", "nodefaults")]


@pytest.mark.parametrize("watched", [[], ["team-a"]])
@pytest.mark.parametrize(
    ("values", "granted"),
    [
        ({}, True),
        ({"admissionPolicy": {"enabled": False}}, False),
        ({"rbac": {"dryRunPods": False}}, False),
        ({"operator": {"observe": True}}, False),
    ],
)
def test_pod_creation_is_permitted_only_together_with_the_dry_run_policy(
    values: dict[str, Any], granted: bool, watched: list[str]
) -> None:
    """Whatever values are combined, the operator may create pods only if the policy that limits this to dry runs is
    installed.
    """
    made = rendered(watchNamespaces=watched, **values)
    roles = [body for body in made if body["kind"] in ("Role", "ClusterRole")]
    found = [rule for body in roles for rule in body["rules"] if "pods" in rule["resources"] and "create" in rule["verbs"]]
    named = [body for body in made if body["metadata"]["name"] == "ome-operator-pods"]
    assert bool(found) == granted
    assert [body["kind"].removeprefix("ValidatingAdmissionPolicy") for body in named] == (["", "Binding"] if granted else [])
    if granted:
        (role,) = [body for body in roles if found[0] in body["rules"]]
        assert role["kind"] == ("Role" if watched else "ClusterRole") and found[0]["resources"] == ["pods"]
        assert covers_all_pods(*named), "the operator must recognize the policy as it is installed"


def test_edit_role_permits_services_but_no_cluster_wide_objects() -> None:
    """With the role `edit`, people may write services and the models and runtimes of their namespace, but nothing that is
    cluster-wide. `rbac.aggregateToUserRoles: false` leaves that role unchanged.
    """
    made = rendered()
    written = {what for rule in rules(made, "ome-edit") for what in rule["resources"]}
    assert {"inferenceservices", "basemodels", "servingruntimes", "benchmarkjobs"} <= written
    assert not [what for what in written if what.startswith("cluster") or what in ("finetunedweights", "nodemodels")]
    edit = only(made, "ClusterRole", "ome-edit")
    assert {key.rpartition("-")[2] for key in edit["metadata"]["labels"] if "aggregate-to" in key} == {"edit", "admin"}
    none = rendered(rbac={"aggregateToUserRoles": False})
    assert not [body for body in none if body["metadata"]["name"] == "ome-edit"]


def test_chart_pods_have_a_restricted_security_context() -> None:
    """The pods of the operator and of agents have no capabilities, a read-only root file system, and only the volumes that
    they need. The agent's role permits no access to Secrets or pods.
    """
    made = rendered(agent={**AGENT, "roots": ["/raid"]}, networkPolicy={"enabled": True})
    operator, agent = pod(made), pod(made, "DaemonSet")
    for spec in (operator, agent):
        (box,) = spec["containers"]
        context = box["securityContext"]
        assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert operator["securityContext"]["runAsNonRoot"] and operator["securityContext"].get("runAsUser", 65532) == 65532
    assert agent["securityContext"]["runAsUser"] == 0
    assert [volume["hostPath"]["path"] for volume in agent["volumes"] if "hostPath" in volume] == ["/raid"]
    secrets = {what for rule in rules(made, "ome-agent") for what in rule["resources"]}
    assert "secrets" not in secrets and "pods" not in secrets
    (rule,) = only(made, "NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for port in rule["ports"]} == {"metrics", "health"}


def test_network_policies_are_restricted_by_policy_only_if_enabled() -> None:
    for on in (False, True):
        held = [body for body in rendered(networkPolicy={"services": on}) if body["kind"] == "ValidatingAdmissionPolicy"]
        named = [body["metadata"]["name"] for body in held if "networkpolicies" in json.dumps(body["spec"])]
        assert ("ome-operator" in named) is on
        assert ("pods with the label" in json.dumps([body for body in held if body["metadata"]["name"] in named])) is on


@pytest.mark.parametrize("values", [{}, {"agent_enabled": True, "admissionPolicy_tenants": ["team-a"]}])
def test_operator_may_read_exactly_the_installed_admission_policies(values: dict[str, Any]) -> None:
    """The operator may read exactly the admission policies that the chart installs, by name."""
    made = rendered(**values)
    rules = only(made, "ClusterRole", "ome-operator")["rules"]
    (rule,) = [rule for rule in rules if "admissionregistration.k8s.io" in rule["apiGroups"]]
    assert rule["verbs"] == ["get"]
    assert set(rule["resources"]) == {"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
    others = {"ome-agent", "ome-tenants"} if values else set()
    assert set(rule["resourceNames"]) == {"ome-operator-bindings", "ome-operator-pods", *others}
    there = {body["metadata"]["name"] for body in made if body["kind"].startswith("ValidatingAdmissionPolicy")}
    assert set(rule["resourceNames"]) <= there and (others or not there & {"ome-agent", "ome-tenants"})


def test_operator_may_write_scaled_objects_only_if_keda_is_enabled() -> None:
    assert "keda.sh" not in str(rendered())
    made = rendered(keda={"enabled": True})
    (role,) = (one for one in made if one["kind"] == "ClusterRole" and "keda.sh" in str(one))
    (rule,) = (one for one in role["rules"] if one["apiGroups"] == ["keda.sh"])
    assert rule["resources"] == ["scaledobjects"] and {"create", "patch", "delete"} <= {*rule["verbs"]}
    (seen,) = (one for one in only_observing() if one["apiGroups"] == ["keda.sh"])
    assert seen["verbs"] == ["list", "watch"]
    policies = [one["metadata"]["name"] for one in made if "scaledobjects" in str(one) and "Policy" in one["kind"]]
    assert policies == ["ome-operator-objects", "ome-operator-content", "ome-operator-namespaces"]


def only_observing() -> list[dict[str, Any]]:
    """Return the rules of the ClusterRole of an operator that only observes, in a cluster with KEDA."""
    made = rendered(keda={"enabled": True}, operator={"observe": True})
    return [rule for one in made if one["kind"] == "ClusterRole" for rule in one["rules"]]


@pytest.mark.parametrize(
    ("values", "creates"),
    [
        ({}, False),
        ({"rollout": {"imagePulls": 2}}, True),
        ({"rollout": {"imagePulls": 2}, "operator": {"observe": True}}, False),
    ],
    ids=["default", "imagePulls", "observe"],
)
def test_image_pull_jobs_are_accepted_by_policy_only_with_the_chart_value(values: dict[str, Any], creates: bool) -> None:
    """The operator may create Jobs for BenchmarkJobs anyway. The admission policy accepts Jobs of services only with the
    chart's value.
    """
    made, without = rendered(**values), rendered(**{name: value for name, value in values.items() if name != "rollout"})
    policy = only(made, "ValidatingAdmissionPolicy", "ome-operator")
    (rule,) = [one for one in policy["spec"]["validations"] if "'batch' ||" in one["expression"]]
    assert ("['true']" in rule["expression"]) is creates
    roles = [[one for one in each if one["kind"] in ("Role", "ClusterRole")] for each in (made, without)]
    assert roles[0] == roles[1]
