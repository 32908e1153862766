"""Which revision a service wants, and whether it may start: everything that has to hold before anything is taken down."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.cached import by_identity
from ome_operator.facts import Deps, Manifest, Observed
from ome_operator.names import digest
from ome_operator.plan import Check
from ome_operator.render import meta
from ome_operator.render.workloads import RENDER, Stored, stamp, stored, workloads
from ome_operator.resolve import weights
from ome_operator.resolve.compose import Composed, compose
from ome_operator.resolve.finetuned import mounted
from ome_operator.resolve.holders import Held, held
from ome_operator.resolve.inputs import Resolved
from ome_operator.resolve.policy import Policy, policy
from ome_operator.resolve.problem import Problem, ProblemError
from ome_operator.rollout import revisions
from ome_operator.rollout.decide import CHECKING, OPEN, Gate
from ome_operator.rollout.slices import Slice, started


@dataclass(frozen=True)
class Choice:
    """The wanted revision and what stands before it."""

    owner: meta.Owner
    target: str
    """Name of the wanted revision, "" when there is none."""
    data: Mapping[str, Mapping[str, Any]]
    """Revision name -> what its ControllerRevision stores, the target's included."""
    known: tuple[revisions.Revision, ...]
    record: tuple[Manifest, ...]
    """ControllerRevisions to write before anything else."""
    gate: Gate
    check: tuple[Check, ...]
    problems: tuple[Problem, ...]
    advice: tuple[str, ...]
    router: Composed | None
    policies: Mapping[str, Policy]
    """Component -> counts; only components that the service names."""
    groups: Mapping[str, int]
    """Component -> wanted groups (router: replicas)."""
    held: Held | None

    def roles(self, revision: str) -> dict[str, Stored]:
        """The stored roles of a revision."""
        return stored(self.data.get(revision) or {})


def choose(
    service: InferenceService,
    resolved: Resolved,
    deps: Deps,
    observed: Observed,
    present: Mapping[str, Slice],
    known: list[revisions.Revision],
) -> Choice:
    """Decide which revision is wanted, record it if it is not `known`, and say what it waits for."""
    owner = meta.Owner(service.name, service.namespace, service.uid)
    directory = weights.directory(resolved.inputs["model"], deps.model_agent) if resolved.inputs else ""
    target, record, data, found = _target(service, owner, resolved, known, directory)
    policies = {
        name: policy(service, resolved.runtime, name)
        for name in (keys.ENGINE, keys.DECODER, keys.ROUTER)
        if getattr(service.spec, name) is not None
    }
    groups = {name: _groups(name, one, observed, service) for name, one in policies.items()}
    router, about_router = _router(resolved)
    problems = (*resolved.problems, *found, *about_router)
    here = _held(data[target], groups, deps) if target else None
    gate: Gate = OPEN
    check: tuple[Check, ...] = ()
    if target and not (target in present and started(present[target])):
        grave = _blocking(service, target, problems, router)
        gate, check = _gate(service, owner, target, data[target], groups, grave, here, observed, present)
    return Choice(
        owner, target, data, tuple(known), record, gate, check, problems, resolved.advice, router, policies, groups, here
    )


def _target(
    service: InferenceService, owner: meta.Owner, resolved: Resolved, known: list[revisions.Revision], directory: str
) -> tuple[str, tuple[Manifest, ...], dict[str, Mapping[str, Any]], tuple[Problem, ...]]:
    """(wanted revision, ControllerRevisions to write, data per revision, problems)."""
    data: dict[str, Mapping[str, Any]] = {one.name: one.data for one in known}
    newest = known[-1].name if known else ""
    record: tuple[Manifest, ...] = ()
    problems: tuple[Problem, ...] = ()
    if resolved.inputs is not None:
        matched = revisions.match(resolved.inputs, known)
        number = (known[-1].number if known else 0) + 1
        if matched is None:
            name = revisions.name_of(resolved.inputs, known)
            new, problems = _render(owner, name, resolved.inputs, directory)
            if new is not None:
                data[name], newest = new, name
                record = (revisions.manifest(owner, name, number, new),)
        elif matched.name != newest:  # back to an older revision: it becomes the newest again
            newest = matched.name
            record = (revisions.manifest(owner, matched.name, number, matched.data),)
    recorded = {one["metadata"]["name"] for one in record}
    record += tuple(  # orphans are adopted by applying them again
        revisions.manifest(owner, one.name, one.number, one.data)
        for one in known
        if not one.child.owner and one.child.name not in recorded
    )
    pin = _pin(service)
    if pin and pin not in data:
        kept = ", ".join(sorted(data)) or "none"
        said = f"spec.rollout.revision {pin} is not kept (kept: {kept}): name one of them, or remove the pin"
        return newest, record, data, (*problems, Problem("RolledOut", "RevisionNotFound", said))
    return pin or newest, record, data, problems


