"""Tests of the objects that helm renders from the values of the charts. They need no cluster."""

import json
from typing import Any

import pytest
import yaml

from tests.support.chart import AGENT, CHART, helm, names, only, pod, rendered

DIGEST = f"sha256:{'a' * 64}"


def test_digest_takes_precedence_over_tag() -> None:
    """If the values contain a digest and a tag, the image has the digest. This holds for the operator, the registry sidecar
    of routers, the agent, benchmarks and `helm test`.
    """
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
def test_invalid_chart_value_is_refused_with_its_field(values: dict[str, Any], field: str) -> None:
    given = [
        word for name, value in values.items() for word in ("--set-json", f"{name.replace('_', '.')}={json.dumps(value)}")
    ]
    done = helm("template", "ome", str(CHART), "--set", "image.repository=r/op", *given)
    assert done.returncode and field in done.stderr, done.stderr


def test_user_pull_secrets_are_passed_to_the_operator_by_name() -> None:
    args = pod(rendered(image_userPullSecrets=["company", "mirror"]))["containers"][0]["args"]
    assert {"--pull-secret=company", "--pull-secret=mirror"} <= set(args)


def test_topology_spread_selects_operator_pods_by_default() -> None:
    """The topology spread constraint of the operator's Deployment selects the operator's own labels, unless the values
    contain a selector.
    """
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    own = {**spread, "labelSelector": {"matchLabels": {"a": "b"}}}
    first, second = pod(rendered(operator_topologySpreadConstraints=[spread, own]))["topologySpreadConstraints"]
    assert first["labelSelector"]["matchLabels"]["app.kubernetes.io/name"] == "ome-operator"
    assert second == own


