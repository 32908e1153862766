"""Tests of the HTTPRoute of a Gateway on a real API server: the backends of the route during a rollout.

No Gateway runs. What it would do follows from the route and from the EndpointSlices of its backends, which are real. The
operator has the administrator's rights; test_rbac.py checks which rights of the chart it needs.
"""

import threading
import time
from collections.abc import Iterator

import pytest
import yaml

from ome_operator.core.observed import route
from tests.support import yamls
from tests.support.rig import Rig

EXPOSED = ("--expose=HTTPRoute", "--expose-domain=models.example.com", "--gateway=infra/edge")


@pytest.fixture
def exposed(rig: Rig) -> Iterator[Rig]:
    """Yield the cluster with an operator that creates HTTPRoutes; the usual operator runs again afterwards."""
    rig.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(yamls.route_crd()))
    rig.wait("HTTPRoutes can be stored", lambda: rig.is_kind_stored("HTTPRoute"))
    rig.stop()
    rig.start("operator", *EXPOSED, kubeconfig=rig.cluster.kubeconfig)
    rig.wait_for_leader()
    yield rig
    rig.stop()
    rig.start()
    rig.wait_for_leader()


def weights(rig: Rig, namespace: str) -> dict[str, int]:
    """Return the weight of each backend of the route."""
    return route.weights(rig.get("HTTPRoute", namespace, "svc") or {})


def ready(rig: Rig, namespace: str) -> set[str]:
    """Return the Services that have a ready endpoint."""
    slices = rig.api.get(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")["items"]
    return {
        found["metadata"]["labels"]["kubernetes.io/service-name"]
        for found in slices
        if any(point["conditions"].get("ready") for point in found.get("endpoints") or ())
    }


class Watcher:
    """A thread that polls the backends of the route, and records each moment at which no backend would have answered."""

    def __init__(self, rig: Rig, namespace: str) -> None:
        self._rig = Rig(rig.cluster)  # A connection must be used by a single thread.
        self._namespace, self._ended = namespace, threading.Event()
        self.looks, self.dead, self.seen = 0, list[str](), list[dict[str, int]]()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30)

    def _look(self) -> None:
        while not self._ended.is_set():
            leads = weights(self._rig, self._namespace)
            can = ready(self._rig, self._namespace)
            if weights(self._rig, self._namespace) != leads:
                continue  # The objects changed between the two requests.
            self.looks += 1
            if leads not in self.seen:
                self.seen.append(leads)
            if lost := {name for name, weight in leads.items() if weight} - can:
                self.dead.append(f"{time.monotonic():.1f}: {leads} leads to {lost}, ready are {can}")
            time.sleep(0.1)


def test_route_follows_the_slices_and_never_targets_a_service_without_endpoints(exposed: Rig, namespace: str) -> None:
    """During a rollout, the route moves from the Service of the first revision to the Service of the second revision, and
    no request is sent to a Service without a ready endpoint. The route is deleted when the service is no longer exposed.
    The old router stays for as long as Gateways may lag behind.
    """
    rig = exposed
    rig.create(yamls.runtime(f"rt-{namespace}"))
    strategy = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    rig.create(yamls.service(namespace, "svc", f"rt-{namespace}", engine={"minReplicas": 2}, rollout=strategy))
    rig.ready(namespace, "svc")
    (first,) = rig.wait("a route to the slice", lambda: "svc" not in (found := weights(rig, namespace)) and found)
    assert weights(rig, namespace) == {first: 1}
    # Its pods are ready within a second, sooner than Kubernetes writes the endpoints of a new Service.
    rig.wait("endpoints of the slice", lambda: first in ready(rig, namespace))
    with Watcher(rig, namespace) as watcher:
        rig.patch("InferenceService", namespace, "svc", {"spec": {"engine": {"runner": {"image": "engine:2"}}}})
        rig.wait("another slice alone", lambda: first not in (found := weights(rig, namespace)) and found, 120)
        rig.wait("rolled out", lambda: rig.condition(namespace, "svc", "RolledOut").get("reason") == "Complete", 60)
    assert watcher.dead == [] and watcher.looks > 20
    assert any(len([weight for weight in found.values() if weight]) == 2 for found in watcher.seen), watcher.seen
    assert any(found.get(first) == 0 for found in watcher.seen), "the route leaves the old router before that is removed"
    (second,) = weights(rig, namespace)
    assert rig.get("Service", namespace, second)
    rig.wait("the Service of the old slice goes", lambda: rig.get("Service", namespace, first) is None)
    rig.wait_until_quiet()
    nothing_is_left_of_it(rig, namespace, second)


def nothing_is_left_of_it(rig: Rig, namespace: str, service: str) -> None:
    """Check that an operator without Gateways creates no route, and removes the existing one."""
    rig.stop()
    rig.start("operator", kubeconfig=rig.cluster.kubeconfig)
    rig.wait("no route", lambda: rig.get("HTTPRoute", namespace, "svc") is None)
    rig.wait("no Service of a slice", lambda: rig.get("Service", namespace, service) is None)
    assert rig.condition(namespace, "svc", "Ready")["status"] == "True"
