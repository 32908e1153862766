"""Which workers a router should have: a pure function of the pods that exist and the workers that it lists.

A worker is the leader of a group that can serve. Workers must have been asked for *before* the pods were listed: then
a worker that is no pod of the list has truly no pod, and can go at once (the router loses deletions, and keeps the dead).
An old list removes nothing (decisions 25).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class RoleSpec(NamedTuple):
    """One component of the slice."""

    component: str
    """Value of the pods' label `component`."""
    worker_type: str
    """`prefill`, `decode` or `regular`."""
    port: int
    """Where leaders serve HTTP."""
    pods: int
    """In a group."""
    stem: str
    """What the names of its StatefulSets begin with."""


class RegistrySettings(NamedTuple):
    """What does not change while we run; times in seconds."""

    roles: tuple[RoleSpec, ...]
    bootstrap_port: int = 8998
    """Of prefill leaders whose annotation says nothing."""
    unready: float = 20.0
    """A listed leader may be not ready for so long: the router's own health checks see it too, and it may come back."""
    settle: float = 60.0
    """After so long a rank that started after its leader was ready is taken for one that has joined it."""
    retry: float = 15.0
    """The router adds in the background; what is not listed after so long is sent again."""
    remember: float = 3600.0
    """An address of ours may stay in the router's list for so long after its pod has gone: it is no stranger's."""


class Pod(NamedTuple):
    """One rank of a group."""

    name: str
    uid: str
    ip: str
    component: str
    group: str
    rank: int
    """0 is the leader."""
    running: bool
    """Its main container runs."""
    started: float
    """When that began, in seconds since the epoch; 0 when unknown."""
    ready: bool
    ready_since: float
    """When `ready` last changed, in seconds since the epoch; 0 when unknown."""
    deleting: bool = False
    draining: bool = False
    bootstrap_port: int | None = None


class Worker(NamedTuple):
    """An entry of the router's list."""

    id: str
    url: str
    """With `@rank` behind it when the router knows the ranks of a data-parallel worker one by one."""
    worker_type: str
    bootstrap_port: int | None
    running: int
    """Requests that this router has running there."""

    @property
    def base(self) -> str:
        """The address of the pod."""
        return self.url.partition("@")[0].rstrip("/")


class WantedWorker(NamedTuple):
    """A leader as the router should know it."""

    url: str
    worker_type: str
    bootstrap_port: int | None
    """Of prefill only."""
    pod: str
    uid: str


class WorkerRemoval(NamedTuple):
    """A worker that has to go."""

    worker: Worker
    why: str
    stranger: bool = False
    """Whether it is not, and was not lately, an address of ours: somebody else put it into the list."""


class LeaderState(NamedTuple):
    """How a group stands, for people and for the operator."""

    pod: str
    uid: str
    url: str
    role: str
    state: str
    """`serving`, `adding`, `waiting`, `draining`."""
    why: str
    """Why it is not serving, else ""."""
    listed: bool
    """Whether the router may send new requests to it."""
    running: int | None
    """Requests of this router that run there; None when the router does not list it."""


class WorkerMemory(NamedTuple):
    """What one call tells the next."""

    pods: Mapping[str, str] = {}
    """URL of a listed worker -> UID of the pod that it was listed for."""
    asked: Mapping[str, float] = {}
    """URL -> when it was sent to the router, until the router lists it."""
    unready: Mapping[str, float] = {}
    """UID of a leader -> since when we see it not ready."""
    refill: frozenset[str] = frozenset()
    """URLs that an empty router was sent while the pods were not known anew: these may be sent again."""
    ours: Mapping[str, float] | None = None
    """URL that a pod of ours had -> when it was seen last; None before the first look, when all that a router lists may be
    left over from a registry before us."""


class WorkerChanges(NamedTuple):
    """What has to be done now."""

    add: tuple[WantedWorker, ...]
    remove: tuple[WorkerRemoval, ...]
    leaders: tuple[LeaderState, ...]
    memory: WorkerMemory


class _Verdict(NamedTuple):
    """About one leader."""

    why: str
    """Why it must not serve, "" when it can."""
    patient: bool = False
    """Not ready, for a short time: where it is listed it stays."""
    draining: bool = False


def reconcile(
    pods: Iterable[Pod],
    workers: Iterable[Worker],
    memory: WorkerMemory,
    settings: RegistrySettings,
    now: float,
    fresh: bool = True,
) -> WorkerChanges:
    """What makes the router's workers equal to the groups that can serve; `now` in seconds since the epoch.

    A remembered time that is still to come counts as now: the clock was set back since.

    `fresh` is False when the pods are an old list, because the API server does not answer: then nothing is removed, and
    only an empty router, which has just started, is filled.
    """
    pods, listed = tuple(pods), _by_address(workers)
    leaders = _leaders(pods, settings)
    unready = {pod.uid: min(memory.unready.get(pod.uid, now), now) for pod, _, _ in leaders if not pod.ready}
    judged = [
        (pod, _target(pod, role, settings), _judge(pod, ranks, role, settings, unready, now)) for pod, role, ranks in leaders
    ]
    wanted: dict[str, WantedWorker] = {}
    for _, target, verdict in judged:
        if not verdict.why:
            wanted.setdefault(target.url, target)
    held = {target.url: target for _, target, verdict in judged if verdict.patient and target.url not in wanted}
    because = {target.url: verdict.why for _, target, verdict in judged if verdict.why}
    stay, missing = {**held, **wanted}, [url for url in wanted if url not in listed]
    ours = _ours(pods, memory, settings, now)
    remove = _surplus(listed, stay, memory, because, ours)
    asked = {url: min(memory.asked[url], now) for url in missing if url in memory.asked}
    due = [url for url in missing if url not in asked or now - asked[url] >= settings.retry]
    add = tuple(wanted[url] for url in due if fresh or not listed or url in memory.refill)
    return WorkerChanges(
        add=add,
        remove=remove if fresh else (),
        leaders=tuple(_report(pod, target, verdict, listed, wanted) for pod, target, verdict in judged),
        memory=WorkerMemory(
            _known(listed, stay, memory, remove) if fresh else memory.pods,
            {**asked, **{one.url: now for one in add}},
            unready,
            frozenset() if fresh else memory.refill | {one.url for one in add},
            ours if fresh else memory.ours,
        ),
    )


