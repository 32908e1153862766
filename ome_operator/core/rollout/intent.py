"""Determine the desired revision and whether its rollout may start: every condition that has to hold before any group is
removed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core import compile_caches
from ome_operator.core.group_numbers import existing_groups
from ome_operator.core.observed.objects import Deps, Epoch, Manifest, Ref
from ome_operator.core.placement.capacity_check import UNASKED, Fitting, choose_exclusions
from ome_operator.core.podspec import queues
from ome_operator.core.podspec.compose import ComposedPods, compose
from ome_operator.core.problem import Problem, ProblemError
from ome_operator.core.reasons import ROUTER_READY, RUNTIME_READY, Reason
from ome_operator.core.reconcile.plan import CapacityCheck, Check
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render import meta
from ome_operator.core.render.router import traces_refusal
from ome_operator.core.render.statefulsets import Defaults, StoredRole, gpus, roles_by_component
from ome_operator.core.resolve import new_scaling
from ome_operator.core.resolve.finetuned import mounted_weights
from ome_operator.core.resolve.inputs import ResolvedService
from ome_operator.core.resolve.scaling import ReplicaPolicy, replica_policy
from ome_operator.core.rollout import target, validation, zero
from ome_operator.core.rollout.applied import applied_groups, role_scale, stored_groups
from ome_operator.core.rollout.revisions import RevisionLedger, record
from ome_operator.core.rollout.step import OPEN, RolloutGate
from ome_operator.core.rollout.strategy import Strategy, strategy
from ome_operator.core.rollout.target import TargetRevision
from ome_operator.core.traces import collector as traces_collector
from ome_operator.core.waves import shared_edits
from ome_operator.core.weights import mount
from ome_operator.core.weights.availability import Availability, availability
from ome_operator.util.memoize import memoize_by_identity


class ImagePulls(NamedTuple):
    """The Jobs that pull the images of the target onto nodes before its rollout (`image_pulls.py`)."""

    create: tuple[Manifest, ...] = ()
    """The Jobs to create now."""
    active: int = 0
    """Number of the service's Jobs that have not ended, including those in `create`."""
    again: float | None = None
    """Seconds until the next pass is needed; None if no Job is waited for."""


NO_PULLS = ImagePulls()


@dataclass(frozen=True)
class Intent:
    """The desired revision, and the conditions that keep its rollout from starting."""

    owner: meta.Owner
    resolved: ResolvedService
    """The service with the present versions of the objects that it refers to."""
    aim: TargetRevision
    ledger: RevisionLedger
    problems: tuple[Problem, ...]
    advice: tuple[str, ...]
    """Sentences of the condition Advice about settings of the service."""
    router: ComposedPods | None
    """The router rendered from the present runtime; None if the service has no router, or while the router cannot be
    rendered."""
    policies: Mapping[str, ReplicaPolicy]
    """Replica counts by component, for the components in the spec of the service."""
    groups: Mapping[str, int]
    """Number of desired groups by component; for the router, the number of replicas."""
    held: Availability | None
    """How many nodes hold the weights of the desired revision; None while no revision is stored."""
    strategy: Strategy
    epochs: Mapping[Ref, Epoch] = field(default_factory=dict)
    """The epochs of the objects that the desired revision shares with other services and whose edits are rolled out to this
    service; empty if the spec pins a revision."""
    fit: Fitting = UNASKED
    """The result of the capacity check: whether nodes have capacity for the revision."""
    gate: RolloutGate = OPEN
    warnings: tuple[str, ...] = ()
    """Sentences of the condition Advice about the answers of the API server to the dry run of the revision."""
    check: tuple[Check, ...] = ()
    """The dry run that the gate waits for; () if the gate waits for no dry run."""
    capacity_checks: tuple[CapacityCheck, ...] = ()
    """The live read of free capacity that the gate waits for; () if the gate waits for no read."""
    pulls: ImagePulls = NO_PULLS

    @property
    def target(self) -> str:
        """Name of the desired revision; "" if there is none."""
        return self.aim.revision

    @property
    def data(self) -> Mapping[str, Mapping[str, Any]]:
        """The stored data of each revision, including the target."""
        return self.ledger.data

    @property
    def current(self) -> bool:
        """Whether the newest revision was made from the present versions of the objects that the service refers to."""
        return self.resolved.inputs is not None and not self.ledger.problems

    def roles(self, revision: str) -> Mapping[str, StoredRole]:
        """Return the stored templates of a revision by role."""
        return roles_by_component(self.data.get(revision) or {})

    @property
    def gpus(self) -> Mapping[str, int]:
        """Number of GPUs of one group of each component of the desired revision; {} if no revision is desired."""
        return {name: gpus(role) for name, role in self.roles(self.target).items()}

    def collector(self, revision: str) -> str:
        """Return the address to which the router of a revision sends its spans; "" if the router sends no spans."""
        inputs = (self.data.get(revision) or {}).get("inputs") or {}
        return traces_collector.of_router(inputs, *self.resolved.router) if self.resolved.router is not None else ""


