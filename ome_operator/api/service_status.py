"""The status of an InferenceService: what OME's users know, and what we tell beyond it."""

from typing import Annotated, Literal

from pydantic import Field

from ome_operator.api.base import ATOMIC, ATOMIC_MAP, Spec
from ome_operator.api.conditions import Conditions
from ome_operator.api.values import Labels

_State = Literal["", "Pending", "Standby", "Loading", "Loaded", "FailedToLoad"]


class Address(Spec):
    """Where something answers."""

    url: str | None = None
    name: str | None = None
    audience: str | None = None
    ca_certs: Annotated[str | None, Field(alias="CACerts")] = None


class SelectedAccelerator(Spec):
    """The accelerator that was chosen."""

    accelerator_class: str
    reason: str | None = None
    node_selector: Labels | None = None
    resource_requests: Labels | None = None


class Traffic(Spec):
    """A share of the requests."""

    revision_name: str | None = None
    configuration_name: str | None = None
    latest_revision: bool | None = None
    percent: int | None = None
    tag: str | None = None
    url: str | None = None


class RolloutHold(Spec):
    """Why a rollout does not move."""

    gate: str
    reason: str
    target: str | None = None
    since: str | None = None


class Failure(Spec):
    """How a container ended, kept after its pod is gone."""

    pod_name: str
    container_name: str | None = None
    reason: str | None = None
    exit_code: int | None = None
    message: str | None = None
    time: str | None = None


class ComponentStatus(Spec):
    """One component, over all revisions."""

    ready: str | None = None
    """Ready pods of those wanted, such as "12/12"."""
    replicas: int | None = None
    """Groups."""
    ready_replicas: int | None = None
    """Groups whose every pod is ready."""
    updated_replicas: int | None = None
    """Groups of the newest revision."""
    groups: int | None = None
    ready_groups: int | None = None
    current_revision: str | None = None
    update_revision: str | None = None
    rollout_hold: RolloutHold | None = None
    last_failure: Failure | None = None
    selected_accelerator: SelectedAccelerator | None = None
    url: str | None = None
    rest_url: Annotated[str | None, Field(alias="restURL")] = None
    address: Address | None = None
    latest_created_revision: str | None = None
    latest_ready_revision: str | None = None
    latest_rolledout_revision: str | None = None
    previous_rolledout_revision: str | None = None
    traffic: Annotated[list[Traffic] | None, ATOMIC] = None


class SliceStatus(Spec):
    """One revision on the cluster: ready pods of those that exist, per role."""

    revision: Annotated[str, Field(max_length=253)]
    state: str | None = None
    engine: str | None = None
    prefill: str | None = None
    decode: str | None = None
    decoder: str | None = None
    router: str | None = None
    components: Annotated[dict[str, ComponentStatus] | None, ATOMIC_MAP] = None


class RejectedRevision(Spec):
    """A revision that never became ready. It is not tried again before an edit or the annotation ome.io/rollout-retry."""

    revision: Annotated[str, Field(max_length=253)]
    edit: int | None = None
    """Number of the newest revision then."""
    retry: str | None = None
    """Value of the annotation then."""
    reason: str | None = None
    message: str | None = None
    time: str | None = None


class RolloutProgress(Spec):
    """How far the new slice is, and since when it has not come farther."""

    revision: str | None = None
    ready_pods: int | None = None
    since: str | None = None


class GroupStatus(Spec):
    """One group: its recorded start, and how often and why it was recycled."""

    name: Annotated[str, Field(max_length=253)]
    """Name of its leader's pod."""
    component: str | None = None
    revision: str | None = None
    index: int | None = None
    """Number of the group, as in its label ome.io/group. Numbers may have holes."""
    phase: str | None = None
    """Pending, Starting, Ready, NotReady, NodeLost, SystemicFault, Restarting, Recycling or Failed."""
    since: str | None = None
    """When the phase began."""
    incarnation: int | None = None
    """How many times it came up, whoever restarted it."""
    ready_since: str | None = None
    members: Labels | None = None
    """Rank to the pod's start that belongs to this incarnation."""
    node: str | None = None
    """Of the leader."""
    recycles: int | None = None
    recycles_in_a_row: int | None = None
    """Recycles since it stayed ready for ten minutes."""
    recycled_at: str | None = None
    last_failure: Failure | None = None


class ModelCopies(Spec):
    """Copies of the model that are loaded."""

    failed_copies: int | None = None
    total_copies: int | None = None


class ModelRevisionStates(Spec):
    """How the model's loading goes."""

    active_model_state: _State | None = None
    target_model_state: _State | None = None


class FailureInfo(Spec):
    """The last failure to load the model."""

    reason: str | None = None
    message: str | None = None
    location: str | None = None
    model_revision_name: str | None = None
    exit_code: int | None = None
    time: str | None = None


class LoadedModel(Spec):
    """The model as the service has it."""

    transition_status: Literal["", "UpToDate", "InProgress", "BlockedByFailedLoad", "InvalidSpec"] | None = None
    model_revision_states: ModelRevisionStates | None = None
    model_copies: ModelCopies | None = None
    last_failure_info: FailureInfo | None = None


class ServiceStatus(Spec):
    """How the service is, and why it is not better."""

    url: str | None = None
    address: Address | None = None
    runtime: str | None = None
    """Name of the runtime that serves."""
    revision: str | None = None
    """The wanted revision; old→new while two exist."""
    observed_generation: int | None = None
    conditions: Conditions | None = None
    components: Annotated[dict[str, ComponentStatus] | None, ATOMIC_MAP] = None
    slices: Annotated[list[SliceStatus] | None, ATOMIC] = None
    groups: Annotated[list[GroupStatus] | None, ATOMIC] = None
    progress: RolloutProgress | None = None
    """Only while the new slice is not whole."""
    rejected: Annotated[list[RejectedRevision] | None, ATOMIC] = None
    """Revisions that never became ready and are not tried again."""
    last_runtime_sync_token: str | None = None
    """Value of the annotation ome.io/runtime-sync that was acted on last."""
    last_model_sync_token: str | None = None
    """Value of the annotation ome.io/model-sync that was acted on last."""
    messages: Annotated[list[str] | None, ATOMIC] = None
    model_status: LoadedModel | None = None
    annotations: Labels | None = None
