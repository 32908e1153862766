"""Simulates services that compete for nodes: reconciliations run `sync`, the operator's controllers (`Gangs`) admit
services, and a scheduler binds pods one by one.
"""

import asyncio
import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from ome_operator import keys
from ome_operator.cache.foreign_pods import ForeignPods
from ome_operator.cache.occupancy import Occupancy
from ome_operator.controllers.placement.gangs import Gangs
from ome_operator.core.group_numbers import WORKER_GRACE
from ome_operator.core.observed.objects import Deps, Node, Pod, Ref
from tests.support.fake_api import FakeApi
from tests.support.live import LivePod
from tests.support.parts import change_deps
from tests.support.shapes import Shape
from tests.support.simulator import World

TIMEOUT = 60.0
ROOM = (("nvidia.com/gpu", 1), ("pods", 110))
LABELS = {"models.ome.io/clusterbasemodel.tiny": "Ready"}


def role(pod: LivePod) -> str:
    """Return the component of a pod."""
    return pod.labels[keys.COMPONENT]


class Known:
    """A stand-in for the operator's cache, from which `Gangs` reads the state of the cluster."""

    def __init__(self, race: "Race") -> None:
        self.race, self.children = race, {"ControllerRevision": self}
        self._seen: dict[str, Pod] = {}
        self._held = Occupancy()

    def deps(self) -> Deps:
        """Return the dependencies, which are the same for all services."""
        return self.race.worlds["a"].deps

    @property
    def pods(self) -> list[Pod]:
        """Return the pods of all services. Each service has its own namespace."""
        found = []
        for name, world in self.race.worlds.items():
            found += [pod.facts(world.service)._replace(namespace=name, service=name) for pod in world.pods.values()]
        return found

    @property
    def occupancy(self) -> Occupancy:
        """Return the occupancy of nodes, updated with all changes."""
        now = {f"{pod.namespace}/{pod.uid}": pod for pod in self.pods}
        for uid in self._seen.keys() | now.keys():
            self._held.pod(self._seen.get(uid), now.get(uid))
        self._seen = now
        return self._held

    def pods_of(self, namespace: str, _: str) -> list[Pod]:
        """Return the pods of a service."""
        return [pod for pod in self.pods if pod.namespace == namespace]

    def find_resource(self, ref: Ref) -> None:
        """Return None, as if the cache contained no service. The tests do not depend on whether a service serves."""

    def group(self, key: tuple[str, str]) -> list[Any]:
        """Return the stored ControllerRevisions of a service. The first part of `key` is the service's namespace."""
        world = self.race.worlds[key[0]]
        return [child.facts(world.service) for child in world.children.values() if child.key[0] == "ControllerRevision"]


