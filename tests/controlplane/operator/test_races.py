"""Services race for the same nodes on the real scheduler: nobody holds half for long, and everybody gets its turn.

`OME_GANG_RACES` says how many races: two by default, 200 in `make soak`.
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
from tests.support.rig import PATIENCE, Rig

TIMEOUT = 5
NODES = 16
RACES = int(os.environ.get("OME_GANG_RACES") or (200 if os.environ.get("OME_SOAK") else 2))
LONGEST = 420.0
"""Seconds for a race: two tries that seemed to fit and did not cost three minutes of waiting."""
ROLES = ("engine", "decoder")


class Racer(NamedTuple):
    """A service: sizes of the groups of its roles, in nodes, and how many groups its engine has."""

    name: str
    sizes: dict[str, int]
    engines: int
    comes: float
    serves: float
    """Seconds for which it serves before its user deletes it."""

    @property
    def nodes(self) -> int:
        return self.engines * self.sizes["engine"] + self.sizes.get("decoder", 0)


def racers(seed: int) -> list[Racer]:
    """Two to five services, each of which fits alone, and which do not fit together."""
    chance, found = random.Random(seed), list[Racer]()
    while sum(racer.nodes for racer in found) <= NODES:
        sizes = {role: chance.randint(1, 6) for role in ROLES[: chance.randint(1, 2)]}
        racer = Racer(f"r{len(found)}", sizes, chance.choice([1, 1, 2]), chance.uniform(0, 2), chance.uniform(0, 4))
        if 4 <= racer.nodes <= NODES:
            found.append(racer)
    return found


def placed(pods: list[dict[str, Any]]) -> dict[tuple[str, str], set[str]]:
    """Role and group -> UIDs of its ranks that are on nodes."""
    found: dict[tuple[str, str], set[str]] = {}
    for pod in pods:
        if "deletionTimestamp" not in pod["metadata"] and pod["spec"].get("nodeName"):
            labels = pod["metadata"]["labels"]
            found.setdefault((labels[keys.COMPONENT], labels[keys.GROUP_INDEX]), set()).add(pod["metadata"]["uid"])
    return found


def half(racer: Racer, pods: list[dict[str, Any]]) -> bool:
    """Whether nodes are held for groups that nobody can use: a part of a group, or a role without the other."""
    ranks = placed(pods)
    whole = {role for (role, _), uids in ranks.items() if len(uids) == racer.sizes[role]}
    parts = any(len(uids) < racer.sizes[role] for (role, _), uids in ranks.items())
    return parts or bool(ranks and whole != racer.sizes.keys())


@pytest.fixture
def gangs(rig: Rig) -> Iterator[Rig]:
    """An operator that takes half gangs back."""
    rig.stop()
    rig.start("operator", "--gang-timeout", str(TIMEOUT))
    rig.leads()
    yield rig
    rig.stop()
    rig.start()


@pytest.mark.timeout(LONGEST * 2 * PATIENCE)
@pytest.mark.parametrize("seed", range(RACES))
def test_services_race_for_the_same_nodes(gangs: Rig, namespace: str, seed: int) -> None:
    """In each fourth race the operator is killed in the middle; in each second a service is there that can never fit."""
    left, killed = racers(seed), seed % 4 != 3
    never = [Racer("never", {"engine": NODES + 1}, 1, 1, 0)] if seed % 2 else []
    runtimes = []
    for racer in (*left, *never):
        runtime = yamls.runtime(f"{namespace}-{racer.name}", gpus=8, router=False)
        runtime["spec"] |= {f"{role}Config": part(size) for role, size in racer.sizes.items()}
        gangs.create(runtime)
        runtimes.append(runtime["metadata"]["name"])
    began, ready, since, longest = time.monotonic(), dict[str, float](), dict[str, float](), 0.0
    serving: dict[str, set[str]] = {}
    born: set[str] = set()
    while left:
        now = time.monotonic() - began
        assert now < LONGEST * PATIENCE, f"after {now:.0f} s these had no turn: {left}"
        for racer in [racer for racer in (*left, *never) if racer.comes <= now and racer.name not in born]:
            runtime = f"{namespace}-{racer.name}"
            gangs.create(yamls.service(namespace, racer.name, runtime, *racer.sizes, engine={"minReplicas": racer.engines}))
            born.add(racer.name)
        if not killed and now > 3:
            killed = True
            gangs.stop(signal.SIGKILL)
            gangs.start("operator", "--gang-timeout", str(TIMEOUT))
            gangs.leads()
        pods = gangs.all("Pod", namespace)
        for racer in (*left, *never):
            mine = [pod for pod in pods if pod["metadata"]["labels"].get(keys.SERVICE) == racer.name]
            if racer.name in ready:
                alive = set().union(*placed(mine).values())
                assert serving[racer.name] <= alive, f"{racer.name} served, and something was taken back"
                if now - ready[racer.name] >= racer.serves:
                    gangs.delete("InferenceService", namespace, racer.name)
                    left = [other for other in left if other != racer]
            elif gangs.condition(namespace, racer.name, "Ready").get("status") == "True":
                ready[racer.name] = now
                whole = [uids for (role, _), uids in placed(mine).items() if len(uids) == racer.sizes[role]]
                serving[racer.name] = set().union(*whole)
            elif half(racer, mine):
                held = now - since.setdefault(racer.name, now)
                longest = max(longest, held)
                assert held <= 1.5 * TIMEOUT * PATIENCE + 15 * (seed % 4 == 3), f"{racer.name} holds half for {held:.1f} s"
            else:
                since.pop(racer.name, None)
        time.sleep(0.25)
    took = ", ".join(f"{name} after {at:.0f} s" for name, at in ready.items())
    print(f"race {seed}: {took}; half for {longest:.1f} s at most")
    gangs.clear(namespace)
    for name in runtimes:
        gangs.delete("ClusterServingRuntime", "", name)


def part(size: int) -> dict[str, Any]:
    """A role of a runtime whose groups have so many nodes."""
    runner = {"runner": yamls.container(gpus=8)}
    return {"leader": runner, "worker": {"size": size - 1, **runner}} if size > 1 else runner
