"""Services on simulated nodes of their own, `kubectl drain` in the background, and a watch of pods that counts the groups
that serve.
"""

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from ome_local import nodes
from ome_local.cluster import Cluster
from ome_operator import keys
from tests.support import yamls
from tests.support.rig import ROOT, Manifest, Rig, is_ready

NAME = "svc"
POOL = "pool"
"""Label of the nodes of a service."""
TAINT = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
BIG = 12
"""Number of pods of a group that spans many nodes."""


def runtimes() -> list[Manifest]:
    """Return two kinds of runtimes. The groups of the first kind have one, two or many pods, each of which needs a whole
    node. The groups of the second kind have one pod, which needs half of a node.
    """
    whole = [yamls.runtime(f"moves-{size}", size=size, gpus=8, decoder=True) for size in (1, 2, BIG)]
    return [*whole, yamls.runtime("moves-half", gpus=4)]


def pool(rig: Rig, name: str, engines: int, routers: int = 2) -> None:
    """Create nodes for engines and decoders, `NAME-0` and so on, and for routers, `NAME-router-0` and so on."""
    template = nodes.simulated("h200", 1)[0]
    wanted = {f"{name}-{number}": name for number in range(engines)}
    wanted |= {f"{name}-router-{number}": f"{name}-router" for number in range(routers)}
    for node, label in wanted.items():
        here = {POOL: label, "kubernetes.io/hostname": node, **yamls.READY}
        metadata = {**template["metadata"], "name": node, "labels": {**template["metadata"]["labels"], **here}}
        status = {**template["status"], "addresses": [{"type": "Hostname", "address": node}]}
        rig.create({**template, "metadata": metadata, "status": status})
    rig.wait(f"nodes of {name}", lambda: _all_ready(rig, wanted))


def _all_ready(rig: Rig, names: Iterable[str]) -> bool:
    """Return whether all these nodes are ready and without taints: a new node has the taint `not-ready` until the node
    lifecycle controller removes it.
    """
    usable = [one for one in rig.all("Node", "") if is_ready(one) and not one["spec"].get("taints")]
    return {one["metadata"]["name"] for one in usable} >= set(names)


def empty(rig: Rig) -> None:
    """Delete all nodes that `pool` created, and wait until they are gone."""
    for node in rig.all("Node", "", POOL):
        rig.delete("Node", "", node["metadata"]["name"])


def movable(namespace: str, on: str, size: int, moves: Mapping[str, object], **counts: int) -> Manifest:
    """Return a service whose groups run on the nodes of a pool; `counts` are the numbers of groups by component."""
    place = {"nodeSelector": {POOL: on}}
    part = {"leader": place, "worker": place} if size > 1 else place
    parts: Manifest = {role: {"minReplicas": count, **part} for role, count in counts.items()}
    spec = {**parts, "router": {"nodeSelector": {POOL: f"{on}-router"}}, "moves": {**moves}}
    return yamls.service(namespace, NAME, f"moves-{size}", *counts, "router", **spec)


def pods_of(rig: Rig, namespace: str, component: str, number: int | None = None) -> list[Manifest]:
    """Return the pods of a role that are not being deleted. If `number` is given, return only those of the group with this
    number.
    """
    wanted = f"component={component}" if number is None else f"component={component},{keys.GROUP_INDEX}={number}"
    return [pod for pod in rig.all("Pod", namespace, wanted) if "deletionTimestamp" not in pod["metadata"]]


def nodes_of(rig: Rig, namespace: str, component: str, number: int | None = None) -> list[str]:
    """Return the nodes of the pods of a role, or, if `number` is given, of the group with this number. The node of the
    leader comes first.
    """
    found = sorted(pods_of(rig, namespace, component, number), key=lambda pod: str(pod["metadata"]["name"]))
    return [pod["spec"]["nodeName"] for pod in found if pod["spec"].get("nodeName")]


def numbers(rig: Rig, namespace: str, component: str) -> set[int]:
    """Return the numbers of the groups of a role."""
    return {int(pod["metadata"]["labels"][keys.GROUP_INDEX]) for pod in pods_of(rig, namespace, component)}


def moves_of(rig: Rig, namespace: str, name: str = NAME) -> dict[str, Manifest]:
    """Return `status.moves` of a service by component."""
    status = (rig.get("InferenceService", namespace, name) or {}).get("status") or {}
    return {one["component"]: one for one in status.get("moves") or ()}


def phase(rig: Rig, namespace: str, component: str) -> str:
    """Return the phase of the move of a role; "" if there is none."""
    return str(moves_of(rig, namespace).get(component, {}).get("phase", ""))


def uids(rig: Rig, namespace: str, component: str = "engine") -> set[str]:
    """Return the UIDs of the pods of a role."""
    return {pod["metadata"]["uid"] for pod in pods_of(rig, namespace, component)}


