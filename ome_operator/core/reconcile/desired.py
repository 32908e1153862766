"""Compute every object that should exist for a service now, given the revisions that the rollout keeps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ome_operator import keys, names
from ome_operator.api import InferenceService
from ome_operator.core.group_numbers import by_worth, exclusions, pick_numbers, used_numbers
from ome_operator.core.moves.moving import Moving, drop_leaving
from ome_operator.core.moves.moving import enabled as moves_enabled
from ome_operator.core.observed.objects import Child, Manifest
from ome_operator.core.observed.slices import Slice
from ome_operator.core.placement.gangs import GangPlan, served_first, without_gangs
from ome_operator.core.placement.leaving import group_to_replace
from ome_operator.core.reasons import READY, Reason
from ome_operator.core.reconcile.advice import advice
from ome_operator.core.reconcile.plan import ApplyStatus, Create, EnsureSecret
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render import exposure, meta, networkpolicy, router, scaled_object, scaling, services
from ome_operator.core.render.pod_template import port
from ome_operator.core.render.statefulsets import StoredRole, set_names, stamp
from ome_operator.core.resolve.scaling import ReplicaPolicy
from ome_operator.core.rollout import pod_secrets
from ome_operator.core.rollout.applied import is_outdated
from ome_operator.core.rollout.drain import GRACE, Drain, Held, retain_groups
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.planner import ReplicaCounts, routers
from ome_operator.core.rollout.routers import deployment, sidecars_answer
from ome_operator.core.rollout.step import RolloutStep
from ome_operator.core.rollout.traffic import TrafficSplit, weigh_revisions
from ome_operator.core.status import conditions as cond
from ome_operator.core.status import serving
from ome_operator.core.status.progress import RoleProgress, RoleProgressSpec, progress
from ome_operator.names import role_title

ROUTER_PORT = 8080


@dataclass(frozen=True)
class Desired:
    """The objects that should exist, and the progress of each role."""

    manifests: tuple[Manifest, ...]
    create: tuple[Create, ...]
    secrets: tuple[EnsureSecret, ...]
    """The Secrets for which pods that are not ready may wait."""
    scale_status: tuple[ApplyStatus, ...]
    is_complete: bool
    """False while an input of rendering is missing, or while a revision with other roles is kept. The operator then
    deletes no objects that are not desired."""
    ports: Mapping[str, int]
    front: str
    """The component that the URL of the service leads to."""
    scales: frozenset[str]
    """Names of the RoleScales that should exist."""
    held: Held
    traffic: TrafficSplit | None
    """The share of the requests that the HTTPRoute sends to each revision; None if no HTTPRoute is wanted."""
    progress: tuple[RoleProgress, ...]
    advice: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]
    """The kind and name of each workload that has fewer pods than desired."""


def desired_objects(
    snapshot: Snapshot, intent: Intent, step: RolloutStep, counts: ReplicaCounts, placing: GangPlan, moving: Moving
) -> Desired:
    """Return every object that should exist: the objects of every kept revision, and the objects that revisions share."""
    source = step.keep[-1] if step.keep else intent.target
    roles = intent.roles(source)
    ports = _ports(intent, roles)
    front = _front(snapshot, ports)
    lives_on = _lives_on(snapshot, intent, step)
    complete = bool(roles) and _readable(snapshot.service, intent) and not lives_on
    scaled = {name: policy for name, policy in intent.policies.items() if policy.is_scaled and name in ports}
    serves = serving.can_serve(snapshot.slices, snapshot.revisions, routed=True)
    answered = complete and front == keys.ROUTER and sidecars_answer(snapshot, intent, source, serves=serves)
    manifests = _shared(snapshot, intent, ports, front, answered) if complete else []
    traffic = _traffic(snapshot, intent, step, counts, front)
    manifests += _outside(snapshot, intent, front, traffic) if complete else []
    held = _held(snapshot, intent, step, placing, moving)
    replicas = _routers(snapshot, intent, step, counts, moving) if complete and intent.router is not None else {}
    for revision in step.keep:
        manifests += _engines(snapshot, intent, revision, held)
        if revision in replicas:
            manifests += _router(snapshot, intent, revision, held, replicas[revision])
            if traffic:
                manifests.append(services.slice_service(intent.owner, revision, ports[keys.ROUTER], answered))
    manifests += scaled_object.autoscalers(intent.owner, scaled, keda=snapshot.deps.policy.keda)
    failures = snapshot.observed.pod_failures
    far = tuple(
        progress(role, snapshot.pods, failures) for role in _roles(intent, held, source, counts, routed=not lives_on)
    )
    return Desired(
        manifests=tuple(manifests),
        create=_scales(snapshot, intent, scaled),
        secrets=(*pod_secrets.ssh_keys(snapshot, intent, step, held), *pod_secrets.router_keys(snapshot, intent, manifests)),
        scale_status=_scale_status(snapshot, intent, scaled, far),
        is_complete=complete,
        ports=ports,
        front=front,
        scales=frozenset(
            names.component(intent.owner.name, name)
            for name, policy in scaled.items()
            if not is_outdated(snapshot, name, policy, intent.groups[name])
        ),
        progress=far,
        advice=advice(snapshot, intent, scaled),
        held=held,
        traffic=traffic,
        missing=tuple(key for one in far if one.missing for key in one.role.workloads if snapshot.controlled(*key)),
    )


def _readable(service: InferenceService, intent: Intent) -> bool:
    """Return whether the runtime is available and, if the service has a router, whether the router can be rendered."""
    return intent.resolved.runtime is not None and (intent.router is not None or service.spec.router is None)


def _lives_on(snapshot: Snapshot, intent: Intent, step: RolloutStep) -> bool:
    """Return whether a running revision is kept although the spec of the service now has other roles than this revision.

    The router and the Services in front of the kept revision were made for its roles (prefill and decode need a router, an
    engine alone may have none). They stay unchanged until the revision is removed.
    """
    named = intent.policies.keys() - {keys.ROUTER}
    return any(intent.roles(revision).keys() != named for revision in step.keep if snapshot.has_engines(revision))


def _shared(snapshot: Snapshot, intent: Intent, ports: Mapping[str, int], front: str, answered: bool) -> list[Manifest]:
    """Return the Services, the network policies, and the ServiceAccount and permissions with which routers read pods."""
    asked, notes = tuple(ports.items()), snapshot.service.annotations
    type_, address = notes.get(keys.SERVICE_TYPE, ""), notes.get(keys.LOAD_BALANCER_IP, "")
    inside = services.services(intent.owner, asked, front, type_, address, answered)
    guarded = networkpolicy.policies(intent.owner, asked, front, snapshot.deps.policy.policies_from, answered)
    return [*inside, *guarded, *(router.access(intent.owner, intent.router) if intent.router else [])]


def _outside(snapshot: Snapshot, intent: Intent, front: str, traffic: TrafficSplit | None = None) -> list[Manifest]:
    """Return the objects that expose the component `front` outside the cluster. `traffic` is the HTTPRoute's split."""
    how, notes = snapshot.deps.policy.exposure, tuple(sorted(snapshot.service.annotations.items()))
    weights = tuple(traffic.weights.items()) if traffic else ()
    return exposure.manifests(intent.owner, front, how, notes, weights) if how.kind else []


