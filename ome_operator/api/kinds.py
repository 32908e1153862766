"""The table of all kinds that the operator defines: names, specs, statuses and printer columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ome_operator import keys
from ome_operator.api import (
    accelerator,
    benchmark,
    model,
    nodefaults,
    nodemodels,
    rolescale,
    runtime,
    service,
    service_status,
    sglang,
    weights,
)
from ome_operator.api.base import Rule, Spec


@dataclass(frozen=True)
class Column:
    """A printer column that `kubectl get` prints."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    """Whether the column is printed only with `-o wide`."""
    text: str = ""
    """What the column contains, if the name does not say it."""


def _not_seen(condition: str) -> dict[str, Any]:
    message = "no operator has processed this object yet"
    return {"conditions": [{"type": condition, "status": "Unknown", "reason": "NotSeen", "message": message}]}


_UNSEEN = _not_seen("Ready")
"""Status of an object that no operator has processed yet. Without it, kstatus takes such an object for one that is complete
(decisions 2)."""
_UNSEEN_BENCHMARK = {"observedGeneration": -1, **_not_seen("Complete")}
"""Status of a BenchmarkJob that no operator has processed yet. kstatus does not read the condition Complete, so an
impossible `observedGeneration` also shows that the object was not processed."""


@dataclass(frozen=True)
class Kind:
    """A kind and the contents of its CRD."""

    kind: str
    plural: str
    spec: type[Spec]
    status: type[Spec]
    columns: tuple[Column, ...]
    group: str = keys.GROUP
    version: str = keys.VERSION
    namespaced: bool = False
    short: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    scale: bool = False
    """Whether the kind has a scale subresource with spec.replicas, status.replicas and status.selector."""
    spec_required: bool = True
    unseen: Mapping[str, Any] = field(default_factory=lambda: _UNSEEN)
    """Default of the status, which an object has until an operator has written one; empty if there is no default."""

    @property
    def crd(self) -> str:
        """Name of the CRD and of its file."""
        return f"{self.plural}.{self.group}"


def _condition(name: str, type_: str, field: str) -> Column:
    return Column(name, f'.status.conditions[?(@.type=="{type_}")].{field}')


_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_MODEL = (
    Column("Vendor", ".spec.vendor"),
    Column("Architecture", ".status.architecture"),
    Column("Size", ".status.size"),
    Column("Format", ".status.format"),
    Column("Quantization", ".status.quantization"),
    Column("Ready nodes", ".status.summary"),
    Column("State", ".status.state"),
    _AGE,
    Column("Name shown", ".spec.displayName", wide=True),
    Column("Version", ".spec.version", wide=True),
    Column("Type", ".spec.modelType", wide=True),
    Column("Context", ".spec.maxTokens", "integer", wide=True),
    Column("Capabilities", ".spec.modelCapabilities", wide=True),
)
_RUNTIME = (
    Column("Engine", ".status.engine"),
    Column("Roles", ".status.roles"),
    Column("Nodes", ".status.nodes"),
    Column("GPUs", ".status.gpus"),
    Column("Strategy", ".status.strategy"),
    Column("Disabled", ".spec.disabled", "boolean"),
    Column("Rollout", ".status.rollout.state", wide=True),
    _AGE,
)
_SERVICE = (
    _condition("Ready", "Ready", "status"),
    _condition("Reason", "Ready", "reason"),
    Column("Model", ".status.model"),
    Column("Runtime", ".status.runtime"),
    Column("Engine", ".status.components.engine.ready", text="Prefill if there is a decoder."),
    Column("Decode", ".status.components.decoder.ready"),
    Column("Router", ".status.components.router.ready"),
    _condition("Scaled", "Scaled", "reason"),
    _condition("Rollout", "RolledOut", "reason"),
    Column("Revision", ".status.revision"),
    _condition("Frozen", "Frozen", "reason"),
    _condition("Advice", "Advice", "reason"),
    _AGE,
    Column("URL", ".status.url"),  # last, because it is wider than most terminals
    Column("Pinned", ".spec.rollout.revision", wide=True),
    Column("Model revision", ".spec.model.revision", wide=True),
    Column("Runtime revision", ".spec.runtime.revision", wide=True),
)  # fmt: skip
_ACCELERATOR = (
    Column("Vendor", ".spec.vendor"),
    Column("Family", ".spec.family"),
    Column("Memory", ".spec.capabilities.memoryGB"),
    Column("Nodes", ".status.availableNodes", "integer"),
    Column("Model", ".spec.model", wide=True),
)
_BENCHMARK = (
    Column("Service", ".spec.endpoint.inferenceService.name"),
    Column("State", ".status.state"),
    _condition("Reason", "Complete", "reason"),
    Column("Requests", ".status.report.requests", "integer"),
    Column("Failed", ".status.report.failed", "integer"),
    Column("TTFT ms", ".status.report.ttft"),
    Column("TPOT ms", ".status.report.tpot"),
    Column("Tokens/s", ".status.report.tokensPerSecond"),
    _AGE,
)
_WEIGHT = (
    Column("Base", ".spec.baseModelRef.name"),
    Column("Type", ".spec.modelType"),
    _condition("Ready", "Ready", "status"),
)
_SCALE = (
    Column("Service", r".metadata.labels.ome\.io/inferenceservice"),
    Column("Role", ".metadata.labels.component"),
    Column("Replicas", ".spec.replicas", "integer"),
    Column("Ready", ".status.readyReplicas", "integer"),
)

KINDS = (
    Kind("ClusterBaseModel", "clusterbasemodels", model.ModelSpec, model.ModelStatus, _MODEL),
    Kind("BaseModel", "basemodels", model.ModelSpec, model.ModelStatus, _MODEL, namespaced=True),
    Kind("ClusterServingRuntime", "clusterservingruntimes", runtime.RuntimeSpec, runtime.RuntimeStatus, _RUNTIME),
    Kind("ServingRuntime", "servingruntimes", runtime.RuntimeSpec, runtime.RuntimeStatus, _RUNTIME, namespaced=True),
    Kind(
        "InferenceService",
        "inferenceservices",
        service.ServiceSpec,
        service_status.ServiceStatus,
        _SERVICE,
        namespaced=True,
        short=("isvc",),
        rules=service.InferenceService.RULES,
        spec_required=False,
    ),
    Kind(
        "AcceleratorClass",
        "acceleratorclasses",
        accelerator.AcceleratorClassSpec,
        accelerator.AcceleratorClassStatus,
        _ACCELERATOR,
    ),
    Kind(
        "BenchmarkJob",
        "benchmarkjobs",
        benchmark.BenchmarkSpec,
        benchmark.BenchmarkStatus,
        _BENCHMARK,
        namespaced=True,
        unseen=_UNSEEN_BENCHMARK,
    ),
    Kind("FineTunedWeight", "finetunedweights", weights.FineTunedWeightSpec, weights.FineTunedWeightStatus, _WEIGHT),
    Kind(
        "RoleScale",
        "rolescales",
        rolescale.RoleScaleSpec,
        rolescale.RoleScaleStatus,
        _SCALE,
        namespaced=True,
        scale=True,
        spec_required=False,
    ),
    Kind(
        "NodeModels",
        "nodemodels",
        nodemodels.NodeModelsSpec,
        nodemodels.NodeModelsStatus,
        (Column("Models", ".status.summary"), _AGE),
        spec_required=False,
        unseen={},  # a record that an agent writes: users apply none, and nothing waits for it
    ),
    Kind(
        "NodeFaults",
        "nodefaults",
        nodefaults.NodeFaultsSpec,
        nodefaults.NodeFaultsStatus,
        (Column("Avoided", ".status.avoided"), _AGE),
        spec_required=False,
        unseen={},  # a record that the operator writes: users apply none, and nothing waits for it
    ),
    Kind(
        "ClusterBaseModel",
        "clusterbasemodels",
        sglang.SglangModelSpec,
        sglang.ShortModelStatus,
        (Column("Repo", ".spec.source.huggingface.repo"), Column("State", ".status.state"), _AGE),
        group="sglang.ai",
        version="v1",
    ),
    Kind(
        "Serving",
        "servings",
        sglang.ServingSpec,
        sglang.ServingStatus,
        (
            Column("Model", ".spec.baseModel"),
            Column("URL", ".status.url"),
            _condition("Ready", "Ready", "status"),
            _condition("Reason", "Ready", "reason"),
            _AGE,
        ),
        group="sglang.ai",
        version="v1",
        namespaced=True,
    ),
)
