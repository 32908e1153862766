"""Calculate which workers a router should have, from the existing pods and the router's list. Pure functions.

A worker is the leader of a group that can serve requests. The router's list must be read *before* the pods. Then a listed
worker without a pod certainly has no pod, and can be removed at once; the removal is necessary because the router misses
deletions and keeps dead workers. An outdated list of pods removes no worker (decisions 25).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class RoleSpec(NamedTuple):
    """The settings of one component of the slice."""

    component: str
    """Value of the label `component` of the component's pods."""
    worker_type: str
    """Type of the workers in the router: `prefill`, `decode` or `regular`."""
    port: int
    """Port on which the leaders serve HTTP."""
    pods: int
    """Number of pods in each group."""
    stem: str
    """Prefix of the names of the component's StatefulSets."""


class RegistrySettings(NamedTuple):
    """Settings that do not change while the process is running; times are in seconds."""

    roles: tuple[RoleSpec, ...]
    bootstrap_port: int = 8998
    """Bootstrap port of prefill leaders whose pod has no annotation with the port."""
    unready: float = 20.0
    """Maximum time for which a leader stays listed although it is not ready. The router's own health checks stop requests
    to the leader meanwhile, and the leader may recover."""
    settle: float = 60.0
    """Time that must have passed since the start of a rank that started after its leader became ready. Before that, the
    leader must not serve, because its group may have lost the previous rank."""
    retry: float = 15.0
    """Time after which a worker is sent to the router again if the router does not list the worker; the router adds
    workers in the background."""
    remember: float = 3600.0
    """Time for which the address of a deleted pod of this slice is not treated as foreign in the router's list."""


class Pod(NamedTuple):
    """One rank of a group, parsed from its pod."""

    name: str
    uid: str
    ip: str
    component: str
    group: str
    rank: int
    """Rank in the group; 0 is the leader."""
    running: bool
    """Whether the pod's main container is running."""
    started: float
    """Time when the main container started, in seconds since the epoch; 0 if unknown."""
    ready: bool
    ready_since: float
    """Time when `ready` last changed, in seconds since the epoch; 0 if unknown."""
    deleting: bool = False
    draining: bool = False
    bootstrap_port: int | None = None


class Worker(NamedTuple):
    """An entry of the router's worker list."""

    id: str
    url: str
    """URL of the worker. The URL ends with `@rank` if the router lists each rank of a data-parallel worker separately."""
    worker_type: str
    bootstrap_port: int | None
    running: int
    """Number of requests that run on the worker through this router."""

    @property
    def base(self) -> str:
        """URL of the worker without the rank."""
        return self.url.partition("@")[0].rstrip("/")


class WantedWorker(NamedTuple):
    """A leader that the router should list."""

    url: str
    worker_type: str
    bootstrap_port: int | None
    """Bootstrap port of a prefill worker; None for other workers."""
    pod: str
    uid: str


class WorkerRemoval(NamedTuple):
    """A worker that must be removed from the router's list."""

    worker: Worker
    why: str
    foreign: bool = False
    """Whether the address neither belongs to a pod of this slice nor did so recently, so that another program or a user
    added the worker."""


class LeaderState(NamedTuple):
    """The state of a group, as the registry reports it to users and to the operator."""

    pod: str
    uid: str
    url: str
    role: str
    state: str
    """One of `serving`, `adding`, `waiting`, `draining`."""
    why: str
    """Reason why the leader is not serving, or "" if it is serving."""
    listed: bool
    """Whether the router may send new requests to the leader."""
    running: int | None
    """Number of requests that run on the leader through this router; None if the router does not list the leader."""


class WorkerMemory(NamedTuple):
    """The state that one pass hands to the next pass."""

    pods: Mapping[str, str] = {}
    """URL of a listed worker -> UID of the pod for which it was listed."""
    asked: Mapping[str, float] = {}
    """URL of a worker -> time when the router was asked to add it; removed when the router lists it."""
    unready: Mapping[str, float] = {}
    """UID of a leader -> time since which the leader is not ready."""
    refill: frozenset[str] = frozenset()
    """URLs that were sent to a router without workers while the list of pods was outdated; these URLs may be sent again."""
    ours: Mapping[str, float] | None = None
    """URL of a pod of this slice -> time when the pod was last listed. None before the first pass, when every worker in
    the router's list may have been added by an earlier registry process."""