def _traffic(
    snapshot: Snapshot, intent: Intent, step: RolloutStep, counts: ReplicaCounts, front: str
) -> TrafficSplit | None:
    """Return the share of the requests that the HTTPRoute should send to each revision; None if no HTTPRoute is wanted."""
    if snapshot.deps.policy.exposure.kind != exposure.ROUTE or not _outside(snapshot, intent, front):
        return None
    return weigh_revisions(snapshot, step, counts, routed=front == keys.ROUTER)


def _scales(snapshot: Snapshot, intent: Intent, scaled: Iterable[str]) -> tuple[Create, ...]:
    """Return the RoleScales of the components `scaled` that do not exist yet."""
    out = []
    for name in scaled:
        found = snapshot.observed.children.get(("RoleScale", names.component(intent.owner.name, name)))
        if found is None or (found.owner != intent.owner.uid and not found.deleting):
            out.append(Create(scaling.role_scale(intent.owner, name, intent.groups[name])))
    return tuple(out)


def _ports(intent: Intent, roles: Mapping[str, StoredRole]) -> dict[str, int]:
    ports = {name: role.port for name, role in roles.items()}
    if ports and intent.router is not None:
        ports[keys.ROUTER] = port(intent.router.leader["containers"][0], ROUTER_PORT)
    return ports


