"""Everything that should exist for a service right now, given which slices are kept."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from ome_operator import keys, names
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Manifest, Observed, Pod
from ome_operator.core.plan import ApplyStatus, Create, EnsureSecret
from ome_operator.core.render import meta, probes, rdma, registry_sidecar, router, scaling, services, ssh
from ome_operator.core.render.pod_template import port
from ome_operator.core.render.statefulsets import Stored, stamp
from ome_operator.core.resolve.inputs import Resolved
from ome_operator.core.rollout.drain import Retained, hold
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.planner import ReplicaCounts, Share, routers
from ome_operator.core.rollout.slices import Slice, own_pods, started
from ome_operator.core.rollout.step import RolloutStep
from ome_operator.core.status.progress import Progress, RoleProgressSpec, progress, title

ROUTER_PORT = 8080


@dataclass(frozen=True)
class Desired:
    """What should exist, and how far it is."""

    manifests: tuple[Manifest, ...]
    create: tuple[Create, ...]
    secrets: tuple[EnsureSecret, ...]
    """Those that pods which are not ready may wait for."""
    scale_status: tuple[ApplyStatus, ...]
    complete: bool
    """False while something needed for rendering is missing: then nothing is pruned."""
    ports: Mapping[str, int]
    front: str
    """The component behind the URL."""
    scales: frozenset[str]
    """Names of the RoleScales that should exist."""
    held: Mapping[tuple[str, str], Retained]
    """(revision, component) -> the groups that it keeps for now, more than wanted while some are drained."""
    progress: tuple[Progress, ...]
    advice: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]
    """(kind, name) of workloads that have fewer pods than they want."""


def desired(
    service: InferenceService,
    resolved: Resolved,
    choice: Intent,
    decision: RolloutStep,
    observed: Observed,
    present: Mapping[str, Slice],
    numbers: ReplicaCounts,
    now: datetime,
    registry_image: str = "",
) -> Desired:
    """The manifests of every kept slice and of what they share; `registry_image` "" for routers without a registry."""
    source = decision.keep[-1] if decision.keep else choice.target
    roles = choice.roles(source)
    ports = _ports(choice, roles)
    pods = own_pods(observed, choice.owner.uid)
    front = _front(choice, ports, observed, pods)
    lives_on = _lives_on(choice, decision, present)
    complete = bool(roles) and _readable(service, resolved, choice) and not lives_on
    scaled = {name: one for name, one in choice.policies.items() if one.scaled and name in roles}
    manifests = _shared(service, choice, ports, front) if complete else []
    held = _held(choice, decision, present, now)
    image = "" if service.annotations.get(keys.REGISTRY) == registry_sidecar.OFF else registry_image
    replicas = _routers(choice, decision, numbers, present) if complete and choice.router is not None else {}
    for revision in decision.keep:
        manifests += _slice(choice, revision, decision.groups[revision], held, replicas.get(revision), image, pods)
    manifests += [scaling.autoscaler(choice.owner, name, one) for name, one in scaled.items() if one.scaler == "hpa"]
    wanted = _roles(choice, decision, source, numbers, routed=not lives_on)
    far = tuple(progress(role, pods, observed.failures) for role in wanted)
    return Desired(
        manifests=tuple(manifests),
        create=_scales(choice, scaled, observed),
        secrets=_secrets(choice, decision, held, pods),
        scale_status=_scale_status(choice, scaled, far, observed, present),
        complete=complete,
        ports=ports,
        front=front,
        scales=frozenset(names.component(choice.owner.name, name) for name in scaled),
        progress=far,
        advice=_advice(choice),
        held=held,
        missing=tuple(key for one in far if one.missing for key in one.role.workloads if key in observed.children),
    )


def _readable(service: InferenceService, resolved: Resolved, choice: Intent) -> bool:
    """Whether the runtime is there, and the router can be made from it where the service names one."""
    return resolved.runtime is not None and (choice.router is not None or service.spec.router is None)


def _lives_on(choice: Intent, decision: RolloutStep, present: Mapping[str, Slice]) -> bool:
    """Whether a slice that runs is kept although the service names other roles by now.

    What stands before such a slice was made for it (prefill and decode need a router, one engine may have none), so its
    router and Services stay as they are until it goes.
    """
    named = choice.policies.keys() - {keys.ROUTER}
    running = (one for one in decision.keep if one in present and started(present[one]))
    return any(choice.roles(one).keys() != named for one in running)


def _shared(service: InferenceService, choice: Intent, ports: Mapping[str, int], front: str) -> list[Manifest]:
    """Services, and what routers need to see pods."""
    manifests = services.services(choice.owner, tuple(ports.items()), front, service.annotations.get(keys.SERVICE_TYPE, ""))
    return manifests + (router.access(choice.owner, choice.router) if choice.router else [])


def _scales(choice: Intent, scaled: Iterable[str], observed: Observed) -> tuple[Create, ...]:
    """The scale objects that are not there yet."""
    out = []
    for name in scaled:
        found = observed.children.get(("RoleScale", names.component(choice.owner.name, name)))
        if found is None or (found.owner != choice.owner.uid and not found.deleting):
            out.append(Create(scaling.role_scale(choice.owner, name, choice.groups[name])))
    return tuple(out)


def _ports(choice: Intent, roles: Mapping[str, Stored]) -> dict[str, int]:
    ports = {name: role.port for name, role in roles.items()}
    if ports and choice.router is not None:
        ports[keys.ROUTER] = port(choice.router.leader["containers"][0], ROUTER_PORT)
    return ports


def _front(choice: Intent, ports: Mapping[str, int], observed: Observed, pods: Iterable[Pod]) -> str:
    """The component behind the URL: an engine that serves keeps it until the first router is ready."""
    wanted = keys.ROUTER if keys.ROUTER in ports else keys.ENGINE
    current = observed.children.get(("Service", choice.owner.name))
    if wanted == keys.ENGINE or keys.DECODER in ports or current is None or current.owner != choice.owner.uid:
        return wanted
    ready = {pod.component for pod in pods if pod.ready and not pod.deleting and pod.rank == 0}
    serves = current.labels.get(keys.COMPONENT) == keys.ENGINE and keys.ENGINE in ready
    return keys.ENGINE if serves and keys.ROUTER not in ready else wanted


def _held(
    choice: Intent, decision: RolloutStep, present: Mapping[str, Slice], now: datetime
) -> dict[tuple[str, str], Retained]:
    """The groups of every kept slice; without a router nobody could take them out of it first."""
    out = {}
    for revision, share in decision.groups.items():
        for name, groups in share.items():
            drains = revision in present and keys.ROUTER in choice.groups
            out[revision, name] = hold(name, groups, present[revision], now) if drains else Retained(groups)
    return out


def _secrets(
    choice: Intent, decision: RolloutStep, held: Mapping[tuple[str, str], Retained], pods: Iterable[Pod]
) -> tuple[EnsureSecret, ...]:
    """The Secrets of kept slices that have not all their pods ready; nobody can look whether they exist."""
    ready = Counter((pod.revision, pod.component) for pod in pods if pod.ready and not pod.deleting)
    out = {}
    for revision in decision.keep:
        for name, role in choice.roles(revision).items():
            found = ssh.secret(choice.owner, role.leader["spec"]["template"])
            if found is not None and ready[revision, name] < held[revision, name].groups * role.size:
                out[found["metadata"]["name"]] = EnsureSecret(found)
    return tuple(out.values())


def _leaders(choice: Intent, revision: str, share: Share, pods: Iterable[Pod]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """For each role of a slice the addresses of its leaders, for a router that does not look for them itself.

    Those that are wanted and ready; all that are wanted while none is, so that one that comes up alone changes nothing.
    """
    ready = {
        (pod.component, pod.group)
        for pod in pods
        if pod.revision == revision and pod.rank == 0 and pod.ready and not pod.deleting and not pod.draining
    }
    out = []
    for name in choice.roles(revision):
        serving = [group for group in range(share[name]) if (name, group) in ready] or range(share[name])
        out.append((name, tuple(meta.address(choice.owner, name, revision, group) for group in serving)))
    return tuple(out)


def _routers(choice: Intent, decision: RolloutStep, numbers: ReplicaCounts, present: Mapping[str, Slice]) -> dict[str, int]:
    """Kept slice -> replicas of its router. Where a slice has to be whole before it serves, it has no router before."""
    seen = {name: numbers.seen.get(name, {}) for name in decision.keep}
    replicas = routers(choice.groups[keys.ROUTER], numbers.wanted[decision.keep[-1]], seen) if seen else {}
    return {name: count for name, count in replicas.items() if not _hidden(name, choice, numbers, present)}


def _hidden(revision: str, choice: Intent, numbers: ReplicaCounts, present: Mapping[str, Slice]) -> bool:
    """Whether a slice that comes up beside another is not to serve yet; one that had a router keeps it."""
    if not numbers.bounds.whole or revision != choice.target or len(present) < 2:
        return False
    has = revision in present and any(child.kind == "Deployment" for child in present[revision].workloads)
    return not has and not numbers.complete(revision)


def _slice(
    choice: Intent,
    revision: str,
    share: Share,
    held: Mapping[tuple[str, str], Retained],
    routers: int | None,
    image: str,
    pods: Iterable[Pod],
) -> list[Manifest]:
    """One kept slice: engines from the store, budgets, and the router as rendered now, unless `routers` is None.

    `image` is that of the router's registry.
    """
    out: list[Manifest] = []
    roles = choice.roles(revision)
    for name, role in roles.items():
        groups = held[revision, name].groups
        out += stamp(choice.owner, role, groups, range(groups))
        if name in choice.policies:
            allowed = scaling.allowed_disruptions(choice.policies[name], groups)
            out.append(scaling.budget(choice.owner, name, revision, allowed))
    if routers is not None and choice.router is not None:
        sidecar = registry_sidecar.sidecar(image, roles)
        leaders = _leaders(choice, revision, share, pods) if router.is_told(choice.router) else ()
        out.append(router.deployment(choice.owner, revision, choice.router, routers, sidecar, leaders))
        allowed = scaling.allowed_disruptions(choice.policies[keys.ROUTER], routers)
        out.append(scaling.budget(choice.owner, keys.ROUTER, revision, allowed))
    return out


def _roles(
    choice: Intent, decision: RolloutStep, source: str, numbers: ReplicaCounts, routed: bool
) -> list[RoleProgressSpec]:
    """What progress is measured against: the roles of the slice that serves or comes, and the router; over all slices."""
    roles = choice.roles(source)
    both = keys.DECODER in roles
    out = []
    for name, role in roles.items():
        sets = [("StatefulSet", one) for revision in decision.keep for one in _sets(choice, decision, revision, name)]
        groups = numbers.wanted[source][name]
        out.append(RoleProgressSpec(name, title(name, both), groups, role.size, tuple(sets)))
    if routed and roles and keys.ROUTER in choice.groups:
        deployments = tuple(("Deployment", names.router(choice.owner.name, revision)) for revision in decision.keep)
        out.append(RoleProgressSpec(keys.ROUTER, keys.ROUTER, choice.groups[keys.ROUTER], 1, deployments))
    return out


def _sets(choice: Intent, decision: RolloutStep, revision: str, component: str) -> list[str]:
    """Names of the StatefulSets of a role of a slice."""
    role = choice.roles(revision).get(component)
    if role is None:
        return []
    groups = range(decision.groups[revision][component]) if role.worker is not None else ()
    workers = [names.worker(choice.owner.name, component, revision, group) for group in groups]
    return [names.leader(choice.owner.name, component, revision), *workers]


def _scale_status(
    choice: Intent,
    scaled: Mapping[str, object],
    far: tuple[Progress, ...],
    observed: Observed,
    present: Mapping[str, Slice],
) -> tuple[ApplyStatus, ...]:
    out = []
    for one in far:
        name = one.role.component
        child = observed.children.get(("RoleScale", names.component(choice.owner.name, name)))
        if name not in scaled or child is None or child.owner != choice.owner.uid:
            continue
        have = sum(
            pod.rank == 0 and pod.component == name and not pod.deleting for each in present.values() for pod in each.pods
        )
        wanted = scaling.role_scale_status(choice.owner, name, have, min(one.ready_groups, have))
        if child.content != wanted["status"]:
            out.append(ApplyStatus(wanted))
    return tuple(out)


def _advice(choice: Intent) -> tuple[str, ...]:
    said = list(choice.advice)
    for name, one in choice.policies.items():
        said += scaling.advice(name, one, choice.groups[name])
    data = choice.data.get(choice.target) or {}
    said += data.get("dropped") or ()
    for part in (data.get("workloads") or {}).values():
        template = part["leader"]["spec"]["template"]
        boxes = [one["name"] for one in template["spec"]["containers"]]
        said += rdma.advice(template["metadata"].get("annotations") or {}, boxes)
        said += ssh.advice(template)
        if part["worker"]:
            said += probes.advice(part["worker"]["spec"]["template"]["spec"])
    return tuple(dict.fromkeys(one for one in said if one))


def selector(owner: meta.Owner, revision: str) -> str:
    """Engine pods of this service that belong to another revision."""
    mine = meta.requirement(meta.labels(owner.name))
    return f"{mine},{keys.COMPONENT} in ({keys.ENGINE},{keys.DECODER}),{keys.REVISION}!={revision}"