def _pin(service: InferenceService) -> str:
    return (service.spec.rollout.revision if service.spec.rollout else None) or ""


def _blocking(
    service: InferenceService, target: str, problems: tuple[Problem, ...], router: Composed | None
) -> tuple[Problem, ...]:
    """The problems that keep the target from starting.

    A pinned revision has its engines from the store, so what is wrong with today's model or runtime keeps nobody from going
    back to it; only the router is made from today's runtime.
    """
    if _pin(service) != target:
        return problems
    routerless = service.spec.router is not None and router is None
    grave = {"RouterReady", "RuntimeReady"} if routerless else {"RouterReady"}
    return tuple(one for one in problems if one.condition in grave)


def _render(
    owner: meta.Owner, name: str, inputs: Manifest, directory: str
) -> tuple[Manifest | None, tuple[Problem, ...]]:
    try:
        roles, dropped = workloads(owner.name, owner.namespace, name, inputs, directory)
    except ProblemError as error:
        return None, (error.problem,)
    data: Manifest = {"inputs": inputs, "render": RENDER, "workloads": roles}
    if directory:  # not of the inputs: where weights lie on nodes must roll nothing
        data["directory"] = directory
    if dropped:
        data["dropped"] = list(dropped)
    size = revisions.size(data)
    if size > revisions.SIZE_LIMIT:
        said = (
            f"engine and decoder render to {size:,} bytes, more than the {revisions.SIZE_LIMIT:,} that a revision may "
            "hold: move large values (chat templates, configuration files) to a ConfigMap and mount it"
        )
        return None, (Problem("EngineReady", "RevisionTooLarge", said),)
    return data, ()


def _groups(component: str, one: Policy, observed: Observed, service: InferenceService) -> int:
    """Wanted groups: what the scale object says within the bounds, or minReplicas."""
    if component == keys.ROUTER or not one.scaled:
        return one.low
    scale = observed.children.get(("RoleScale", f"{service.name}-{component}"))
    if scale is None or scale.owner != service.uid:
        return one.low
    return min(max(scale.replicas, one.low), max(one.high, one.low))


def _router(resolved: Resolved) -> tuple[Composed | None, tuple[Problem, ...]]:
    if resolved.router is None:
        return None, ()
    try:
        return _composed(keys.ROUTER, *resolved.router), ()
    except ProblemError as error:
        return None, (error.problem,)


_composed = by_identity(1024)(compose)


def _held(data: Mapping[str, Any], groups: Mapping[str, int], deps: Deps) -> Held:
    return held(mounted(data["inputs"]), _sizes(data, groups), deps, data.get("directory", ""))


def _sizes(data: Mapping[str, Any], groups: Mapping[str, int]) -> list[tuple[int, int]]:
    return [(groups.get(name, 1), role.size) for name, role in stored(data).items()]


def _gate(
    service: InferenceService,
    owner: meta.Owner,
    target: str,
    data: Mapping[str, Any],
    groups: Mapping[str, int],
    problems: tuple[Problem, ...],
    here: Held | None,
    observed: Observed,
    present: Mapping[str, Slice],
) -> tuple[Gate, tuple[Check, ...]]:
    """What the target waits for. Model nodes and the dry run count only when something that works would be replaced."""
    if problems:
        return Gate(problems[0].reason, f"revision {target} waits: {problems[0].message}"), ()
    if service.spec.rollout and service.spec.rollout.paused:
        return Gate("Paused", f"revision {target} waits: spec.rollout.paused is true"), ()
    if not any(name != target for name in present):
        return OPEN, ()
    if here is not None and not here.enough:
        said = f"revision {target} waits for its model on {here.need} nodes: {here.have} hold it"
        return Gate("WaitingForModel", said), ()
    manifests = tuple(
        manifest
        for name, role in stored(data).items()
        for manifest in stamp(owner, role, groups.get(name, 1), range(min(1, groups.get(name, 1))))
    )
    key = f"{target}.{digest(manifests)}"
    answer = observed.checks.get(key)
    if answer is None:
        return Gate(CHECKING, f"revision {target}: dry run of its workloads"), (Check(key, manifests),)
    if answer:
        return Gate("DryRunRefused", f"revision {target} was refused by the API server: {answer}"), ()
    return OPEN, ()
