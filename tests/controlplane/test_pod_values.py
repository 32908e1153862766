"""Tests that the rule `pod-invalid` and a real API server refuse the same pods: every field of a pod with a value of
another form, every value that the tables of the rule accept, and values next to them.
"""

from contextlib import closing

from ome_local.cluster import Cluster
from ome_local.kubeapi import ApiError
from tests.support import pod_values

PATH = "/apis/apps/v1/namespaces/default/statefulsets?dryRun=All&fieldValidation=Strict&fieldManager=test"


def test_a_server_refuses_the_same_pods(cluster: Cluster) -> None:
    differ = []
    with closing(cluster.api()) as api:
        for case in pod_values.cases():
            told = ""
            try:
                api.create(PATH, _stateful_set(case.spec))
            except ApiError as error:
                told = str(error)
            if bool(told) is not case.refused:
                differ.append(f"{case.what}: {told[:300] or 'accepted'}")
    assert not differ, "\n".join(differ)


def _stateful_set(spec: dict[str, object]) -> dict[str, object]:
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"serviceName": "a", "selector": {"matchLabels": labels}, "template": template},
    }
