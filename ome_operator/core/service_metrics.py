"""Compute the metrics of a single service from its stored status and its pods. The metrics of all services are computed from
them.

Every label value is from a known set; any other value is replaced by `Other`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from ome_operator import keys, quantity
from ome_operator.core.demand.holds import SURPLUS
from ome_operator.core.demand.task import APPLY
from ome_operator.core.observed.objects import Pod
from ome_operator.core.reasons import (
    ADVICE,
    CONDITION,
    FOLLOWS_DEMAND,
    MOVED,
    READY,
    ROLLED_OUT,
    SCALED,
    TRANSFERS_WORK,
    Reason,
)
from ome_operator.core.reasons import REASONS as KNOWN_REASONS
from ome_operator.core.recovery import failure, record
from ome_operator.core.recovery.start import PARTS as GROUP_PARTS
from ome_operator.core.render.statefulsets import StoredRole, gpus

OTHER = "Other"
_OF_PODS = """
Completed ContainerStatusUnknown CreateContainerConfigError CreateContainerError DeadlineExceeded DeletionByPodGC
DeletionByTaintManager Disrupted ErrImageNeverPull Error Evicted EvictionByEvictionAPI FailedCreatePodSandBox
ImageInspectError InvalidImageName NodeAffinity NodeShutdown OOMKilled OutOfcpu OutOfmemory PostStartHookError
PreemptionByScheduler Preempting RegistryUnavailable RunContainerError SchedulingGated StartError TerminationByKubelet
UnexpectedAdmissionError
"""
"""Reasons of the kubelet, the scheduler and the Kubernetes controllers that conditions and failures may contain."""
_OF_GROUPS = (failure.DELETED, failure.REPLACED, failure.MISSING, failure.HUNG, failure.QUIET, failure.LATE, failure.DRIFTED)
REASONS = frozenset((*_OF_PODS.split(), *_OF_GROUPS, *KNOWN_REASONS))
_FAILED = frozenset(record.PHASES) - {record.PENDING, record.HELD, record.STARTING, record.READY}
PARTS = ("weights", "nodes", "images", "start", "warmup")
"""The parts of the start of a service, each of which begins when the preceding part ends.