def test_chart_renders_pod_monitors_only_if_enabled() -> None:
    made = rendered(metrics={"podMonitor": True, "monitorLabels": {"release": "prometheus"}, "interval": "30s"})
    monitor = only(made, "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "metrics", "honorLabels": True, "interval": "30s"}]
    assert not [body for body in rendered() if body["kind"].endswith("Monitor")]


def test_pod_monitors_select_engines_and_routers_in_service_namespaces() -> None:
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


def test_prometheus_rule_contains_the_documented_alerts_except_excluded_ones() -> None:
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
    assert done.returncode and "OmeRivals, which is not an alert" in done.stderr
    assert not [body for body in rendered() if body["kind"] == "PrometheusRule"]


def test_each_dashboard_is_rendered_only_if_enabled() -> None:
    names = ("fleet", "service", "nodes")
    made = rendered(metrics={"dashboards": dict.fromkeys(names, True)})
    for name in names:
        found = only(made, "ConfigMap", f"ome-operator-dashboard-{name}")
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(found["data"][f"ome-{name}.json"])["uid"] == f"ome-{name}"
    assert not [body for body in rendered() if "dashboard" in body["metadata"]["name"]]


def test_extra_objects_are_rendered() -> None:
    """The chart renders the extra objects in its values. They may be given as objects or as text, and may contain helm
    templates.
    """
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-text'}"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-body"}}
    made = rendered(extraObjects=[body, text])
    assert {"ome-body", "ome-text"} <= {item["metadata"]["name"] for item in made if item["kind"] == "ConfigMap"}


def test_agent_roots_are_passed_to_the_operator() -> None:
    roots = ["/mnt/models", "/raid/models"]
    agent = {"enabled": True, "roots": roots, "image": {"repository": "r/agent"}}
    made = rendered(agent=agent)
    told = [word for word in pod(made)["containers"][0]["args"] if word.startswith("--agent-root")]
    assert told == [f"--agent-root={root}" for root in roots]
    assert [word for word in pod(made, "DaemonSet")["containers"][0]["args"] if word.startswith("--root")] == [
        f"--root={root}" for root in roots
    ]


def test_values_missing_in_an_earlier_chart_disable_their_options() -> None:
    """`helm upgrade --reuse-values` takes the values of the installed release, without the defaults of the new chart.
    Options that the earlier chart did not have are then rendered as 0, which turns them off.
    """
    given = {"enabled": True, "prefetchGB": None, "prefetchMBps": None, "image": {"repository": "r/agent"}}
    made = rendered(agent=given, watchNamespaces=["a"])
    args = pod(made, "DaemonSet")["containers"][0]["args"]
    assert {"--prefetch-gb=0", "--prefetch-mbps=0"} <= set(args)
    earlier = rendered(rollout={"imagePulls": None, "imagePullTimeout": None})
    assert "image-pull" not in str(pod(earlier)["containers"][0]["args"])


def test_observed_namespaces_are_passed_to_the_operator() -> None:
    args = pod(rendered(operator_observeNamespaces=["a", "b"]))["containers"][0]["args"]
    assert {"--observe-namespace=a", "--observe-namespace=b"} <= set(args) and "--observe" not in args


@pytest.mark.parametrize(
    ("values", "seconds"), [({}, 60), ({"placement_timeout": 300}, 300), ({"placement_gangs": False}, 0)]
)
def test_gang_placement_is_enabled_by_default_and_can_be_disabled(values: dict[str, Any], seconds: float) -> None:
    """The chart enables gang placement by default, and a value disables it. The defaults equal those of an operator that is
    started as a process (`tests/docs/test_production.py`).
    """
    args = pod(rendered(**values))["containers"][0]["args"]
    assert [word for word in args if word.startswith("--gang-timeout")] == [f"--gang-timeout={seconds}"]


def test_releases_of_two_classes_share_no_object_name() -> None:
    """Two operators of different classes can be installed in the same namespace, even if each release has every object that
    the chart can have.
    """
    more = {"operator_replicas": 2, "networkPolicy_enabled": True, "metrics_podMonitor": True, "operatorClass": "team-b"}
    second = rendered(**more)
    kinds = {body["kind"] for body in second}
    first = rendered(**more | {"operatorClass": ""})
    shared = {kind: names(first, kind) & names(second, kind) for kind in kinds}
    hooks = {("ome", "ome-test")}  # names that begin with the name of the release
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
            "watchNamespaces contains kube-system, which admissionPolicy.forbiddenNamespaces",
        ),
        ({"watchNamespaces": ["A_1"]}, "watchNamespaces"),
        ({"operatorClass": "Team B"}, "operatorClass"),
        ({"operatorClass": "b", "agent_enabled": True}, "agent.enabled does not work with operatorClass"),
        (
            {"watchNamespaces": ["a"], "clusterWideKinds": False, "agent_enabled": True},
            "agent.enabled does not work with clusterWideKinds=false",
        ),
        (
            {"watchNamespaces": ["a"], "agent": {"enabled": True, "removeAfterSeconds": 5}},
            "agent.removeAfterSeconds does not work with watch",
        ),
        (
            {"watchNamespaces": ["a"], "agent": {"enabled": True, "prefetchGB": 0.5}},
            "agent.prefetchGB does not work with watch",
        ),
    ],
)
def test_incompatible_values_are_refused(values: dict[str, Any], said: str) -> None:
    given = [
        word for name, value in values.items() for word in ("--set-json", f"{name.replace('_', '.')}={json.dumps(value)}")
    ]
    done = helm("template", "ome", str(CHART), "--set", "image.repository=r/op", *given)
    assert done.returncode and said in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"repository": "r/op:1.0"}, "image.repository is r/op:1.0: write the tag in image.tag"),
        ({"repository": "https://r/op"}, "image.repository is https://r/op: leave out the beginning of the URL"),
        ({"repository": f"r/op@{DIGEST}"}, "write the digest in image.digest"),
        ({"repository": "registry:5000/op"}, ""),
        ({"repository": "r/op:1.0", "digest": DIGEST}, ""),
    ],
)
def test_image_repository_with_tag_or_digest_is_refused(values: dict[str, str], said: str) -> None:
    """The chart refuses an image repository that contains a tag, a digest or the beginning of a URL. It accepts a
    repository with a tag if a digest is given, too: a tag next to a digest is valid and has no effect.
    """
    done = helm("template", "ome", str(CHART), "--set-json", f"image={json.dumps(values)}")
    assert bool(done.returncode) is bool(said) and said in done.stderr, done.stderr


def test_helm_test_uses_a_watched_namespace_and_the_operator_class() -> None:
    made = rendered(watchNamespaces=["a"], operatorClass="x")
    assert only(made, "Role", "ome-test")["metadata"]["namespace"] == "a"
    (box,) = only(made, "Pod")["spec"]["containers"]
    assert {(given["name"], given["value"]) for given in box["env"]} >= {("NAMESPACE", "a"), ("CLASS", "x")}


def test_agents_have_a_readiness_probe() -> None:
    """The agents' readiness probe asks the agent itself. Without this probe, a rollout would replace the agents of all nodes
    although the new ones do not start.
    """
    made = pod(rendered(agent={"enabled": True, "image": {"repository": "r/agent"}}), "DaemonSet")
    (box,) = made["containers"]
    assert box["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"} == box["livenessProbe"]["httpGet"]


def test_secret_given_as_a_plain_name_is_refused_with_the_right_form() -> None:
    given = json.dumps({**AGENT, "secrets": ["hf-token"]})
    done = helm("template", "ome", str(CHART), "--set", "image.repository=r/op", "--set-json", f"agent={given}")
    assert done.returncode and "Write {name: hf-token, hosts: [huggingface.co]" in done.stderr, done.stderr
