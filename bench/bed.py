"""A new cluster for a measurement, with charts and catalog. The operator runs as a process with the token of the chart's
account.
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench.api import Api, RequestRefused
from bench.counting import Count, count
from bench.offline import with_owner
from bench.pace import Pace, pace
from bench.processes import Usage, usage
from bench.scenarios import HOLDS, NAMESPACE, Scenario, catalog
from bench.watching import Late, Watching
from ome_local import lifecycle
from ome_local.cluster import Cluster
from ome_local.layout import layout
from ome_operator import keys

CHARTS = Path(__file__).parent.parent / "charts"
SERVERS = ("etcd", "apiserver", "controller-manager", "scheduler", "kwok")
OPERATOR_NAMESPACE = "ome"
OWN_KINDS = ("InferenceService", "RoleScale", "ClusterBaseModel", "ClusterServingRuntime", "AcceleratorClass")
SERVED_WITHIN_S = 60.0
STARTED_WITHIN_S = 90.0
QUIET_S = 6.0
"""Seconds without a write after which the operator is regarded as settled. They are more than the interval at which the
operator writes statuses in which only counts have changed."""
SETTLED_WITHIN_S = 60.0


@dataclass
class Bed:
    """The environment of a measurement."""

    cluster: Cluster
    api: Api
    watching: Watching
    pace: Pace

    def servers_cpu(self) -> dict[str, float]:
        """Return the CPU seconds of the control plane so far."""
        found = {name: self.cluster.process(name) for name in SERVERS}
        return {name: usage(process.pid).cpu_s for name, process in found.items() if process}

    async def count(self, since: int) -> Count:
        """Return the number of the operator's requests since the position `since` of the audit log."""
        await asyncio.sleep(0.5)  # the audit log is written after the responses
        return count(await asyncio.to_thread(self.cluster.audit, since))

    async def wait_until_settled(self) -> bool:
        """Wait until the operator has written nothing for a while. Return False if the operator does not stop writing in
        time.
        """
        clock = asyncio.get_running_loop().time
        quiet_since = clock()
        until = quiet_since + SETTLED_WITHIN_S
        mark = self.cluster.audit_mark()
        while clock() - quiet_since < QUIET_S:
            if clock() > until:
                return False
            await asyncio.sleep(0.5)
            before, mark = mark, self.cluster.audit_mark()
            if count(self.cluster.audit(before)).writes:
                quiet_since = clock()
        return True


@asynccontextmanager
async def bed(scenario: Scenario) -> AsyncIterator[Bed]:
    """Create the environment, and remove all of it at the end of the `with` block."""
    name = f"bench-{os.getpid()}"
    try:
        cluster = Cluster.up(name, nodes=scenario.nodes, accelerator="h200", audit=True, fast=True)
        _furnish(cluster)
        async with await Api.open(cluster.kubeconfig) as api:
            await _served(api)
            await _collecting(api)
            async with Watching(api) as watching:
                with pace() as samples:
                    yield Bed(cluster, api, watching, samples)
    finally:
        lifecycle.down(layout(name))


def _furnish(cluster: Cluster) -> None:
    """Install charts, namespace, model and runtimes, and label every node as holding the model."""
    cluster.helm("install", "ome-crd", str(CHARTS / "ome-crd"))
    words = ("--namespace", OPERATOR_NAMESPACE, "--create-namespace", "--set", "operator.external=true")
    cluster.helm("install", "ome", str(CHARTS / "ome-resources"), *words)
    cluster.await_crds()
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.apply(*catalog())
    cluster.kubectl("label", "nodes", "--all", f"{HOLDS}=Ready")


async def _served(api: Api) -> None:
    """Wait until the kinds of this project can be listed. For some seconds after a CRD was created, the API server answers
    404 or 429 for its kind.
    """
    until = asyncio.get_running_loop().time() + SERVED_WITHIN_S
    for kind in OWN_KINDS:
        while True:
            try:
                await api.names(kind, "", limit=1)
                break
            except RequestRefused as error:
                if asyncio.get_running_loop().time() > until:
                    raise Late(f"{kind} is not served: {error}") from error
                await asyncio.sleep(0.2)


async def _collecting(api: Api) -> None:
    """Wait until the garbage collector knows the kinds of this project; it looks for new kinds every 30 s. Until then, it
    sends a request for the owner of each object. These requests must not be measured, because they do not occur on a
    cluster that has existed for some time.
    """
    owner = {"apiVersion": keys.API_VERSION, "kind": "RoleScale", "metadata": {"name": "canary", "namespace": NAMESPACE}}
    made = await api.create({**owner, "spec": {"replicas": 0}})
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "canary", "namespace": NAMESPACE}}
    await api.create(with_owner(child, made))
    await api.delete("RoleScale", NAMESPACE, "canary")
    until = asyncio.get_running_loop().time() + SETTLED_WITHIN_S
    while "canary" in await api.names("ConfigMap", NAMESPACE):
        if asyncio.get_running_loop().time() > until:
            raise Late("the garbage collector does not collect")
        await asyncio.sleep(0.2)


class Operator:
    """Runs the operator as a process of the cluster. When the cluster is removed, this process is stopped, too."""

    def __init__(self, at: Bed) -> None:
        self._cluster = at.cluster

    async def start(self) -> float:
        """Start the operator. Return the seconds until it leads and has listed every object."""
        clock = asyncio.get_running_loop().time
        began, port = clock(), _free_port()
        kubeconfig = self._cluster.keep_token(OPERATOR_NAMESPACE, "ome-operator")
        words = [sys.executable, "-m", "ome_operator", "operator", f"--kubeconfig={kubeconfig}"]
        words.append("--sidecar-image=registry.example.com/ome-operator")  # as with the chart; no simulated node pulls it
        words += [f"--namespace-of-lease={OPERATOR_NAMESPACE}", "--address=127.0.0.1"]
        words += [f"--health-port={port}", "--metrics-port=0"]
        self._cluster.spawn("operator", words)
        while not await _leads(port):
            if self._cluster.process("operator") is None or clock() > began + STARTED_WITHIN_S:
                raise Late(f"the operator does not start: {self._last_words()}")
            await asyncio.sleep(0.05)
        return clock() - began

    async def stop(self) -> None:
        """Stop the operator, and wait until it has ended."""
        await asyncio.to_thread(self._cluster.stop, "operator")

    def usage(self) -> Usage:
        """Return the resources that the operator has used since its start."""
        process = self._cluster.process("operator")
        if process is None:
            raise Late(f"the operator ended: {self._last_words()}")
        return usage(process.pid)

    def log(self) -> str:
        """Return the operator's complete log."""
        return self._cluster.log("operator").read_text(errors="replace")

    def _last_words(self) -> str:
        return "\n".join(self.log().strip().splitlines()[-5:])


async def _leads(port: int) -> bool:
    try:
        async with aiohttp.request("GET", f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status == 200 and "leading" in await answer.text()
    except (aiohttp.ClientError, OSError):
        return False


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
