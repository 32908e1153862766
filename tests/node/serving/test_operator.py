"""Tests of the operator inside the cluster, installed from the charts alone."""

import json

from tests.support.rig import Rig


def test_operator_runs_under_restricted_pod_security(serving: Rig) -> None:
    """The operator runs on the real node in a namespace that admits only pods of the Pod Security level `restricted`."""
    namespace = serving.get("Namespace", "", "ome")
    assert namespace is not None
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    (pod,) = serving.all("Pod", "ome")
    assert pod["spec"]["nodeName"] in serving.cluster.real_nodes
    (status,) = pod["status"]["containerStatuses"]
    assert status["ready"]
    first = json.loads(serving.cluster.kubectl("logs", "-n", "ome", pod["metadata"]["name"]).splitlines()[0])
    assert first["level"]


def test_models_and_runtimes_have_a_status(serving: Rig) -> None:
    """Models and runtimes get their statuses from the operator that runs inside the cluster."""

    def told() -> bool:
        model = serving.get("ClusterBaseModel", "", "kimi-k2-tiny") or {}
        nodes = set(serving.cluster.real_nodes)
        return model.get("status", {}).get("state") == "Ready" and nodes <= set(model["status"]["nodesReady"])

    serving.wait("status of the model", told)
