"""Small models, runtimes and services for the control-plane suite."""

from datetime import UTC, datetime, timedelta
from typing import Any

Manifest = dict[str, Any]
API = "ome.io/v1beta1"
READY = {"models.ome.io/clusterbasemodel.tiny": "Ready"}


def model(name: str = "tiny", uri: str = "hf://test/tiny") -> Manifest:
    """Return a model. Simulated nodes hold it if they have the labels READY."""
    spec = {"storage": {"storageUri": uri, "path": f"/models/{name}"}, "modelFormat": {"name": "safetensors"}}
    return {"apiVersion": API, "kind": "ClusterBaseModel", "metadata": {"name": name}, "spec": spec}


def container(name: str = "ome-container", gpus: int = 0, **more: Any) -> Manifest:
    """Return a main container."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {"name": name, "image": "engine:1", "args": ["--port=30000"], "resources": {"limits": limits}, **more}


def runtime(
    name: str, size: int = 1, gpus: int = 0, decoder: bool = False, router: bool = True, grace: int = 0, **engine: Any
) -> Manifest:
    """Return a runtime whose groups have `size` pods with `gpus` GPUs each. `grace` is the termination grace period of
    groups of a single pod, in seconds; 0: the default of the operator.
    """
    part: Manifest = {"runner": container(gpus=gpus), **({"terminationGracePeriodSeconds": grace} if grace else {})}
    if size > 1:
        part = {"leader": {"runner": container(gpus=gpus)}, "worker": {"size": size - 1, "runner": container(gpus=gpus)}}
    spec: Manifest = {
        "supportedModelFormats": [{"modelFormat": {"name": "safetensors"}, "modelFramework": {"name": "transformers"}}],
        "engineConfig": {**part, **engine},
    }
    if decoder:
        spec["decoderConfig"] = part
    if router:
        selector = "component=engine ome.io/inferenceservice=$(INFERENCESERVICE_NAME)"
        args = ["--port=8080", "--service-discovery", "--selector", selector, "--shutdown-grace-period-secs=1"]
        spec["routerConfig"] = {"runner": container("router", args=args), "terminationGracePeriodSeconds": 2}
    return {"apiVersion": API, "kind": "ClusterServingRuntime", "metadata": {"name": name}, "spec": spec}


def service(namespace: str, name: str, runtime: str, *components: str, model: str = "tiny", **spec: Any) -> Manifest:
    """Return an InferenceService with these components (default: engine and router)."""
    parts = {one: {} for one in components or ("engine", "router")}
    body = {"model": {"name": model}, "runtime": {"name": runtime}, **parts, **spec}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": API, "kind": "InferenceService", "metadata": metadata, "spec": body}


def benchmark(namespace: str, name: str, **spec: Any) -> Manifest:
    """Return a BenchmarkJob of a URL, or of the given `endpoint`."""
    whole = {
        "endpoint": {"endpoint": {"url": "http://example.com", "apiFormat": "openai", "modelName": "org/model"}},
        "task": "text-to-text",
        "trafficScenarios": ["D(8,8)"],
        "numConcurrency": [1],
        "maxTimePerIteration": 1,
        "maxRequestsPerIteration": 10,
        "outputLocation": {"storageUri": "local:///results"},
        **spec,
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": API, "kind": "BenchmarkJob", "metadata": metadata, "spec": whole}


def route_crd() -> dict[str, Any]:
    """Return a stand-in for the CRD of the Gateway API's HTTPRoute: it accepts any spec, and lists are replaced
    completely, as in the original.
    """
    opened = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": opened, "status": opened}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    named = {"kind": "HTTPRoute", "listKind": "HTTPRouteList", "plural": "httproutes", "singular": "httproute"}
    approved = {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "httproutes.gateway.networking.k8s.io", "annotations": approved},
        "spec": {"group": "gateway.networking.k8s.io", "names": named, "scope": "Namespaced", "versions": [version]},
    }


def night(lasts: bool) -> list[dict[str, Any]]:
    """Return a schedule with one period of zero groups. If `lasts` is true, the period includes the present; otherwise it
    begins in two hours.
    """
    begin = datetime.now(UTC) + (timedelta(hours=-1) if lasts else timedelta(hours=2))
    end = begin + timedelta(hours=6)
    return [{"start": f"{begin:%H:%M}", "end": f"{end:%H:%M}", "minimum": {"engine": 0, "decoder": 0}}]
