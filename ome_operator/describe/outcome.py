"""What a service comes to when everything has settled: the objects of its wanted revision, and nothing of an older one."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService, Runtime, migrate
from ome_operator.core.freeze import hold
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
from ome_operator.core.render.statefulsets import Stored, gpus, stored
from ome_operator.core.resolve.identity import CHOSEN
from ome_operator.core.rollout.planner import Bounds
from ome_operator.core.rollout.strategy import strategy
from ome_operator.names import title

SURVIVES = frozenset({"ControllerRevision", "RoleScale"})
"""Kinds of what exists that decide about the outcome: revisions that are stored already, and replicas that were set."""
_NEVER = datetime(1970, 1, 1)


@dataclass(frozen=True)
class RoleOutcome:
    """A role of the wanted revision."""

    component: str
    title: str
    groups: int
    size: int
    """Pods of a group."""
    gpus: int
    """GPUs of a group."""


@dataclass(frozen=True)
class Outcome:
    """Where a service is going."""

    revision: str
    """"" when nothing can be rendered."""
    inputs: Mapping[str, Any]
    """What the revision is made of."""
    manifests: tuple[Manifest, ...]
    """Everything that the operator writes, in its order; empty while something is missing."""
    roles: tuple[RoleOutcome, ...]
    """Engine and decoder."""
    problems: tuple[str, ...]
    """Why it cannot start, each with what to do."""
    advice: str = ""
    bounds: Bounds = field(default_factory=lambda: Bounds({}, {}))
    """How a rollout to it goes."""
    workloads: Mapping[str, Stored] = field(default_factory=dict)
    """Templates of engine and decoder as they are stored; there without groups, too."""


def outcome(service: InferenceService, deps: Deps, children: Iterable[Child] = ()) -> Outcome:
    """Where a service is going; `children` is what exists of it now. A brake says when, not what, as a pause does."""
    notes = {name: value for name, value in service.annotations.items() if name not in hold.ANNOTATIONS}
    service = replace(service, spec=_unpaused(service), annotations=notes, deleting=False)
    known = {(one.kind, one.name): one for one in children if one.kind in SURVIVES}
    plan = sync(service, deps, Observed(children=known), _NEVER)
    applied: tuple[Apply | Create, ...] = (*plan.first, *plan.apply, *plan.create)
    written = [one.manifest for one in applied]
    gone = {(one.kind, one.name) for one in plan.delete}
    scales = [one for key, one in known.items() if one.kind == "RoleScale" and key not in gone and one.owner == service.uid]
    revision = str(plan.status.get("revision") or "")
    data = _data(revision, written, known.values())
    said = {one["type"]: one for one in plan.status["conditions"]}
    workloads = stored(data)
    roles = _roles(workloads, written)
    return Outcome(
        revision=revision,
        inputs=data.get("inputs") or {},
        manifests=(*written, *(_scale(service, one) for one in scales)) if any(_runs(one) for one in written) else (),
        roles=roles,
        problems=tuple(_problems(said)),
        advice=(said.get(ADVICE) or {}).get("message", ""),
        bounds=strategy(service, _runtime(data, deps)).bounds({role.component: role.groups for role in roles}),
        workloads=workloads,
    )


def _runtime(data: Mapping[str, Any], deps: Deps) -> Runtime | None:
    """The runtime of a revision."""
    chosen = (data.get("inputs") or {}).get(CHOSEN)
    found = deps.runtimes.get(Ref(**chosen)) if chosen else None
    return found if isinstance(found, Runtime) else None


def _unpaused(service: InferenceService) -> Any:
    """The spec without `rollout.paused`: a pause says when, not what."""
    spec = migrate(service.spec)
    if spec.rollout is None or not spec.rollout.paused:
        return spec
    return spec.model_copy(update={"rollout": spec.rollout.model_copy(update={"paused": None})})


def _runs(manifest: Manifest) -> bool:
    return bool(manifest["kind"] == "StatefulSet")


def _scale(service: InferenceService, child: Child) -> Manifest:
    owner = meta.Owner(service.name, service.namespace, service.uid)
    return scaling.role_scale(owner, child.labels.get(keys.COMPONENT, ""), child.replicas)


def _data(revision: str, written: Iterable[Manifest], known: Iterable[Child]) -> Mapping[str, Any]:
    """What the ControllerRevision of a revision stores."""
    for one in written:
        if one["kind"] == "ControllerRevision" and one["metadata"]["labels"][keys.REVISION] == revision:
            new: Mapping[str, Any] = one["data"]
            return new
    for child in known:
        if child.kind == "ControllerRevision" and child.labels.get(keys.REVISION) == revision and child.content:
            old: Mapping[str, Any] = child.content["data"]
            return old
    return {}


def _roles(found: Mapping[str, Stored], written: Iterable[Manifest]) -> tuple[RoleOutcome, ...]:
    groups = Counter(
        one["metadata"]["labels"][keys.COMPONENT]
        for one in written
        if _runs(one) and keys.WORKER_INDEX in one["metadata"]["labels"]
    )
    both = keys.DECODER in found
    return tuple(
        RoleOutcome(name, title(name, both), groups[name], found[name].size, gpus(found[name]))
        for name in (keys.ENGINE, keys.DECODER)
        if name in found
    )


def _problems(said: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What has to be mended by a person before anything starts: the sentences that name a fix."""
    ready = said[READY]
    failing = [one for name, one in said.items() if name in _GRAVE and one["status"] == "False"]
    failing = [one for one in failing if one["reason"] not in _PATIENCE]
    if not failing and ready["reason"] not in _PATIENCE and ready["status"] == "False":
        failing = [ready]
    return list(dict.fromkeys(one["message"] for one in failing))


_GRAVE = (MODEL_READY, RUNTIME_READY, ENGINE_READY, DECODER_READY, ROUTER_READY, ROLLED_OUT)
_PATIENCE = frozenset(
    {Reason.CREATING, Reason.PROGRESSING, Reason.WAITING_FOR_NODES, Reason.SCALED_TO_ZERO, Reason.NOTHING_TO_RUN}
)
"""Reasons that mean: nothing exists yet, which is how every outcome is asked for."""
