"""The status of an InferenceService: OME's fields and this operator's additional fields."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, ATOMIC_MAP, Spec
from ome_operator.api.conditions import Conditions
from ome_operator.api.group_start import GroupStart
from ome_operator.api.rollout_status import ReachedEdit, RejectedRevision, RolloutHold, RolloutProgress
from ome_operator.api.scaling_status import ScalingSummary
from ome_operator.api.traffic_status import TrafficSummary
from ome_operator.api.values import Labels
from ome_operator.api.zero_status import ZeroStatus

_State = Literal["", "Pending", "Standby", "Loading", "Loaded", "FailedToLoad"]


class Address(Spec):
    """Address of the service."""

    url: str | None = None
    """URL of the service."""
    name: str | None = None
    """Not written."""
    audience: str | None = None
    """Not written."""
    ca_certs: Annotated[str | None, Field(alias="CACerts")] = None
    """Not written."""


class SelectedAccelerator(Spec):
    """The accelerator that was chosen."""

    accelerator_class: str
    """Name of the AcceleratorClass."""
    reason: str | None = None
    """Not written."""
    node_selector: Labels | None = None
    """Not written."""
    resource_requests: Labels | None = None
    """Not written."""


class Traffic(Spec):
    """A share of the requests."""

    revision_name: str | None = None
    """Not written."""
    configuration_name: str | None = None
    """Not written."""
    latest_revision: bool | None = None
    """Not written."""
    percent: int | None = None
    """Not written."""
    tag: str | None = None
    """Not written."""
    url: str | None = None
    """Not written."""


class Failure(Spec):
    """End of a container, kept after its pod is deleted."""

    pod_name: str
    """Name of the pod."""
    container_name: str | None = None
    """Name of the container."""
    reason: str | None = None
    """The reason as a CamelCase word."""
    exit_code: int | None = None
    """Exit code of the container."""
    message: str | None = None
    """Last lines of the container's log."""
    time: str | None = None
    """Time at which the container ended."""


class ComponentStatus(Spec):
    """Status of a component over all revisions."""

    ready: str | None = None
    """Ready pods and desired pods, such as "12/12"."""
    replicas: int | None = None
    """Number of groups."""
    ready_replicas: int | None = None
    """Number of groups whose pods are all ready."""
    updated_replicas: int | None = None
    """Number of groups of the newest revision."""
    groups: int | None = None
    """Not written: see replicas."""
    ready_groups: int | None = None
    """Not written: see readyReplicas."""
    current_revision: str | None = None
    """The revision that was complete last."""
    update_revision: str | None = None
    """The desired revision."""
    rollout_hold: RolloutHold | None = None
    last_failure: Failure | None = None
    selected_accelerator: SelectedAccelerator | None = None
    url: str | None = None
    """URL of the component inside the cluster."""
    rest_url: Annotated[str | None, Field(alias="restURL")] = None
    """Not written."""
    address: Address | None = None
    latest_created_revision: str | None = None
    """The desired revision."""
    latest_ready_revision: str | None = None
    """The revision that was complete last."""
    latest_rolledout_revision: str | None = None
    """Not written."""
    previous_rolledout_revision: str | None = None
    """Not written."""
    traffic: Annotated[list[Traffic] | None, ATOMIC] = None
    """Not written."""


class SliceStatus(Spec):
    """A revision in the cluster, with ready pods and existing pods of each role, such as "4/4"."""

    revision: Annotated[str, Field(max_length=253)]
    """Name of the revision."""
    state: str | None = None
    """Not written."""
    engine: str | None = None
    """Ready pods and existing pods of the engine."""
    prefill: str | None = None
    """Ready pods and existing pods of prefill."""
    decode: str | None = None
    """Ready pods and existing pods of decode."""
    decoder: str | None = None
    """Not written: see decode."""
    router: str | None = None
    """Ready pods and existing pods of the router."""
    components: Annotated[dict[str, ComponentStatus] | None, ATOMIC_MAP] = None
    """Not written."""


class PlacementStatus(Spec):
    """State of the service's placement, while the service competes with other services for nodes."""

    revision: str | None = None
    """The revision whose groups are being placed."""
    waiting: Annotated[dict[str, int] | None, ATOMIC_MAP] = None
    """Number of groups whose creation is delayed, by component."""
    since: str | None = None
    """Start of the current placement attempt, or of the wait for the next attempt; "" if the attempt has ended, no pod
    has a node and no other service wants the nodes."""
    first: str | None = None
    """Time at which the service began to wait."""
    tries: int | None = None
    """Number of consecutive placement attempts that failed although the capacity had seemed sufficient."""
    trying: bool | None = None
    """True if groups exist that are not completely bound to nodes; false if the service is queued for admission."""
    sure: bool | None = None
    """Whether the capacity seemed sufficient when the current placement attempt began."""
    priority: int | None = None
    """Priority of the pods, from their PriorityClass."""
    refused: str | None = None
    """Reason why pods could not be created in the last placement attempt, for example a quota."""
    anew: bool | None = None
    """True if no group has served requests since the service was created or since all its groups last released their
    nodes."""


