"""How many replicas a component has and who decides it."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Rule, Spec
from ome_operator.api.values import Count, Number, Open, Percent

Role = Literal["engine", "decoder", "router"]


class AuthenticationRef(Spec):
    """A KEDA authentication object."""

    name: str | None = None
    """Name of the object."""
    kind: Literal["TriggerAuthentication", "ClusterTriggerAuthentication"] | None = None
    """Kind of the object."""


class KedaConfig(Spec):
    """KEDA with a Prometheus trigger, the older spelling."""

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
    """Handed on to a HorizontalPodAutoscaler."""

    metrics: Annotated[list[Open] | None, ATOMIC] = None
    """Metrics as autoscaling/v2 has them; they replace scaleMetric and scaleTarget."""
    behavior: Open | None = None
    """How fast it scales, as autoscaling/v2 has it."""


class Keda(Spec):
    """Handed on to a KEDA ScaledObject."""

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
    """What scales a component; stronger than the annotation ome.io/autoscalerClass."""

    class_: Annotated[Literal["HPA", "KEDA", "External", "None"], Field(alias="class")]
    """HPA: a HorizontalPodAutoscaler is made. External and KEDA: an autoscaler of yours changes the RoleScale. None: nobody
    does, and minReplicas counts."""
    hpa: Hpa | None = None
    keda: Keda | None = None

    RULES = (
        Rule(
            "self.class != 'KEDA' || has(self.keda)",
            "class KEDA needs triggers: add keda.triggers",
            lambda a: a.class_ != "KEDA" or a.keda is not None,
        ),
    )


class Proportional(Spec):
    """Roles that follow another role."""

    anchor: Role | None = None
    """The role whose replicas the others follow; engine when unset."""
    ratios: dict[str, Number] | None = None
    """Replicas per replica of the anchor: 1 is parity, 0.25 one for every four, rounded up."""


class ScalingPolicy(Spec):
    """How the components of a service scale relative to each other."""

    mode: Literal["Independent", "Proportional", "Pinned"] | None = None
    """Has no effect yet."""
    proportional: Proportional | None = None


class DeploymentUpdate(Spec):
    """Bounds of a rolling update."""

    max_surge: Percent | None = None
    """Groups above the wanted number."""
    max_unavailable: Percent | None = None
    """Groups that may be missing."""


class DeploymentStrategy(Spec):
    """How pods are replaced, the older spelling of `rollout`."""

    type: str | None = None
    """RollingUpdate or Recreate."""
    rolling_update: DeploymentUpdate | None = None