class Race:
    """Services that compete for the same nodes, with the state of the cluster and of the admissions."""

    def __init__(self, shapes: dict[str, Shape], nodes: int, seed: int) -> None:
        self.chance = random.Random(seed)
        on = {f"n{at}": Node(f"n{at}", 1, LABELS, True, 1, room=ROOM) for at in range(nodes)}
        self.worlds = {
            name: World(shape.service(), change_deps(shape.deps(), nodes=on, gang_timeout=TIMEOUT), seed)
            for name, shape in shapes.items()
        }
        self.shapes, self.nodes = shapes, on
        self.woken: set[str] = set()
        known: Any = Known(self)
        self.gangs = Gangs(
            known,
            ForeignPods(FakeApi({"list_objects Pod": []}), lambda: 0.0, lambda _: False),
            lambda ref: self.woken.add(ref.name),
        )
        self.half: dict[str, dict[str, datetime]] = {}
        """By service and UID of a StatefulSet: since when it has belonged to an incomplete gang that holds nodes."""
        self.joined: dict[str, set[str]] = {}
        """By UID of a ready leader: the UIDs of the ranks with which it became ready."""
        self.seconds = 0.0
        for name, world in self.worlds.items():
            world.healthy, world.scheduled = partial(self.healthy, name), True

    def healthy(self, name: str, pod: LivePod) -> bool:
        """Return whether a pod may become ready, which is so when all ranks of its group are on nodes. Pods whose
        StatefulSet was deleted join no leader.
        """
        if role(pod) == keys.ROUTER:
            return True
        kept = {child.uid for child in self.worlds[name].children.values()}
        ranks = [other for other in self.worlds[name].pods.values() if (role(other), other.group) == (role(pod), pod.group)]
        placed = sum(bool(rank.node) and not rank.deleting and rank.workload_uid in kept for rank in ranks)
        return placed == self.shapes[name].size and self.chance.random() < 0.3

    def step(self) -> None:
        """Simulate one step: reconciliations in any order, bindings of some pods, and work of the controllers."""
        names = list(self.worlds)
        self.chance.shuffle(names)
        for name in names:
            world = self.worlds[name]
            for _ in range(self.chance.randint(1, 2)):  # a reconciliation may run again before its status was written
                status = world.service.status
                world.turn = self.gangs.admission_of(Ref("InferenceService", name, name), status, world.now)
                plan = world.sync()
                claim = plan.claim and plan.claim._replace(key=name)
                self.gangs.report_claim(Ref("InferenceService", name, name), claim, world.now)
                if claim is not None and claim.idle is not None:
                    asyncio.run(self.gangs.read_foreign_pods(claim))
                served = self.serving_pods(name)
                world.carry_out(plan)
                if self.chance.random() < 0.2:
                    world.service = replace(world.service, status=status)  # the status could not be written
                    self.half.pop(name, None)  # released objects are created again for another attempt
                recycled = {one.name for group in plan.recycle for one in group.delete}  # a lost rank was created again
                assert not {pod for pod in served - recycled if world.pods[pod].deleting}, "a serving group is deleted"
            world.step()
            self.lose_ranks(name)
            self.bind()
            world.now += timedelta(seconds=1)
        self.seconds += 1
        self.check_gangs()

    def bind(self) -> None:
        """Bind pending pods like the scheduler."""
        everybody = [pod for world in self.worlds.values() for pod in world.pods.values()]
        pending = [pod for pod in everybody if not pod.node and not pod.deleting and role(pod) != keys.ROUTER]
        self.chance.shuffle(pending)
        for pod in pending[: self.chance.randint(0, 3)]:
            free = [name for name in self.nodes if name not in {other.node for other in everybody}]
            pod.node = self.chance.choice(free) if free else ""

    def serving_pods(self, name: str) -> set[str]:
        """Return the pods of groups that serve: complete groups, if each role of the service has such a group."""
        pods = [pod for pod in self.worlds[name].pods.values() if role(pod) != keys.ROUTER]
        ready = Counter((role(pod), pod.group) for pod in pods if pod.ready and not pod.deleting)
        whole = {group for group, count in ready.items() if count == self.shapes[name].size}
        if len({component for component, _ in whole}) < 1 + bool(self.shapes[name].decoders):
            return set()
        return {pod.name for pod in pods if (role(pod), pod.group) in whole}

    def lose_ranks(self, name: str) -> None:
        """Make each leader unready that has lost more of the ranks that it joined than its engine tolerates."""
        world = self.worlds[name]
        uids = {pod.uid for pod in world.pods.values()}
        lifecycle = world.service.spec.engine.lifecycle if world.service.spec.engine else None
        spare = (lifecycle.tolerated_lost_ranks or 0) if lifecycle else 0
        for pod in world.pods.values():
            if pod.rank or not pod.ready or role(pod) == keys.ROUTER:
                self.joined.pop(pod.uid, None)
                continue
            group = {one.uid for one in world.pods.values() if (role(one), one.group) == (role(pod), pod.group)}
            if len(self.joined.setdefault(pod.uid, group) - uids) > spare:
                pod.ready, pod.since = False, ""

    def check_gangs(self) -> None:
        """Check that each StatefulSet of an incomplete gang holds nodes for at most twice the time that an attempt to place
        a gang may take. Groups that have served before are not checked, and neither are released pods with the shortest
        grace period.
        """
        for name, world in self.worlds.items():
            groups = world.service.status.get("groups") or ()
            served = {(group["component"], group["index"]) for group in groups if group["incarnation"]}
            pods = [pod for pod in world.pods.values() if role(pod) != keys.ROUTER]
            mine = [pod for pod in pods if pod.name not in self.serving_pods(name) and (role(pod), pod.group) not in served]
            kept = {child.uid for child in world.children.values()}
            mine = [pod for pod in mine if pod.workload_uid in kept or not pod.deleting or pod.grace > WORKER_GRACE]
            half = any(pod.node for pod in mine) and any(not pod.node for pod in mine)
            before = self.half.get(name, {})
            self.half[name] = {pod.workload_uid: before.get(pod.workload_uid, world.now) for pod in mine if half}
            for since in self.half[name].values():
                # A step takes 11 seconds. A reconciliation may be that late, and so may the end of a pod.
                assert (world.now - since).total_seconds() <= 2 * TIMEOUT, f"{name} holds an incomplete gang"

    def replace_nodes(self, nodes: dict[str, Node]) -> None:
        """Replace the cluster's nodes by these. Pods on nodes that no longer exist are deleted."""
        self.nodes = nodes
        for world in self.worlds.values():
            world.edit(deps=replace(world.deps, nodes=nodes))
            for pod in [pod for pod in world.pods.values() if pod.node and pod.node not in nodes]:
                del world.pods[pod.name]
        self.gangs.wake_next()

    def groups(self, name: str) -> dict[tuple[str, int], set[str]]:
        """Return (role, number of the group) -> UIDs of its pods, for the groups whose ranks are all on nodes."""
        found: dict[tuple[str, int], set[str]] = {}
        for pod in self.worlds[name].pods.values():
            if pod.node and not pod.deleting:
                found.setdefault((role(pod), pod.group), set()).add(pod.uid)
        return {group: uids for group, uids in found.items() if len(uids) == self.shapes[name].size}

    def ready_services(self) -> set[str]:
        """Return the services whose groups are all ready."""
        return {name for name, world in self.worlds.items() if world.condition("Scaled").get("status") == "True"}

    def delete(self, name: str) -> None:
        """Delete a service as its user."""
        world = self.worlds[name]
        world.pods.clear()
        world.children.clear()
        world.service = replace(world.service, deleting=True)
        self.gangs.report_claim(Ref("InferenceService", name, name), None, world.now, gone=True)
        self.gangs.wake_next()


def ready_world(shape: Shape) -> World:
    """Return a service whose pods are all ready, each on its own node. It came up while gang placement was disabled."""
    world = World(shape.service(), replace(shape.deps(), nodes=Race({"a": shape}, shape.pods, 1).nodes), 1)
    world.run(1)
    while world.condition("Scaled").get("status") != "True":
        world.run(1)
        for number, pod in enumerate(world.pods.values()):
            pod.node = f"n{number}"
    return world