def choose(snapshot: Snapshot, resolved: ResolvedService) -> Intent:
    """Return the desired revision and what its rollout waits for. A revision that is not stored yet is stored in this
    pass.
    """
    service = snapshot.service
    owner = meta.Owner(service.name, service.namespace, service.uid)
    refused = partial(validation.refusal, snapshot, owner, resolved)
    stored, policy = snapshot.revisions, snapshot.deps.policy
    defaults = Defaults(policy.preflight, compile_caches.root(policy))
    directories, unusable = _directories(snapshot, resolved), snapshot.restored_revisions
    ledger = record(owner, resolved.inputs, stored, directories, resolved.labels, defaults, refused, unusable)
    aim = target.find_target(service, ledger.numbers)
    policies = _policies(service, resolved)
    groups = {component: _groups(snapshot, component, counts) for component, counts in policies.items()}
    router, about_router = _router(service, resolved)
    wanted = ledger.data.get(aim.revision)
    asked = strategy(service, resolved.runtime)
    # If the user pins a revision, a refused edit is not rolled out anyway. It becomes advice, so that the user knows of it.
    refusals = [problem for problem in ledger.problems if aim.pin and problem.reason == Reason.CONFIGURATION_REFUSED]
    stops = [problem for problem in ledger.problems if problem not in refusals]
    waits = [f"the edit that waits because of the pin: {problem.message}" for problem in refusals]
    intent = Intent(
        owner=owner,
        resolved=resolved,
        aim=aim,
        ledger=ledger,
        problems=(*resolved.problems, *stops, *aim.problems, *about_router),
        advice=(*resolved.advice, *asked.advice, *waits),
        router=router,
        policies=policies,
        groups=groups,
        held=_held(wanted, groups, snapshot.deps) if wanted is not None else None,
        strategy=asked,
        epochs=_epochs(snapshot, resolved, aim, ledger),
    )
    if wanted is None:
        return intent
    enough = intent.held is None or intent.held.has_enough_nodes
    fit = choose_exclusions(snapshot, ledger.data, aim.revision, groups, enough)
    intent = replace(intent, fit=fit, advice=(*intent.advice, *fit.advice, *_untraced(intent)))
    if snapshot.has_engines(aim.revision):
        return replace(intent, gate=_no_capacity(intent)) if fit.held else intent
    gate = _gate(snapshot, intent)
    return intent if gate is OPEN else replace(intent, gate=gate)


def _untraced(intent: Intent) -> tuple[str, ...]:
    """Return why the router of the desired revision sends no spans although the user asked for spans; () if there is no
    such reason.
    """
    if intent.router is None or not intent.collector(intent.target):
        return ()
    why = traces_refusal(intent.router)
    return (why,) if why else ()


def _epochs(snapshot: Snapshot, resolved: ResolvedService, aim: TargetRevision, ledger: RevisionLedger) -> dict[Ref, Epoch]:
    """Return the epochs of the shared objects. The result is empty if the service pins a revision, because no edit of a
    shared object reaches the service then.
    """
    wish = ledger.data.get(aim.wish)
    if aim.pin or wish is None:
        return {}
    keeps = [part for part, drift in resolved.drift.items() if drift is not None]
    return shared_edits.epochs(shared_edits.shared_by(wish["inputs"], keeps), snapshot.deps)


def _directories(snapshot: Snapshot, resolved: ResolvedService) -> list[str]:
    """Return the directory on the nodes for each of the weights in the present inputs.

    A revision of an older operator does not store the source of its weights. If the service still uses weights of such a
    revision, their directory is the one that the revision stores. For all other weights, it is the directory that agents
    create now.
    """
    deps, today = snapshot.deps, mounted_weights(resolved.inputs or {})
    former: list[tuple[Mapping[str, str], str]] = []
    if deps.policy.model_agent and any(
        mount.SOURCE not in weights for weights in today if mount.agents_can_download(weights["uri"])
    ):
        for stored in snapshot.revisions:
            former += mount.with_directories(
                mounted_weights(stored.data.get("inputs") or {}), mount.directories(stored.data)
            )
    kept = [next((where for known, where in former if where and known == weights), "") for weights in today]
    made = [mount.directory(weights, deps.policy.model_agent, deps.policy.agent_roots) for weights in today]
    return [before or now for before, now in zip(kept, made, strict=True)]


def _policies(service: InferenceService, resolved: ResolvedService) -> dict[str, ReplicaPolicy]:
    found = {
        component: replica_policy(service, resolved.runtime, component)
        for component in (keys.ENGINE, keys.DECODER, keys.ROUTER)
        if getattr(service.spec, component) is not None
    }
    return new_scaling.mark_waiting_autoscalers(service, found)