class WorkerChanges(NamedTuple):
    """The changes that a pass makes to the router's list, and the state for the next pass."""

    add: tuple[WantedWorker, ...]
    remove: tuple[WorkerRemoval, ...]
    leaders: tuple[LeaderState, ...]
    memory: WorkerMemory


class _Readiness(NamedTuple):
    """The result of checking whether one leader can serve requests."""

    why: str
    """Reason why the leader must not serve requests, or "" if it can."""
    patient: bool = False
    """Whether a listed leader stays listed although it is not ready, because it has been not ready only for a short time."""
    draining: bool = False


def reconcile(
    pods: Iterable[Pod],
    workers: Iterable[Worker],
    memory: WorkerMemory,
    settings: RegistrySettings,
    now: float,
    fresh: bool = True,
) -> WorkerChanges:
    """Return the changes that make the router's workers equal to the groups that can serve requests; `now` is in seconds
    since the epoch.

    Times in `memory` that are in the future are replaced by `now`, because the clock was set back. `fresh` is false if the
    pods are outdated because the API server does not answer. Then no worker is removed, and workers are added only to an
    empty router that has just started.
    """
    pods, listed = tuple(pods), _by_address(workers)
    leaders = _leaders(pods, settings)
    unready = {pod.uid: min(memory.unready.get(pod.uid, now), now) for pod, _, _ in leaders if not pod.ready}
    evaluated = [
        (pod, _target(pod, role, settings), _readiness(pod, ranks, role, settings, unready, now))
        for pod, role, ranks in leaders
    ]
    wanted: dict[str, WantedWorker] = {}
    for _, target, readiness in evaluated:
        if not readiness.why:
            wanted.setdefault(target.url, target)
    kept = {target.url: target for _, target, readiness in evaluated if readiness.patient and target.url not in wanted}
    reasons = {target.url: readiness.why for _, target, readiness in evaluated if readiness.why}
    stay, missing = {**kept, **wanted}, [url for url in wanted if url not in listed]
    own_addresses = _own_addresses(pods, memory, settings, now)
    remove = _surplus(listed, stay, memory, reasons, own_addresses)
    asked = {url: min(memory.asked[url], now) for url in missing if url in memory.asked}
    due = [url for url in missing if url not in asked or now - asked[url] >= settings.retry]
    add = tuple(wanted[url] for url in due if fresh or not listed or url in memory.refill)
    return WorkerChanges(
        add=add,
        remove=remove if fresh else (),
        leaders=tuple(_leader_state(pod, target, readiness, listed, wanted) for pod, target, readiness in evaluated),
        memory=WorkerMemory(
            _remembered_pods(listed, stay, memory, remove) if fresh else memory.pods,
            {**asked, **{worker.url: now for worker in add}},
            unready,
            frozenset() if fresh else memory.refill | {worker.url for worker in add},
            own_addresses if fresh else memory.ours,
        ),
    )


def _by_address(workers: Iterable[Worker]) -> dict[str, list[Worker]]:
    """Group the router's entries by the address of their pod; a data-parallel worker may have several entries."""
    listed: dict[str, list[Worker]] = {}
    for worker in workers:
        listed.setdefault(worker.base, []).append(worker)
    return listed


def _own_addresses(pods: Iterable[Pod], memory: WorkerMemory, settings: RegistrySettings, now: float) -> dict[str, float]:
    """Return URL -> time when the pod was last listed, for all pods of this slice and for recently deleted pods."""
    ports = {role.component: role.port for role in settings.roles}
    known = {url: min(at, now) for url, at in (memory.ours or {}).items()}
    present = {_url(pod, ports[pod.component]): now for pod in pods if pod.ip and pod.component in ports}
    return {**{url: at for url, at in known.items() if now - at < settings.remember}, **present}


def _surplus(
    listed: Mapping[str, list[Worker]],
    stay: Mapping[str, WantedWorker],
    memory: WorkerMemory,
    reasons: Mapping[str, str],
    ours: Mapping[str, float],
) -> tuple[WorkerRemoval, ...]:
    """Return the workers that the router lists but must not list."""
    return tuple(
        WorkerRemoval(worker, why, foreign=memory.ours is not None and url not in ours)
        for url, workers in listed.items()
        for worker in workers
        if (why := _removal_reason(worker, stay.get(url), memory.pods.get(url), reasons.get(url)))
    )