def _front(snapshot: Snapshot, ports: Mapping[str, int]) -> str:
    """Return the component that the URL leads to. If a router is added to an engine that serves, the URL leads to the
    engine until the first router is ready.
    """
    wanted = keys.ROUTER if keys.ROUTER in ports else keys.ENGINE
    current = snapshot.controlled("Service", snapshot.service.name)
    if wanted == keys.ENGINE or keys.DECODER in ports or current is None:
        return wanted
    ready = {pod.component for pod in snapshot.pods if pod.ready and not pod.deleting and pod.rank == 0}
    serves = current.labels.get(keys.COMPONENT) == keys.ENGINE and keys.ENGINE in ready
    return keys.ENGINE if serves and keys.ROUTER not in ready else wanted


def _held(snapshot: Snapshot, intent: Intent, step: RolloutStep, placing: GangPlan, moving: Moving) -> Held:
    """Return the groups to keep for now, for every role of every kept revision."""
    out = {}
    for revision, share in step.groups.items():
        found = snapshot.slices.get(revision, Slice(revision, (), ()))
        routed = keys.ROUTER in intent.groups or any(pod.component == keys.ROUTER for pod in found.pods)
        for name, role in intent.roles(revision).items():
            if name not in share:
                continue
            order = drop_leaving(moving, revision, name, by_worth(name, role.size, found, moving.leaving.get(name, ())))
            if revision == intent.target and placing.withheld:
                order = served_first(placing, name, order)
            replaces = revision == step.replaced_revision(intent.target) and not moving.extra.get(name)
            goes = group_to_replace(snapshot, intent.fit.excluded, found, name, role) if replaces else ()
            wanted = pick_numbers(share[name], [number for number in order if number not in goes], used_numbers(name, found))
            known = found if revision != intent.target else without_gangs(placing, name, found)
            grace = role.leader["spec"]["template"]["spec"].get("terminationGracePeriodSeconds", GRACE)
            drain = Drain(snapshot.observed.drains, float(grace))
            out[revision, name] = retain_groups(name, wanted, known, snapshot.now, routed, drain)
    return out


def _leaders(snapshot: Snapshot, intent: Intent, revision: str, held: Held) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the addresses of the leaders of each role of a revision, for a router that does not discover them itself.

    The result contains the desired leaders that are ready. While none is ready, it contains all desired leaders, so that the
    list of a role with a single group does not change when its leader becomes ready.
    """
    ready = {
        (pod.component, pod.group)
        for pod in snapshot.pods
        if pod.revision == revision and pod.rank == 0 and pod.ready and not pod.deleting and not pod.draining
    }
    out = []
    for name in intent.roles(revision):
        wanted = held[revision, name].wanted
        serving = [group for group in wanted if (name, group) in ready] or wanted
        out.append((name, tuple(meta.address(intent.owner, name, revision, group) for group in serving)))
    return tuple(out)


def _routers(snapshot: Snapshot, intent: Intent, step: RolloutStep, counts: ReplicaCounts, moving: Moving) -> dict[str, int]:
    """Return the number of router replicas of each kept revision. A revision that has to be complete before it serves has no
    router until it is complete.
    """
    seen = {name: counts.observed_counts.get(name, {}) for name in step.keep}
    replicas = routers(intent.groups[keys.ROUTER], counts.wanted[step.keep[-1]], seen) if seen else {}
    more = {moving.revision: moving.extra.get(keys.ROUTER, 0)}
    return {
        name: count + more.get(name, 0) for name, count in replicas.items() if not _hidden(snapshot, intent, name, counts)
    }


def _hidden(snapshot: Snapshot, intent: Intent, revision: str, counts: ReplicaCounts) -> bool:
    """Return whether a new revision must not serve yet, because it has to be complete first and another revision exists. The
    result is False for a revision that has a router already.
    """
    present = snapshot.slices
    if not counts.bounds.whole or revision != intent.target or not present.keys() - {revision}:
        return False
    has = revision in present and any(child.kind == "Deployment" for child in present[revision].workloads)
    return not has and not counts.is_complete(revision)


def _engines(snapshot: Snapshot, intent: Intent, revision: str, held: Held) -> list[Manifest]:
    """Return the StatefulSets of a kept revision, written from the stored templates, and their disruption budgets. A group
    excludes the nodes that were avoided when the group was created, and the nodes that groups had to leave at that time.
    """
    out: list[Manifest] = []
    found = snapshot.slices.get(revision, Slice(revision, (), ()))
    for name, role in intent.roles(revision).items():
        numbers = held[revision, name].numbers
        new = dict.fromkeys(numbers, intent.fit.excluded)
        out += stamp(intent.owner, role, numbers, {**new, **exclusions(name, found)})
        if name in intent.policies:
            allowed = _allowed_disruptions(snapshot, intent.policies[name], len(numbers))
            out.append(scaling.budget(intent.owner, name, revision, allowed))
    return out


def _allowed_disruptions(snapshot: Snapshot, policy: ReplicaPolicy, replicas: int) -> int:
    """Return how many pods of a role may be evicted at the same time. The result is 0 if the operator moves groups of the
    service, because the operator removes such groups itself (decisions 14). `replicas` is its number of groups, or routers.
    """
    return 0 if moves_enabled(snapshot) else scaling.allowed_disruptions(policy, replicas)


def _router(snapshot: Snapshot, intent: Intent, revision: str, held: Held, replicas: int) -> list[Manifest]:
    """Return the router's Deployment of a kept revision, rendered from the present inputs, and its disruption budget."""
    if intent.router is None:
        return []
    leaders = _leaders(snapshot, intent, revision, held) if router.names_leaders(intent.router) else ()
    allowed = _allowed_disruptions(snapshot, intent.policies[keys.ROUTER], replicas)
    return [
        deployment(snapshot, intent, intent.router, revision, replicas, leaders),
        scaling.budget(intent.owner, keys.ROUTER, revision, allowed),
    ]


