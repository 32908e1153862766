"""The API: each kind is parsed to an immutable object. `Kind.parse(body)` returns the object or `Invalid`, and never
raises.
"""

from ome_operator.api.accelerator import (
    AcceleratorClass,
    AcceleratorClassSpec,
    AcceleratorConstraints,
    AcceleratorRequirements,
    AcceleratorSelector,
)
from ome_operator.api.base import Inline, Spec
from ome_operator.api.benchmark import BenchmarkJob, BenchmarkSpec
from ome_operator.api.component import Component, Lifecycle, PodPart, Scaled, WorkerPart
from ome_operator.api.invalid import Invalid
from ome_operator.api.learned import Facts
from ome_operator.api.migrate import migrate
from ome_operator.api.model import Model, ModelSpec, Storage, Version
from ome_operator.api.nodefaults import NodeFaults
from ome_operator.api.nodemodels import NodeModels
from ome_operator.api.objects import Object
from ome_operator.api.predictor import Predictor, PredictorModel
from ome_operator.api.rolescale import RoleScale, RoleScaleSpec
from ome_operator.api.rollout import RollingUpdate, Rollout, RolloutGroup
from ome_operator.api.runtime import AcceleratorOverride, Parallelism, Runtime, RuntimeSpec, SupportedModelFormat
from ome_operator.api.scaling import Autoscaler, DeploymentStrategy, DeploymentUpdate, KedaConfig, ScalingPolicy
from ome_operator.api.service import InferenceService, ModelRef, RuntimeRef, ServiceSpec, propose_name
from ome_operator.api.sglang import Serving, ServingSpec, SglangModel, SglangModelSpec
from ome_operator.api.weights import FineTunedWeight, FineTunedWeightSpec

__all__ = [
    "AcceleratorClass",
    "AcceleratorClassSpec",
    "AcceleratorConstraints",
    "AcceleratorOverride",
    "AcceleratorRequirements",
    "AcceleratorSelector",
    "Autoscaler",
    "BenchmarkJob",
    "BenchmarkSpec",
    "Component",
    "DeploymentStrategy",
    "DeploymentUpdate",
    "Facts",
    "FineTunedWeight",
    "FineTunedWeightSpec",
    "InferenceService",
    "Inline",
    "Invalid",
    "KedaConfig",
    "Lifecycle",
    "Model",
    "ModelRef",
    "ModelSpec",
    "NodeFaults",
    "NodeModels",
    "Object",
    "Parallelism",
    "PodPart",
    "Predictor",
    "PredictorModel",
    "RoleScale",
    "RoleScaleSpec",
    "RollingUpdate",
    "Rollout",
    "RolloutGroup",
    "Runtime",
    "RuntimeRef",
    "RuntimeSpec",
    "Scaled",
    "ScalingPolicy",
    "ServiceSpec",
    "Serving",
    "ServingSpec",
    "SglangModel",
    "SglangModelSpec",
    "Spec",
    "Storage",
    "SupportedModelFormat",
    "Version",
    "WorkerPart",
    "migrate",
    "propose_name",
]
