"""Tests in which the router dies, or the node on which everything runs. Engines that serve keep running, and whatever
died starts again.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ome_local import components, ports
from ome_local.cluster import Cluster
from ome_local.realnode import namespaces
from ome_local.realnode.spec import COMPONENTS, NAME
from tests.node.conftest import Steps
from tests.node.serving.conftest import READY_WITHIN_S, tokens
from tests.node.serving.test_faults import CALM_S, PER_SECOND, TINY, leaders, listed_are_ready, ready_leaders
from tests.support.kubelet import reports
from tests.support.rig import Rig
from tests.support.scenario import MINE, OBJECTS
from tests.support.traffic import stream_of

pytestmark = [pytest.mark.timeout(600, func_only=True)]
GRACE_S = 40
"""Seconds for which the controller-manager waits for a silent node by default. The controller-manager of a local cluster
waits for an hour.
"""
LOST_WITHIN_S = 3.0 * GRACE_S
TEXT = "Experts are chosen by"

Start = tuple[str, int]
"""UID of a pod, and the number of restarts of its main container: together they identify one start of that container."""


def start(pod: dict[str, Any]) -> Start:
    """Return the current start of a pod's main container."""
    return pod["metadata"]["uid"], sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))


def starts(rig: Rig, component: str) -> dict[str, Start]:
    """Return the starts of all pods of a component."""
    return {pod["metadata"]["name"]: start(pod) for pod in rig.all("Pod", TINY, f"component={component}")}


def engines(rig: Rig) -> dict[str, Start]:
    """Return the starts of all pods of prefill and decode."""
    return starts(rig, "engine") | starts(rig, "decoder")


def objects(rig: Rig) -> dict[str, str]:
    """Return the UIDs of all objects that the operator created."""
    found = ((kind, one["metadata"]) for kind in OBJECTS for one in rig.all(kind, TINY, MINE))
    return {f"{kind} {metadata['name']}": metadata["uid"] for kind, metadata in found}


def recycles(rig: Rig) -> int:
    """Return the total number of recycles of all groups."""
    return sum(group.get("recycles", 0) for group in groups(rig))


def groups(rig: Rig) -> list[dict[str, Any]]:
    """Return the groups in the status of the service."""
    found: list[dict[str, Any]] = (rig.get("InferenceService", TINY, TINY) or {}).get("status", {}).get("groups", [])
    return found


def phases(rig: Rig) -> set[str]:
    """Return the phases of the service's groups."""
    return {group["phase"] for group in groups(rig)}


def kill(rig: Rig, pod: dict[str, Any]) -> None:
    """Kill all processes in the main container of a pod at once."""
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    inside = [int(proc.name) for proc in Path("/proc").glob("[0-9]*") if container in group_of(proc)]
    assert inside, f"no process of {container}"
    for pid in inside:
        os.kill(pid, signal.SIGKILL)


def group_of(proc: Path) -> str:
    """Return the control groups of a process; "" if it has ended."""
    try:
        return (proc / "cgroup").read_text()
    except OSError:
        return ""


def delete(rig: Rig, pod: dict[str, Any]) -> None:
    """Delete a pod without a grace period."""
    rig.delete("Pod", TINY, pod["metadata"]["name"], gracePeriodSeconds=0)


@pytest.mark.parametrize(("what", "happens"), [("router killed", kill), ("router deleted by force", delete)])
async def test_replaced_router_lists_ready_workers_and_restarts_no_engine(
    serving: Rig, tiny: str, steps: Steps, what: str, happens: Callable[..., None]
) -> None:
    """The router's pod is deleted. The new router lists the ready workers again, and no engine is restarted."""
    before, (pod,) = engines(serving), serving.all("Pod", TINY, "component=router")
    async with stream_of(tiny, PER_SECOND) as report:
        await asyncio.sleep(CALM_S)
        began = time.monotonic()
        await asyncio.to_thread(happens, serving, pod)
        await asyncio.to_thread(serving.wait, "another start", lambda: one_router_but(serving, start(pod)), 60)
        while report.answers[-1].error or report.answers[-1].began < began:
            assert time.monotonic() < began + 120, report.answers[-1]
            await asyncio.sleep(0.2)
        await asyncio.sleep(CALM_S)
    counts = f"{len(report.failed_answers):>8} of {len(report.answers)} requests failed"
    steps.note(what, f"{counts}, the last of them began after {report.last_failure(began):.1f} s")
    assert engines(serving) == before
    listed_are_ready(serving)


