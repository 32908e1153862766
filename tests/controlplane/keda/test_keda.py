"""Tests that the real KEDA scales roles through their RoleScale (docs/scaling.md). Prometheus is a stand-in."""

import time
from typing import Any

import pytest

from tests.support import yamls
from tests.support.identity import Token
from tests.support.load_server import BROKEN, EMPTY, LoadServer
from tests.support.rig import Manifest, Rig, is_ready, path

pytestmark = pytest.mark.timeout(900)

NAME = "kimi-engine"
AT_ONCE = {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}}


def service(namespace: str, prometheus: LoadServer, *, low: int = 1, name: str = "kimi", **keda: Any) -> Manifest:
    """Return a service whose engine KEDA scales to one group for every 8 units of the metric `load`, between `low` and 3
    groups.
    """
    metadata = {"serverAddress": prometheus.address, "query": "load", "threshold": 8}
    settings = {
        "triggers": [{"type": "prometheus", "metadata": metadata}], "pollingInterval": 2, "advanced": AT_ONCE, **keda,
    }  # fmt: skip
    engine = {"minReplicas": low, "maxReplicas": 3, "autoscaler": {"class": "KEDA", "keda": settings}}
    return yamls.service(namespace, name, "one", "engine", engine=engine)


def groups(rig: Rig, namespace: str) -> int:
    """Return the number of groups if all of them are ready, else -1."""
    found = rig.all("Pod", namespace, "component=engine")
    return len(found) if all(map(is_ready, found)) else -1


def follows(rig: Rig, namespace: str, number: int) -> float:
    """Wait until the service has this number of ready groups, and return the seconds that it took."""
    began = time.monotonic()
    rig.wait(f"{number} groups", lambda: groups(rig, namespace) == number, 120)
    return time.monotonic() - began


def asked(rig: Rig, namespace: str, name: str = "kimi") -> int:
    return int((rig.get("RoleScale", namespace, f"{name}-engine") or {})["spec"]["replicas"])


def condition(rig: Rig, namespace: str, type_: str, name: str = "kimi") -> str:
    """Return the status of a condition of the ScaledObject."""
    found = (rig.get("ScaledObject", namespace, f"{name}-engine") or {}).get("status", {}).get("conditions", ())
    return next((str(one["status"]) for one in found if one["type"] == type_), "")


def advice(rig: Rig, namespace: str, name: str = "kimi") -> str:
    return str(rig.condition(namespace, name, "Advice").get("message", ""))


def test_keda_scales_a_role_from_1_to_2_and_back(rig: Rig, namespace: str, prometheus: LoadServer) -> None:
    prometheus.load = 4
    rig.create(service(namespace, prometheus))
    rig.ready(namespace, "kimi", 60)
    rig.wait("KEDA's autoscaler", lambda: rig.all("HorizontalPodAutoscaler", namespace), 60)
    rig.wait("KEDA reads the load", lambda: condition(rig, namespace, "Ready") == "True", 60)
    prometheus.load = 12
    up = follows(rig, namespace, 2)
    prometheus.load = 4
    down = follows(rig, namespace, 1)
    print(f"\nfrom 1 to 2 groups after {up:.1f} s, back after {down:.1f} s")
    assert asked(rig, namespace) == 1 and advice(rig, namespace) == ""
    writers = {
        (one["manager"], one.get("subresource", ""))
        for one in rig.get("RoleScale", namespace, NAME)["metadata"]["managedFields"]  # type: ignore[index]
        if "f:replicas" in one["fieldsV1"].get("f:spec", {})
    }
    assert writers == {("kube-controller-manager", "scale")}, "only the HorizontalPodAutoscaler of KEDA writes the number"
    (scaler,) = rig.all("HorizontalPodAutoscaler", namespace)
    assert scaler["metadata"]["name"] == f"keda-hpa-{NAME}" and "ome.io/managed-by" not in scaler["metadata"]["labels"]


