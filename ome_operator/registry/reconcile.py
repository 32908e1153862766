"""Calculate which workers a router should have, from the existing pods and the router's list. Pure functions.

A worker is the leader of a group that can serve requests. The router's list must be read *before* the pods: then a listed
worker without a pod in the list of pods certainly has no pod any more. Such a worker is removed at once, because the router
does not notice every deletion, and keeps dead workers. No worker is removed if the list of pods is outdated (decisions 25).
"""

from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ome_operator.registry.records import (
    LeaderState,
    Pod,
    RegistrySettings,
    RoleSpec,
    WantedWorker,
    Worker,
    WorkerChanges,
    WorkerMemory,
    WorkerRemoval,
)


class _Readiness(NamedTuple):
    """The result of checking whether one leader can serve requests."""

    why: str
    """Reason why the leader must not serve requests, or "" if it can."""
    is_recent: bool = False
    """Whether the leader became not ready only a short time ago. Such a leader stays in the router's list if the router
    lists it."""
    draining: bool = False
    is_up: bool = False
    """Whether every rank runs. If so, only the readiness of the leader can keep the group from serving requests. If such
    a leader does not respond, the leader is the cause, and no other rank."""
    silent: bool = False
    """Whether the leader gets no requests because it does not respond (module `silence`), or because its transfers
    fail (module `pairs`)."""


class LeaderSigns(NamedTuple):
    """What the registry has observed of leaders. Each leader is identified by the UID of its pod."""

    silent: Container[str] = frozenset()
    """Leaders that no longer respond (module `silence`)."""
    blamed: Container[str] = frozenset()
    """Leaders that get no requests because transfers to or from them fail (module `pairs`)."""
    healthy: Mapping[str, float] = MappingProxyType({})
    """Maps the UID of a leader that is starting to the time since which its engine reports that it is healthy (module
    `starting`)."""


NO_SIGNS = LeaderSigns()


def reconcile(
    pods: Iterable[Pod],
    workers: Iterable[Worker],
    memory: WorkerMemory,
    settings: RegistrySettings,
    now: float,
    fresh: bool = True,
    signs: LeaderSigns = NO_SIGNS,
) -> WorkerChanges:
    """Return the changes that make the router's workers equal to the groups that can serve requests; `now` is in seconds
    since the epoch.

    Times in `memory` that are in the future are replaced by `now`, because the clock was set back. `fresh` is false if the
    pods are outdated because the API server does not answer. Then no worker is removed, and workers are added only to an
    empty router that has just started. Leaders that `signs` reports as silent, or to blame for failed transfers, are removed
    only while the router lists another leader that can serve.
    """
    pods, listed = tuple(pods), _group_by_address(workers)
    leaders = _leaders(pods, settings)
    unready = {pod.uid: min(memory.unready.get(pod.uid, now), now) for pod, _, _ in leaders if not pod.ready}
    evaluated = [
        (pod, _target(pod, role, settings), _readiness(pod, ranks, role, settings, unready, signs.healthy, listed, now))
        for pod, role, ranks in leaders
    ]
    evaluated = _without_silent(evaluated, listed, signs.silent, signs.blamed)
    wanted: dict[str, WantedWorker] = {}
    for _, target, readiness in evaluated:
        if not readiness.why:
            wanted.setdefault(target.url, target)
    kept = {target.url: target for _, target, readiness in evaluated if readiness.is_recent and target.url not in wanted}
    reasons = {target.url: readiness.why for _, target, readiness in evaluated if readiness.why}
    stay, missing = {**kept, **wanted}, [url for url in wanted if url not in listed]
    own_addresses = _own_addresses(pods, memory, settings, now)
    remove = _workers_to_remove(listed, stay, memory, reasons, own_addresses)
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


def _group_by_address(workers: Iterable[Worker]) -> dict[str, list[Worker]]:
    """Group the router's entries by the address of their pod; a data-parallel worker may have several entries."""
    listed: dict[str, list[Worker]] = {}
    for worker in workers:
        listed.setdefault(worker.base, []).append(worker)
    return listed


def _own_addresses(pods: Iterable[Pod], memory: WorkerMemory, settings: RegistrySettings, now: float) -> dict[str, float]:
    """Return a mapping from the URL of a pod to the time when the pod was last listed. It contains all pods of this slice,
    and those that were deleted less than `settings.remember` seconds ago.
    """
    ports = {role.component: role.port for role in settings.roles}
    known = {url: min(at, now) for url, at in (memory.ours or {}).items()}
    present = {_url(pod, ports[pod.component]): now for pod in pods if pod.ip and pod.component in ports}
    return {**{url: at for url, at in known.items() if now - at < settings.remember}, **present}


def _workers_to_remove(
    listed: Mapping[str, list[Worker]],
    stay: Mapping[str, WantedWorker],
    memory: WorkerMemory,
    reasons: Mapping[str, str],
    own_addresses: Mapping[str, float],
) -> tuple[WorkerRemoval, ...]:
    """Return the workers that must be removed from the router's list. `listed` contains the router's entries by URL. `stay`
    maps the URLs of workers that may stay to their leaders. `reasons` maps the URLs of other leaders to the reason why they
    must not serve. `own_addresses` contains the URLs of this slice's pods.
    """
    return tuple(
        WorkerRemoval(worker, why, is_foreign=memory.ours is not None and url not in own_addresses)
        for url, workers in listed.items()
        for worker in workers
        if (why := _removal_reason(worker, stay.get(url), memory.pods.get(url), reasons.get(url)))
    )


