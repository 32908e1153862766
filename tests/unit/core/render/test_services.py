"""Tests of the Services of an InferenceService."""

import pytest

from ome_operator.core.render import meta, services

OWNER = meta.Owner("svc", "team", "u")
ALL = (("engine", 30000), ("decoder", 30000), ("router", 8080))


def by_name(ports: tuple[tuple[str, int], ...], front: str, type_: str = "") -> dict[str, dict]:  # type: ignore[type-arg]
    """Return the spec of each Service by its name."""
    return {one["metadata"]["name"]: one["spec"] for one in services.services(OWNER, ports, front, type_)}


def test_one_service_per_component_and_the_url_service_is_first() -> None:
    assert list(by_name(ALL, "router")) == ["svc", "svc-pods", "svc-engine", "svc-decoder", "svc-router"]
    assert list(by_name((("engine", 8080),), "engine")) == ["svc", "svc-pods", "svc-engine"]


@pytest.mark.parametrize(
    ("port", "front", "ports"),
    [(8080, "router", {80: 8080, 8080: 8080}), (30000, "engine", {80: 30000, 30000: 30000}), (80, "engine", {80: 80})],
)
def test_port_80_and_the_container_port_have_the_same_target(port: int, front: str, ports: dict[int, int]) -> None:
    """Port 80 of the Service and the container's own port lead to the same port of the pod. If both are equal, the Service
    has one port, because the API refuses duplicates.
    """
    entries = by_name(((front, port),), front)["svc"]["ports"]
    assert {one["port"]: one["targetPort"] for one in entries} == ports
    assert len({one["name"] for one in entries}) == len(entries) == len(ports)


def test_service_selectors_match_only_pods_that_serve_http() -> None:
    found = by_name(ALL, "router")
    ours = {"ome.io/managed-by": "ome-operator", "ome.io/inferenceservice": "svc"}
    leader = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
    assert found["svc"]["selector"] == found["svc-router"]["selector"] == {**ours, "component": "router"}
    assert found["svc-engine"]["selector"] == {**ours, "component": "engine", **leader}
    assert found["svc-pods"]["selector"] == ours


def test_engine_may_serve_the_url_until_the_router_is_ready() -> None:
    spec = by_name((("engine", 1), ("router", 2)), "engine")["svc"]
    assert spec["selector"]["component"] == "engine"
    assert [one["port"] for one in spec["ports"]] == [80, 1]


def test_headless_service_publishes_not_ready_addresses() -> None:
    spec = by_name(ALL, "router")["svc-pods"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)


def test_port_of_the_headless_service_does_not_depend_on_the_router() -> None:
    fronts = [by_name(ALL, front)["svc-pods"]["ports"] for front in ("engine", "router")]
    assert fronts[0] == fronts[1] and [one["port"] for one in fronts[0]] == [30000]


def test_service_type_annotation_changes_only_the_external_service() -> None:
    found = by_name(ALL, "router", "LoadBalancer")
    assert [one.get("type") for one in found.values()] == ["LoadBalancer", None, "ClusterIP", "ClusterIP", "ClusterIP"]


def test_service_url_contains_namespace_and_port() -> None:
    assert services.url(OWNER, 8080) == "http://svc.team.svc.cluster.local:8080"


def test_a_load_balancer_may_have_an_address() -> None:
    (first, *_) = services.services(OWNER, ALL, "router", "LoadBalancer", "10.0.0.7")
    assert (first["spec"]["type"], first["spec"]["loadBalancerIP"]) == ("LoadBalancer", "10.0.0.7")
    (first, *_) = services.services(OWNER, ALL, "router", "NodePort", "10.0.0.7")
    assert "loadBalancerIP" not in first["spec"]
    asked = {"ome.io/load-balancer-ip": "10.0.0.7"}
    (said,) = services.advice(asked)
    assert said.startswith("annotation ome.io/load-balancer-ip has no effect on a Service that is not a load balancer")
    assert services.advice({**asked, "ome.io/service-type": "LoadBalancer"}) == services.advice({}) == []
