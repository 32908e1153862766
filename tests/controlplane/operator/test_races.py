"""Tests of services that compete for the same nodes, with the real scheduler: no service holds a partial gang for long, and
each service is admitted.

`OME_GANG_RACES` is the number of races: two by default, a thousand in `make soak`.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from ome_operator import keys
from tests.support import yamls
from tests.support.kubelet import exited, write_status
from tests.support.rig import PATIENCE, Rig

TIMEOUT = 5
NODES = 16
STEADY = 2
"""Nodes of a service that serves before the race begins."""
RACES = int(os.environ.get("OME_GANG_RACES") or (1000 if os.environ.get("OME_SOAK") else 2))
LONGEST = 420.0
"""Largest duration of a race in seconds. Two attempts that seemed to fit and failed cost three minutes of waiting."""
FIRST = 20.0
"""Seconds for which a service has to serve with its first groups to count as admitted, because other services may
legitimately hold the capacity for its further groups (as happened in race 65).
"""
ROLES = ("engine", "decoder")


class Racer(NamedTuple):
    """A service that takes part in a race: the number of nodes of a group of each role, and the number of engine groups."""

    name: str
    sizes: dict[str, int]
    engines: int
    comes: float
    serves: float
    """Seconds for which the service serves before its user deletes it."""

    @property
    def nodes(self) -> int:
        return self.engines * self.sizes["engine"] + self.sizes.get("decoder", 0)


def racers(seed: int) -> list[Racer]:
    """Return two to five services. Each of them fits alone, but they do not all fit together."""
    chance, found = random.Random(seed), list[Racer]()
    while sum(racer.nodes for racer in found) <= NODES - STEADY:
        sizes = {role: chance.randint(1, 6) for role in ROLES[: chance.randint(1, 2)]}
        racer = Racer(f"r{len(found)}", sizes, chance.choice([1, 1, 2]), chance.uniform(0, 2), chance.uniform(0, 4))
        if 4 <= racer.nodes <= NODES - STEADY:
            found.append(racer)
    return found


def placed(pods: list[dict[str, Any]]) -> dict[tuple[str, str], set[str]]:
    """Return (role, group) -> UIDs of the group's pods that are on nodes."""
    found: dict[tuple[str, str], set[str]] = {}
    for pod in pods:
        if "deletionTimestamp" not in pod["metadata"] and pod["spec"].get("nodeName"):
            labels = pod["metadata"]["labels"]
            found.setdefault((labels[keys.COMPONENT], labels[keys.GROUP_INDEX]), set()).add(pod["metadata"]["uid"])
    return found


def half(racer: Racer, pods: list[dict[str, Any]]) -> bool:
    """Return whether the service holds nodes without serving: by a group that is only partly on nodes, or by groups of one
    role while the other role has none.
    """
    ranks = placed(pods)
    whole = {role for (role, _), uids in ranks.items() if len(uids) == racer.sizes[role]}
    parts = any(len(uids) < racer.sizes[role] for (role, _), uids in ranks.items())
    return parts or bool(ranks and whole != racer.sizes.keys())


def rollout(rig: Rig, namespace: str) -> None:
    """Edit the service as its user."""
    rig.patch("InferenceService", namespace, "steady", {"spec": {"engine": {"runner": {"image": "engine:2"}}}})


def recycle(rig: Rig, namespace: str) -> None:
    """Make the engine of a rank exit, so that all ranks of its group restart."""
    write_status(rig, steady(rig, namespace)[1], exited)


def preempted(rig: Rig, namespace: str) -> None:
    """Delete a rank. Other services may use its node from then on."""
    rig.delete("Pod", namespace, steady(rig, namespace)[1]["metadata"]["name"], gracePeriodSeconds=0)


def nothing(rig: Rig, namespace: str) -> None:
    """Do nothing to the service."""


BESIDE = (nothing, rollout, recycle, preempted)
"""What is done to the serving service while other services compete for nodes."""