def _by_address(workers: Iterable[Worker]) -> dict[str, list[Worker]]:
    """Entries of the router's list by the address of their pod; of a data-parallel worker there are several."""
    listed: dict[str, list[Worker]] = {}
    for worker in workers:
        listed.setdefault(worker.base, []).append(worker)
    return listed


def _ours(pods: Iterable[Pod], memory: WorkerMemory, settings: RegistrySettings, now: float) -> dict[str, float]:
    """Addresses of pods of ours, of whatever rank, and of those that went lately -> when they were seen last."""
    ports = {role.component: role.port for role in settings.roles}
    known = {url: min(at, now) for url, at in (memory.ours or {}).items()}
    here = {_url(pod, ports[pod.component]): now for pod in pods if pod.ip and pod.component in ports}
    return {**{url: at for url, at in known.items() if now - at < settings.remember}, **here}


def _surplus(
    listed: Mapping[str, list[Worker]],
    stay: Mapping[str, WantedWorker],
    memory: WorkerMemory,
    because: Mapping[str, str],
    ours: Mapping[str, float],
) -> tuple[WorkerRemoval, ...]:
    """Workers that the router lists and must not."""
    return tuple(
        WorkerRemoval(one, why, stranger=memory.ours is not None and url not in ours)
        for url, known in listed.items()
        for one in known
        if (why := _wrong(one, stay.get(url), memory.pods.get(url), because.get(url)))
    )


def _known(
    listed: Iterable[str], stay: Mapping[str, WantedWorker], memory: WorkerMemory, remove: Iterable[WorkerRemoval]
) -> dict[str, str]:
    """The pods of the workers that are listed; of those that are to go what was remembered, for a removal may fail."""
    kept = {url: stay[url].uid for url in listed if url in stay}
    gone = {one.worker.base for one in remove} & kept.keys()
    return {**kept, **{url: memory.pods[url] for url in gone if url in memory.pods}}


def _leaders(pods: Iterable[Pod], settings: RegistrySettings) -> list[tuple[Pod, RoleSpec, list[Pod]]]:
    """Every leader of a known role with the other ranks of its group, in the order of their names."""
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


def _judge(
    leader: Pod, ranks: list[Pod], role: RoleSpec, settings: RegistrySettings, unready: Mapping[str, float], now: float
) -> _Verdict:
    """Whether a group can serve. A group that lost a rank is broken: its leader hangs, and dies some seconds later."""
    if leader.deleting:
        return _Verdict("the leader is being deleted")
    if leader.draining:
        return _Verdict("it is being drained", draining=True)
    if not leader.running or not leader.ip:
        return _Verdict("the leader does not run")
    if why := _incomplete(ranks, role.pods):
        return _Verdict(why)
    if not leader.ready:
        return _Verdict("the leader is not ready", patient=now - unready[leader.uid] < settings.unready)
    last = max(ranks, key=lambda one: one.started, default=leader)
    if last.started > leader.ready_since > 0 and abs(now - last.started) < settings.settle:
        return _Verdict(f"rank {last.rank} started after the leader was ready")
    return _Verdict("")


def _incomplete(ranks: list[Pod], size: int) -> str:
    by_rank = {one.rank: one for one in ranks}
    for rank in range(1, size):
        pod = by_rank.get(rank)
        if pod is None:
            return f"rank {rank} is missing"
        if pod.deleting:
            return f"rank {rank} is being deleted"
        if not pod.running:
            return f"rank {rank} does not run"
    return ""


def _wrong(worker: Worker, target: WantedWorker | None, uid: str | None, why: str | None) -> str:
    """Why a listed worker has to go, "" when it may stay."""
    if target is None:
        return why or "no pod of this slice has this address"
    if uid is not None and uid != target.uid:
        return "another pod has this address now"
    if worker.worker_type != target.worker_type:
        return f"it was listed as {worker.worker_type}, but is {target.worker_type}"
    # The router's own discovery says nothing about a port where the pod has no annotation; then the engines' default counts.
    if worker.bootstrap_port not in (None, target.bootstrap_port):
        return f"it was listed with bootstrap port {worker.bootstrap_port}, but has {target.bootstrap_port}"
    return ""


def _report(
    pod: Pod, target: WantedWorker, verdict: _Verdict, listed: Mapping[str, list[Worker]], wanted: Mapping[str, WantedWorker]
) -> LeaderState:
    known = listed.get(target.url) if pod.ip else None
    mine = wanted.get(target.url, target).uid == target.uid
    if verdict.draining:
        state = "draining"
    elif verdict.why:
        state = "waiting"
    else:
        state = "serving" if known and mine else "adding"
    running = sum(one.running for one in known) if known is not None else None
    url = target.url if pod.ip else ""
    return LeaderState(pod.name, pod.uid, url, target.worker_type, state, verdict.why, known is not None, running)
