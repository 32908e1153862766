"""A service with one prefill group and two decode groups on the real node: the workers that its router lists, and faults of
its pods.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ome_operator.names import public_digest
from tests.node.conftest import Steps
from tests.node.serving.conftest import DIRECT, READY_WITHIN_S, ROOT, RUNTIME, SINGLE, come_up
from tests.support.rig import Rig, is_ready

Pod = dict[str, Any]


class Decoders(NamedTuple):
    """The service. Its namespace has the same name."""

    rig: Rig
    name: str
    url: str

    def scale(self, groups: int, **lifecycle: Any) -> None:
        """Set the number of decode groups and their lifecycle, and wait until the router lists all of them."""
        decoder = {"minReplicas": groups, "maxReplicas": groups, "lifecycle": lifecycle or None}
        self.rig.patch("InferenceService", self.name, self.name, {"spec": {"decoder": decoder}})
        self.rig.wait(f"{groups} decode leaders", lambda: self.has(groups), READY_WITHIN_S)

    def has(self, groups: int) -> bool:
        """Return whether there is exactly this number of decode leaders and all of them are ready."""
        return len(self.leaders()) == len(self.listed()) == groups

    def leaders(self, component: str = "decoder") -> list[Pod]:
        """Return the leaders of a component that are ready and not being deleted, ordered by name."""
        selector = f"component={component},leaderworkerset.sigs.k8s.io/worker-index=0"
        pods = [pod for pod in self.rig.all("Pod", self.name, selector) if is_ready(pod)]
        return sorted((pod for pod in pods if not pod["metadata"].get("deletionTimestamp")), key=name_of)

    def summary(self) -> dict[str, Any]:
        """Return the summary of the router's registry."""
        (router,) = self.rig.all("Pod", self.name, "component=router")
        with DIRECT.open(f"http://{router['status']['podIP']}:29001/summary", timeout=5) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def listed(self) -> set[str]:
        """Return the marks (hashes of UIDs) of the decode leaders that the router lists."""
        return {one["id"] for one in self.summary()["leaders"] if one["role"] == "decode" and one["listed"]}

    def lists(self, pod: Pod) -> bool:
        """Return whether the router lists this leader."""
        return public_digest(pod["metadata"]["uid"]) in self.listed()

    def recycles(self) -> int:
        """Return the number of recycles of all groups."""
        return sum(group.get("recycles", 0) for group in self.groups())

    def groups(self) -> list[dict[str, Any]]:
        """Return the groups in the status."""
        found = self.rig.get("InferenceService", self.name, self.name) or {}
        groups: list[dict[str, Any]] = found.get("status", {}).get("groups", [])
        return groups


@contextlib.contextmanager
def two_groups(rig: Rig, name: str, url: str, steps: Steps) -> Iterator[Decoders]:
    """Scale an existing service to two decode groups, and yield it; afterwards it has one group again."""
    found = Decoders(rig, name, url)
    with steps.measure("one more decode group"):
        found.scale(2)
    yield found
    found.scale(1)


def derived(rig: Rig, name: str, steps: Steps, change: Callable[[dict[str, Any]], None]) -> Decoders:
    """Start a service with a runtime of its own, which `change` derives from the runtime of the tiny model."""
    runtime = yaml.safe_load((ROOT / RUNTIME).read_text())
    namespace, service = yaml.safe_load_all((ROOT / SINGLE).read_text())
    runtime["metadata"]["name"] = service["spec"]["runtime"]["name"] = f"{name}-rt"
    namespace["metadata"]["name"] = service["metadata"]["name"] = service["metadata"]["namespace"] = name
    change(runtime)
    file = rig.cluster.at.root / f"{name}.yaml"
    file.write_text(yaml.safe_dump_all([runtime, namespace, service]))
    return Decoders(rig, name, come_up(rig, str(file), name, steps, f"{name}, apply to Ready"))


def replace_arg(role: dict[str, Any], arg: str) -> None:
    """Replace the argument with the same name in a role of a runtime."""
    args, (name, _, _) = role["runner"]["args"], arg.partition("=")
    (at,) = [number for number, other in enumerate(args) if other.partition("=")[0] == name]
    args[at] = arg


def name_of(pod: Pod) -> str:
    """Return the name of a pod."""
    return str(pod["metadata"]["name"])


def processes(pod: Pod, title: str = "") -> list[int]:
    """Return the processes of a pod's main container whose command line matches a regular expression."""
    container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (proc / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if container in (proc / "cgroup").read_text() and re.search(title, line):
                found.append(int(proc.name))
    assert found, f"no process of {name_of(pod)} matches {title!r}"
    return found


def send(pod: Pod, title: str, number: signal.Signals) -> None:
    """Send a signal to the processes of a pod whose command line matches a regular expression."""
    for process in processes(pod, title):
        os.kill(process, number)


def inside(pod: Pod, *command: str) -> str:
    """Run a program of this machine in the network of a pod, and return its output."""
    words = ["nsenter", f"--target={processes(pod)[0]}", "--net", *command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def cut(source: Pod, target: Pod) -> None:
    """Drop all packets from one pod to another: a neighbor entry maps the address of the other pod to a MAC address that
    does not exist.
    """
    at = target["status"]["podIP"]
    inside(source, "ip", "neigh", "replace", at, "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent")


def cut_transfers(source: Pod, target: Pod, *how: str) -> None:
    """Drop or reject the packets with KV caches from one pod to another, and let all other packets pass. `how` is the target
    of iptables.
    """
    ports = re.findall(r":(1[5-7]\d{3}) ", inside(target, "ss", "-ltn"))  # the range of Mooncake's ports
    assert len(ports) == 2, f"the ports of Mooncake are {ports}"
    rule = ["-d", target["status"]["podIP"], "-p", "tcp", "-m", "multiport", "--dports", ",".join(ports), "-j", *how]
    inside(source, "iptables", "-A", "OUTPUT", *rule)


def mend(source: Pod) -> None:
    """Undo `cut` and `cut_transfers` for these pods."""
    inside(source, "ip", "neigh", "flush", "all", "nud", "permanent")
    inside(source, "iptables", "-F", "OUTPUT")


async def after(began: float, what: str, within: float, test: Callable[[], bool]) -> float:
    """Wait for a condition, and return the seconds from `began` until it holds."""
    while not await asyncio.to_thread(test):
        assert time.monotonic() - began < within, f"not within {within:.0f} s: {what}"
        await asyncio.sleep(0.25)
    return time.monotonic() - began
