"""Tests in which pods of prefill and decode are killed under traffic, in some while the API server does not run.

The same faults are caused with the registry beside the router and without it, to show the effect of the registry. The
numbers of failed requests are printed with the steps.
"""

import asyncio
import base64
import contextlib
import json
import operator
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from ome_operator.errors import UserError
from tests.node.conftest import ON_KIND, Steps
from tests.node.serving.conftest import DIRECT, READY_WITHIN_S
from tests.support.rig import Rig, is_ready
from tests.support.traffic import Report, stream_of

ANNOTATION = "ome.io/registry"
TINY = "kimi-k2-tiny"
PER_SECOND = 4.0
CALM_S = 5.0
"""Seconds of traffic before the fault."""
OUT_WITHIN_S = 10.0


@pytest.fixture(scope="module")
def doubled(serving: Rig, tiny: str, steps: Steps) -> Iterator[str]:
    """Yield the URL of the service with two prefill and two decode groups. Afterwards, the service has one group of each
    again.
    """
    with steps.measure("one more group of each role"):
        scale(serving, 2)
        serving.wait("four leaders", lambda: len(ready_leaders(serving)) == 4, READY_WITHIN_S)
    yield tiny
    scale(serving, 1)
    serving.wait("two leaders", lambda: len(leaders(serving)) == 2, 120)


def scale(rig: Rig, groups: int) -> None:
    """Set the number of groups of both roles."""
    one = {"minReplicas": groups, "maxReplicas": groups}
    rig.patch("InferenceService", TINY, TINY, {"spec": {"engine": one, "decoder": one}})


def leaders(rig: Rig) -> list[dict[str, Any]]:
    """Return all leader pods of engines."""
    return rig.all("Pod", TINY, "leaderworkerset.sigs.k8s.io/worker-index=0")


def ready_leaders(rig: Rig) -> dict[str, dict[str, Any]]:
    """Return name -> pod, for the leaders that are ready and not being deleted."""
    ready = (pod for pod in leaders(rig) if is_ready(pod) and not pod["metadata"].get("deletionTimestamp"))
    return {pod["metadata"]["name"]: pod for pod in ready}


def leader(rig: Rig, component: str) -> str:
    """Return the name of a ready leader of a component."""
    return min(one for one, pod in ready_leaders(rig).items() if pod["metadata"]["labels"]["component"] == component)


def crash(rig: Rig, pod: str) -> None:
    """Kill all processes of SGLang in the pod at once."""
    with contextlib.suppress(UserError):  # kubectl fails, because the container ends
        rig.cluster.kubectl("exec", "-n", TINY, pod, "-c", "ome-container", "--", "python3", "-c", KILL)


KILL = """
import contextlib, os, pathlib, signal
for proc in pathlib.Path('/proc').glob('[0-9]*'):
    with contextlib.suppress(OSError):
        if b'sglang' in (proc / 'cmdline').read_bytes() and int(proc.name) != os.getpid():
            os.kill(int(proc.name), signal.SIGKILL)
"""


def delete_unseen(rig: Rig, pod: str) -> None:
    """Delete the pod while the API server that the router watches does not run."""
    second = rig.cluster.extra_apiserver()
    rig.cluster.stop("apiserver", signal.SIGKILL)
    words = ["delete", "pod", "-n", TINY, pod, "--grace-period=0", "--force"]
    kubectl = [str(rig.cluster.program("kubectl")), f"--kubeconfig={second}", *words]
    subprocess.run(kubectl, check=True, capture_output=True, timeout=30)
    rig.cluster.start("apiserver")
    rig.api = rig.cluster.api()
    rig.cluster.stop("apiserver-2", signal.SIGKILL)


class Fault(NamedTuple):
    """A fault of a leader."""

    what: str
    happens: Callable[[Rig, str], None]
    component: str
    """Component whose leader is affected."""


FAULTS = (
    Fault("decode crashes", crash, "decoder"),
    Fault("prefill crashes", crash, "engine"),
)
UNSEEN = (
    Fault("decode deleted unseen, API server killed", delete_unseen, "decoder"),
    Fault("prefill deleted unseen, API server killed", delete_unseen, "engine"),
)
"""Faults that need a local control plane: kind has no second API server on the same etcd."""


async def under_traffic(rig: Rig, url: str, fault: Callable[..., None], *words: object) -> tuple[Report, float]:
    """Send requests continuously, cause a fault, and wait until every group is ready again. Return the report of the
    requests and the time of the fault.
    """
    async with stream_of(url, PER_SECOND) as report:
        await asyncio.sleep(CALM_S)
        assert not report.failed_answers, report.failed_answers[0].error
        began = time.monotonic()
        await asyncio.to_thread(fault, rig, *words)
        await asyncio.sleep(OUT_WITHIN_S)
        while len(await asyncio.to_thread(ready_leaders, rig)) < 4:
            assert time.monotonic() < began + READY_WITHIN_S, "the groups did not come back"
            await asyncio.sleep(0.5)
        await asyncio.sleep(OUT_WITHIN_S)
    return report, began


