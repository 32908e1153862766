"""Tests of `ome operator` as a process: it leads, stands by, takes over, and stops."""

import asyncio
import itertools
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import aiohttp
import pytest

from ome_local.cluster import Cluster
from ome_local.ports import choose
from ome_local.servers import SECOND
from ome_operator.kube.client import Client
from ome_operator.kube.connection import Connection
from ome_operator.kube.leader_election import Election, ElectionSettings, LeadershipLost
from ome_operator.util.wall_clock import now
from tests.controlplane.process.conftest import CRDS
from tests.support.manager import service, until
from tests.support.waiting import wait_until as until_true

_NUMBER = itertools.count()
PATIENT = """
import asyncio
import uvloop
from ome_operator.__main__ import main
from ome_operator.settings import Settings
Settings.__init__.__kwdefaults__.update(lease_duration=120.0, lease_renew=110.0)
uvloop.run = asyncio.run
main()
"""
"""The program of an operator that does not exit while the API server restarts. On a busy machine a restart takes longer than
the ten seconds after which a leader exits, and afterwards uvloop sometimes refuses a new connection (docs/production.md).
"""


@dataclass
class Process:
    """A process of the operator for the cluster."""

    cluster: Cluster
    name: str
    health: int
    metrics: int

    async def get(self, path: str, port: int = 0) -> tuple[int, str]:
        """Return the answer of an endpoint; (0, "") while no process listens."""
        try:
            async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port or self.health}{path}") as said:
                return said.status, await said.text()
        except aiohttp.ClientError:
            return 0, ""

    async def is_state(self, state: str, seconds: float = 30) -> None:
        """Wait until the process reports this state."""
        async with asyncio.timeout(seconds):
            while (await self.get("/readyz")) != (200, state):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


Start = Callable[..., Process]


@pytest.fixture
def start(cluster: Cluster) -> Iterator[Start]:
    started: list[Process] = []

    def run(lease: str = "default", identity: str = "", *, patient: bool = False) -> Process:
        health, metrics = choose(2)
        made = Process(cluster, f"operator-{next(_NUMBER)}", health, metrics)
        program = ("-c", PATIENT) if patient else ("-m", "ome_operator")
        argv = [
            sys.executable, *program, "operator", "--kubeconfig", str(cluster.kubeconfig),
            "--namespace-of-lease", lease, "--address", "127.0.0.1", "--health-port", str(health),
            "--metrics-port", str(metrics), "--identity", identity or made.name, "--log-format", "json",
        ]  # fmt: skip
        cluster.spawn(made.name, argv)
        started.append(made)
        return made

    yield run
    for one in started:
        if cluster.process(one.name):
            cluster.stop(one.name, signal.SIGKILL)


async def test_one_operator_leads_and_the_standby_takes_over(cluster: Cluster, client: Client, start: Start) -> None:
    first = start()
    await first.is_state("leading")
    second = start()
    await second.is_state("standby")
    assert (await first.get("/healthz"))[0] == (await second.get("/healthz"))[0] == 200
    assert "ome_leader 1.0" in (await first.get("/metrics", first.metrics))[1]
    assert "ome_leader 0.0" in (await second.get("/metrics", second.metrics))[1]
    await client.create(service())
    await asyncio.sleep(1)
    assert 'ome_services{ready="False",' in (await first.get("/metrics", first.metrics))[1]

    began = time.monotonic()
    await asyncio.to_thread(cluster.stop, first.name, signal.SIGTERM)
    assert time.monotonic() - began < 5
    await second.is_state("leading", 20)
    lease = await client.get("Lease", "default", "ome-operator")
    assert lease["spec"]["holderIdentity"] == second.name, "an operator that is stopped releases its Lease at once"
    said = [json.loads(line) for line in cluster.log(first.name).read_text().splitlines()]
    assert [line["message"] for line in said][-2:] == ["stopping: SIGTERM", "stopped"]
    assert not [line for line in said if line["level"] in ("error", "critical")]
    held = f"standing by: {first.name} holds the Lease default/ome-operator"
    assert cluster.log(second.name).read_text().count(held) == 1

    third = start(identity=second.name)
    await asyncio.to_thread(cluster.stop, second.name, signal.SIGKILL)
    await third.is_state("leading", 30)
    lease = await client.get("Lease", "default", "ome-operator")
    assert lease["spec"]["leaseTransitions"] == 1, "after a crash, an operator with the same identity leads again at once"
    await asyncio.to_thread(cluster.stop, third.name, signal.SIGTERM)


async def test_leader_that_lost_the_lease_exits(cluster: Cluster, client: Client, start: Start) -> None:
    one = start()
    await one.is_state("leading", 40)
    lease = await client.get("Lease", "default", "ome-operator")
    usurped = {"spec": {"holderIdentity": "usurper"}}
    await asyncio.to_thread(cluster.kubectl, "patch", "lease", "ome-operator", "--type=merge", "-p", json.dumps(usurped))
    await until("it ends", lambda: cluster.process(one.name) is None, 15)
    assert "another operator holds the Lease" in cluster.log(one.name).read_text()
    await client.delete("Lease", "default", "ome-operator", lease["metadata"]["uid"])


