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
    """Where it answers."""
    name: str | None = None
    """Not written."""
    audience: str | None = None
    """Not written."""
    ca_certs: Annotated[str | None, Field(alias="CACerts")] = None
    """Not written."""


class SelectedAccelerator(Spec):
    """The accelerator that was chosen."""

    accelerator_class: str
    """Name of the class."""
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


class RolloutHold(Spec):
    """Why a rollout does not move."""

    gate: str
    """What it waits for."""
    reason: str
    """Why, in a word."""
    target: str | None = None
    """The revision that waits."""
    since: str | None = None
    """Since when."""


class Failure(Spec):
    """How a container ended, kept after its pod is gone."""

    pod_name: str
    """The pod."""
    container_name: str | None = None
    """The container."""
    reason: str | None = None
    """Why, in a word."""
    exit_code: int | None = None
    """Exit code of the container."""
    message: str | None = None
    """Its last log lines."""
    time: str | None = None
    """When it ended."""


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
    """Not written: see replicas."""
    ready_groups: int | None = None
    """Not written: see readyReplicas."""
    current_revision: str | None = None
    """Revision that was whole last."""
    update_revision: str | None = None
    """Wanted revision."""
    rollout_hold: RolloutHold | None = None
    last_failure: Failure | None = None
    selected_accelerator: SelectedAccelerator | None = None
    url: str | None = None
    """Where the component answers inside the cluster."""
    rest_url: Annotated[str | None, Field(alias="restURL")] = None
    """Not written."""
    address: Address | None = None
    latest_created_revision: str | None = None
    """Wanted revision."""
    latest_ready_revision: str | None = None
    """Revision that was whole last."""
    latest_rolledout_revision: str | None = None
    """Not written."""
    previous_rolledout_revision: str | None = None
    """Not written."""
    traffic: Annotated[list[Traffic] | None, ATOMIC] = None
    """Not written."""


class SliceStatus(Spec):
    """One revision on the cluster: ready pods of those that exist, per role."""

    revision: Annotated[str, Field(max_length=253)]
    """Name of the revision."""
    state: str | None = None
    """Not written."""
    engine: str | None = None
    """Ready pods of the engine."""
    prefill: str | None = None
    """Ready pods of prefill."""
    decode: str | None = None
    """Ready pods of decode."""
    decoder: str | None = None
    """Not written: see decode."""
    router: str | None = None
    """Ready pods of the router."""
    components: Annotated[dict[str, ComponentStatus] | None, ATOMIC_MAP] = None
    """Not written."""


class RejectedRevision(Spec):
    """A revision that never became ready. It is not tried again before an edit or the annotation ome.io/rollout-retry."""

    revision: Annotated[str, Field(max_length=253)]
    """Name of the revision."""
    edit: int | None = None
    """Number of the newest revision then."""
    retry: str | None = None
    """Value of the annotation then."""
    reason: str | None = None
    """Why, in a word."""
    message: str | None = None
    """Why, in a sentence."""
    time: str | None = None
    """When."""


class RolloutProgress(Spec):
    """How far the new slice is, and since when it has not come farther."""

    revision: str | None = None
    """The new revision."""
    ready_pods: int | None = None
    """Most pods that were ready."""
    since: str | None = None
    """Since when."""


class PlacementStatus(Spec):
    """Where the service stands beside others that wait for the same nodes."""

    revision: str | None = None
    """The revision that is about to be placed."""
    waiting: Annotated[dict[str, int] | None, ATOMIC_MAP] = None
    """Component to the groups that are not made for now."""
    since: str | None = None
    """When the present try, or the wait for the next, began; empty while its pods hold no node and nobody wants it."""
    first: str | None = None
    """When it began to wait."""
    tries: int | None = None
    """Tries in a row that failed although it had seemed to fit."""
    trying: bool | None = None
    """Whether groups are made and not all on nodes; else it waits for its turn."""
    sure: bool | None = None
    """Whether it seemed to fit when the present try began."""
    priority: int | None = None
    """Priority of its pods, by their PriorityClass."""
    refused: str | None = None
    """Why pods could not be created in its last try, as with a quota."""
    anew: bool | None = None
    """Whether all of it was given back after it had served."""


