"""The outcome of a service: the objects of its target revision after all changes are done. It does not contain objects of
older revisions.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService, Rollout, Runtime, migrate
from ome_operator.core.freeze import hold
from ome_operator.core.observed import slices
from ome_operator.core.observed.objects import Child, Deps, Manifest, Observed, Ref
from ome_operator.core.reasons import (
    ADVICE,
    DECODER_READY,
    ENGINE_READY,
    MODEL_READY,
    READY,
    ROLLED_OUT,
    ROUTER_READY,
    RUNTIME_READY,
    Reason,
)
from ome_operator.core.reconcile.plan import Apply, Create
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.render import meta, scaling
from ome_operator.core.render.statefulsets import StoredRole, gpus, roles_by_component
from ome_operator.core.resolve.identity import CHOSEN
from ome_operator.core.rollout.planner import Bounds
from ome_operator.core.rollout.strategy import strategy
from ome_operator.names import role_title

SURVIVES = frozenset({"ControllerRevision", "RoleScale"})
"""Kinds of existing objects that change the outcome: stored revisions and scaled numbers of groups."""
_NEVER = datetime(1970, 1, 1)


@dataclass(frozen=True)
class RoleOutcome:
    """A role in the target revision of a service."""

    component: str
    title: str
    groups: int
    size: int
    """Number of pods in a group."""
    gpus: int
    """Number of GPUs in a group."""


@dataclass(frozen=True)
class TargetOutcome:
    """The objects of a service's target revision after all changes are done."""

    revision: str
    """Name of the target revision; "" if it cannot be rendered."""
    inputs: Mapping[str, Any]
    """The inputs of the target revision."""
    manifests: tuple[Manifest, ...]
    """All objects that the operator writes for the service, in order; empty if a required object is missing. If all roles
    of a service are scaled to zero groups, the objects contain no StatefulSets."""
    roles: tuple[RoleOutcome, ...]
    """The roles of the components engine and decoder."""
    problems: tuple[str, ...]
    """The reasons why the service cannot start, each with the next step."""
    refused: str = ""
    """Why the operator refuses to make a new revision from the service, so that an older revision stays the target. "" if
    the operator does not refuse, or if there is no validator (`Deps.judge`) to ask."""
    advice: str = ""
    demand: str = ""
    """Why the spec does not allow the operator to scale the service with its demand; "" if it does, or if no component has
    the autoscaler class Demand."""
    bounds: Bounds = field(default_factory=lambda: Bounds({}, {}))
    """How many groups of each role may exist in addition, and how many may be missing, during a rollout to the target
    revision."""
    workloads: Mapping[str, StoredRole] = field(default_factory=dict)
    """The stored templates of the components engine and decoder. They exist even if a component has no groups."""
    generated: frozenset[str] = frozenset()
    """Names of the Secrets that the operator creates for the service if they do not exist, with data that it generates."""


def compute_outcome(service: InferenceService, deps: Deps, children: Iterable[Child] = ()) -> TargetOutcome:
    """Return the outcome of a service. `children` are the existing objects of the service. A freeze or a pause is
    ignored, because it only delays the outcome.
    """
    notes = {name: value for name, value in service.annotations.items() if name not in hold.ANNOTATIONS}
    service = replace(service, spec=_unpaused(service), annotations=notes, deleting=False)
    known = {(item.kind, item.name): item for item in children if item.kind in SURVIVES}
    plan = sync(service, deps, Observed(children=known), _NEVER)
    applied: tuple[Apply | Create, ...] = (*plan.first, *plan.apply, *plan.create)
    written = [item.manifest for item in applied]
    gone = {(item.kind, item.name) for item in plan.delete}
    scales = [
        item for key, item in known.items() if item.kind == "RoleScale" and key not in gone and item.owner == service.uid
    ]
    revision = str(plan.status.get("revision") or "")
    data = _data(revision, written, slices.stored_revisions(known.values(), service.uid))
    conditions = {item["type"]: item for item in plan.status["conditions"]}
    workloads = roles_by_component(data)
    roles, problems = _roles(workloads, written), tuple(_problems(conditions))
    complete = any(_runs(item) for item in written) or (bool(workloads) and not problems)
    return TargetOutcome(
        revision=revision,
        inputs=data.get("inputs") or {},
        manifests=(*written, *(_scale(service, item) for item in scales)) if complete else (),
        roles=roles,
        problems=problems,
        refused=_refused(conditions.get(ROLLED_OUT) or {}),
        advice=(conditions.get(ADVICE) or {}).get("message", ""),
        demand=plan.demand.problem if plan.demand is not None and revision else "",
        bounds=strategy(service, _runtime(data, deps)).bounds({role.component: role.groups for role in roles}),
        workloads=workloads,
        generated=frozenset(secret.manifest["metadata"]["name"] for secret in plan.ensure_secret),
    )


