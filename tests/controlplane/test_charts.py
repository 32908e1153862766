"""What helm makes of the chart's values; no cluster is asked."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_local.binaries import ensure

CHART = Path(__file__).parents[2] / "charts/ome-resources"
DIGEST = f"sha256:{'a' * 64}"


def helm(*words: str) -> "subprocess.CompletedProcess[str]":
    program = ensure.ensure(["helm"])["helm"]
    return subprocess.run([str(program), *words], capture_output=True, text=True, check=False)


def rendered(**values: Any) -> list[dict[str, Any]]:
    """The objects of the chart with these values."""
    given = [
        word for name, value in values.items() for word in ("--set-json", f"{name.replace('_', '.')}={json.dumps(value)}")
    ]
    done = helm("template", "ome", str(CHART), "-n", "ome", "--set", "image.repository=r/op", *given)
    assert done.returncode == 0, done.stderr
    return [body for body in yaml.safe_load_all(done.stdout) if body]


def only(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    (found,) = [body for body in objects if body["kind"] == kind and name in ("", body["metadata"]["name"])]
    return found


def pod(objects: list[dict[str, Any]], kind: str = "Deployment") -> dict[str, Any]:
    found: dict[str, Any] = only(objects, kind)["spec"]["template"]["spec"]
    return found


def test_a_digest_wins_over_a_tag() -> None:
    """For the operator, the registry beside routers, the agent, benchmarks and `helm test`."""
    image = {"repository": "r/op", "tag": "1", "digest": DIGEST}
    agent = {"enabled": True, "image": {"repository": "r/agent", "digest": DIGEST}}
    made = rendered(image=image, agent=agent)
    (operator,) = pod(made)["containers"]
    assert operator["image"] == f"r/op@{DIGEST}"
    assert {f"--sidecar-image=r/op@{DIGEST}", f"--tools-image=r/agent@{DIGEST}"} <= set(operator["args"])
    assert pod(made, "DaemonSet")["containers"][0]["image"] == f"r/agent@{DIGEST}"
    assert only(made, "Pod")["spec"]["containers"][0]["image"] == f"r/op@{DIGEST}"
    assert pod(rendered(image={"repository": "r/op", "tag": "1"}))["containers"][0]["image"] == "r/op:1"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"image_digest": "sha256:12"}, "digest"),
        ({"image_pullSecrets": ["name"]}, "pullSecrets"),
        ({"extraObjects": [1]}, "extraObjects"),
        ({"metrics_interval": "often"}, "interval"),
        ({"operator_topologySpreadConstraints": [{"maxSkew": 1}]}, "topologyKey"),
    ],
)
def test_the_schema_refuses(values: dict[str, Any], field: str) -> None:
    given = [
        word for name, value in values.items() for word in ("--set-json", f"{name.replace('_', '.')}={json.dumps(value)}")
    ]
    done = helm("template", "ome", str(CHART), "--set", "image.repository=r/op", *given)
    assert done.returncode and field in done.stderr, done.stderr


def test_secrets_of_users_are_told_to_the_operator_by_name() -> None:
    args = pod(rendered(image_userPullSecrets=["company", "mirror"]))["containers"][0]["args"]
    assert {"--pull-secret=company", "--pull-secret=mirror"} <= set(args)


def test_replicas_spread() -> None:
    """By the operator's own labels, unless the constraint says others."""
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    own = {**spread, "labelSelector": {"matchLabels": {"a": "b"}}}
    first, second = pod(rendered(operator_topologySpreadConstraints=[spread, own]))["topologySpreadConstraints"]
    assert first["labelSelector"]["matchLabels"]["app.kubernetes.io/name"] == "ome-operator"
    assert second == own