async def tell(rig: Rig, url: str, steps: Steps, with_what: str) -> None:
    """Cause one fault after another, print the results of each, and check which workers the router lists afterwards."""
    for one in (*FAULTS, *(() if ON_KIND else UNSEEN)):
        pod = await asyncio.to_thread(leader, rig, one.component)
        ended = url_of((await asyncio.to_thread(ready_leaders, rig))[pod])
        report, began = await under_traffic(rig, url, one.happens, pod)
        counts = f"{len(report.failed_answers):>8} of {len(report.answers)} requests failed"
        steps.note(f"{one.what}, {with_what}", f"{counts}, the last of them began after {report.last_failure(began):.1f} s")
        if with_what == "registry":
            await asyncio.to_thread(listed_are_ready, rig)
        elif one in UNSEEN:
            listed, _ = await asyncio.to_thread(lists, rig)
            assert ended in listed, f"{one.what}: a router alone does not notice the deletion"


def url_of(pod: dict[str, Any]) -> str:
    """Return the URL under which routers list a leader."""
    return f"http://{pod['status']['podIP']}:30000"


def lists(rig: Rig) -> tuple[set[str], set[str]]:
    """Return the URLs of the workers that the only router lists, and the URLs of the ready leaders."""
    (router,) = rig.all("Pod", TINY, "component=router")
    told = workers(rig, router["status"]["podIP"], timeout=10)
    return {one["url"] for one in told["workers"]}, {url_of(pod) for pod in ready_leaders(rig).values()}


def listed_are_ready(rig: Rig) -> None:
    """Check that the router's workers are exactly the ready leaders."""
    listed, ready = lists(rig)
    assert listed == ready


@pytest.mark.timeout(1500, func_only=True)
async def test_router_lists_exactly_the_ready_leaders_within_seconds_of_a_fault(
    serving: Rig, doubled: str, steps: Steps
) -> None:
    """With the registry beside the router, the router lists exactly the ready leaders within seconds after each fault."""
    await tell(serving, doubled, steps, "registry")


@pytest.mark.timeout(1500, func_only=True)
async def test_router_without_registry_keeps_deleted_leader_in_its_list(serving: Rig, doubled: str, steps: Steps) -> None:
    """The same faults happen to a router without the registry. A leader that is deleted while the router cannot watch pods
    stays in the router's list. With the registry again, the router lists exactly the ready leaders.
    """
    mark = {"metadata": {"annotations": {ANNOTATION: "false"}}}
    await asyncio.to_thread(serving.patch, "InferenceService", TINY, TINY, mark)
    await asyncio.to_thread(serving.wait, "a router alone", lambda: routers(serving) == [1], 120)
    try:
        await tell(serving, doubled, steps, "router alone")
    finally:
        mark = {"metadata": {"annotations": {ANNOTATION: None}}}
        await asyncio.to_thread(serving.patch, "InferenceService", TINY, TINY, mark)
        await asyncio.to_thread(serving.wait, "its registry", lambda: routers(serving) == [2], 120)
    await asyncio.to_thread(serving.wait, "the ready leaders are listed", lambda: operator.eq(*lists(serving)), 60)


def workers(rig: Rig, address: str, timeout: float) -> dict[str, Any]:
    """Return the workers that a router lists. The router returns them only to clients with the API key of its control
    plane.
    """
    secret = rig.get("Secret", TINY, f"{TINY}-router-key") or {}
    key = base64.b64decode((secret.get("data") or {}).get("key", "")).decode()
    request = urllib.request.Request(f"http://{address}:8080/workers", headers={"Authorization": f"Bearer {key}"})
    told: dict[str, Any] = json.loads(DIRECT.open(request, timeout=timeout).read())
    return told


def routers(rig: Rig) -> list[int]:
    """Return the number of containers of each router pod, including sidecars."""
    pods = [pod["spec"] for pod in rig.all("Pod", TINY, "component=router")]
    return [len(spec["containers"]) + len(spec.get("initContainers", ())) for spec in pods]


@pytest.mark.timeout(300, func_only=True)
async def test_scale_down_under_traffic_loses_no_request(serving: Rig, doubled: str, steps: Steps) -> None:
    """A group is removed by scaling under traffic. Its leader is marked, removed from the router, and only then stopped, so
    no request fails.
    """
    async with stream_of(doubled, PER_SECOND) as report:
        await asyncio.sleep(CALM_S)
        began = time.monotonic()
        await asyncio.to_thread(scale, serving, 1)
        await asyncio.to_thread(serving.wait, "two leaders", lambda: len(leaders(serving)) == 2, 150)
        took = time.monotonic() - began
        await asyncio.sleep(CALM_S)
    counts = f"{len(report.failed_answers):>8} of {len(report.answers)} requests failed"
    steps.note("one group of each role removed by scaling down", f"{counts}, gone after {took:.0f} s")
    assert not report.failed_answers, report.failed_answers[0].error