def test_missing_metric_keeps_the_number_of_groups(rig: Rig, namespace: str) -> None:
    """KEDA gets no valid number for three services. The metric of the first has no series any more, the metric of the
    second is infinite, and the Prometheus of the third is broken. All keep their groups, and Advice says that they are not
    scaled, until there are numbers again.
    """
    with LoadServer() as empty, LoadServer() as infinite, LoadServer() as broken:
        servers = {"empty": empty, "infinite": infinite, "broken": broken}
        for name, server in servers.items():
            server.load = 12
            rig.create(service(namespace, server, name=name))
        rig.wait("two groups each", lambda: groups(rig, namespace) == 6, 180)
        empty.load, infinite.load, broken.load = EMPTY, float("inf"), BROKEN
        began = time.monotonic()
        for name in servers:
            rig.wait(f"{name}: fallback", lambda name=name: condition(rig, namespace, "Fallback", name) == "True", 150)
            words = f"ScaledObject {name}-engine does not scale: "
            rig.wait(f"{name}: advice", lambda name=name, words=words: words in advice(rig, namespace, name), 30)
        print(f"\nfallbacks after {time.monotonic() - began:.1f} s")
        until = time.monotonic() + 35
        while time.monotonic() < until:
            assert [asked(rig, namespace, name) for name in servers] == [2, 2, 2] and groups(rig, namespace) == 6
            time.sleep(1)
        for server in servers.values():
            server.load = 4
        follows(rig, namespace, 3)
        rig.wait("no advice", lambda: not any(advice(rig, namespace, name) for name in servers), 60)


def test_keda_scales_a_role_to_zero_and_back(rig: Rig, namespace: str, prometheus: LoadServer) -> None:
    prometheus.load = 4
    rig.create(service(namespace, prometheus, low=0, cooldownPeriod=1))
    follows(rig, namespace, 1)
    prometheus.load = 0
    down = follows(rig, namespace, 0)
    prometheus.load = EMPTY
    rig.wait("KEDA cannot read the load", lambda: condition(rig, namespace, "Ready") == "False", 60)
    assert asked(rig, namespace) == 0, "a role at zero without a fallback stays at zero"
    prometheus.load = 4
    up = follows(rig, namespace, 1)
    print(f"\nto zero after {down:.1f} s, back after {up:.1f} s")


def test_scaled_object_is_deleted_with_the_service_or_after_a_class_change(
    rig: Rig, namespace: str, prometheus: LoadServer
) -> None:
    prometheus.load = 12
    rig.create(service(namespace, prometheus))
    follows(rig, namespace, 2)
    rig.patch(
        "InferenceService", namespace, "kimi", {"spec": {"engine": {"autoscaler": {"class": "External", "keda": None}}}}
    )
    rig.wait("neither autoscaler", lambda: not _autoscalers(rig, namespace), 60)
    assert asked(rig, namespace) == 2 and groups(rig, namespace) == 2, "the size stays"
    engine = service(namespace, prometheus)["spec"]["engine"]
    rig.patch("InferenceService", namespace, "kimi", {"spec": {"engine": engine}})
    rig.wait("both autoscalers", lambda: len(_autoscalers(rig, namespace)) == 2, 60)
    rig.delete("InferenceService", namespace, "kimi")
    rig.wait("neither autoscaler", lambda: not _autoscalers(rig, namespace), 120)


def _autoscalers(rig: Rig, namespace: str) -> list[Manifest]:
    return [*rig.all("ScaledObject", namespace), *rig.all("HorizontalPodAutoscaler", namespace)]


@pytest.mark.parametrize(
    ("kind", "labels", "words"),
    [
        ("Deployment", {"ome.io/managed-by": "ome-operator"}, "or a ScaledObject scale a RoleScale"),
        ("RoleScale", {}, "may only write and delete objects with the label"),
    ],
)
def test_the_operators_token_writes_no_other_scaled_objects(
    rig: Rig, namespace: str, kind: str, labels: dict[str, str], words: str
) -> None:
    target = {"apiVersion": "ome.io/v1beta1" if kind == "RoleScale" else "apps/v1", "kind": kind, "name": "x"}
    spec = {"scaleTargetRef": target, "triggers": [{"type": "cron", "metadata": {}}]}
    metadata = {"name": "x", "namespace": namespace, "labels": labels}
    body = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata, "spec": spec}
    code, said = Token(rig.kubeconfig).send("POST", path("ScaledObject", namespace), body)
    assert code == 403 and words in said, (code, said)
