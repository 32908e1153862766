"""Functions that the tests of moves on kind share. They place a service on two workers, cause drains and other reasons for
moves, and send requests during the moves.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ome_local.realnode.spec import LABEL
from tests.node.serving.conftest import READY_WITHIN_S, reached
from tests.node.serving.decoders import Decoders
from tests.node.serving.test_long_requests import LONGEST_S
from tests.node.serving.test_lost import kill, start
from tests.support import drains
from tests.support.drains import Drain, GroupWatch
from tests.support.rig import Manifest, Rig, is_ready
from tests.support.traffic import Answer, Report, stream_of

NAME = "kimi-k2-tiny-moves"
ROLES = ("engine", "decoder", "router")
SHORT_PER_S, LONG_PER_S = 2.0, 0.25
LONG = {"sampling_params": {"temperature": 0, "max_new_tokens": 150, "ignore_eos": True}}
"""A request that runs while its group leaves the router."""
WITHIN_S = 300.0
"""Seconds after which a request counts as failed. Engines are slow while another engine starts on the same two cores."""
CALM_S = 5.0
MOVED_WITHIN_S = 480.0
OPERATOR_WITHIN_S = 120.0
"""Seconds until an operator that was killed or evicted leads again. A killed container starts again after at most 20 s, and
another pod waits for the end of the Lease.
"""
PLACED_WITHIN_S = 120.0


class Traffic(NamedTuple):
    """The requests that were sent while a test drained nodes or caused another event, and their results. Times are
    monotonic seconds.
    """

    began: float
    ended: float
    """Time at which the event, such as a drain, had ended."""
    seconds: float
    """Seconds that the row of the table shows: the duration of the part of the event that the test measures."""
    short: Report
    long: Report

    @property
    def sent(self) -> list[Answer]:
        """Return the results of all requests."""
        return [*self.short.answers, *self.long.answers]

    @property
    def failed(self) -> list[Answer]:
        """Return the results of the requests that failed."""
        return [one for one in self.sent if one.error]

    def failed_in(self, since: float, until: float) -> list[str]:
        """Return a text for each failed request that began between the times `since` and `until`: the seconds from the
        beginning of the event to the request, and the error.
        """
        found = [one for one in self.failed if since <= one.began < until]
        return [f"{one.began - self.began:.1f} s: {one.error}" for one in found]


async def under_traffic(url: str, happens: Callable[[], float]) -> Traffic:
    """Send short and long requests while `happens` runs in a thread, and for some seconds before and after. `happens`
    returns the seconds that the table shows.
    """
    async with stream_of(url, SHORT_PER_S, WITHIN_S) as short, stream_of(url, LONG_PER_S, WITHIN_S, **LONG) as long:
        await asyncio.sleep(CALM_S)
        assert not short.failed_answers, short.failed_answers[0].error
        began = time.monotonic()
        try:
            seconds = await asyncio.to_thread(happens)
        except Exception as error:
            failed = [*short.failed_answers, *long.failed_answers]
            error.add_note(f"{len(failed)} requests had failed until then: {[one.error for one in failed[:3]]}")
            raise
        ended = time.monotonic()
        await asyncio.sleep(CALM_S)
    return Traffic(began, ended, seconds, short, long)


def line(name: str, seen: Traffic, least: Mapping[str, int]) -> str:
    """Return a row of the table."""
    slowest = [max(one.seconds for one in report.answers) for report in (seen.short, seen.long)]
    return (
        f"{name:<52}{len(seen.failed)} of {len(seen.sent)} requests failed ({len(seen.long.answers)} long)  "
        f"{seen.seconds:>4.0f} s  least {dict(least)}  slowest {slowest[0]:.1f} s, long {slowest[1]:.1f} s"
    )


# --- the service --------------------------------------------------------------------------------------------------------
def node_of(rig: Rig, role: str) -> str:
    """Return the node of the only pod of a role."""
    (node,) = drains.nodes_of(rig, NAME, role)
    return node


def other_worker(rig: Rig, node: str) -> str:
    """Return the worker that is neither this node nor the spare one."""
    (other,) = set(rig.cluster.real_nodes) - {node}
    return other


def arranged(service: Decoders, together: tuple[str, ...], moves: dict[str, Any], *, operator_stays: bool = False) -> str:
    """Place the roles `together` on one worker and all others on the other worker, set `spec.moves`, and return the first
    worker. Pods are deleted for this while `spec.moves` is absent.

    `operator_stays`: the operator runs on the other worker, so a drain of the first one does not evict it.
    """
    rig = service.rig
    rig.cluster.kubectl("uncordon", *rig.cluster.real_nodes)  # an earlier row may have failed
    set_moves(rig, None)
    complete(service)
    here = {role: node_of(rig, role) for role in ROLES}

    def wrong(node: str) -> dict[str, str]:
        wanted = {role: node if role in together else other_worker(rig, node) for role in ROLES}
        return {role: target for role, target in wanted.items() if here[role] != target}

    node = min(rig.cluster.real_nodes, key=lambda worker: len(wrong(worker)))
    for role, target in wrong(node).items():
        put(rig, role, target)
    if operator_stays:
        put_operator(rig, other_worker(rig, node))
    complete(service)
    set_moves(rig, moves)
    return node


def put(rig: Rig, role: str, target: str) -> None:
    """Delete the pod of a role while only one node is open to the pod that takes its place."""
    with closed(rig, target):
        rig.cluster.kubectl("delete", "pod", "-n", NAME, "-l", f"component={role}", "--grace-period=0", "--force")
        rig.wait(f"{role} on {target}", lambda: drains.nodes_of(rig, NAME, role) == [target], PLACED_WITHIN_S)


@contextlib.contextmanager
def closed(rig: Rig, *but: str) -> Iterator[None]:
    """Cordon all workers but the named ones inside the `with` block. Workers that are cordoned already, such as the spare
    one, stay so.
    """
    nodes = [one for one in rig.all("Node", "", f"{LABEL}=true") if not one["spec"].get("unschedulable")]
    names = [name for one in nodes if (name := one["metadata"]["name"]) not in but]
    try:
        rig.cluster.kubectl("cordon", *names)
        yield
    finally:
        rig.cluster.kubectl("uncordon", *names)


@contextlib.contextmanager
def tainted(rig: Rig, node: str) -> Iterator[None]:
    """Taint a node inside the `with` block as Karpenter does before it removes the node."""
    drains.taint(rig, node)
    try:
        yield
    finally:
        rig.cluster.kubectl("taint", "node", node, f"{drains.TAINT['key']}:{drains.TAINT['effect']}-")


@contextlib.contextmanager
def drained(rig: Rig, *nodes: str) -> Iterator[list[Drain]]:
    """Start drains of all these nodes at the same time. After the `with` block, stop the drains that still run, and
    uncordon the nodes.
    """
    running: list[Drain] = []
    try:
        running += [Drain(rig.cluster, node, timeout=int(MOVED_WITHIN_S)) for node in nodes]
        yield running
    finally:
        for drain in running:
            drain.stop()
        rig.cluster.kubectl("uncordon", *nodes)


def set_moves(rig: Rig, moves: dict[str, Any] | None) -> None:
    """Write `spec.moves`, and wait until the disruption budgets have changed accordingly."""
    rig.patch("InferenceService", NAME, NAME, {"spec": {"moves": moves}})
    allowed = 1 if moves is None else 0
    rig.wait(f"budgets allow {allowed}", lambda: set(budgets(rig)) == {allowed}, OPERATOR_WITHIN_S)


def budgets(rig: Rig) -> list[int]:
    """Return the number of evictions that each disruption budget of the service allows."""
    return [one["spec"]["maxUnavailable"] for one in rig.all("PodDisruptionBudget", NAME)]


def complete(service: Decoders) -> None:
    """Wait until the service is complete, no pod of it is left over, its router lists both groups, and this machine reaches
    the router.
    """
    rig = service.rig

    def only() -> bool:
        return all(len(rig.all("Pod", NAME, f"component={role}")) == 1 for role in ROLES)

    def listed() -> bool:
        leaders = service.summary()["leaders"]
        return len(leaders) == 2 and all(one["listed"] for one in leaders)

    rig.wait("one pod of each role", only, LONGEST_S + 60)  # a router that ends may wait for requests that long
    rig.wait("both leaders are ready", lambda: len(service.leaders()) == 1 == len(service.leaders("engine")), READY_WITHIN_S)
    rig.wait("the router lists both", listed, READY_WITHIN_S)
    rig.ready(NAME, NAME, READY_WITHIN_S)
    rig.wait("the router is reached", lambda: reached(service.url), 60)


def left(rig: Rig, before: Mapping[str, set[str]]) -> bool:
    """Return whether all moves have ended, and each role in `before` has exactly one pod, which did not exist before.
    `before` maps a role to the UIDs of its former pods.
    """
    now = {role: drains.uids(rig, NAME, role) for role in before}
    return not drains.moves_of(rig, NAME, NAME) and all(len(now[role]) == 1 and now[role] != before[role] for role in before)


def watch_began(rig: Rig, watch: GroupWatch) -> None:
    """Wait until a new watch has seen one serving group of each role."""
    rig.wait("the watch began", lambda: all(watch.least(NAME, role, time.monotonic()) == 1 for role in ROLES), 60)


# --- rollouts -----------------------------------------------------------------------------------------------------------
def rolls_out(rig: Rig, strategy: Mapping[str, Any]) -> Callable[[], bool]:
    """Begin a rollout with a change of prefill's environment, wait until a second prefill group exists, and return a
    function that returns whether the rollout has ended.
    """
    old = str((rig.get("InferenceService", NAME, NAME) or {})["status"]["revision"])
    block = {**dict.fromkeys(("rollingUpdate", "blueGreen", "recreate")), **strategy}
    env = [{"name": "TRY", "value": old}]
    rig.patch("InferenceService", NAME, NAME, {"spec": {"rollout": block, "engine": {"runner": {"env": env}}}})
    rig.wait("the rollout begins", lambda: len(drains.uids(rig, NAME)) == 2, 60)

    def ended() -> bool:
        found = str((rig.get("InferenceService", NAME, NAME) or {})["status"]["revision"])
        return found != old and "→" not in found and rig.condition(NAME, NAME, "RolledOut").get("status") == "True"

    return ended


# --- the operator -------------------------------------------------------------------------------------------------------
def operators(rig: Rig) -> list[Manifest]:
    """Return the pods of the operator that are ready and not being deleted."""
    pods = rig.all("Pod", "ome", "app.kubernetes.io/name=ome-operator")
    return [pod for pod in pods if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]


def put_operator(rig: Rig, target: str) -> None:
    """Delete the pod of the operator, unless it is on this node already, while only this node is open to the next pod."""

    def there() -> bool:
        return [pod["spec"]["nodeName"] for pod in operators(rig)] == [target]

    rig.wait("the operator is ready", lambda: len(operators(rig)) == 1, OPERATOR_WITHIN_S)
    if there():
        return
    with closed(rig, target):
        (pod,) = operators(rig)
        rig.delete("Pod", "ome", pod["metadata"]["name"])
        rig.wait(f"the operator on {target}", there, OPERATOR_WITHIN_S)
        rig.wait("the former operator is gone", lambda: len(rig.all("Pod", "ome")) == 1, OPERATOR_WITHIN_S)


def kill_operator(rig: Rig) -> None:
    """Kill all processes of the operator at once, and wait until its container has started again."""
    (pod,) = rig.wait("the operator is ready", lambda: operators(rig), OPERATOR_WITHIN_S)
    before = start(pod)
    kill(rig, pod)
    rig.wait("the operator is back", lambda: [one for one in operators(rig) if start(one) != before], OPERATOR_WITHIN_S)