class GroupStatus(Spec):
    """One group: its recorded start, and how often and why it was recycled."""

    name: Annotated[str, Field(max_length=253)]
    """Name of its leader's pod."""
    component: str | None = None
    """engine or decoder."""
    revision: str | None = None
    """Its revision."""
    index: int | None = None
    """Number of the group, as in its label ome.io/group. Numbers may have holes."""
    phase: str | None = None
    """Pending, Preflight, Starting, Ready, NotReady, NodeLost, SystemicFault, Restarting, Recycling or Failed."""
    since: str | None = None
    """When the phase began."""
    incarnation: int | None = None
    """How many times it came up, whoever restarted it."""
    ready_since: str | None = None
    """When it became ready."""
    members: Labels | None = None
    """Rank to the pod's start that belongs to this incarnation."""
    node: str | None = None
    """Of the leader."""
    recycles: int | None = None
    """How often it was recycled."""
    recycles_in_a_row: int | None = None
    """Recycles since it stayed ready for ten minutes."""
    recycled_at: str | None = None
    """When it was recycled last."""
    last_failure: Failure | None = None
    preflight: Annotated[list[str] | None, ATOMIC] = None
    """What the check before its engine found: rank, node, cause and fix. Absent where it found nothing."""


class ModelCopies(Spec):
    """Copies of the model that are loaded."""

    failed_copies: int | None = None
    """Groups that failed."""
    total_copies: int | None = None
    """Groups that are ready."""


class ModelRevisionStates(Spec):
    """How the model's loading goes."""

    active_model_state: _State | None = None
    """State of what serves."""
    target_model_state: _State | None = None
    """State of what comes."""


class FailureInfo(Spec):
    """The last failure to load the model."""

    reason: str | None = None
    """Why, in OME's word."""
    message: str | None = None
    """Why, in a sentence."""
    location: str | None = None
    """Where."""
    model_revision_name: str | None = None
    """The revision."""
    exit_code: int | None = None
    """Exit code of the container."""
    time: str | None = None
    """When."""


class LoadedModel(Spec):
    """The model as the service has it."""

    transition_status: Literal["", "UpToDate", "InProgress", "BlockedByFailedLoad", "InvalidSpec"] | None = None
    """How far the wanted model is, in OME's words."""
    model_revision_states: ModelRevisionStates | None = None
    model_copies: ModelCopies | None = None
    last_failure_info: FailureInfo | None = None


class ReachedEdit(Spec):
    """An edit of a runtime, a model or an accelerator class that the service became whole with."""

    kind: str
    """Kind of the object."""
    namespace: str | None = None
    """Its namespace, where it has one."""
    name: str
    """Its name."""
    uid: str
    """Its UID."""
    generation: int
    """The generation that the edit made."""
    time: str
    """When the service became whole."""


class ServiceStatus(Spec):
    """How the service is, and why it is not better."""

    url: str | None = None
    """Where it answers inside the cluster."""
    address: Address | None = None
    runtime: str | None = None
    """Name of the runtime that serves."""
    revision: str | None = None
    """The wanted revision; old→new while two exist."""
    observed_generation: int | None = None
    """Generation of the spec that this is about."""
    conditions: Conditions | None = None
    """What is true and what is not, with the reason and what to do."""
    components: Annotated[dict[str, ComponentStatus] | None, ATOMIC_MAP] = None
    """engine, decoder and router."""
    slices: Annotated[list[SliceStatus] | None, ATOMIC] = None
    """Each revision on the cluster."""
    groups: Annotated[list[GroupStatus] | None, ATOMIC] = None
    """Groups with their starts and failures."""
    placement: PlacementStatus | None = None
    """Only while groups are not on nodes, and placement.gangs of the chart is not switched off."""
    progress: RolloutProgress | None = None
    """Only while the new slice is not whole."""
    rejected: Annotated[list[RejectedRevision] | None, ATOMIC] = None
    """Revisions that never became ready and are not tried again."""
    reached: Annotated[list[ReachedEdit] | None, ATOMIC] = None
    """Edits of objects that it shares with other services, and that it became whole with."""
    last_runtime_sync_token: str | None = None
    """Value of the annotation ome.io/runtime-sync that was acted on last."""
    last_model_sync_token: str | None = None
    """Value of the annotation ome.io/model-sync that was acted on last."""
    messages: Annotated[list[str] | None, ATOMIC] = None
    """Not written."""
    model_status: Annotated[LoadedModel | None, ATOMIC_MAP] = None
    annotations: Labels | None = None
    """Not written."""