async def test_second_candidate_leads_after_lease_expires(client: Client) -> None:
    def candidate(name: str) -> Election:
        return Election(client, ElectionSettings("default", "contest", name, duration=2, renew=1.9, retry=0.2), now)

    a, b = candidate("a"), candidate("b")
    await a.acquire_lease()
    holding = asyncio.create_task(a.hold_lease())
    waiting = asyncio.create_task(b.acquire_lease())
    await asyncio.sleep(3)
    assert not waiting.done(), "b must not lead while a renews the Lease"
    assert not holding.done()
    holding.cancel()
    began = time.monotonic()
    await asyncio.wait_for(waiting, 5)
    assert time.monotonic() - began > 1, "b leads only after the duration of the Lease is over"
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(a.hold_lease(), 5)
    await b.release()
    await asyncio.wait_for(candidate("c").acquire_lease(), 1)


@pytest.mark.parametrize("crd", ["benchmarkjobs", "rolescales"], ids=["which kopf watches", "which we watch"])
async def test_deletion_of_a_crd_ends_the_process_with_a_message(cluster: Cluster, start: Start, crd: str) -> None:
    """If a CRD is deleted, the operator exits with a message that names the CRD. The next process waits until the CRD exists
    again.
    """
    first = start()
    await first.is_state("leading", 40)
    await asyncio.to_thread(cluster.kubectl, "delete", "crd", f"{crd}.ome.io")
    await until("it ends", lambda: cluster.process(first.name) is None, 40)
    said = [json.loads(line) for line in cluster.log(first.name).read_text().splitlines()]
    assert [line for line in said if "exception" in line] == []
    (last,) = [line["message"] for line in said if line["level"] == "critical"]
    assert crd in last

    second = start()
    await until("it waits", lambda: "waiting for CRDs of ome.io: " in cluster.log(second.name).read_text())
    assert await second.get("/readyz") == (503, "waiting for CRDs")
    await asyncio.to_thread(cluster.kubectl, "apply", "--server-side", "-f", str(CRDS / f"{crd}.ome.io.yaml"))
    await second.is_state("leading", 40)


async def test_service_deleted_while_the_api_server_is_down_is_removed_from_memory(
    cluster: Cluster, client: Client, start: Start
) -> None:
    """A service that is deleted while the API server does not run is noticed afterwards: after a new list, objects that no
    longer exist are removed from memory. This also holds for the kinds that kopf watches.
    """
    other = Client(await Connection.open(await asyncio.to_thread(cluster.extra_apiserver)))
    one = start(patient=True)

    async def are_counted() -> bool:
        """Return whether the operator counts as many services as exist now. The number may fall, because services of
        earlier tests may still be being removed.
        """
        metrics = (await one.get("/metrics", one.metrics))[1].splitlines()
        counted = sum(float(line.split()[-1]) for line in metrics if line.startswith("ome_services{"))
        return counted == len(await other.list_objects("InferenceService"))

    async def is_processed() -> bool:
        return "observedGeneration" in (await other.get("InferenceService", "default", born["metadata"]["name"]))["status"]

    try:
        await one.is_state("leading", 40)
        doomed = await client.create(service())
        await until_true(are_counted, 10)
        await asyncio.to_thread(cluster.stop, "apiserver", signal.SIGKILL)
        await other.delete("InferenceService", "default", doomed["metadata"]["name"], doomed["metadata"]["uid"])
        born = await other.create(service())
        await asyncio.to_thread(cluster.start, "apiserver")
        await until_true(is_processed, 33)
        await until_true(are_counted, 33)
        await one.is_state("leading")
        await asyncio.to_thread(cluster.stop, one.name, signal.SIGTERM)
    except (AssertionError, TimeoutError):
        pytest.fail(cluster.log(one.name).read_text()[-9000:])
    finally:
        await other.close()
        await asyncio.to_thread(cluster.stop, SECOND)


async def test_kopf_writes_no_object_and_posts_no_events(cluster: Cluster, client: Client, start: Start) -> None:
    """The operator uses kopf only for watching, and kopf writes to no object: a finalizer of another kopf operator stays,
    and kopf posts no Events.
    """
    marker = "kopf.zalando.org/KopfFinalizerMarker"
    before = len(_by_kopf(cluster))
    one = start()
    await one.is_state("leading", 40)
    wanted = service()
    wanted["metadata"]["finalizers"] = [marker]
    made = await client.create(wanted)
    name, uid = made["metadata"]["name"], made["metadata"]["uid"]
    await client.patch_merge("InferenceService", "default", name, uid, {"metadata": {"labels": {"a": "b"}}})
    await client.delete("InferenceService", "default", name, uid)
    await asyncio.sleep(3)
    left = await client.get("InferenceService", "default", name)
    assert left["metadata"]["finalizers"] == [marker]
    await client.patch_merge("InferenceService", "default", name, uid, {"metadata": {"finalizers": None}})
    by_kopf = _by_kopf(cluster)[before:]
    assert {kind for verb, kind in by_kopf if verb == "watch"} >= {"inferenceservices", "basemodels", "servings"}
    assert {verb for verb, _ in by_kopf} <= {"get", "list", "watch"}
    assert not {kind for _, kind in by_kopf} & {"customresourcedefinitions", "namespaces", "events", "kopfpeerings"}
    await asyncio.to_thread(cluster.stop, one.name, signal.SIGTERM)


def _by_kopf(cluster: Cluster) -> list[tuple[str, str]]:
    """Return verb and kind of all requests that kopf has sent."""
    lines = cluster.at.audit_log.read_text().splitlines()
    found = [json.loads(line) for line in lines if "ome-operator (kopf)" in line]
    return [(event["verb"], (event.get("objectRef") or {}).get("resource", "")) for event in found]
