"""The components engine, decoder and router of a service or a runtime. Each is an inline pod spec with additional fields."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.accelerator import AcceleratorSelector
from ome_operator.api.base import Inline, Rule, Spec
from ome_operator.api.scaling import Autoscaler, DeploymentStrategy, KedaConfig
from ome_operator.api.values import Count, Duration, Labels, Open, Percent, Replicas


class PodPart(Inline):
    """The leader pod of a group: an inline pod spec and its main container."""

    runner: Open | None = None
    """The main container. It is merged into the container of the same name."""


class WorkerPart(PodPart):
    """The worker pods of a group: an inline pod spec and its main container."""

    size: Replicas | None = None
    """Number of worker pods per group, without the leader."""


class MigrationPolicy(Spec):
    """Whether a group may be moved to other nodes."""

    mode: str | None = None
    """Has no effect."""


class Lifecycle(Spec):
    """How groups of a component start, recover and are recycled."""

    restart_policy: Literal["None", "RecreateInstanceOnPodRestart"] | None = None
    """None: groups are never recycled. Otherwise all pods of a group are recycled if the group loses a rank or hangs."""
    self_heal_timeout: Duration | None = None
    """Time that a group has to become ready again after its containers restarted in place; then it is recycled. 60s if
    unset."""
    hang_timeout: Duration | None = None
    """Time for which the leader may be unready after it was ready, while every rank runs; then the group is recycled. 60s
    if unset."""
    silence: Literal["Recycle", "Observe"] | None = None
    """Recycle (default): a group is also recycled if its leader is Ready, but has answered no probe of the routers'
    registries for `hangTimeout`. Observe: this is only reported."""
    max_recycles: Count | None = None
    """Maximum number of recycles in a row, without ten minutes of readiness in between. After that the group is not
    recycled any more."""
    tolerated_lost_ranks: Count | None = None
    """Number of ranks above 0 that the engine can lose without failing (elastic expert parallelism). Only the pods of
    these ranks are replaced."""
    force_delete_after: Duration | None = None
    """Time after which pods that are Terminating on an unreachable or deleted node are deleted by force; never if unset."""
    update_strategy: Open | None = None
    """Has no effect: set spec.rollout."""
    ready_policy: Literal["AllPodReady", "None"] | None = None
    """Has no effect: every pod of a group must be ready."""
    instance_ready_timeout: Duration | None = None
    """Time that a group has to become ready after all its pods are scheduled; then it is recycled. 75m if unset."""
    min_ready_seconds: Count | None = None
    """Seconds for which a new router has to be ready before an old router is removed. Has no effect for engines."""
    migration_policy: MigrationPolicy | None = None


class Scaled(Inline):
    """Fields for replicas, disruption budgets and metadata, which every component has."""

    min_replicas: Replicas | None = None
    """Number of groups at the start and at least; 1 if unset."""
    max_replicas: Replicas | None = None
    """Maximum number of groups. If unset: minReplicas, or the last number of the class Demand. Between
    minReplicas and maxReplicas, users or an autoscaler set the number in the component's RoleScale."""
    scale_target: int | None = None
    """Target of scaleMetric in percent of the pods' requests; 80 if unset."""
    scale_metric: Literal["cpu", "memory", "concurrency", "rps"] | None = None
    """cpu and memory create a HorizontalPodAutoscaler on the resource usage of the pods. concurrency and rps create none,
    because pods have no such metrics; autoscaler.hpa.metrics accepts any."""
    labels: Labels | None = None
    """Labels of the component's pods."""
    annotations: Labels | None = None
    """Annotations of the component's pods."""
    min_available: Percent | None = None
    """Number or percentage of groups that voluntary disruptions must leave running."""
    max_unavailable: Percent | None = None
    """Number or percentage of groups that voluntary disruptions may take down at the same time."""
    node_scale_down: Literal["Allow", "Forbid"] | None = None
    """Whether autoscalers of nodes may remove the nodes of the component's pods in order to save nodes; Allow if unset.
    With Forbid, the pods get the annotations of Karpenter and cluster-autoscaler for this. A change restarts no pod."""
    deployment_strategy: DeploymentStrategy | None = None
    timeout_seconds: Count | None = None
    """Maximum duration of a request in seconds. Pods that stop wait this long for their running requests."""
    container_concurrency: int | None = None
    """Has no effect: the arguments of the engine limit its concurrent requests."""
    canary_traffic_percent: int | None = None
    """Has no effect."""
    keda_config: KedaConfig | None = None

    RULES = (
        Rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.maxReplicas == 0"
            " || self.minReplicas <= self.maxReplicas",
            "minReplicas is greater than maxReplicas: lower minReplicas or raise maxReplicas",
            lambda c: not c.max_replicas or c.min_replicas is None or c.min_replicas <= c.max_replicas,
        ),
        Rule(
            "!(has(self.minAvailable) && has(self.maxUnavailable))",
            "minAvailable and maxUnavailable are mutually exclusive: keep one of them",
            lambda c: c.min_available is None or c.max_unavailable is None,
        ),
    )


class Component(Scaled):
    """An engine, decoder or router. All other fields are those of a core/v1 PodSpec, inline."""

    runner: Open | None = None
    """The main container. It is merged into the container of the same name."""
    leader: PodPart | None = None
    """The first pod of each group, for groups of several nodes."""
    worker: WorkerPart | None = None
    """The other pods of each group."""
    config: Labels | None = None
    """Environment variables of a router."""
    accelerator_override: AcceleratorSelector | None = None
    autoscaler: Autoscaler | None = None
    """What changes the number of groups between minReplicas and maxReplicas."""
    lifecycle: Lifecycle | None = None
    topology_key: Annotated[str | None, Field(max_length=317)] = None
    """Key of a node label. All pods of a group run on nodes with the same value of this label."""
    topology_spread: Literal["Preferred", "Required"] | None = None
    """Whether groups should (Preferred) or must (Required) be spread over the values of topologySpreadKey."""
    topology_spread_key: Annotated[str | None, Field(max_length=317)] = None
    """Key of the node label over whose values the groups are spread."""
