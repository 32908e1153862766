"""Tests of the operator next to webhooks that change its objects. The operator and a webhook do not overwrite each other's
changes again and again, no pod restarts, and edits are rolled out.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support import yamls
from tests.support.injector import MODES, Injector
from tests.support.rig import Rig

REST_S = 10.0
"""Seconds in which nothing may be written."""
MARKS = ("injected.example.com/", "sidecar:1", "mirror.example.com/", "INJECTED", "nvidia.com/gpu")
"""Texts that an object contains if the webhook has changed the object: at least one text for each mode of the webhook."""
LATE_WRITES = {"registry": 3}
"""Mode of the webhook -> maximum number of writes for each service after a restart of the operator; 0 for modes that are
not listed. If the webhook rewrites images, a new operator applies each workload again, which changes nothing."""


@pytest.fixture(scope="module")
def injector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injector]:
    """Yield the webhook."""
    with Injector(tmp_path_factory.mktemp("injector")) as made:
        yield made


@pytest.fixture
def injected(rig: Rig, injector: Injector) -> Iterator[dict[str, str]]:
    """Yield mode -> namespace, for every mode of the webhook. Each namespace has a service that is Ready."""
    rig.cluster.apply(yamls.runtime("injected-pairs", decoder=True))
    with ExitStack() as stack:
        spaces = {mode: stack.enter_context(rig.own_namespace(f"webhook-{mode}")) for mode in MODES}
        for mode, namespace in spaces.items():
            rig.cluster.apply(injector.configuration(namespace, mode, namespace))
            stack.callback(rig.cluster.kubectl, "delete", "mutatingwebhookconfiguration", namespace)
        rig.wait("all are called", lambda: all(_called(rig, namespace) for namespace in spaces.values()))
        for namespace in spaces.values():
            rig.create(yamls.service(namespace, "s", "injected-pairs", "engine", "decoder", "router"))
        for namespace in spaces.values():
            rig.ready(namespace, "s", 90)
        yield spaces


def _called(rig: Rig, namespace: str) -> bool:
    """Return whether the API server sends objects of this namespace to the webhook. Dry runs show this."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    tried = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "tried"}, "spec": spec}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried"}, "spec": template["spec"]}
    bodies = (
        rig.api.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments?dryRun=All", tried),
        rig.api.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod),
    )
    return any(mark in str(body) for body in bodies for mark in MARKS)


def _alive(rig: Rig, namespace: str) -> dict[str, int]:
    """Return the UIDs of all pods, and the UIDs and generations of all workloads."""
    pods = {pod["metadata"]["uid"]: 0 for pod in rig.all("Pod", namespace)}
    sets = [one["metadata"] for kind in ("StatefulSet", "Deployment") for one in rig.all(kind, namespace)]
    return pods | {metadata["uid"]: metadata["generation"] for metadata in sets}


def test_objects_changed_by_webhooks_are_not_rewritten(rig: Rig, injector: Injector, injected: dict[str, str]) -> None:
    """The objects that webhooks of every kind change stay as they are while nothing else changes, after a restart of the
    operator, and during a rollout.
    """
    rig.wait_until_quiet()
    assert all(injector.changed.values()), injector.changed
    before = {mode: _alive(rig, namespace) for mode, namespace in injected.items()}
    mark = rig.cluster.audit_mark()
    time.sleep(REST_S)
    assert not [one for one in rig.requests(mark) if one.is_write], "nothing is written at rest"

    mark = rig.cluster.audit_mark()
    rig.restart()
    rig.wait_for_leader()
    rig.wait_until_quiet(5)
    for mode, namespace in injected.items():
        written = [one for one in rig.requests(mark) if one.is_write and one.namespace == namespace]
        assert len(written) <= LATE_WRITES.get(mode, 0), (mode, written)
        assert _alive(rig, namespace) == before[mode], f"{mode}: nothing restarted"

    for namespace in injected.values():
        image = {"runner": {"name": "ome-container", "image": "engine:2"}}
        rig.patch("InferenceService", namespace, "s", {"spec": {"engine": image, "decoder": image}})
    for mode, namespace in injected.items():
        old = before[mode].keys()
        rig.wait(
            f"{mode}: a new slice",
            lambda at=namespace, old=old: not old & {p["metadata"]["uid"] for p in rig.all("Pod", at, "component=engine")},
            90,
        )
        rig.ready(namespace, "s", 90)
    rig.wait_until_quiet()
