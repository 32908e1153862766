"""Tests of which clients may reach which pods if the operator creates NetworkPolicies."""

from typing import Any

from ome_operator.core.observed.objects import Observed
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.render import meta
from ome_operator.core.render.networkpolicy import policies
from tests.support import parts
from tests.support.parts import change_deps
from tests.support.simulator import START, World

OWNER = meta.Owner("svc", "team", "u")
OURS = {"ome.io/managed-by": "ome-operator", "ome.io/inferenceservice": "svc"}
SERVICE = {"from": [{"podSelector": {"matchLabels": OURS}}]}


def made(front: str = "router", **ports: int) -> dict[str, dict[str, Any]]:
    """Return the spec of each NetworkPolicy by its name."""
    found = policies(OWNER, tuple(ports.items()), front, "ome")
    return {item["metadata"]["name"]: item["spec"] for item in found}


def test_engines_behind_a_router_accept_only_traffic_of_their_service() -> None:
    found = made(engine=30000, decoder=30000, router=8080)
    for name in ("engine", "decoder"):
        assert found[f"svc-{name}"] == {
            "podSelector": {"matchLabels": {**OURS, "component": name}},
            "policyTypes": ["Ingress"],
            "ingress": [SERVICE],
        }


def test_router_policy_allows_clients_on_its_port_and_operator_on_registry_port() -> None:
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ome"}}}
    assert made(engine=30000, router=8080)["svc-router"]["ingress"] == [
        SERVICE,
        {"ports": [{"protocol": "TCP", "port": 8080}]},
        {"from": [here], "ports": [{"protocol": "TCP", "port": 29001}]},
    ]


def test_engine_that_serves_the_url_accepts_all_clients_on_its_port() -> None:
    assert made("engine", engine=9000)["svc-engine"]["ingress"] == [SERVICE, {"ports": [{"protocol": "TCP", "port": 9000}]}]


def test_network_policies_are_created_only_if_enabled() -> None:
    runtime = parts.simple(decoder=True)
    service, deps = parts.service(engine={}, decoder={}, router={}), parts.deps(runtime, parts.model())

    def kinds(namespace: str) -> list[str]:
        plan = sync(service, change_deps(deps, policies_from=namespace), Observed(), START)
        return [item.manifest["metadata"]["name"] for item in plan.apply if item.kind == "NetworkPolicy"]

    assert kinds("") == [] and kinds("ome") == ["svc-engine", "svc-decoder", "svc-router"]


def test_network_policy_is_deleted_with_its_component() -> None:
    both = parts.service(engine={}, router={})
    here = World(both, change_deps(parts.deps(parts.simple(), parts.model()), policies_from="ome"), 1)
    here.settle()
    assert ("NetworkPolicy", "svc-router") in here.children
    here.service = parts.service(engine={})
    here.settle()
    assert ("NetworkPolicy", "svc-router") not in here.children and ("NetworkPolicy", "svc-engine") in here.children
