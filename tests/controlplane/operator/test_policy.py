"""Tests of admission: what it denies to clients with the operator's token, and what the operator does if a webhook denies
its requests.
"""

import json
import re
import urllib.request
from typing import Any

import pytest

from ome_operator.controllers.policies import NAME as PROBE
from ome_operator.errors import UserError
from tests.support import ome, yamls
from tests.support.rig import USER, Manifest, Rig

OURS = {"ome.io/inferenceservice": "s", "ome.io/managed-by": "ome-operator"}
PODS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
RIGHTS = "rbac.authorization.k8s.io/v1"
OTHERS = "may only write and delete objects with the label"


def service(namespace: str, labels: dict[str, str] | None, **metadata: Any) -> Manifest:
    if labels is not None:
        metadata["labels"] = labels
    metadata = {"name": "s", "namespace": namespace, **metadata}
    spec = {"ports": [{"port": 80}], "selector": OURS}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def rights(namespace: str, kind: str, **content: Any) -> Manifest:
    return {"apiVersion": RIGHTS, "kind": kind, "metadata": {"name": "s", "namespace": namespace, "labels": OURS}, **content}


def tried(
    rig: Rig, namespace: str, *command: str, stdin: Manifest | None = None, by: tuple[str, ...] = (f"--as={USER}",)
) -> str:
    """Return the answer of the API server to a dry run as the operator's user, or as an administrator if `by` is ()."""
    try:
        text = json.dumps(stdin) if stdin is not None else None
        return rig.cluster.kubectl(*by, "-n", namespace, *command, "--dry-run=server", stdin=text)
    except UserError as error:
        return str(error)


@pytest.fixture
def api(rig: Rig, namespace: str) -> Rig:
    """Return the cluster with three Services: a foreign Service, a Service of the operator, and a Service of the operator
    that has lost its labels.
    """
    made = rig.create(yamls.service(namespace, "s", "nowhere"))
    owner = {"apiVersion": yamls.API, "kind": made["kind"], "name": "s", "uid": made["metadata"]["uid"], "controller": True}
    for name, labels, owners in (("theirs", {}, []), ("ours", OURS, [owner]), ("bare", {}, [owner])):
        rig.create(service(namespace, labels, name=name, ownerReferences=owners))
    return rig


@pytest.mark.parametrize(("labels", "said"), [(OURS, "service/s created"), (None, OTHERS), ({"a": "b"}, OTHERS)])
def test_created_objects_must_have_the_operator_label(rig: Rig, namespace: str, labels: dict[str, str], said: str) -> None:
    assert said in tried(rig, namespace, "create", "-f", "-", stdin=service(namespace, labels))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("delete", "service", "ours"), "deleted"),
        (("annotate", "service", "ours", "a=b"), "annotated"),
        (("label", "service", "ours", "ome.io/managed-by-"), OTHERS),
        (("delete", "service", "theirs"), OTHERS),
        (("annotate", "service", "theirs", "a=b"), OTHERS),
        (("label", "service", "theirs", "ome.io/managed-by=ome-operator", "ome.io/inferenceservice=s"), OTHERS),
        (("delete", "service", "bare"), OTHERS),
        (("label", "service", "bare", "ome.io/managed-by=ome-operator"), "labeled"),
    ],
)
def test_policy_denies_changes_to_foreign_objects(api: Rig, namespace: str, command: tuple[str, ...], said: str) -> None:
    assert said in tried(api, namespace, *command)


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease"])
def test_operator_label_does_not_permit_writes_in_system_namespaces(rig: Rig, namespace: str) -> None:
    assert "may not write in this namespace" in tried(rig, namespace, "create", "-f", "-", stdin=service(namespace, OURS))


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("Role", {"rules": PODS}, "created"),
        ("Role", {"rules": [{**PODS[0], "resources": ["secrets"]}]}, "forbidden"),
        ("Role", {"rules": [{**PODS[0], "verbs": ["get"]}]}, "may only write Roles that get, list and watch pods"),
        (
            "RoleBinding",
            {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}},
            "forbidden",
        ),
    ],
)
def test_policy_permits_only_roles_of_routers(rig: Rig, namespace: str, kind: str, content: Manifest, said: str) -> None:
    assert said in tried(rig, namespace, "create", "-f", "-", stdin=rights(namespace, kind, **content))


