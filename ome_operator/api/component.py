"""Engine, decoder and router, in a service and in a runtime: a pod spec inline and what stands beside it."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.accelerator import AcceleratorSelector
from ome_operator.api.base import Inline, Rule, Spec
from ome_operator.api.scaling import Autoscaler, DeploymentStrategy, KedaConfig
from ome_operator.api.values import Count, Duration, Labels, Open, Percent, Replicas


class PodPart(Inline):
    """The leader of a group: a pod spec inline, and its main container."""

    runner: Open | None = None
    """The main container; merged into the container of the same name."""


class WorkerPart(PodPart):
    """The workers of a group."""

    size: Replicas | None = None
    """Worker pods per group, the leader not counted."""


class MigrationPolicy(Spec):
    """Whether a group may be moved to other nodes."""

    mode: str | None = None
    """Has no effect."""


class Lifecycle(Spec):
    """How the groups of a component live and die."""

    restart_policy: Literal["None", "RecreateInstanceOnPodRestart"] | None = None
    """None: groups are never recycled. Otherwise a group that loses a rank, or hangs, is recycled as a whole."""
    self_heal_timeout: Duration | None = None
    """How long a group whose containers restarted in place may take to meet again before it is recycled; 60s when unset."""
    hang_timeout: Duration | None = None
    """How long a leader that was ready may not be, while every rank runs, before its group is recycled; 60s when unset."""
    max_recycles: Count | None = None
    """Recycles in a row, with no ten minutes of being ready in between, after which a group is left as it is."""
    tolerated_lost_ranks: Count | None = None
    """Ranks above 0 that the engine survives losing (elastic expert parallelism): only their pods are replaced."""
    force_delete_after: Duration | None = None
    """Delete pods by force that stay Terminating for so long on a node that does not report or is gone; never when unset."""
    update_strategy: Open | None = None
    """Has no effect: spec.rollout says it."""
    ready_policy: Literal["AllPodReady", "None"] | None = None
    """Has no effect: every pod must be ready."""
    instance_ready_timeout: Duration | None = None
    """How long a group may take to get ready, from when all its pods are on nodes; then it is recycled. 75m when unset."""
    min_ready_seconds: Count | None = None
    """Seconds that a new router has to be ready before an old one goes; for engines it has no effect."""
    migration_policy: MigrationPolicy | None = None


class Scaled(Inline):
    """What every component may say about its replicas, budgets and metadata."""

    min_replicas: Replicas | None = None
    """Groups to start with and to keep at least; 1 when unset."""
    max_replicas: Replicas | None = None
    """Groups at most; minReplicas when unset. Above minReplicas the RoleScale of the component counts, which people change,
    or an autoscaler that is asked for."""
    scale_target: int | None = None
    """Target of scaleMetric, in percent of what pods request; 80 when unset."""
    scale_metric: Literal["cpu", "memory", "concurrency", "rps"] | None = None
    """cpu or memory asks for a HorizontalPodAutoscaler on what pods use. concurrency and rps are no metrics of pods, so no
    autoscaler is made for them: autoscaler.hpa.metrics takes any metric."""
    labels: Labels | None = None
    """Labels of the component's pods."""
    annotations: Labels | None = None
    """Annotations of the component's pods."""
    min_available: Percent | None = None
    """Groups that voluntary disruptions leave running."""
    max_unavailable: Percent | None = None
    """Groups that voluntary disruptions may take at once."""
    deployment_strategy: DeploymentStrategy | None = None
    timeout_seconds: Count | None = None
    """Longest request; pods that stop wait this long for theirs."""
    container_concurrency: int | None = None
    """Has no effect: the engine's arguments limit its requests."""
    canary_traffic_percent: int | None = None
    """Has no effect."""
    keda_config: KedaConfig | None = None

    RULES = (
        Rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.maxReplicas == 0"
            " || self.minReplicas <= self.maxReplicas",
            "minReplicas is greater than maxReplicas: lower the one or raise the other",
            lambda c: not c.max_replicas or c.min_replicas is None or c.min_replicas <= c.max_replicas,
        ),
        Rule(
            "!(has(self.minAvailable) && has(self.maxUnavailable))",
            "minAvailable and maxUnavailable exclude each other: keep one of them",
            lambda c: c.min_available is None or c.max_unavailable is None,
        ),
    )


class Component(Scaled):
    """Engine, decoder or router. Fields that are not named here are those of a core/v1 PodSpec, inline."""

    runner: Open | None = None
    """The main container; merged into the container of the same name."""
    leader: PodPart | None = None
    """The first pod of each group, where groups span several nodes."""
    worker: WorkerPart | None = None
    """The other pods of each group."""
    config: Labels | None = None
    """Environment variables of a router."""
    accelerator_override: AcceleratorSelector | None = None
    autoscaler: Autoscaler | None = None
    """Who changes the number of groups between minReplicas and maxReplicas."""
    lifecycle: Lifecycle | None = None
    topology_key: Annotated[str | None, Field(max_length=317)] = None
    """Node label: all pods of a group run on nodes with the same value."""
    topology_spread: Literal["Preferred", "Required"] | None = None
    """Whether groups should, or must, be spread over values of topologySpreadKey."""
    topology_spread_key: Annotated[str | None, Field(max_length=317)] = None
    """Node label over whose values groups are spread."""
