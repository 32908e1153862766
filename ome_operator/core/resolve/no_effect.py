"""Fields and annotations that users may write but that have no effect, in one table for all kinds.

`tests/unit/test_silent_fields.py` checks the table in both directions: every field or annotation without effect is listed,
and every listed field or annotation has no effect. The condition Advice of an object names the fields and annotations of
the table that the object sets.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.api.well_known import ALIASES


class NoEffectUnless(NamedTuple):
    """A field that has no effect. The field is not reported if it has the value `value`, because the operator behaves
    according to this value anyway.
    """

    value: Any
    hint: str = ""


class ReadKeysOnly(NamedTuple):
    """A map of which the operator reads only the keys `keys`."""

    keys: frozenset[str]
    hint: str = ""


Tree = Mapping[str, Any]
"""Maps the name of a field to the tree of the fields below it, or to a hint if the field has no effect. The hint states what
to do instead, as a part of a sentence; it is "" if there is nothing to do. A name that ends with `[]` is a list, and a name
that ends with `{}` is a map."""

_PLACE = "name the nodes in nodeSelector or affinity"
_DESCRIBES = "the field is only informational"

_LIFECYCLE: Tree = {"updateStrategy": "use spec.rollout", "readyPolicy": "", "minReadySeconds": "", "migrationPolicy": ""}
_OF_GROUPS = (
    "restartPolicy", "selfHealTimeout", "hangTimeout", "silence", "maxRecycles", "toleratedLostRanks", "forceDeleteAfter",
    "updateStrategy", "readyPolicy", "instanceReadyTimeout", "migrationPolicy",
)  # fmt: skip
_KEDA: Tree = {"scalingOperator": "triggers of KEDA have no operator"}
_SCALED: Tree = {
    "canaryTrafficPercent": "use spec.rollout",
    "containerConcurrency": "the arguments of the engine limit its requests",
    "kedaConfig": _KEDA,
    "topologyKey": _PLACE,
    "topologySpread": "",
    "topologySpreadKey": "",
    "autoscaler": {"keda": {"idleReplicaCount": "write minReplicas: 0"}},
    "lifecycle": _LIFECYCLE,
}
_ENGINE: Tree = {**_SCALED, "config": "the field applies only to routers: use runner.env"}
_ROUTER: Tree = {
    **_SCALED,
    "timeoutSeconds": "the arguments of the router limit the duration of a request",
    "worker": "a router is a single pod",
    "acceleratorOverride": "a router needs no accelerator",
    "lifecycle": dict.fromkeys(_OF_GROUPS, "the operator recycles only groups of engines"),
}
_IN_RUNTIME: Tree = {"acceleratorOverride": "write the field into the service, or use acceleratorRequirements"}
_PREDICTOR: Tree = {
    **{name: hint for name, hint in _SCALED.items() if name not in ("autoscaler", "lifecycle") and "topology" not in name},
    "model": {"runtimeVersion": "name a runtime of that version"},
}
_STORAGE: Tree = {
    "schemaPath": "",
    "downloadPolicy": NoEffectUnless(
        "ReuseIfExists", "agents keep existing files that are correct, and download the others"
    ),
    "parameters": ReadKeysOnly(
        frozenset({"endpoint", "region", "account", "verify", "anonymous", "filesFrom"}), "credentials come from key"
    ),
}
_PARTS = ("scheduler", "textEncoder", "tokenizer", "transformer", "vae", "additionalComponents")
_PIPELINE: Tree = dict.fromkeys(_PARTS, "pipelines are compared by className")
_VERSION: Tree = {"operator": "the runtime's value is used", "weight": "the runtime's value is used"}
_MODEL: Tree = {
    "storage": _STORAGE,
    "modelFormat": _VERSION,
    "modelFramework": _VERSION,
    "apiCapabilities": _DESCRIBES,
    "diffusionPipeline": _PIPELINE,
    "modelConfiguration": "the agents read the value from the files of the model",
    "servingMode": "",
    "distribution": NoEffectUnless("PerNode", "every node holds all files"),
    "compartmentID": _DESCRIBES,
    "additionalMetadata": _DESCRIBES,
}
_PERFORMANCE: Tree = {"fp32Tflops": "", "int4Tops": "", "int8Tops": "", "latency": ""}
_RUNTIME: Tree = {
    "supportedModelFormats[]": {
        "version": "write modelFormat.version",
        "modelType": "models are compared by modelArchitecture",
        "diffusionPipeline": _PIPELINE,
        "acceleratorConfig{}": {
            "tensorParallelismOverride": {"dataParallelSize": "write the argument into runtimeArgsOverride"},
            "minMemoryPerBillionParams": "use acceleratorRequirements.minMemory",
        },
    },
    "protocolVersions": NoEffectUnless(["openAI"], "clients use the protocol of the engine"),
    "acceleratorRequirements": {"preferredPrecisions": "write the values into acceleratorSelector.constraints of a service"},
    "engineConfig": {**_ENGINE, **_IN_RUNTIME},
    "decoderConfig": {**_ENGINE, **_IN_RUNTIME},
    "routerConfig": _ROUTER,
}
_ROLLOUT: Tree = {
    "groups[]": {
        "canary": "the operator does not support this strategy yet: use rollingUpdate or blueGreen",
        "order": "prefill and decode are updated together",
        "soak": "prefill and decode are updated together",
        "maintainRatio": "prefill and decode are updated together",
    },
    "pairingProtocol": "prefill and decode of different revisions are never paired",
}
_SERVICE: Tree = {
    "deploymentMode": "the value is derived from the components and their workers",
    "kedaConfig": _KEDA,
    "placement": "",
    "routing": "",
    "scalingPolicy": {"mode": "", "proportional": ""},
    "traffic": "",
    "model": {"overlays": "", "apiGroup": NoEffectUnless(keys.GROUP, "models exist only in this group")},
    "runtime": {"apiGroup": NoEffectUnless(keys.GROUP, "runtimes exist only in this group")},
    "engine": _ENGINE,
    "decoder": _ENGINE,
    "router": _ROUTER,
    "predictor": _PREDICTOR,
    "rollout": _ROLLOUT,
}
_ACCELERATOR: Tree = {
    "capabilities": {"clockSpeedMHz": "", "levelZeroVersion": "", "performance": _PERFORMANCE},
    "discovery": {"affinity": "use nodeSelector", "deviceIDs": "use nodeSelector", "pciVendorID": "use nodeSelector"},
    "resources[]": {
        "quantity": NoEffectUnless("1", "containers request their own number"),
        "divisible": "containers request their own number",
    },
    "cost": {"spotPerHour": "use perHour", "tier": ""},
    "integration": "name the queue on the service",
}
_WEIGHT: Tree = {
    "storage": _STORAGE,
    "hyperParameters": _DESCRIBES,
    "trainingJobRef": _DESCRIBES,
    "vendor": _DESCRIBES,
    "version": _DESCRIBES,
    "displayName": _DESCRIBES,
    "compartmentID": _DESCRIBES,
}
_PLACES: Tree = {**_STORAGE, "path": "storageUri contains the path"}
_BENCHMARK: Tree = {"dataset": _PLACES, "outputLocation": _PLACES}

FIELDS: Mapping[str, Tree] = {
    "InferenceService": _SERVICE,
    "ClusterServingRuntime": _RUNTIME,
    "ServingRuntime": _RUNTIME,
    "ClusterBaseModel": _MODEL,
    "BaseModel": _MODEL,
    "AcceleratorClass": _ACCELERATOR,
    "FineTunedWeight": _WEIGHT,
    "BenchmarkJob": _BENCHMARK,
}
"""Maps each kind to the fields of its spec that have no effect."""

OF_PODS = "annotations of a service are not copied to pods: write the annotation into the annotations of a component"
_INGRESS = (
    "the operator creates no Ingress: set exposure.kind of the chart, or write an Ingress for the Service of the service"
)
_SCALING = "use scaleMetric and scaleTarget of the component"
_INJECT = "the operator injects nothing: add the container to the component"
_METRICS = "the operator sets no Prometheus annotations: write them into the annotations of the component"
_OF_MODEL = "the value is derived from the model that the service names"
_INGRESSES = ("domain", "domain-template", "additional-domains", "disable-creation")
_ABOUT_MODEL = ("base-model-name", "base-model-vendor", "base-model-format", "base-model-format-version")


def _ome(*names: str, hint: str = "") -> dict[str, str]:
    return {f"{keys.GROUP}/{name}": hint for name in names}


ANNOTATIONS: Mapping[str, str] = {
    **_ome("deploymentMode", hint="the value is derived from the components and their workers"),
    **_ome("metrics", "targetUtilizationPercentage", hint=_SCALING),
    **_ome(
        "entrypoint-component", hint="the URL of the service leads to the router, or to the engine if there is no router"
    ),
    **_ome("inject-model-init", "inject-serving-sidecar", hint=_INJECT),
    **_ome("inject-fine-tuned-adapter", hint="name the weights in spec.model.fineTunedWeights"),
    **_ome("enable-metric-aggregation", "enable-prometheus-scraping", hint=_METRICS),
    "prometheus.ome.io/port": _METRICS,
    "prometheus.ome.io/path": _METRICS,
    **_ome(*(f"ingress-{name}" for name in _INGRESSES), hint=_INGRESS),
    **_ome("ingress-url-scheme", hint="status.url is the address within the cluster"),
    **_ome("ingress-path-template", hint="each service has its own host: use ome.io/ingress-domain-template"),
    **_ome("ingress-disable-istio-virtualhost", hint="the operator creates no VirtualService"),
    **_ome(*_ABOUT_MODEL, hint=_OF_MODEL),
    **_ome("serving-runtime", hint="use spec.runtime.name"),
    "models.ome.io/target-instance-shapes": "use spec.storage.nodeSelector",
}
"""Maps OME's annotations that have no effect to a hint that states what to do instead. Annotations in OME's domains that are
not listed here have no effect either, unless they are listed as read."""

_QUEUE = frozenset({keys.VOLCANO_QUEUE, keys.DEDICATED_CLUSTER, keys.KUEUE_ENABLED})
_ON_SERVICES = frozenset(
    {
        keys.ACCELERATOR_CLASS, keys.AUTOSCALER_CLASS, keys.SERVICE_TYPE, keys.LOAD_BALANCER_IP, keys.REGISTRY,
        keys.RUNTIME_SYNC, keys.MODEL_SYNC, keys.RETRY, keys.ENGINE_NAME, keys.SOURCE_DIGEST, keys.BENCHMARK_NAMESPACES,
        keys.ROUTER_KEY, keys.FREEZE, keys.OBSERVE, keys.ENGINE_VERSION, keys.IGNORE_FIT,
        keys.LINT_IGNORE,
        keys.PREFLIGHT, keys.COMPILE_CACHE, keys.TRACES, keys.MOVE, keys.SCALED_BACK,
    }
)  # fmt: skip
_SHARED = frozenset({keys.WAVES, keys.BAKE})
READ: Mapping[str, frozenset[str]] = {
    "InferenceService": _QUEUE | _ON_SERVICES,
    "ClusterBaseModel": _SHARED | {keys.SOURCE_DIGEST, ALIASES},
    **dict.fromkeys(
        ("BaseModel", "FineTunedWeight", "ClusterServingRuntime", "ServingRuntime", "AcceleratorClass"), _SHARED
    ),
}
"""Maps each kind to the annotations that the operator reads, or that it writes itself."""
READ_WHERE_EXPOSED = frozenset({keys.INGRESS_OFF, keys.INGRESS_DOMAIN, keys.INGRESS_MORE, keys.INGRESS_TEMPLATE})
"""Annotations of a service that are read only if the operator creates Ingresses or HTTPRoutes."""
_ON_ENGINES = _QUEUE | frozenset(
    {
        keys.RDMA_INJECT,
        keys.RDMA_PROFILE,
        keys.RDMA_CONTAINER,
        keys.SSH_KEYS,
        keys.ENGINE_VERSION,
        keys.PREFLIGHT,
        keys.COMPILE_CACHE,
        keys.TRACES,
    }
)
READ_ON_PODS: Mapping[str, frozenset[str]] = {
    keys.ENGINE: _ON_ENGINES,
    keys.DECODER: _ON_ENGINES,
    keys.ROUTER: _QUEUE | {keys.REGISTRY, keys.ROUTER_KEY, keys.ENGINE_VERSION, keys.TRACES},
}
"""Maps each component to the annotations of the component that the operator reads."""
