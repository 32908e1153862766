"""The wanted revision and whether it may start: everything that has to hold before anything is taken down."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.plan import Check
from ome_operator.core.podspec.compose import Composed, compose
from ome_operator.core.problem import Problem, ProblemError
from ome_operator.core.render import meta
from ome_operator.core.render.statefulsets import Stored, stamp, stored
from ome_operator.core.resolve.finetuned import mounted
from ome_operator.core.resolve.inputs import Resolved
from ome_operator.core.resolve.scaling import Policy, policy
from ome_operator.core.rollout import revisions, target
from ome_operator.core.rollout.record import RevisionLedger, record
from ome_operator.core.rollout.slices import Slice, started
from ome_operator.core.rollout.step import CHECKING, OPEN, Gate
from ome_operator.core.rollout.strategy import Strategy, strategy
from ome_operator.core.rollout.target import Target
from ome_operator.core.weights import mount
from ome_operator.core.weights.availability import Availability, held
from ome_operator.names import digest
from ome_operator.util.memoize import memoize_by_identity


@dataclass(frozen=True)
class Intent:
    """The wanted revision and what stands before it."""

    owner: meta.Owner
    aim: Target
    known: tuple[revisions.Revision, ...]
    record: RevisionLedger
    gate: Gate
    check: tuple[Check, ...]
    problems: tuple[Problem, ...]
    advice: tuple[str, ...]
    router: Composed | None
    policies: Mapping[str, Policy]
    """Component -> counts; only components that the service names."""
    groups: Mapping[str, int]
    """Component -> wanted groups (router: replicas)."""
    held: Availability | None
    strategy: Strategy

    @property
    def target(self) -> str:
        """Name of the wanted revision, "" when there is none."""
        return self.aim.revision

    @property
    def data(self) -> Mapping[str, Mapping[str, Any]]:
        """Revision name -> what its ControllerRevision stores, the target's included."""
        return self.record.data

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
) -> Intent:
    """Decide which revision is wanted, record it if it is not `known`, and say what it waits for."""
    owner = meta.Owner(service.name, service.namespace, service.uid)
    directories = [mount.directory(one, deps.model_agent) for one in mounted(resolved.inputs or {})]
    kept = record(owner, resolved.inputs, known, directories)
    aim = target.of(service, kept.numbers)
    policies = {
        name: policy(service, resolved.runtime, name)
        for name in (keys.ENGINE, keys.DECODER, keys.ROUTER)
        if getattr(service.spec, name) is not None
    }
    groups = {name: _groups(name, one, observed, service) for name, one in policies.items()}
    router, about_router = _router(resolved)
    problems = (*resolved.problems, *kept.problems, *aim.problems, *about_router)
    wanted = kept.data.get(aim.revision)
    here = _held(wanted, groups, deps) if wanted is not None else None
    asked = strategy(service, resolved.runtime)
    advice = (*resolved.advice, *asked.advice)
    gate: Gate = OPEN
    check: tuple[Check, ...] = ()
    if wanted is not None and not (aim.revision in present and started(present[aim.revision])):
        grave = _blocking(service, aim, problems, router)
        gate, check = _gate(service, owner, aim.revision, wanted, groups, grave, here, observed, present)
    return Intent(owner, aim, tuple(known), kept, gate, check, problems, advice, router, policies, groups, here, asked)


def _blocking(
    service: InferenceService, aim: Target, problems: tuple[Problem, ...], router: Composed | None
) -> tuple[Problem, ...]:
    """The problems that keep the target from starting.

    A revision that is taken from the store has its engines, so what is wrong with today's model or runtime keeps nobody from
    going back to it; only the router is made from today's runtime.
    """
    if not aim.named:
        return problems
    routerless = service.spec.router is not None and router is None
    grave = {"RouterReady", "RuntimeReady"} if routerless else {"RouterReady"}
    return tuple(one for one in problems if one.condition in grave)


def _groups(component: str, one: Policy, observed: Observed, service: InferenceService) -> int:
    """Wanted groups: what the scale object says within the bounds, or minReplicas."""
    if component == keys.ROUTER or not one.scaled:
        return one.low
    scale = observed.children.get(("RoleScale", f"{service.name}-{component}"))
    if scale is None or scale.owner not in ("", service.uid):  # one without an owner is an orphan, and about to be ours
        return one.low
    return min(max(scale.replicas, one.low), max(one.high, one.low))


def _router(resolved: Resolved) -> tuple[Composed | None, tuple[Problem, ...]]:
    if resolved.router is None:
        return None, ()
    try:
        return _composed(keys.ROUTER, *resolved.router), ()
    except ProblemError as error:
        return None, (error.problem,)


_composed = memoize_by_identity(1024)(compose)


def _held(data: Mapping[str, Any], groups: Mapping[str, int], deps: Deps) -> Availability:
    directories = data.get("directories") or [data.get("directory", "")]  # of the model alone, in the beginning
    return held(mounted(data["inputs"]), _sizes(data, groups), deps, directories)


def _sizes(data: Mapping[str, Any], groups: Mapping[str, int]) -> list[tuple[int, int]]:
    return [(groups.get(name, 1), role.size) for name, role in stored(data).items()]


def _gate(
    service: InferenceService,
    owner: meta.Owner,
    target: str,
    data: Mapping[str, Any],
    groups: Mapping[str, int],
    problems: tuple[Problem, ...],
    here: Availability | None,
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