class GroupStatus(Spec):
    """A group of pods: its start, and the number and reasons of its recycles."""

    name: Annotated[str, Field(max_length=253)]
    """Name of the leader pod."""
    component: str | None = None
    """Component of the group: engine or decoder."""
    revision: str | None = None
    """Revision of the group."""
    index: int | None = None
    """Number of the group, as in its label ome.io/group. The numbers are not always consecutive."""
    phase: str | None = None
    """Pending, Preflight, Starting, Ready, NotReady, Silent, NodeLost, SystemicFault, Restarting, Recycling or Failed."""
    since: str | None = None
    """Time at which the phase began."""
    incarnation: int | None = None
    """Number of times that the group started, including restarts by Kubernetes or users."""
    ready_since: str | None = None
    """Time at which the group became ready."""
    members: Labels | None = None
    """Start of the pod that belongs to this incarnation, by rank."""
    node: str | None = None
    """Node of the leader."""
    recycles: int | None = None
    """Number of recycles of the group."""
    recycles_in_a_row: int | None = None
    """Number of recycles since the group was last ready for ten minutes."""
    recycled_at: str | None = None
    """Time of the last recycle."""
    last_failure: Failure | None = None
    start: GroupStart | None = None
    preflight: Annotated[list[str] | None, ATOMIC] = None
    """Findings of the preflight check of the group: rank, node, cause and correction; unset if there are none."""


class MoveStatus(Spec):
    """The state of the move of a group, or of a router's pod, that leaves its node."""

    component: str
    """Component of the group: engine, decoder or router."""
    revision: str | None = None
    """Revision of the group."""
    group: int | None = None
    """Number of the group."""
    pod: str | None = None
    """Name of the router's pod."""
    phase: str | None = None
    """Settling, Waiting, Replacing, Leaving, Staying or Returned."""
    since: str | None = None
    """Time at which the phase began."""
    node: str | None = None
    """The node that the group leaves."""
    cause: str | None = None
    """Why the group or router's pod leaves the node."""
    replacement: str | None = None
    """Number of the new group, or name of the new router's pod; unset while it does not exist."""
    without_replacement: bool | None = None
    """True if the group leaves although no replacement serves."""
    cause_gone_since: str | None = None
    """Time since which the cause is gone, while the replacement starts."""


class ModelCopies(Spec):
    """Number of copies of the model that are loaded."""

    failed_copies: int | None = None
    """Number of groups that failed."""
    total_copies: int | None = None
    """Number of groups that are ready."""


class ModelRevisionStates(Spec):
    """State of loading the model."""

    active_model_state: _State | None = None
    """State of the model that serves."""
    target_model_state: _State | None = None
    """State of the model that is being rolled out."""


class FailureInfo(Spec):
    """The last failure to load the model."""

    reason: str | None = None
    """The reason, in the terms of OME."""
    message: str | None = None
    """The reason in a sentence."""
    location: str | None = None
    """Location of the failure."""
    model_revision_name: str | None = None
    """Revision of the model that failed."""
    exit_code: int | None = None
    """Exit code of the container."""
    time: str | None = None
    """Time of the failure."""


class LoadedModel(Spec):
    """State of the model in the service."""

    transition_status: Literal["", "UpToDate", "InProgress", "BlockedByFailedLoad", "InvalidSpec"] | None = None
    """Progress to the desired model, in the terms of OME."""
    model_revision_states: ModelRevisionStates | None = None
    model_copies: ModelCopies | None = None
    last_failure_info: FailureInfo | None = None


class ServiceStatus(Spec):
    """The observed state of the service, with the reasons if it is not ready."""

    url: str | None = None
    """URL of the service inside the cluster."""
    address: Address | None = None
    model: str | None = None
    """Models of the existing revisions."""
    runtime: str | None = None
    """Name of the runtime that serves the model."""
    revision: str | None = None
    """The desired revision; old→new while two revisions exist."""
    observed_generation: int | None = None
    """Generation of the spec that this status describes."""
    conditions: Conditions | None = None
    """Conditions of the service, with the reason and what to do. `Ready` is True while requests to the URL are answered,
    `Scaled` while every desired group is ready, and `RolledOut` when the desired revision is complete and the only one."""
    components: Annotated[dict[str, ComponentStatus] | None, ATOMIC_MAP] = None
    """Status of engine, decoder and router."""
    slices: Annotated[list[SliceStatus] | None, ATOMIC] = None
    """All revisions in the cluster."""
    groups: Annotated[list[GroupStatus] | None, ATOMIC] = None
    """Groups of pods, with their starts and failures."""
    moves: Annotated[list[MoveStatus] | None, ATOMIC] = None
    """Groups that leave their nodes, at most one of each component."""
    placement: PlacementStatus | None = None
    """Set until every role has had a ready group, and later while groups are not bound to nodes, if the chart value
    placement.gangs is enabled."""
    progress: RolloutProgress | None = None
    """Set only while the new revision is incomplete."""
    rejected: Annotated[list[RejectedRevision] | None, ATOMIC] = None
    """Revisions that never became ready and whose rollout is not repeated."""
    reached: Annotated[list[ReachedEdit] | None, ATOMIC] = None
    """Edits of shared objects that have been rolled out to the service completely."""
    zero: ZeroStatus | None = None
    scaling_ignored_at: int | None = None
    """Generation of the spec for which ScaledObjects, or the autoscaler of the router, have no effect, because an older
    version of the operator reconciled that generation; 0 if they have an effect. Unset if the service does not use
    them."""
    traffic: Annotated[TrafficSummary | None, ATOMIC_MAP] = None
    scaling: Annotated[ScalingSummary | None, ATOMIC_MAP] = None
    last_runtime_sync_token: str | None = None
    """Last value of the annotation ome.io/runtime-sync that was processed."""
    last_model_sync_token: str | None = None
    """Last value of the annotation ome.io/model-sync that was processed."""
    messages: Annotated[list[str] | None, ATOMIC] = None
    """Not written."""
    model_status: Annotated[LoadedModel | None, ATOMIC_MAP] = None
    annotations: Labels | None = None
    """Not written."""
