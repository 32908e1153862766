"""A service and the objects to which it refers, in several stages of its life."""

from collections.abc import Mapping
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.objects import Node
from tests.support import parts, yamls

Bodies = Mapping[str, dict[str, Any]]
"""Objects by the name of their part in a stage."""
LABEL = "models.ome.io/clusterbasemodel.tiny"


class _Labels(dict[str, str]):
    """The labels of a node that holds every revision of every model: any key has the value Ready."""

    def get(self, key: str, default: Any = None) -> Any:
        return keys.MODEL_READY if key.startswith(keys.MODEL_LABEL_PREFIX) else super().get(key, default)


NODES = {
    f"n{number}": Node(
        f"n{number}", 1, _Labels({LABEL: "Ready", "gpu": ("gpu", "rival")[number % 2], "zone": "here"}), True, 8
    )
    for number in range(16)
}
_VERSIONED = {
    "modelFormat": {"name": "safetensors", "version": "1.0"},
    "modelFramework": {"name": "transformers", "version": "1.0"},
}
_FORMAT = {**_VERSIONED, "autoSelect": True}
_LIMITS = {"limits": {"nvidia.com/gpu": 1}}
_SELECT = "component={} ome.io/inferenceservice=$(INFERENCESERVICE_NAME)"
_ROUTER = (
    "--port=8080", "--pd-disaggregation", "--prefill-selector", _SELECT.format("engine"), "--decode-selector",
    _SELECT.format("decoder"),
)  # fmt: skip
_BOTH: dict[str, Any] = {"engine": {}, "decoder": {}, "router": {}}

_THREE: dict[str, Any] = {"engine": {"minReplicas": 3}, "decoder": {"minReplicas": 3}, "router": {}}


def _object(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1, **metadata}, "spec": spec}


def _service(**spec: Any) -> dict[str, Any]:
    return _object("InferenceService", "svc", {"model": {"name": "tiny"}, **spec}, namespace="team", annotations={})


def _runtime(name: str = "rt", size: int = 2, decoder: bool = True, **spec: Any) -> dict[str, Any]:
    runner = parts.container(args=["--port=30000", "--tp-size=2"], resources=_LIMITS)
    part = {"runner": runner, "minReplicas": 3, **({"worker": {"size": size - 1}} if size > 1 else {})}
    own = {
        "image": "own:sglang-router-0.3.2",
        "command": ["sglang-router"],
    }  # The router is known to send spans, and is not known to accept a key.
    router = {"runner": parts.container("router", args=[*_ROUTER], **own)}
    whole: dict[str, Any] = {"engineConfig": part, "routerConfig": router, "supportedModelFormats": [_FORMAT]}
    whole |= {"decoderConfig": part} if decoder else {}
    return _object("ClusterServingRuntime", name, {**whole, **spec})


def _class(name: str, **capabilities: Any) -> dict[str, Any]:
    features = {"memoryGB": 80, "computeCapability": "9.0", "features": ["fp8"], "performance": {"fp16Tflops": 900}}
    spec = {"capabilities": features | capabilities, "discovery": {"nodeSelector": {"gpu": name}}}
    return _object("AcceleratorClass", name, spec)


_SIZES = {"modelSizeRange": {"min": "1B", "max": "10B"}}
_ASKED = {
    "minMemory": 50, "maxMemory": 200, "minArchitectureVersion": "8.0", "requiredFeatures": ["fp8"],
    "minComputePerformanceTFLOPS": 600,
}  # fmt: skip
_STORAGE = {"storageUri": "hf://test/tiny", "path": "/models/tiny"}
MODEL = _object("ClusterBaseModel", "tiny", {"storage": _STORAGE, "modelParameterSize": "7B", **_VERSIONED})
_LORA = {"baseModelRef": {"name": "tiny"}, "modelType": "LoRA", "storage": {"storageUri": "hf://a/b"}}
CLASSES = {"gpu": _class("gpu"), "rival": _class("rival", memoryGB=90, features=["fp8", "int4"])}

NAMED: Bodies = {
    "service": _service(runtime={"name": "rt"}, acceleratorSelector={"acceleratorClass": "gpu"}, **_THREE),
    "runtime": _runtime(), "model": MODEL, **CLASSES,
}  # fmt: skip
"""Prefill, decode and router on a runtime that the service names."""
CHOSEN: Bodies = {
    "service": _service(acceleratorSelector={"constraints": _ASKED}, **_BOTH),
    "runtime": _runtime(acceleratorRequirements=_ASKED | {"acceleratorClasses": ["gpu", "rival"]}, **_SIZES),
    "second": _runtime("rt2", dnsPolicy="Default", **_SIZES), "model": MODEL, **CLASSES,
}  # fmt: skip
"""The runtime and the accelerator are chosen by the operator."""
ALONE: Bodies = {
    "service": _service(runtime={"name": "rt"}, engine={"minReplicas": 1, "maxReplicas": 3}),
    "runtime": _runtime(size=1, decoder=False), "model": MODEL, "lora": _object("FineTunedWeight", "lora", _LORA),
}  # fmt: skip
"""A single engine with scaling."""
OLDER: Bodies = {
    **ALONE,
    "service": _object(
        "InferenceService",
        "svc",
        {"predictor": {"minReplicas": 3, "model": {"baseModel": "tiny", "runtime": "rt"}}},
        namespace="team",
    ),
}
"""A service in OME's older form."""
MEASURED: Bodies = {
    **ALONE,
    "benchmark": yamls.benchmark(
        "team", "bench", dataset={"storageUri": "s3://bucket/file"}, outputLocation={"storageUri": "s3://bucket/out"}
    ),
}
"""A benchmark of a URL."""
SHORT: Bodies = {
    **ALONE,
    "short": _object("ClusterBaseModel", "short", {"source": {"huggingface": {"repo": "a/b"}}}),
    "serving": _object("Serving", "serving", {"baseModel": "tiny"}, namespace="team"),
}
"""The kinds of sglang.ai."""