def _remembered_pods(
    listed: Iterable[str], stay: Mapping[str, WantedWorker], memory: WorkerMemory, remove: Iterable[WorkerRemoval]
) -> dict[str, str]:
    """Return URL -> pod UID of the listed workers. For workers that are being removed, the previous UID is kept, because
    the removal may fail.
    """
    kept = {url: stay[url].uid for url in listed if url in stay}
    gone = {removal.worker.base for removal in remove} & kept.keys()
    return {**kept, **{url: memory.pods[url] for url in gone if url in memory.pods}}


def _leaders(pods: Iterable[Pod], settings: RegistrySettings) -> list[tuple[Pod, RoleSpec, list[Pod]]]:
    """Return every leader of a known role with the other ranks of its group, ordered by name."""
    roles = {role.component: role for role in settings.roles}
    first: list[Pod] = []
    others: dict[tuple[str, str], list[Pod]] = {}
    for pod in sorted(pods):
        if pod.component not in roles:
            continue
        if pod.rank == 0:
            first.append(pod)
        else:
            others.setdefault((pod.component, pod.group), []).append(pod)
    return [(pod, roles[pod.component], others.get((pod.component, pod.group), [])) for pod in first]


def _target(pod: Pod, role: RoleSpec, settings: RegistrySettings) -> WantedWorker:
    bootstrap = (pod.bootstrap_port or settings.bootstrap_port) if role.worker_type == "prefill" else None
    return WantedWorker(_url(pod, role.port), role.worker_type, bootstrap, pod.name, pod.uid)


def _url(pod: Pod, port: int) -> str:
    return f"http://{f'[{pod.ip}]' if ':' in pod.ip else pod.ip}:{port}"


def _readiness(
    leader: Pod, ranks: list[Pod], role: RoleSpec, settings: RegistrySettings, unready: Mapping[str, float], now: float
) -> _Readiness:
    """Return whether a group can serve requests. A group that lost a rank cannot: its leader hangs and exits seconds
    later.
    """
    if leader.deleting:
        return _Readiness("the leader is being deleted")
    if leader.draining:
        return _Readiness("the group is being drained", draining=True)
    if not leader.running or not leader.ip:
        return _Readiness("the leader is not running")
    if why := _incomplete(ranks, role.pods):
        return _Readiness(why)
    if not leader.ready:
        return _Readiness("the leader is not ready", patient=now - unready[leader.uid] < settings.unready)
    last = max(ranks, key=lambda pod: pod.started, default=leader)
    if last.started > leader.ready_since > 0 and abs(now - last.started) < settings.settle:
        return _Readiness(f"rank {last.rank} started after the leader was ready")
    return _Readiness("")


def _incomplete(ranks: list[Pod], size: int) -> str:
    by_rank = {pod.rank: pod for pod in ranks}
    for rank in range(1, size):
        pod = by_rank.get(rank)
        if pod is None:
            return f"rank {rank} is missing"
        if pod.deleting:
            return f"rank {rank} is being deleted"
        if not pod.running:
            return f"rank {rank} is not running"
    return ""


def _removal_reason(worker: Worker, target: WantedWorker | None, uid: str | None, why: str | None) -> str:
    """Return why a listed worker must be removed, or "" if it may stay."""
    if target is None:
        return why or "no pod of this slice has this address"
    if uid is not None and uid != target.uid:
        return "another pod now has this address"
    if worker.worker_type != target.worker_type:
        return f"the router lists the worker as {worker.worker_type}, but its type is {target.worker_type}"
    # The router's own discovery reports no port for a pod without an annotation; then the engine's default port is used.
    if worker.bootstrap_port not in (None, target.bootstrap_port):
        return (
            f"the router lists the worker with bootstrap port {worker.bootstrap_port}, but its port is "
            f"{target.bootstrap_port}"
        )
    return ""


def _leader_state(
    pod: Pod,
    target: WantedWorker,
    readiness: _Readiness,
    listed: Mapping[str, list[Worker]],
    wanted: Mapping[str, WantedWorker],
) -> LeaderState:
    entries = listed.get(target.url) if pod.ip else None
    is_wanted = wanted.get(target.url, target).uid == target.uid
    if readiness.draining:
        state = "draining"
    elif readiness.why:
        state = "waiting"
    else:
        state = "serving" if entries and is_wanted else "adding"
    running = sum(worker.running for worker in entries) if entries is not None else None
    url = target.url if pod.ip else ""
    return LeaderState(pod.name, pod.uid, url, target.worker_type, state, readiness.why, entries is not None, running)