def test_monitors() -> None:
    made = rendered(metrics={"podMonitor": True, "monitorLabels": {"release": "prometheus"}, "interval": "30s"})
    monitor = only(made, "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "metrics", "honorLabels": True, "interval": "30s"}]
    assert not [body for body in rendered() if body["kind"].endswith("Monitor")]


def test_engines_and_routers_are_monitored_where_services_are() -> None:
    on = {"podMonitor": True}
    made = rendered(metrics={"engines": on, "routers": on}, watchNamespaces=["a", "b"])
    engines, routers = (only(made, "PodMonitor", f"ome-operator-{name}")["spec"] for name in ("engines", "routers"))
    assert engines["namespaceSelector"] == {"matchNames": ["a", "b"]} == routers["namespaceSelector"]
    assert engines["selector"]["matchLabels"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
    assert [each["port"] for each in (*engines["podMetricsEndpoints"], *routers["podMetricsEndpoints"])] == [
        "http",
        "metrics",
    ]
    assert "--scrapes-engines" in pod(made)["containers"][0]["args"]
    assert "--scrapes-engines" not in pod(rendered())["containers"][0]["args"]


def test_alerts_are_those_of_the_page_but_for_those_that_are_left_out() -> None:
    every = rendered(metrics={"alerts": {"enabled": True, "runbooks": "https://runbooks/alerts.md"}})
    rules = [rule for group in only(every, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    file = yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    assert [rule["expr"] for rule in rules] == [rule["expr"] for group in file["groups"] for rule in group["rules"]]
    assert rules[0]["annotations"]["runbook_url"] == "https://runbooks/alerts.md#omenobodyleads"
    fewer = only(rendered(metrics={"alerts": {"enabled": True, "disabled": ["OmeRival"]}}), "PrometheusRule")
    left = {rule["alert"] for group in fewer["spec"]["groups"] for rule in group["rules"]}
    assert {rule["alert"] for rule in rules} - left == {"OmeRival"}
    wrong = ("--set", "metrics.alerts.enabled=true,metrics.alerts.disabled={OmeRivals}")
    done = helm("template", "ome", str(CHART), "--set", "image.repository=r/op", *wrong)
    assert done.returncode and "OmeRivals, which is no alert" in done.stderr
    assert not [body for body in rendered() if body["kind"] == "PrometheusRule"]


def test_each_dashboard_has_a_switch() -> None:
    names = ("fleet", "service", "nodes")
    made = rendered(metrics={"dashboards": dict.fromkeys(names, True)})
    for name in names:
        found = only(made, "ConfigMap", f"ome-operator-dashboard-{name}")
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(found["data"][f"ome-{name}.json"])["uid"] == f"ome-{name}"
    assert not [body for body in rendered() if "dashboard" in body["metadata"]["name"]]


def test_extra_objects_are_rendered() -> None:
    """As objects and as text, and helm's words in them."""
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-text'}"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-body"}}
    made = rendered(extraObjects=[body, text])
    assert {"ome-body", "ome-text"} <= {item["metadata"]["name"] for item in made if item["kind"] == "ConfigMap"}


def test_helm_test_may_touch_nothing_but_its_service() -> None:
    """Its rights come and go with it, and it passes `restricted`."""
    made = rendered()
    role = only(made, "Role", "ome-test")
    assert role["rules"][1]["resourceNames"] == ["ome-test"]
    assert {body["kind"] for body in made if "helm.sh/hook" in (body["metadata"].get("annotations") or {})} == {
        "ServiceAccount", "Role", "RoleBinding", "Pod",
    }  # fmt: skip
    (box,) = only(made, "Pod")["spec"]["containers"]
    compile(box["args"][0], "helm-test.py", "exec")
    assert not [body for body in rendered(operator={"external": True}) if body["kind"] == "Pod"]


def test_the_operator_is_told_where_agents_write() -> None:
    roots = ["/mnt/models", "/raid/models"]
    agent = {"enabled": True, "roots": roots, "image": {"repository": "r/agent"}}
    made = rendered(agent=agent)
    told = [word for word in pod(made)["containers"][0]["args"] if word.startswith("--agent-root")]
    assert told == [f"--agent-root={root}" for root in roots]
    assert [word for word in pod(made, "DaemonSet")["containers"][0]["args"] if word.startswith("--root")] == [
        f"--root={root}" for root in roots
    ]


def test_the_agents_own_namespace_is_no_tenants() -> None:
    """Its pods write on the nodes: with the policy there would be no agents."""
    done = helm("template", "ome", str(CHART), "-n", "ome", "--set", "image.repository=r/op,admissionPolicy.tenants={ome}")
    assert done.returncode != 0 and "admissionPolicy.tenants names ome" in done.stderr


def test_the_policy_for_tenants_knows_the_roots() -> None:
    made = rendered(agent={"roots": ["/raid"]}, admissionPolicy_tenants=["team-a"])
    policy = only(made, "ValidatingAdmissionPolicy", "ome-tenants")["spec"]
    assert policy["variables"][0] == {"name": "roots", "expression": '["/raid"]'}
    (selected,) = policy["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert selected["values"] == ["team-a"]
    assert not [body for body in rendered() if body["metadata"]["name"] == "ome-tenants"]


def test_an_operator_that_observes_may_write_statuses_and_its_lease_alone() -> None:
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
    """Names of the roles that the operator's account has."""
    return {
        body["roleRef"]["name"]
        for body in made
        if body["kind"] in ("ClusterRoleBinding", "RoleBinding") and body["subjects"][0]["name"] == "ome-operator"
    }


def test_namespaces_that_are_observed_are_told_to_the_operator() -> None:
    args = pod(rendered(operator_observeNamespaces=["a", "b"]))["containers"][0]["args"]
    assert {"--observe-namespace=a", "--observe-namespace=b"} <= set(args) and "--observe" not in args


def names(objects: list[dict[str, Any]], *kinds: str) -> set[tuple[str, str]]:
    return {(body["metadata"].get("namespace", ""), body["metadata"]["name"]) for body in objects if body["kind"] in kinds}


def granted(role: dict[str, Any]) -> set[tuple[str, str]]:
    return {(kind, verb) for rule in role["rules"] for kind in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.parametrize(
    ("values", "seconds"), [({}, 60), ({"placement_timeout": 300}, 300), ({"placement_gangs": False}, 0)]
)
def test_gangs_are_on_and_can_be_switched_off(values: dict[str, Any], seconds: float) -> None:
    """As for an operator that is started as a process (`tests/unit/test_production.py`)."""
    args = pod(rendered(**values))["containers"][0]["args"]
    assert [word for word in args if word.startswith("--gang-timeout")] == [f"--gang-timeout={seconds}"]


def test_with_watch_namespaces_nothing_namespaced_is_in_a_cluster_role() -> None:
    made = rendered(watchNamespaces=["a", "b"])
    everywhere, cluster = only(rendered(), "ClusterRole", "ome-operator"), only(made, "ClusterRole", "ome-operator")
    assert {kind for kind, _ in granted(cluster)} == {
        "clusterbasemodels", "clusterservingruntimes", "acceleratorclasses", "finetunedweights", "nodes", "nodemodels",
        "validatingadmissionpolicies", "validatingadmissionpolicybindings", "leases",
        "clusterbasemodels/status", "clusterservingruntimes/status", "acceleratorclasses/status", "finetunedweights/status",
    }  # fmt: skip
    assert {("nodes", "patch"), ("nodemodels", "patch")} & granted(cluster) == set(), "without agents nobody labels a node"
    roles = [body for body in made if body["kind"] == "Role" and body["metadata"]["name"] == "ome-operator"]
    assert [body["metadata"]["namespace"] for body in roles] == ["a", "b"]
    assert roles[0]["rules"] != roles[1]["rules"], "each may read its own namespace"
    both = granted(roles[0]) | granted(cluster)
    assert ("leases", "create") not in both, "claims are for those without a ClusterRole"
    assert granted(everywhere) - both == {("nodes", "patch"), ("nodemodels", "patch")}
    assert names(made, "ClusterRole") == {
        ("", name) for name in ("ome-operator", "ome-edit", "ome-view", "ome-catalog-view")
    }
    args = pod(made)["containers"][0]["args"]
    assert {"--watch-namespace=a", "--watch-namespace=b"} <= set(args) and "--no-cluster-wide-kinds" not in args


def test_a_team_can_have_all_of_it_in_its_own_namespaces() -> None:
    values = {"watchNamespaces": ["a"], "clusterWideKinds": False}
    made = rendered(**values, admissionPolicy_enabled=False, rbac_aggregateToUserRoles=False)
    assert [body["kind"] for body in made if "namespace" not in body["metadata"]] == []
    assert "--no-cluster-wide-kinds" in pod(made)["containers"][0]["args"]


def test_two_classes_share_no_name() -> None:
    """In the same namespace, with everything that a release can have."""
    more = {"operator_replicas": 2, "networkPolicy_enabled": True, "metrics_podMonitor": True, "operatorClass": "team-b"}
    second = rendered(**more)
    kinds = {body["kind"] for body in second}
    first = rendered(**more | {"operatorClass": ""})
    shared = {kind: names(first, kind) & names(second, kind) for kind in kinds}
    hooks = {("ome", "ome-test")}  # of the name of the release
    assert {kind: found - hooks for kind, found in shared.items() if found - hooks} == {}
    (operator,) = pod(second)["containers"]
    assert "--operator-class=team-b" in operator["args"]
    assert pod(second)["serviceAccountName"] == "ome-operator-team-b"
    policy = only(second, "ValidatingAdmissionPolicy", "ome-operator-team-b")
    assert "system:serviceaccount:ome:ome-operator-team-b" in policy["spec"]["matchConditions"][0]["expression"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"clusterWideKinds": False}, "clusterWideKinds=false needs watchNamespaces"),
        (
            {"watchNamespaces": ["a", "kube-system"]},
            "watchNamespaces has kube-system, which admissionPolicy.forbiddenNamespaces",
        ),
        ({"watchNamespaces": ["A_1"]}, "watchNamespaces"),
        ({"operatorClass": "Team B"}, "operatorClass"),
        ({"operatorClass": "b", "agent_enabled": True}, "agent.enabled with operatorClass"),
        (
            {"watchNamespaces": ["a"], "clusterWideKinds": False, "agent_enabled": True},
            "agent.enabled with clusterWideKinds=false",
        ),
        (
            {"watchNamespaces": ["a"], "agent": {"enabled": True, "removeAfterSeconds": 5}},
            "agent.removeAfterSeconds with watch",
        ),
    ],
)
def test_values_that_do_not_go_together(values: dict[str, Any], said: str) -> None:
    given = [
        word for name, value in values.items() for word in ("--set-json", f"{name.replace('_', '.')}={json.dumps(value)}")
    ]
    done = helm("template", "ome", str(CHART), "--set", "image.repository=r/op", *given)
    assert done.returncode and said in done.stderr, done.stderr


def test_helm_test_runs_where_the_operator_works() -> None:
    made = rendered(watchNamespaces=["a"], operatorClass="x")
    assert only(made, "Role", "ome-test")["metadata"]["namespace"] == "a"
    (box,) = only(made, "Pod")["spec"]["containers"]
    assert {(given["name"], given["value"]) for given in box["env"]} >= {("NAMESPACE", "a"), ("CLASS", "x")}


def test_agents_are_ready_when_they_answer() -> None:
    """Else a roll-out of agents that do not start goes on over all nodes."""
    made = pod(rendered(agent={"enabled": True, "image": {"repository": "r/agent"}}), "DaemonSet")
    (box,) = made["containers"]
    assert box["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"} == box["livenessProbe"]["httpGet"]


def test_every_policy_fails_closed_and_names_its_user() -> None:
    """Where a policy cannot be evaluated the request is refused; a group of users would be wider than an account."""
    values = {"agent": {"enabled": True, "image": {"repository": "r/agent"}}, "admissionPolicy": {"tenants": ["team-a"]}}
    made = rendered(**values)
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


AGENT = {"enabled": True, "image": {"repository": "r/agent"}}


def rules(made: list[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
    roles = [
        body for body in made if body["kind"] in ("Role", "ClusterRole") and body["metadata"]["name"].startswith(prefix)
    ]
    assert roles, prefix
    return [rule for body in roles for rule in body["rules"]]


def test_no_right_lets_the_operator_grow_and_of_secrets_it_makes_some() -> None:
    """docs/security.md: what the operator may do."""
    made = rendered()
    rights = {(what, verb) for rule in rules(made, "ome-operator") for what in rule["resources"] for verb in rule["verbs"]}
    assert not {verb for _, verb in rights} & {"escalate", "bind", "impersonate", "deletecollection", "*"}
    assert {verb for what, verb in rights if what == "secrets"} == {"create"}
    assert {verb for what, verb in rights if what == "pods"} == {"get", "list", "watch", "patch", "delete"}
    assert not {verb for what, verb in rights if what in ("clusterbasemodels", "inferenceservices")} & {"delete"}
    assert not [body for body in made if "Webhook" in body["kind"]]
    without = rules(rendered(rbac={"createSecrets": False}), "ome-operator")
    assert not [rule for rule in without if "secrets" in rule["resources"]]


def test_people_who_may_make_workloads_may_make_services_and_administrators_the_rest() -> None:
    """docs/security.md: who can do what."""
    made = rendered()
    written = {what for rule in rules(made, "ome-edit") for what in rule["resources"]}
    assert {"inferenceservices", "basemodels", "servingruntimes", "benchmarkjobs"} <= written
    assert not [what for what in written if what.startswith("cluster") or what in ("finetunedweights", "nodemodels")]
    edit = only(made, "ClusterRole", "ome-edit")
    assert {key.rpartition("-")[2] for key in edit["metadata"]["labels"] if "aggregate-to" in key} == {"edit", "admin"}
    none = rendered(rbac={"aggregateToUserRoles": False})
    assert not [body for body in none if body["metadata"]["name"] == "ome-edit"]


def test_pods_of_the_chart_may_do_little() -> None:
    """docs/security.md: the operator's pod, and what an agent may do."""
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


def test_policies_of_networks_are_held_where_they_are_made() -> None:
    for on in (False, True):
        held = [body for body in rendered(networkPolicy={"services": on}) if body["kind"] == "ValidatingAdmissionPolicy"]
        named = [body["metadata"]["name"] for body in held if "networkpolicies" in json.dumps(body["spec"])]
        assert ("ome-operator" in named) is on
        assert ("pods with the label" in json.dumps([body for body in held if body["metadata"]["name"] in named])) is on


def test_a_secret_by_its_name_alone_is_refused_with_the_form() -> None:
    given = json.dumps({**AGENT, "secrets": ["hf-token"]})
    done = helm("template", "ome", str(CHART), "--set", "image.repository=r/op", "--set-json", f"agent={given}")
    assert done.returncode and "Write {name: hf-token, hosts: [huggingface.co]" in done.stderr, done.stderr


@pytest.mark.parametrize("values", [{}, {"agent_enabled": True, "admissionPolicy_tenants": ["team-a"]}])
def test_the_operator_may_read_the_policies_that_it_cannot_try(values: dict[str, Any]) -> None:
    """By name, those alone that the chart has, and only to read."""
    made = rendered(**values)
    rules = only(made, "ClusterRole", "ome-operator")["rules"]
    (rule,) = [rule for rule in rules if "admissionregistration.k8s.io" in rule["apiGroups"]]
    assert rule["verbs"] == ["get"]
    assert set(rule["resources"]) == {"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
    others = {"ome-agent", "ome-tenants"} if values else set()
    assert set(rule["resourceNames"]) == {"ome-operator-bindings", *others}
    there = {body["metadata"]["name"] for body in made if body["kind"].startswith("ValidatingAdmissionPolicy")}
    assert set(rule["resourceNames"]) <= there and (others or not there & {"ome-agent", "ome-tenants"})