def _groups(snapshot: Snapshot, component: str, counts: ReplicaPolicy) -> int:
    """Return the desired number of groups of a component or, for the router, of replicas. It is the number that the class
    Demand has decided, or otherwise the number of the component's RoleScale, limited to the range from minReplicas to
    maxReplicas.

    If neither number exists, the number of existing groups is used and limited to the same range. The reason is that a
    backup may have been restored without the RoleScale, or that the RoleScale may be restored later. After a request has
    woken the service, its groups are kept for a while even if the RoleScale requests none.

    A component of the class Demand without a maximum keeps the last number that the class has decided, and has at least
    minReplicas.
    """
    if not counts.is_scaled:
        last = stored_groups(snapshot.service.status).get(component, 0) if counts.unbounded else 0
        return max(last, counts.low)
    asked = applied_groups(snapshot, component)
    if asked is None:
        scale = role_scale(snapshot, component)
        asked = scale.replicas if scale is not None else _present(snapshot, component)
    if not asked:
        service = snapshot.service
        asked = zero.kept_groups(zero.stored_zero(service), component, wakes=zero.asks_to_wake(service), now=snapshot.now)
    return min(max(asked, counts.low), max(counts.high, counts.low))


def _present(snapshot: Snapshot, component: str) -> int:
    """Return the largest number of groups of a component that any revision has or, for the router, the number of replicas of
    the largest Deployment. The numbers are not added up over revisions, because during a rollout a group may exist in two
    revisions.
    """
    slices = (*snapshot.slices.values(), *snapshot.unusable_slices)
    if component == keys.ROUTER:
        workloads = (child for found in slices for child in found.workloads)
        return max((child.replicas for child in workloads if child.kind == "Deployment"), default=0)
    return max((len(existing_groups(component, found)) for found in slices), default=0)


def _router(service: InferenceService, resolved: ResolvedService) -> tuple[ComposedPods | None, tuple[Problem, ...]]:
    if resolved.router is None:
        return None, ()
    try:
        made = _composed(keys.ROUTER, *resolved.router)
        return _queued(made, tuple(queues.queue_annotations(service.annotations).items())), ()
    except ProblemError as error:
        return None, (error.problem,)


_composed = memoize_by_identity(1024)(compose)
_queued = memoize_by_identity(1024)(queues.with_queue)


def _held(data: Mapping[str, Any], groups: Mapping[str, int], deps: Deps) -> Availability:
    return availability(mounted_weights(data["inputs"]), _sizes(data, groups), deps, mount.directories(data))


def _sizes(data: Mapping[str, Any], groups: Mapping[str, int]) -> list[tuple[int, int]]:
    return [(groups.get(name, 1), role.size) for name, role in roles_by_component(data).items()]


def _gate(snapshot: Snapshot, intent: Intent) -> RolloutGate:
    """Return the gate of the target revision: open, or closed with the reason. Missing weights and missing capacity close
    the gate only if the target would replace another revision. The dry run is made later (`dry_run.with_dry_run`).
    """
    target, here = intent.target, intent.held
    if problems := _blocking(snapshot.service, intent):
        return RolloutGate(problems[0].reason, f"revision {target} waits: {problems[0].message}")
    if intent.strategy.paused:
        return RolloutGate(Reason.PAUSED, f"revision {target} waits: spec.rollout.paused is true")
    if not snapshot.slices.keys() - {target}:
        return OPEN
    if here is not None and not here.has_enough_nodes:
        return RolloutGate(
            Reason.WAITING_FOR_MODEL, f"revision {target} waits for its weights: {here.sentence}; {here.remedy}"
        )
    if intent.fit.held:
        return _no_capacity(intent)
    return OPEN


def _no_capacity(intent: Intent) -> RolloutGate:
    return RolloutGate(
        Reason.DOES_NOT_FIT,
        (f"revision {intent.target} does not fit on the nodes, and the serving revision stays: {intent.fit.sentence}"),
    )


def _blocking(service: InferenceService, intent: Intent) -> tuple[Problem, ...]:
    """Return the problems that keep the rollout of the target from starting.

    The engines of a stored revision are stored with it, so problems of the present model or runtime do not prevent a
    rollback. Only the router is rendered from the present runtime. If the present configuration was refused, the preceding
    revision is the target, and the refusal does not block its rollout.
    """
    if not intent.aim.is_named:
        return tuple(problem for problem in intent.problems if problem.reason != Reason.CONFIGURATION_REFUSED)
    routerless = service.spec.router is not None and intent.router is None
    grave = {ROUTER_READY, RUNTIME_READY} if routerless else {ROUTER_READY}
    return tuple(problem for problem in intent.problems if problem.condition in grave)