def _remembered_pods(
    listed: Iterable[str], stay: Mapping[str, WantedWorker], memory: WorkerMemory, remove: Iterable[WorkerRemoval]
) -> dict[str, str]:
    """Return the pods of the workers that the router lists, as a mapping from the URL of a worker to the UID of its pod. For
    a worker that is being removed, the UID from `memory` is kept, because the removal may fail.
    """
    kept = {url: stay[url].uid for url in listed if url in stay}
    gone = {removal.worker.base for removal in remove} & kept.keys()
    return {**kept, **{url: memory.pods[url] for url in gone if url in memory.pods}}


def _leaders(pods: Iterable[Pod], settings: RegistrySettings) -> list[tuple[Pod, RoleSpec, list[Pod]]]:
    """Return each leader whose component is in `settings.roles`, with its role and the other ranks of its group. The leaders
    are ordered by name.
    """
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
    leader: Pod,
    ranks: list[Pod],
    role: RoleSpec,
    settings: RegistrySettings,
    unready: Mapping[str, float],
    healthy: Mapping[str, float],
    listed: Container[str],
    now: float,
) -> _Readiness:
    """Return whether a group can serve requests. A group that has lost a rank cannot serve: its leader hangs, and exits
    seconds later. `ranks` are the other ranks of the group. `unready` maps the UID of a leader to the time since which it
    has not been ready, and `healthy` to the time since which its engine has been healthy. `listed` contains the URLs of the
    workers that the router lists.
    """
    if leader.deleting:
        return _Readiness("the leader is being deleted")
    if leader.draining:
        return _Readiness("the group is being drained", draining=True)
    if not leader.running or not leader.ip:
        return _Readiness("the leader is not running")
    if why := _describe_missing_rank(ranks, role.pods):
        return _Readiness(why)
    if not leader.ready:
        is_listed, since = _url(leader, role.port) in listed, healthy.get(leader.uid)
        if since is not None and (is_listed or now - since <= settings.early) and _will_be_ready(leader, ranks, role, since):
            return _Readiness("", is_up=True)
        return _Readiness("the leader is not ready", now - unready[leader.uid] < settings.unready, is_up=True)
    last = max(ranks, key=lambda pod: pod.started, default=leader)
    if last.started > leader.ready_since > 0 and abs(now - last.started) < settings.settle:
        return _Readiness(f"rank {last.rank} started after the leader was ready")
    return _Readiness("", is_up=True)


def _will_be_ready(leader: Pod, ranks: list[Pod], role: RoleSpec, healthy: float) -> bool:
    """Return whether a leader that is starting can serve although Kubernetes has not reported it as ready. `healthy` is the
    time since which its engine has reported that it is healthy.

    Only the kubelet's next probes are then missing, each of which generates a token and takes a second. The router itself
    requires a response from the health page before it lists the leader. A leader that was ready at any time since its
    container started is not starting: it can serve again only when Kubernetes reports it as ready.
    """
    if leader.health_port != role.port or leader.ready_since > leader.started:
        return False
    return all(pod.started <= healthy for pod in (leader, *ranks))


def _without_silent(
    evaluated: list[tuple[Pod, WantedWorker, _Readiness]],
    listed: Container[str],
    silent: Container[str],
    blamed: Container[str],
) -> list[tuple[Pod, WantedWorker, _Readiness]]:
    """Return `evaluated` with some leaders marked as not ready: leaders that no longer respond (`silent`), and leaders to
    blame for failed transfers (`blamed`). A leader is marked only if another leader of its role is listed and can serve, for
    two reasons: a router without workers serves nothing, and a registry whose own network has failed regards all leaders as
    silent.
    """
    serving = {
        target.worker_type
        for pod, target, readiness in evaluated
        if not readiness.why and target.url in listed and pod.uid not in silent and pod.uid not in blamed
    }

    def checked(pod: Pod, target: WantedWorker, readiness: _Readiness) -> _Readiness:
        if not readiness.is_up or target.worker_type not in serving:
            return readiness
        if pod.uid in silent:
            return _Readiness("the leader answers no probe and completes no request", silent=True)
        return _Readiness("transfers of this leader fail", silent=True) if pod.uid in blamed else readiness

    return [(pod, target, checked(pod, target, readiness)) for pod, target, readiness in evaluated]


def _describe_missing_rank(ranks: list[Pod], size: int) -> str:
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
    """Return why a listed worker must be removed, or "" if it may stay. `target` is the leader that may be listed with the
    worker's URL; None if there is none. `uid` is the UID of the pod for which the worker was listed; None if it is unknown.
    `why` states why the leader with this URL must not serve; None if no leader has this URL.
    """
    if target is None:
        return why or "no pod of this router's revision has this address"
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
    elif readiness.silent:
        state = "silent"
    elif readiness.why:
        state = "waiting"
    else:
        state = "serving" if entries and is_wanted else "adding"
    running = sum(worker.running for worker in entries) if entries is not None else None
    url = target.url if pod.ip else ""
    return LeaderState(
        pod.name,
        pod.uid,
        url,
        target.worker_type,
        state,
        readiness.why,
        entries is not None,
        running,
        is_starting=readiness.is_up and not pod.ready,
        bootstrap_port=target.bootstrap_port,
        started=pod.started,
    )