def taint(rig: Rig, node: str) -> None:
    """Taint a node as Karpenter does before it removes the node."""
    kept = [one for one in rig.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints") or () if one["key"] != TAINT["key"]]
    rig.patch("Node", "", node, {"spec": {"taints": [*kept, TAINT]}})


def untaint(rig: Rig, node: str) -> None:
    """Remove the cordon and all taints of a node."""
    rig.patch("Node", "", node, {"spec": {"taints": None, "unschedulable": None}})


class Drain:
    """`kubectl drain`, which runs in the background."""

    def __init__(self, cluster: Cluster, *names: str, timeout: int = 400) -> None:
        words = ["drain", *names, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={timeout}s"]
        self._process = subprocess.Popen(
            [str(cluster.program("kubectl")), *words],
            env=cluster.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.names, self._began = names, time.monotonic()

    @property
    def running(self) -> bool:
        """Return whether the drain is still running."""
        return self._process.poll() is None

    def ended(self, seconds: float) -> float:
        """Wait until the drain has ended without an error, and return the seconds that it took."""
        try:
            output, _ = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f"kubectl drain {' '.join(self.names)}: not within {seconds:.0f} s") from None
        assert self._process.returncode == 0, output
        return time.monotonic() - self._began

    def stop(self) -> None:
        """Stop the drain if it is still running."""
        self._process.kill()
        self._process.communicate()


class Eviction(NamedTuple):
    """A request to evict a pod."""

    pod: str
    code: int


def evictions(rig: Rig, namespace: str, since: int) -> list[Eviction]:
    """Return the evictions of pods of a namespace since the position `since` of the audit log."""
    found = (one for one in rig.cluster.audit(since) if one.subresource == "eviction" and one.namespace == namespace)
    return [Eviction(one.name, one.code) for one in found]


class Seen(NamedTuple):
    """The number of groups of a role that served at one moment."""

    at: float
    groups: int


class GroupWatch:
    """A watch of all pods of services, which counts the groups of each role that serve. A group serves if all of its pods
    are ready, none is being deleted, and its leader is not being drained.

    `sizes` maps a namespace to the number of pods of a group of its service. In all other namespaces, a group has one pod.
    """

    def __init__(self, cluster: Cluster, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        label = f"{keys.MANAGED_BY}%3D{keys.MANAGER}"
        words = ["get", "--raw", f"/api/v1/pods?watch=true&labelSelector={label}"]
        self._process = subprocess.Popen(
            [str(cluster.program("kubectl")), *words], env=cluster.environment(), stdout=subprocess.PIPE, text=True
        )
        self._pods: dict[str, Manifest] = {}
        self._seen: dict[tuple[str, str], list[Seen]] = defaultdict(list)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the watch."""
        self._process.kill()
        self._thread.join(10)
        self._process.communicate()

    def least(self, namespace: str, component: str, since: float) -> int:
        """Return the smallest number of groups of a role that served at any moment from the time `since` on; -1 if no pod of
        the role was ever seen.
        """
        with self._lock:
            seen = self._seen.get((namespace, component), [])
            before = [one for one in seen if one.at <= since][-1:]
            return min((one.groups for one in [*before, *(one for one in seen if one.at > since)]), default=-1)

    @property
    def running(self) -> bool:
        """Return whether events are still read."""
        return self._process.poll() is None and self._thread.is_alive()

    def first_below(self, namespace: str, component: str, groups: int, since: float) -> float:
        """Return the first time after `since` at which fewer than `groups` groups of a role served; infinity if there is
        none.
        """
        with self._lock:
            seen = self._seen.get((namespace, component), [])
            return min((one.at for one in seen if one.at > since and one.groups < groups), default=math.inf)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._event(json.loads(line))

    def _event(self, event: Manifest) -> None:
        body = event["object"]
        metadata = body["metadata"]
        if event["type"] == "DELETED":
            self._pods.pop(metadata["uid"], None)
        else:
            self._pods[metadata["uid"]] = body
        place = (metadata["namespace"], metadata["labels"].get("component", ""))
        with self._lock:
            self._seen[place].append(Seen(time.monotonic(), self._count(*place)))

    def _count(self, namespace: str, component: str) -> int:
        ranks: dict[tuple[str, str], int] = defaultdict(int)
        for pod in self._pods.values():
            metadata = pod["metadata"]
            labels = metadata["labels"]
            if metadata["namespace"] == namespace and labels.get("component") == component and _serves(pod):
                group = labels.get(keys.GROUP_INDEX) or metadata["name"]
                ranks[labels.get(keys.REVISION, ""), group] += 1
        return sum(count >= self._size(namespace, component) for count in ranks.values())

    def _size(self, namespace: str, component: str) -> int:
        return self._sizes.get(namespace, 1) if component != keys.ROUTER else 1


def _serves(pod: Manifest) -> bool:
    metadata = pod["metadata"]
    return is_ready(pod) and "deletionTimestamp" not in metadata and keys.DRAINING not in metadata.get("annotations", {})


@contextmanager
def watched(cluster: Cluster, sizes: Mapping[str, int]) -> Iterator[GroupWatch]:
    """Watch pods inside the `with` block."""
    made = GroupWatch(cluster, sizes)
    try:
        yield made
    finally:
        made.stop()


def ome(rig: Rig, *words: str) -> str:
    """Run an `ome` command, and return its stdout and stderr. The command runs in a separate process, because several
    threads run commands at the same time.
    """
    argv = [sys.executable, "-m", "ome_operator", *words, "--kubeconfig", str(rig.cluster.kubeconfig)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def line(name: str, least: Mapping[str, str], seconds: float, denied: int) -> str:
    """Return a row of the table of drains. `least` maps a role to the smallest number of its groups that served during the
    drain, `seconds` is the duration of the drain, and `denied` the number of evictions that were denied.
    """
    told = ", ".join(f"{role} {count}" for role, count in least.items())
    return f"{name:<32}{told:<48}{seconds:>4.0f} s{denied:>6} evictions denied"