def _roles(intent: Intent, held: Held, source: str, counts: ReplicaCounts, routed: bool) -> list[RoleProgressSpec]:
    """Return the roles whose progress is measured: the roles of the revision `source`, and the router. The pods of a role
    are counted over all kept revisions.
    """
    roles = intent.roles(source)
    both = keys.DECODER in roles
    kept = dict.fromkeys(revision for revision, _ in held)
    out = []
    for name, role in roles.items():
        sets = [("StatefulSet", one) for revision in kept for one in _sets(intent, held, revision, name)]
        groups = counts.wanted[source][name]
        out.append(RoleProgressSpec(name, role_title(name, both), groups, role.size, tuple(sets)))
    if routed and roles and keys.ROUTER in intent.groups:
        deployments = tuple(("Deployment", names.router(intent.owner.name, revision)) for revision in kept)
        out.append(RoleProgressSpec(keys.ROUTER, keys.ROUTER, intent.groups[keys.ROUTER], 1, deployments))
    return out


def _sets(intent: Intent, held: Held, revision: str, component: str) -> list[str]:
    """Return the names of the StatefulSets of the desired groups of a role of a revision."""
    role = intent.roles(revision).get(component)
    if role is None:
        return []
    return [name for number in held[revision, component].wanted for name in set_names(role, number)]


def _scale_status(
    snapshot: Snapshot, intent: Intent, scaled: Mapping[str, object], far: tuple[RoleProgress, ...]
) -> tuple[ApplyStatus, ...]:
    out = []
    for one in far:
        name = one.role.component
        child = snapshot.controlled("RoleScale", names.component(intent.owner.name, name))
        if name not in scaled or child is None:
            continue
        have = sum(
            pod.rank == 0 and pod.component == name and not pod.deleting
            for found in snapshot.slices.values()
            for pod in found.pods
        )
        status = {
            **scaling.role_scale_status(intent.owner, name, have, min(one.ready_groups, have)),
            "observedGeneration": child.generation,
            "conditions": _scale_conditions(child, one, snapshot.now),
        }
        if child.content != status:
            out.append(ApplyStatus(scaling.with_status(intent.owner, name, status)))
    return tuple(out)


def _scale_conditions(scale: Child, role: RoleProgress, now: datetime) -> list[dict[str, Any]]:
    """Return the conditions of a RoleScale. Their message contains only counts that the status has anyway, so that they
    cause no further writes.
    """
    ready, wanted = min(role.ready_groups, role.role.groups), role.role.groups
    reason = Reason.READY if role.is_complete else Reason.PROGRESSING
    condition = cond.Condition(READY, role.is_complete, reason, f"{ready} of {wanted} groups are ready")
    return cond.format_conditions([condition], (scale.content or {}).get("conditions") or (), scale.generation, now)


def selector(owner: meta.Owner, revision: str) -> str:
    """Return the label selector of the engine pods of this service that belong to any revision except `revision`."""
    mine = meta.requirement(meta.labels(owner.name))
    return f"{mine},{keys.COMPONENT} in ({keys.ENGINE},{keys.DECODER}),{keys.REVISION}!={revision}"
