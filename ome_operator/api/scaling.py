"""Scaling settings: the number of replicas of a component, and what changes it."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Rule, Spec
from ome_operator.api.values import Count, Number, Open, Percent

Role = Literal["engine", "decoder", "router"]


class AuthenticationRef(Spec):
    """A reference to a KEDA authentication object."""

    name: str | None = None
    """Name of the object."""
    kind: Literal["TriggerAuthentication", "ClusterTriggerAuthentication"] | None = None
    """Kind of the object."""


class KedaConfig(Spec):
    """The older form of the KEDA settings, with one Prometheus trigger."""

    enable_keda: bool | None = None
    """Has no effect."""
    prom_server_address: str | None = None
    """Has no effect."""
    custom_prom_query: str | None = None
    """Has no effect."""
    scaling_threshold: str | None = None
    """Has no effect."""
    scaling_operator: str | None = None
    """Has no effect."""
    auth_modes: str | None = None
    """Has no effect."""
    authentication_ref: AuthenticationRef | None = None


class Hpa(Spec):
    """Settings of the HorizontalPodAutoscaler that is created."""

    metrics: Annotated[list[Open] | None, ATOMIC] = None
    """Metrics in the form of autoscaling/v2. They replace scaleMetric and scaleTarget."""
    behavior: Open | None = None
    """Scaling behavior in the form of autoscaling/v2."""


class Keda(Spec):
    """Settings of a KEDA ScaledObject."""

    triggers: Annotated[list[Open] | None, ATOMIC] = None
    """Has no effect yet."""
    polling_interval: Count | None = None
    """Has no effect yet."""
    cooldown_period: Count | None = None
    """Has no effect yet."""
    idle_replica_count: Count | None = None
    """Has no effect yet."""
    fallback: Open | None = None
    """Has no effect yet."""
    advanced: Open | None = None
    """Has no effect yet."""


class Autoscaler(Spec):
    """What changes the number of replicas of a component. It takes precedence over the annotation ome.io/autoscalerClass."""

    class_: Annotated[Literal["HPA", "KEDA", "External", "None"], Field(alias="class")]
    """HPA: the operator creates a HorizontalPodAutoscaler. External and KEDA: an autoscaler that you create changes the
    RoleScale. None: no autoscaler; minReplicas is used."""
    hpa: Hpa | None = None
    keda: Keda | None = None

    RULES = (
        Rule(
            "self.class != 'KEDA' || has(self.keda)",
            "class KEDA requires triggers: add keda.triggers",
            lambda a: a.class_ != "KEDA" or a.keda is not None,
        ),
    )


class Proportional(Spec):
    """Components whose replicas follow the replicas of another component."""

    anchor: Role | None = None
    """Component whose replicas the others follow; engine if unset."""
    ratios: dict[str, Number] | None = None
    """Replicas per replica of the anchor, rounded up: 1 gives the same number, 0.25 gives one replica for every four."""


class ScalingPolicy(Spec):
    """How the components of a service are scaled relative to each other."""

    mode: Literal["Independent", "Proportional", "Pinned"] | None = None
    """Has no effect yet."""
    proportional: Proportional | None = None
    wake_on_request: bool | None = None
    """Whether a request that arrives while a role has no groups brings the service back. Health checks do not. If unset,
    only `ome wake` or a change of the RoleScale does."""


class DeploymentUpdate(Spec):
    """Limits of a rolling update."""

    max_surge: Percent | None = None
    """Number or percentage of groups above the desired number."""
    max_unavailable: Percent | None = None
    """Number or percentage of groups that may be missing."""


class DeploymentStrategy(Spec):
    """The older form of `rollout`: how pods are replaced."""

    type: str | None = None
    """RollingUpdate or Recreate."""
    rolling_update: DeploymentUpdate | None = None
