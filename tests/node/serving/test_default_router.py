"""Tests of the router that a service with `router: {}` gets if its runtime has none, on a real node: it discovers the
engines by their labels, and requests to the URL of the service are answered with tokens.

The services override only what a machine without GPUs requires: the image of the router, its resources, and the toleration
of the node's taint.
"""

from typing import Any

import pytest
import yaml

from ome_operator import keys
from tests.node.serving.conftest import ON_OUR_NODE, READY_WITHIN_S, RUNTIME, SINGLE, address, reached, tokens
from tests.node.serving.test_own_model import files
from tests.support.parts import ROOT, read_documents
from tests.support.rig import Rig

ROUTER: dict[str, Any] = {
    "tolerations": [{"key": "ome.io/real", "operator": "Exists"}],
    "nodeSelector": {"ome.io/real": "true"},
    "runner": {
        "name": "router",
        "image": "local/sglang-router:0.3.2",
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": None, "memory": "1Gi"}},
    },
}


def disaggregated(_: Rig) -> list[dict[str, Any]]:
    """Return a runtime with prefill and decode but without router, and a service with one group of each."""
    (runtime,) = read_documents(ROOT / RUNTIME)
    runtime["metadata"]["name"] = "no-router"
    del runtime["spec"]["routerConfig"]
    service = next(body for body in yaml.safe_load_all((ROOT / SINGLE).read_text()) if body["kind"] == "InferenceService")
    service["metadata"] = {"name": "paired", "namespace": "default"}
    service["spec"] |= {"runtime": {"kind": "ClusterServingRuntime", "name": "no-router"}, "router": ROUTER}
    return [runtime, service]


def alone(rig: Rig) -> list[dict[str, Any]]:
    """Return the objects of the three files of docs/your-own-model.md. The service also has a router in front of the
    engine.
    """
    model, runtime, service = files(rig)
    service["spec"]["router"] = ROUTER
    return [model, runtime, service]


@ON_OUR_NODE
@pytest.mark.parametrize("bodies", [disaggregated, alone])
def test_default_router_discovers_the_engines(bodies: Any, serving: Rig) -> None:
    objects = bodies(serving)
    name = objects[-1]["metadata"]["name"]
    label = "models.ome.io/clusterbasemodel.acme-moe=Ready"
    serving.cluster.kubectl("label", "node", *serving.cluster.real_nodes, label, "--overwrite")
    try:
        for body in objects:
            serving.cluster.apply(body)
        serving.ready("default", name, READY_WITHIN_S)
        routers = [
            each for each in serving.all("Pod", "default") if each["metadata"]["labels"].get(keys.COMPONENT) == keys.ROUTER
        ]
        assert routers and all("sglang_router" in " ".join(each["spec"]["containers"][0]["command"]) for each in routers)
        url = address(serving, "default", name)
        serving.wait("kube-proxy knows the endpoints", lambda: reached(url), 30)
        assert tokens(url, "Hello"), "the engines answer through the router"
    finally:
        for body in reversed(objects):
            metadata = body["metadata"]
            serving.delete(body["kind"], metadata.get("namespace", ""), metadata["name"])
        serving.wait("no pods", lambda: not serving.all("Pod", "default"), 120)