* weights: until the first pod of an engine exists. Pods are created only after enough nodes hold the weights.
* nodes: until the last pod has a node.
* images: until the last main container starts. Before that, volumes are mounted, images are pulled, and init containers run.
* start: until the last engine is ready.
* warmup: until the service is Ready with all of its groups, and with a ready router if it has routers.
"""


class RecycledGroup(NamedTuple):
    """The number of recycles of a group, the reason of its last failure, and the node of its leader."""

    times: int
    reason: str
    node: str


class ServiceFigures(NamedTuple):
    """The numbers and states that a service contributes to the metrics."""

    ready: tuple[str, str]
    """Status and reason of the condition Ready."""
    is_complete: bool
    """Whether the service is Ready and all of its desired groups are ready."""
    advice: str
    """Reason of the condition Advice; "" if the service has no such condition."""
    follows: str
    """Reason of the condition FollowsDemand; "" if the service has no such condition."""
    surplus_reason: str
    """Reason (`HoldReason`) why the service, in the mode Apply, keeps more groups than its demand needs; "" if it does not
    keep more groups, or has another mode."""
    moved_reason: str
    """Reason of the condition Moved; "" if no group has to leave its node."""
    transfers_fail: bool
    """Whether transfers between prefill and decode groups fail."""
    groups: Mapping[tuple[str, str], int]
    """Number of groups by role and phase."""
    waiting: Mapping[tuple[str, str], int]
    """Number of groups that are not created because they wait for nodes, by role and by the reason of the role's
    condition."""
    step: str
    """The reason why the rollout is not complete; "" if it is complete."""
    stepped: str
    """Time since which the rollout is incomplete, in RFC 3339; "" if it is complete."""
    waits: str
    """Time since which groups wait for nodes, in RFC 3339; "" if no group waits."""
    wanted: int
    """Number of GPUs of all desired groups."""
    held: int
    """Number of GPUs that pods on nodes hold."""
    wasted: int
    """Number of GPUs that are held by groups that serve no requests."""
    starts: Mapping[str, tuple[str, float, Mapping[str, float]]]
    """Maps the name of each group to its last start: the time at which the leader was ready, the duration in seconds, and
    the seconds of each known part. A group that was never ready is left out, because its record shows the start of another
    group."""
    recycled: Mapping[str, RecycledGroup]
    """The recycles of each group that was recycled, by the name of the group."""
    was_whole: bool
    """Whether any revision has ever been complete."""
    complete_at: str
    """Time since which the service is `is_complete`, in RFC 3339; "" while it is not."""


def service_figures(status: Mapping[str, Any], pods: Iterable[Pod], roles: Mapping[str, StoredRole]) -> ServiceFigures:
    """Return the numbers and states that a service contributes to the metrics. `roles` contains the stored roles of its
    desired revision; `roles` is {} while no revision is stored.
    """
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    ready, rolled = conditions.get(READY) or {}, conditions.get(ROLLED_OUT) or {}
    components: Mapping[str, Any] = status.get("components") or {}
    split, records = keys.DECODER in components, record.parse_records(status).values()
    broken = {(each.component, each.revision, each.index) for each in records if _fails(each)}
    held = [pod for pod in pods if pod.node and not pod.over and pod.gpus]
    placement: Mapping[str, Any] = status.get("placement") or {}
    waiting: dict[str, int] = {} if placement.get("trying") else placement.get("waiting") or {}
    rolling = bool(rolled) and rolled.get("status") != "True" and not _scales(rolled, components)
    scaled = conditions.get(SCALED) or ready  # a service without pods has no condition Scaled
    complete = ready.get("status") == scaled.get("status") == "True"
    since = max((str(each.get("lastTransitionTime") or "") for each in (ready, scaled)), default="")
    return ServiceFigures(
        ready=(_word(ready.get("status") or "Unknown", ("True", "False", "Unknown")), _known(ready.get("reason"))),
        is_complete=complete,
        advice=_known(conditions[ADVICE].get("reason")) if ADVICE in conditions else "",
        follows=_known(conditions[FOLLOWS_DEMAND].get("reason")) if FOLLOWS_DEMAND in conditions else "",
        surplus_reason=_surplus(status.get("scaling") or {}),
        moved_reason=_known(conditions[MOVED].get("reason")) if MOVED in conditions else "",
        transfers_fail=conditions.get(TRANSFERS_WORK, {}).get("status") == "False",
        groups=Counter((_role(each.component, split), _word(each.phase, record.PHASES)) for each in records),
        waiting={
            (_role(name, split), _known((conditions.get(CONDITION.get(name, "")) or {}).get("reason"))): number
            for name, number in waiting.items()
        },
        step=_known(rolled.get("reason")) if rolling else "",
        stepped=str(rolled.get("lastTransitionTime") or "") if rolling else "",
        waits=str(placement.get("first") or placement.get("since") or "") if waiting else "",
        wanted=sum(_wanted(role, components.get(name) or {}) for name, role in roles.items()),
        held=sum(pod.gpus for pod in held),
        wasted=sum(pod.gpus for pod in held if (pod.component, pod.revision, pod.group) in broken),
        starts={each.name: _group_start(each.start) for each in records if each.start and each.incarnation},
        recycled={each.name: _recycled(each) for each in records if each.recycles},
        was_whole=any((each or {}).get("latestReadyRevision") for each in components.values()),
        complete_at=since if complete else "",
    )


def _surplus(scaling: Mapping[str, Any]) -> str:
    """Return the reason in `status.scaling` why groups that are not needed stay. Return "" if no such groups stay, or if the
    mode is not Apply.
    """
    hold = str(scaling.get("hold") or "")
    return hold if hold in SURPLUS and scaling.get("mode") == APPLY else ""


def _scales(rolled: Mapping[str, Any], components: Mapping[str, Any]) -> bool:
    """Return whether the condition RolledOut is False although no rollout is in progress: groups are missing, but only of a
    revision that was complete before. `rolled` is the condition RolledOut.
    """
    parts = [each or {} for each in components.values()]
    return rolled.get("reason") == Reason.PROGRESSING and all(
        each.get("latestReadyRevision") and each.get("latestReadyRevision") == each.get("updateRevision") for each in parts
    )


def start(created: str, complete_at: str, pods: Iterable[Pod]) -> dict[str, float]:
    """Return how many seconds each part of the start of a service (`PARTS`) took. The sum of the parts is the duration of
    the start. Return {} if a time is missing.

    A time before the preceding time is treated as equal to it: the clocks of nodes differ, and the API reports whole
    seconds.
    """
    engines = [pod for pod in pods if pod.component != keys.ROUTER and not pod.deleting]
    moments = [
        [created],
        [min((pod.times.created for pod in engines), default="")],
        [pod.times.scheduled for pod in engines],
        [pod.times.began for pod in engines],
        [pod.times.ready for pod in engines],
        [complete_at],
    ]
    seconds = [[_seconds(text) for text in texts] for texts in moments]
    if any(each is None for found in seconds for each in found) or not engines:
        return {}
    ends: list[float] = []
    for found in seconds:
        ends.append(max(*(each for each in found if each is not None), *ends[-1:], float("-inf")))
    return {part: after - before for part, (before, after) in zip(PARTS, pairwise(ends), strict=True)}


def seconds_since(moment: str, now: datetime) -> float:
    """Return the seconds since a time; 0 if the time cannot be parsed."""
    then = _seconds(moment)
    return 0.0 if then is None else max(0.0, now.timestamp() - then)


def _seconds(moment: str) -> float | None:
    when = quantity.parse_instant(moment)
    return None if when is None else when.timestamp()


def _group_start(start: Mapping[str, Any]) -> tuple[str, float, Mapping[str, float]]:
    parts = {_word(each["name"], GROUP_PARTS): float(each["seconds"]) for each in start.get("parts") or ()}
    return str(start.get("time") or ""), float(start.get("seconds") or 0.0), parts


def _recycled(group: record.GroupRecord) -> RecycledGroup:
    return RecycledGroup(group.recycles, _known((group.failure or {}).get("reason")), group.node)


def _fails(group: record.GroupRecord) -> bool:
    return group.phase in _FAILED or (group.phase != record.READY and group.in_a_row > 0)


def _wanted(role: StoredRole, told: Mapping[str, Any]) -> int:
    return int(told.get("replicas") or 0) * gpus(role)


def _role(component: str, split: bool) -> str:
    return {keys.ENGINE: "prefill" if split else "engine", keys.DECODER: "decode"}.get(component, OTHER)


def _known(reason: Any) -> str:
    return _word(str(reason or ""), REASONS)


def _word(word: str, known: Iterable[str]) -> str:
    return word if word in known else OTHER
