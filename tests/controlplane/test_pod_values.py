"""Tests that the rule `pod-invalid` and a real API server refuse the same pods. The pods have a value of another type in
every field, many values in every scalar field, all values that the tables of the rule accept, and values that differ
slightly from them.
"""

from contextlib import closing

import yaml

from ome_local.cluster import Cluster
from ome_local.kubeapi import ApiError, KubeApi
from tests.support import pod_values

PATH = "/apis/apps/v1/namespaces/default/statefulsets?dryRun=All&fieldValidation=Strict&fieldManager=test"


def test_lint_and_api_server_refuse_the_same_pod_values(cluster: Cluster, update: bool) -> None:
    with closing(cluster.api()) as api:
        if update:
            found: dict[str, list[object]] = {}
            for field, value, _, spec in pod_values.asked():
                found.setdefault(field, []).extend([value] if _answer(api, spec) else [])
            text = yaml.safe_dump(found, default_flow_style=None, width=125)
            pod_values.FILE.write_text(text, encoding="utf-8")
        answers = [(case, _answer(api, case.spec)) for case in pod_values.cases()]
    differ = [f"{case.what}: {told[:300] or 'accepted'}" for case, told in answers if bool(told) is not case.refused]
    assert not differ, "\n".join(differ)


def _answer(api: KubeApi, spec: dict[str, object]) -> str:
    """Return the message with which a server refuses a pod; "" if it accepts the pod."""
    try:
        api.create(PATH, _stateful_set(spec))
    except ApiError as error:
        return str(error)
    return ""


def _stateful_set(spec: dict[str, object]) -> dict[str, object]:
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"serviceName": "a", "selector": {"matchLabels": labels}, "template": template},
    }