def _runtime(data: Mapping[str, Any], deps: Deps) -> Runtime | None:
    """Return the runtime that the data of a stored revision names; None if it does not exist or is invalid."""
    chosen = (data.get("inputs") or {}).get(CHOSEN)
    found = deps.runtimes.get(Ref(**chosen)) if chosen else None
    return found if isinstance(found, Runtime) else None


def _unpaused(service: InferenceService) -> Any:
    """Return the service's spec without `rollout.paused`, because a pause only delays a rollout."""
    spec = migrate(service.spec)
    if spec.rollout is None or not spec.rollout.paused:
        return spec
    return spec.model_copy(update={"rollout": spec.rollout.model_copy(update={"paused": None})})


def _runs(manifest: Manifest) -> bool:
    return bool(manifest["kind"] == "StatefulSet")


def _scale(service: InferenceService, child: Child) -> Manifest:
    owner = meta.Owner(service.name, service.namespace, service.uid)
    return scaling.role_scale(owner, child.labels.get(keys.COMPONENT, ""), child.replicas)


def _data(revision: str, written: Iterable[Manifest], known: Iterable[slices.Revision]) -> Mapping[str, Any]:
    """Return the data in the ControllerRevision of a revision. `known` are the stored revisions of the service."""
    for item in written:
        if item["kind"] == "ControllerRevision" and item["metadata"]["labels"][keys.REVISION] == revision:
            new: Mapping[str, Any] = item["data"]
            return new
    return next((one.data for one in known if one.name == revision), {})


def _roles(found: Mapping[str, StoredRole], written: Iterable[Manifest]) -> tuple[RoleOutcome, ...]:
    groups = Counter(
        item["metadata"]["labels"][keys.COMPONENT]
        for item in written
        if _runs(item) and keys.WORKER_INDEX in item["metadata"]["labels"]
    )
    both = keys.DECODER in found
    return tuple(
        RoleOutcome(name, role_title(name, both), groups[name], found[name].size, gpus(found[name]))
        for name in (keys.ENGINE, keys.DECODER)
        if name in found
    )


def pin_revision(service: InferenceService, revision: str) -> InferenceService:
    """Return the service as if its spec pinned a stored revision."""
    spec: Any = migrate(service.spec)
    rollout = (spec.rollout or Rollout()).model_copy(update={"revision": revision})
    return replace(service, spec=spec.model_copy(update={"rollout": rollout}))


def _refused(rolled_out: Mapping[str, Any]) -> str:
    return str(rolled_out["message"]) if rolled_out.get("reason") == Reason.CONFIGURATION_REFUSED else ""


def _problems(conditions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the problems that a user has to solve before the service can start. They are the messages of conditions that
    contain a remedy.
    """
    ready = conditions[READY]
    failing = [item for name, item in conditions.items() if name in _GRAVE and item["status"] == "False"]
    failing = [item for item in failing if item["reason"] not in _PATIENCE]
    if not failing and ready["reason"] not in _PATIENCE and ready["status"] == "False":
        failing = [ready]
    messages = dict.fromkeys(item["message"] for item in failing)
    # RolledOut repeats the message of the component for which the revision waits.
    return [text for text in messages if not any(text.endswith(f": {other}") for other in messages)]


_GRAVE = (MODEL_READY, RUNTIME_READY, ENGINE_READY, DECODER_READY, ROUTER_READY, ROLLED_OUT)
_PATIENCE = frozenset(
    {Reason.CREATING, Reason.PROGRESSING, Reason.WAITING_FOR_NODES, Reason.SCALED_TO_ZERO, Reason.NOTHING_TO_RUN}
)
"""Reasons that only report that no pods exist yet, which is true for every computed outcome."""