def counted(rig: Rig, state: str) -> float:
    """Return the number of policies in this state (they apply, are absent, or are unknown), from the running operator's
    metrics.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{rig.metrics_port}/metrics", timeout=5) as answer:
        found = re.search(rf'^ome_admission_policies{{state="{state}"}} (\S+)$', answer.read().decode(), re.M)
    return float(found[1]) if found else -1.0


def test_metric_shows_whether_policies_bind_the_operator(rig: Rig) -> None:
    """The operator's metric shows whether admission policies restrict it. The policies are installed in both cases of the
    test, but do not apply to an operator with an administrator's kubeconfig.
    """
    log = rig.cluster.log("operator")
    try:
        for kubeconfig, binds, absent, words in (
            (rig.kubeconfig, 7.0, 0.0, f"admission policies apply to this operator, which runs as {USER}"),
            (
                rig.cluster.kubeconfig,
                0.0,
                7.0,
                "admission policies do not apply to this operator: ome-operator, ome-operator-objects",
            ),
        ):
            rig.stop()
            begun = log.stat().st_size
            rig.start(kubeconfig=kubeconfig)
            rig.wait_for_leader()
            rig.wait("policies are tried", lambda binds=binds: counted(rig, "binds") == binds)
            assert (counted(rig, "absent"), counted(rig, "unknown")) == (absent, 0.0)
            assert words in log.read_bytes()[begun:].decode()
            assert ("The operator runs as admin, and may write more than" in log.read_bytes()[begun:].decode()) == bool(
                absent
            )
        for kind, namespace in (
            ("ServiceAccount", "default"),
            ("Service", "default"),
            ("ServiceAccount", "ome"),
            ("Pod", "default"),
        ):
            assert rig.get(kind, namespace, PROBE) is None, "nothing is stored"
        assert rig.get("ClusterBaseModel", "", PROBE) is None
    finally:
        rig.stop()
        rig.start()
        rig.wait_for_leader()


@pytest.mark.parametrize(
    ("kind", "immutable", "owned", "said"),
    [
        ("ome.io/router-key", True, True, "secret/s created"),
        ("ome.io/ssh-keys", True, True, "secret/s created"),
        ("ome.io/router-key", False, True, "may only create Secrets of type"),
        ("ome.io/router-key", True, False, "may only create Secrets of type"),
        ("Opaque", True, True, "may only create Secrets of type"),
    ],
)
def test_policy_permits_only_secrets_with_service_keys(
    api: Rig, namespace: str, kind: str, immutable: bool, owned: bool, said: str
) -> None:
    metadata: Manifest = {"name": "s", "namespace": namespace, "labels": OURS}
    if owned:
        metadata["ownerReferences"] = (api.get("Service", namespace, "ours") or {})["metadata"]["ownerReferences"]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "immutable": immutable}
    assert said in tried(api, namespace, "create", "-f", "-", stdin=secret)


def test_router_key_secret_exists_before_its_router_is_ready(rig: Rig, namespace: str) -> None:
    """The operator creates the Secret with the API key of a router before the router is ready, with its own rights. It does
    so for a router whose image supports keys.
    """
    runtime = yamls.runtime("keyed")
    runtime["spec"]["routerConfig"]["runner"] |= {
        "image": "sglang-router:0.3.2",
        "command": [],
        "args": ["--service-discovery"],
    }
    rig.create(runtime)
    rig.create(yamls.service(namespace, "s", "keyed"))
    rig.ready(namespace, "s")
    made = rig.get("Secret", namespace, "s-router-key")
    assert made is not None and made["type"] == "ome.io/router-key" and made["immutable"] is True
    assert len(made["data"]["key"]) == 88 and made["metadata"]["ownerReferences"][0]["kind"] == "InferenceService"
    (deployment,) = rig.all("Deployment", namespace)
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "s-router-key", "key": "key"} in [(item.get("valueFrom") or {}).get("secretKeyRef") for item in env]
    rig.delete("ClusterServingRuntime", "", "keyed")


def test_failing_webhook_is_reported_in_status(rig: Rig, namespace: str) -> None:
    """A webhook fails for every request that it matches. The status of the service reports this until the webhook answers or
    is removed.
    """
    rig.create(yamls.runtime("hooked"))
    hook = {
        "name": "down.ome.test", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
        "clientConfig": {"url": "https://127.0.0.1:1/nobody"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]}],
    }  # fmt: skip
    rig.cluster.apply(ome.configuration("Validating", "down.ome.test", [hook]))
    service_of_any = ("create", "service", "clusterip", "x", "--tcp=80")
    try:
        rig.wait("the webhook is asked", lambda: "down.ome.test" in tried(rig, namespace, *service_of_any, by=()))
        rig.create(yamls.service(namespace, "s", "hooked"))
        rig.wait_for_condition(namespace, "s", "Ready", "ServerError", 'failed calling webhook "down.ome.test"')
    finally:
        rig.cluster.kubectl("delete", "validatingwebhookconfiguration", "down.ome.test")
    rig.ready(namespace, "s")
    rig.delete("ClusterServingRuntime", "", "hooked")
