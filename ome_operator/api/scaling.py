"""Scaling settings: the number of replicas of a component, and what changes it."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, Rule, Spec
from ome_operator.api.values import Count, Duration, Number, Open, Percent, Replicas, full_match

Role = Literal["engine", "decoder", "router"]


class AuthenticationRef(Spec):
    """A reference to a KEDA authentication object."""

    name: str | None = None
    """Name of the object."""
    kind: Literal["TriggerAuthentication", "ClusterTriggerAuthentication"] | None = None
    """Kind of the object; TriggerAuthentication if unset."""


class KedaConfig(Spec):
    """The older form of the KEDA settings, with one Prometheus trigger. It is used if the class is KEDA and
    autoscaler.keda has no triggers.
    """

    enable_keda: bool | None = None
    """True: the class is KEDA unless autoscaler.class or the annotation ome.io/autoscalerClass names a class. False: these
    settings are not used."""
    prom_server_address: str | None = None
    """Address of Prometheus, such as http://prometheus.monitoring:9090."""
    custom_prom_query: str | None = None
    """Query whose result is the load. %s stands for the name of the component's RoleScale, SERVICE-engine for example."""
    scaling_threshold: str | None = None
    """Load per group: KEDA divides the load by this to get the number of groups."""
    scaling_operator: str | None = None
    """Has no effect: triggers of KEDA have no operator."""
    auth_modes: str | None = None
    """How KEDA authenticates to Prometheus: basic, bearer, tls or custom."""
    authentication_ref: AuthenticationRef | None = None


class Hpa(Spec):
    """Settings of the HorizontalPodAutoscaler that is created."""

    metrics: Annotated[list[Open] | None, ATOMIC] = None
    """Metrics in the form of autoscaling/v2. They replace scaleMetric and scaleTarget."""
    behavior: Open | None = None
    """Scaling behavior in the form of autoscaling/v2."""


class Keda(Spec):
    """Settings of the KEDA ScaledObject that is created."""

    triggers: Annotated[list[Open] | None, ATOMIC] = None
    """Triggers in the form of keda.sh/v1alpha1. A trigger of type prometheus gets `ignoreNullValues: "false"` unless it sets
    a value, so that an empty result is not read as no load."""
    polling_interval: Count | None = None
    """Seconds between two checks of the triggers; 30 if unset."""
    cooldown_period: Count | None = None
    """Seconds without load after which KEDA scales to zero; 300 if unset. It has an effect only with minReplicas 0."""
    idle_replica_count: Count | None = None
    """Has no effect: write minReplicas 0."""
    fallback: Open | None = None
    """What KEDA does while it cannot read a trigger, in the form of keda.sh/v1alpha1. If unset, the present number of groups
    is kept."""
    advanced: Open | None = None
    """Further settings in the form of keda.sh/v1alpha1, such as the behavior of KEDA's HorizontalPodAutoscaler."""


class Autoscaler(Spec):
    """What changes the number of replicas of a component. It takes precedence over the annotation ome.io/autoscalerClass."""

    class_: Annotated[Literal["HPA", "KEDA", "External", "Demand", "None"], Field(alias="class")]
    """HPA: the operator creates a HorizontalPodAutoscaler. KEDA: the operator creates a ScaledObject, if keda.enabled of its
    chart is true. External: an autoscaler that you create changes the RoleScale. Demand: the operator decides, as
    spec.scalingPolicy.demand describes. None: no autoscaler; minReplicas is used."""
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


_TIME_OF_DAY = "^([01][0-9]|2[0-3]):[0-5][0-9]$"
TimeOfDay = Annotated[
    str,
    Field(max_length=16),
    Rule(f"self.matches('{_TIME_OF_DAY}')", 'write a time of day such as "08:30"', full_match(_TIME_OF_DAY)),
]
"""A time of day in UTC."""


class GroupsByComponent(Spec):
    """Numbers of groups by component."""

    engine: Replicas | None = None
    """Groups of the engine, or of prefill if there is a decoder."""
    decoder: Replicas | None = None
    """Groups of the decoder."""


class Peak(Spec):
    """A time whose demand is known in advance, in UTC."""

    days: Annotated[list[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]] | None, ATOMIC, Field(max_length=7)] = (
        None
    )
    """Days on which the peak begins; every day if unset or empty."""
    start: TimeOfDay
    """Begin of the peak. Groups are requested at this time, so choose it earlier by the time that a group takes to start."""
    end: TimeOfDay
    """End of the peak; on the next day if it is not after `start`."""
    minimum: GroupsByComponent
    """Smallest numbers of groups during the peak, within minReplicas and maxReplicas. With 0 for both roles and
    minReplicas 0, the service has no groups while no requests arrive."""


class DemandPolicy(Spec):
    """How the operator scales components whose autoscaler has the class Demand."""

    mode: Literal["Recommend", "Apply"] | None = None
    """Recommend: the status shows the size that the service needs, and nothing changes. Apply: the service gets this size.
    Recommend if unset."""
    time_to_first_token: Duration
    """Time to the first token that 95 % of the requests must reach."""
    time_between_tokens: Duration
    """Mean time between two tokens of a request."""
    gpu_budget: Annotated[int, Field(ge=1)] | None = None
    """Largest number of GPUs of all groups together; no limit if unset."""
    spare: GroupsByComponent | None = None
    """Groups beyond those that the demand needs; 0 if unset."""
    requests_per_router: Annotated[int, Field(ge=1)] | None = None
    """Requests in flight that need one router. If unset, the number of routers does not follow the demand."""
    changes_per_hour: Annotated[int, Field(ge=1, le=100)] | None = None
    """Largest number of changes within an hour; 40 if unset."""
    cool_down: Duration | None = None
    """Time between a change and the removal of a group; 1m if unset."""
    schedule: Annotated[list[Peak] | None, ATOMIC, Field(max_length=20)] = None
    """Times whose demand is known."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    """Services with a higher value get free nodes first; 0 if unset. No service loses groups because of it."""


class ScalingPolicy(Spec):
    """How the components of a service are scaled relative to each other, or with the demand."""

    mode: Literal["Independent", "Proportional", "Pinned"] | None = None
    """Has no effect yet."""
    proportional: Proportional | None = None
    wake_on_request: bool | None = None
    """Whether a request that arrives while a role has no groups brings the service back. Health checks do not. If unset,
    only `ome wake` or a change of the RoleScale does."""
    demand: DemandPolicy | None = None


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