def one_router_but(rig: Rig, old: Start) -> bool:
    """Return whether there is exactly one router, and its present start differs from `old`."""
    found = starts(rig, "router")
    return len(found) == 1 and old not in found.values()


@pytest.fixture
def watched(ours: None, serving: Rig) -> Iterator[Rig]:
    """Yield the cluster with a controller-manager that notices silent nodes after the default time, as in other clusters."""
    cluster, usual = serving.cluster, "controller-manager"
    words = [*components.controller_manager(cluster.at, cluster.kept), f"--node-monitor-grace-period={GRACE_S}s"]
    cluster.stop(usual)
    port = cluster.kept.ports[usual]
    serving.wait("the port is free", lambda: ports.is_free(port), 10)
    cluster.spawn("watchful", [str(cluster.program(f"kube-{usual}")), *words])
    serving.wait("it listens", lambda: ports.listens("127.0.0.1", port), 30)
    yield serving
    cluster.stop("watchful")
    cluster.start(usual)


def test_nothing_is_deleted_while_the_node_does_not_report(watched: Rig, tiny: str, steps: Steps) -> None:
    """The node stops reporting while its pods keep running. Nothing is deleted, and every group is ready once the node
    reports again.
    """
    before, all_before, spent = engines(watched), objects(watched), recycles(watched)
    watched.cluster.stop("kubelet", signal.SIGKILL)
    try:
        with steps.measure("node silent, until the status says so"):
            watched.wait("the loss is told", lambda: phases(watched) == {"NodeLost"}, LOST_WITHIN_S)
        assert watched.condition(TINY, TINY, "Ready")["status"] == "False"
    finally:
        watched.cluster.start("kubelet")
    with steps.measure("node reports again, until Ready"):
        watched.ready(TINY, TINY, READY_WITHIN_S)
    watched.wait("tokens", lambda: said_by(tiny), 60)
    assert (engines(watched), objects(watched), recycles(watched)) == (before, all_before, spent)


def test_pods_restart_after_their_node_died(watched: Rig, tiny: str, steps: Steps) -> None:
    """The node on which the operator, the router and the engines run dies. After it is back, the same pods start again and
    generate the same tokens.
    """
    said = watched.wait("tokens", lambda: said_by(tiny), 60)
    before, all_before, spent = engines(watched), objects(watched), recycles(watched)
    switch_off(watched.cluster)
    watched.wait("the node counts as lost", lambda: not reports(watched, NAME), LOST_WITHIN_S)
    with steps.measure("node dead, switched on again, until Ready"):
        for name in COMPONENTS:
            watched.cluster.start(name)
        watched.wait("other starts", lambda: set(engines(watched).values()).isdisjoint(before.values()), READY_WITHIN_S)
        watched.wait("ready leaders", lambda: len(ready_leaders(watched)) == len(leaders(watched)), READY_WITHIN_S)
        watched.ready(TINY, TINY, READY_WITHIN_S)
    assert watched.wait("tokens", lambda: said_by(tiny), 60) == said
    assert objects(watched) == all_before
    assert recycles(watched) - spent <= len(groups(watched)), "one recycle per group at most"


def switch_off(cluster: Cluster) -> None:
    """Kill everything on the real node: programs, containers and network."""
    for name in COMPONENTS:
        cluster.stop(name, signal.SIGKILL)
    namespaces.close(cluster.node)


def said_by(url: str) -> list[int]:
    """Return the tokens that the model generates; [] if no server answers. A router that has started is ready only after it
    has added a worker.
    """
    try:
        return tokens(url, TEXT)
    except OSError:
        return []