def steady(rig: Rig, namespace: str) -> list[dict[str, Any]]:
    """Return the pods of the service that served before the race, by rank."""
    pods = rig.all("Pod", namespace, f"{keys.SERVICE}=steady")
    return sorted(pods, key=lambda pod: int(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"]))


def deleters(rig: Rig, namespace: str, since: int, names: set[str]) -> dict[str, set[str]]:
    """Return the name of each of these pods -> the users that deleted it. The audit log has a request only after its
    response, when the pod may already be gone.
    """
    found: dict[str, set[str]] = {name: set() for name in names}
    for each in rig.cluster.audit(since):
        if each.namespace == namespace and each.code < 300 and each.verb == "delete" and each.name in found:
            found[each.name].add(each.user)
    return found


def simulated(found: dict[str, set[str]]) -> bool:
    """Return whether the simulated kubelet deleted one of these pods by mistake. kwok 0.7 repeats a deletion by name some
    seconds later, when a new pod may have that name. Recycling the group then deletes the other pods. Deletions by the
    garbage collector do not count, because they name the UID of a pod that is gone, and are rejected.
    """
    return {"kwok"} in found.values()


@pytest.fixture
def gangs(rig: Rig) -> Iterator[Rig]:
    """Yield the cluster with an operator that releases the nodes of partial gangs."""
    rig.stop()
    rig.start("operator", "--gang-timeout", str(TIMEOUT))
    rig.wait_for_leader()
    yield rig
    rig.stop()
    rig.start()


class Race:
    """A race, and what was observed during it. Times are seconds since its beginning."""

    def __init__(self, rig: Rig, namespace: str, seed: int) -> None:
        self.rig, self.namespace = rig, namespace
        self.left = racers(seed)
        """The services that have not been deleted yet: they have not started, wait, or serve."""
        self.never = [Racer("never", {"engine": NODES + 1}, 1, 1, 0)] if seed % 2 else []
        self.ready: dict[str, float] = {}
        self.longest = 0.0
        """The longest time for which a service held a partial gang."""
        self._since: dict[str, float] = {}
        self._first: dict[str, float] = {}
        self._serving: dict[str, dict[str, str]] = {}  # UID -> name of the pods with which a service became Ready
        self._marks: dict[str, int] = {}  # the end of the audit log at that time
        self._born: set[str] = set()

    def prepare(self) -> list[str]:
        """Create the service that serves already, and the runtimes of all services; return their names."""
        made = [yamls.runtime(f"{self.namespace}-steady", size=STEADY, gpus=8, router=False)]
        for racer in (*self.left, *self.never):
            runtime = yamls.runtime(f"{self.namespace}-{racer.name}", gpus=8, router=False)
            runtime["spec"] |= {f"{role}Config": part(size) for role, size in racer.sizes.items()}
            made.append(runtime)
        for runtime in made:
            self.rig.create(runtime)
        self.rig.create(yamls.service(self.namespace, "steady", f"{self.namespace}-steady", "engine"))
        self.rig.ready(self.namespace, "steady", 60)
        return [runtime["metadata"]["name"] for runtime in made]

    def look(self, now: float) -> None:
        """Create the services whose time has come, delete those that have served long enough, and check that none has been
        partly placed for too long.
        """
        for racer in (*self.left, *self.never):
            if racer.comes <= now and racer.name not in self._born:
                runtime, engine = f"{self.namespace}-{racer.name}", {"minReplicas": racer.engines}
                self.rig.create(yamls.service(self.namespace, racer.name, runtime, *racer.sizes, engine=engine))
                self._born.add(racer.name)
        mark, pods = self.rig.cluster.audit_mark(), self.rig.all("Pod", self.namespace)
        for racer in (*self.left, *self.never):
            mine = [pod for pod in pods if pod["metadata"]["labels"].get(keys.SERVICE) == racer.name]
            if racer.name in self.ready:
                self._serves(racer, mine, now)
            elif self._has_turn(racer, mine, now):
                self._arrived(racer, mine, now, mark)
            elif half(racer, mine):
                self._half(racer, now)
            else:
                self._since.pop(racer.name, None)

    def _has_turn(self, racer: Racer, pods: list[dict[str, Any]], now: float) -> bool:
        """Return whether the service serves completely, or has served for FIRST seconds with its first groups while its
        other groups wait for nodes.
        """
        scaled = self.rig.condition(self.namespace, racer.name, "Scaled")
        if scaled.get("reason") != "WaitingForRoom" or not placed(pods) or half(racer, pods):
            self._first.pop(racer.name, None)
            return bool(scaled.get("status") == "True")
        return now - self._first.setdefault(racer.name, now) >= FIRST

    def _arrived(self, racer: Racer, pods: list[dict[str, Any]], now: float, mark: int) -> None:
        names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods}
        whole = [uids for (role, _), uids in placed(pods).items() if len(uids) == racer.sizes[role]]
        self.ready[racer.name], self._marks[racer.name] = now, mark
        self._serving[racer.name] = {uid: names[uid] for uids in whole for uid in uids}

    def _serves(self, racer: Racer, pods: list[dict[str, Any]], now: float) -> None:
        serving = self._serving[racer.name]
        if lost := {serving[uid] for uid in serving.keys() - set().union(*placed(pods).values())}:
            since = self._marks[racer.name]
            found = self.rig.wait(
                "who deleted what served is written down",
                lambda: all((who := deleters(self.rig, self.namespace, since, lost)).values()) and who,
                5,
            )
            assert simulated(found), f"{racer.name} served, and these pods were removed: {found}"
            self._serving[racer.name] = {}
        if now - self.ready[racer.name] >= racer.serves:
            self.rig.delete("InferenceService", self.namespace, racer.name)
            self.left = [other for other in self.left if other != racer]

    def _half(self, racer: Racer, now: float) -> None:
        held = now - self._since.setdefault(racer.name, now)
        self.longest = max(self.longest, held)
        assert held <= 1.5 * TIMEOUT * PATIENCE, f"{racer.name} holds a partial gang for {held:.1f} s"

    def again(self) -> None:
        """Kill the operator and start another one. Between the two no nodes are released, so the times that the services
        hold nodes are measured anew.
        """
        self.rig.stop(signal.SIGKILL)
        self.rig.start("operator", "--gang-timeout", str(TIMEOUT))
        self.rig.wait_for_leader()
        self._since.clear()


def kills(seed: int) -> bool:
    """Return whether the operator is killed during this race."""
    return seed % 4 == 3


@pytest.mark.timeout(LONGEST * 2 * PATIENCE)
@pytest.mark.parametrize("seed", range(RACES))
def test_competing_services_all_serve_in_the_end(gangs: Rig, namespace: str, seed: int) -> None:
    """Services that are created at about the same time compete for nodes, and each serves in the end. In every fourth race,
    the operator is killed; in every second race, there is also a service that can never fit. During the race, a service
    that already serves is rolled out, recycled or loses a rank, and serves again.
    """
    race, beside = Race(gangs, namespace, seed), BESIDE[seed // 4 % len(BESIDE)]
    runtimes, began = race.prepare(), time.monotonic()
    due = [(2.0, lambda: beside(gangs, namespace)), *([(3.0, race.again)] if kills(seed) else [])]
    while race.left or due:
        if due and time.monotonic() - began > due[0][0]:
            due.pop(0)[1]()
        now = time.monotonic() - began
        assert now < LONGEST * PATIENCE, f"after {now:.0f} s these services have not been admitted: {race.left}"
        race.look(now)
        time.sleep(0.25)
    gangs.ready(namespace, "steady", LONGEST)
    images = {pod["spec"]["containers"][0]["image"] for pod in steady(gangs, namespace)}
    assert images == {"engine:2" if beside is rollout else "engine:1"}
    took = ", ".join(f"{name} after {at:.0f} s" for name, at in race.ready.items())
    print(f"race {seed}: {took}; half for {race.longest:.1f} s at most; beside it {beside.__name__}")
    gangs.clear(namespace)
    for name in runtimes:
        gangs.delete("ClusterServingRuntime", "", name)


def part(size: int) -> dict[str, Any]:
    """Return a role of a runtime whose groups have `size` nodes."""
    runner = {"runner": yamls.container(gpus=8)}
    return {"leader": runner, "worker": {"size": size - 1, **runner}} if size > 1 else runner
