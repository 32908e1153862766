"""Services whose manifests are kept as files."""

from collections.abc import Callable
from typing import Any

from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Manifest, Observed
from ome_operator.core.sync import sync
from tests.support import parts
from tests.support.world import START

Case = tuple[InferenceService, Deps]


def single() -> Case:
    """One engine on one node, no router: the smallest service."""
    return parts.service(name="small", engine={}), parts.deps(parts.model(), parts.simple(router=False))


def groups() -> Case:
    """Two engine groups of two nodes behind a router."""
    return parts.service(name="pairs", engine={"minReplicas": 2}, router={}), parts.deps(parts.model(), parts.simple(2))


def autoscaled() -> Case:
    """An autoscaler on the scale object; KEDA or people for the decoder."""
    engine = {"minReplicas": 1, "maxReplicas": 4, "scaleMetric": "memory", "scaleTarget": 70, "minAvailable": 1}
    decoder = {"minReplicas": 0, "maxReplicas": 3, "autoscaler": {"class": "External"}, "maxUnavailable": "50%"}
    service = parts.service(name="waves", engine=engine, decoder=decoder, router={"minReplicas": 2})
    return service, parts.deps(parts.model(), parts.simple(decoder=True))


def overriding() -> Case:
    """A service that says something about everything, over a runtime that does too; the model comes with a claim."""
    engine: dict[str, Any] = {
        "runner": {
            "image": "engine:2",
            "args": ["--port=9000", "--flag"],
            "env": [{"name": "B", "value": "service"}, {"name": "POD_NAME", "value": "mine"}, {"name": "A"}],
            "ports": [{"containerPort": 9000, "name": "http"}],
            "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 0.5}},
            "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
        },
        "containers": [{"name": "sidecar", "image": "sidecar:1", "env": [{"name": "N", "value": 1}]}],
        "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "0.5Gi"}}],
        "labels": {"team": "search", "component": "no"},
        "annotations": {"rdma.ome.io/auto-inject": "true", "rdma.ome.io/profile": "roce", "note": "{{ left }}"},
        "nodeSelector": {"zone": "a"},
        "timeoutSeconds": 300,
    }
    below = {
        "runner": parts.container(
            args=["--tp=8", "--port=30000"],
            env=[
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "B", "value": "runtime"},
            ],
            resources={"limits": {"nvidia.com/gpu": 8, "cpu": 4}},
        ),
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "nodeSelector": {"zone": "b", "disk": "fast"},
    }
    service = parts.service(
        name="loud",
        engine=engine,
        router={"config": {"LOG": "debug"}, "serviceAccountName": "own"},
        annotations={"ome.io/service-type": "LoadBalancer"},
    )
    router = {"config": {"LOG": "info", "PORT": "80"}, "runner": parts.container("router", args=["--port=80"])}
    runtime = parts.runtime(engineConfig=below, routerConfig=router)
    return service, parts.deps(parts.model("pvc://weights/llama/8b"), runtime)


RECIPES = ("tp16", "pd-lb", "vllm-ray", "vllm-dp16", "trtllm", "gguf", "gguf-amx")
"""Samples of moonshotai/kimi-k2-*.yaml, one for each way to serve Kimi K2."""

CASES: dict[str, Callable[[], Case]] = {
    **{f"kimi-k2-{name}": lambda name=name: parts.shipped(f"moonshotai/kimi-k2-{name}.yaml") for name in RECIPES},  # type: ignore[misc]
    "kimi-k2-pd-rt": lambda: parts.kimi("kimi-k2-pd-rt"),
    "kimi-k2-pd-seed-rt": lambda: parts.kimi("kimi-k2-pd-seed-rt"),
    "single": single,
    "groups": groups,
    "autoscaled": autoscaled,
    "overriding": overriding,
}


def manifests(case: Case) -> list[Manifest]:
    """Everything that the first pass writes, in its order."""
    plan = sync(*case, Observed(), START)
    return [one.manifest for one in (*plan.first, *plan.ensure_secret, *plan.apply, *plan.create)]
