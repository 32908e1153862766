"""A simulated cluster in which nodes of a service with `spec.moves` are tainted, added and removed. What must hold during
moves is checked after every reconciliation.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import GangAdmission, Node, Taint
from tests.support import parts
from tests.support.live import LivePod
from tests.support.parts import change_deps
from tests.support.scheduler import GPU, Scheduler
from tests.support.shapes import Shape
from tests.support.simulator import World

LEAVES = Taint("karpenter.sh/disrupted", "", "NoSchedule")
LABELS = {"models.ome.io/clusterbasemodel.tiny": "Ready"}


@dataclass(frozen=True)
class Movable(Shape):
    """The shape of a service with `spec.moves`. `moves` contains (name, value) of each field of `spec.moves`."""

    moves: tuple[tuple[str, Any], ...] = ()

    def service(self) -> InferenceService:
        made = super().service()
        spec = parts.service(moves=dict(self.moves)).spec.moves
        return replace(made, spec=made.spec.model_copy(update={"moves": spec}))


PAIR = Movable(size=2, engines=1, decoders=1)
"""A service with a prefill group and a decode group, each over two nodes."""


class Fleet(Scheduler):
    """Nodes with one GPU each, on which pods of engines and of routers run."""

    def __init__(self, shape: Movable, spare: int, seed: int) -> None:
        names = [f"n{number}" for number in range(shape.pods - shape.router + spare)]
        nodes = {name: node(name) for name in names}
        world = World(shape.service(), change_deps(shape.deps(), nodes=nodes, gang_timeout=120.0), seed)
        world.turn = GangAdmission(sure=True)  # no other service waits: every attempt is admitted
        super().__init__(world)
        self.shape = shape

    def is_placed(self, pod: LivePod) -> bool:
        """Bind a pod that is on no node if a node accepts it, and return whether the pod may become ready. A router gets any
        ready node without taints, whether GPUs are free or not.
        """
        if pod.labels[keys.COMPONENT] == keys.ROUTER and not pod.node:
            nodes = self.world.deps.nodes.values()
            pod.node = next((one.name for one in nodes if one.ready and not one.taints), "")
        return bool(pod.node) if pod.labels[keys.COMPONENT] == keys.ROUTER else super().is_placed(pod)

    def free_gpus(self, name: str) -> int:
        """Return the number of GPUs of a node that no engine uses. Routers need none."""
        mine = (pod for pod in self.world.pods.values() if pod.labels[keys.COMPONENT] != keys.ROUTER)
        return dict(self.world.deps.nodes[name].room)[GPU] - sum(pod.node == name for pod in mine)

    def change(self, name: str, **fields: Any) -> None:
        """Change fields of a node."""
        nodes = dict(self.world.deps.nodes)
        nodes[name] = nodes[name]._replace(**fields)
        self.world.deps = replace(self.world.deps, nodes=nodes)

    def taint(self, name: str) -> None:
        """Add a taint to a node, as tools do before they remove the node."""
        self.change(name, taints=(LEAVES,))

    def untaint(self, name: str) -> None:
        """Remove the taint."""
        self.change(name, taints=())

    def delete_node(self, name: str, passes: int = 0) -> None:
        """Delete a node and, after this number of reconciliations, the pods on it, as the pod garbage collector does."""
        self.world.deps = replace(
            self.world.deps, nodes={key: one for key, one in self.world.deps.nodes.items() if key != name}
        )
        self.run(passes)
        for pod in [pod for pod in self.world.pods.values() if pod.node == name]:
            del self.world.pods[pod.name]

    def nodes_of(self, component: str, number: int | None = None) -> set[str]:
        """Return the nodes of a role's pods that are not terminating. If `number` is given, return only the nodes of that
        group.
        """
        pods = (pod for pod in self.world.pods.values() if pod.labels[keys.COMPONENT] == component and not pod.deleting)
        return {pod.node for pod in pods if pod.node and number in (None, pod.group)}

    def serving(self, component: str) -> int:
        """Return the number of groups of a role that receive requests: all ranks are ready, and the leader is not being
        drained.
        """
        pods = [pod for pod in self.world.pods.values() if pod.labels[keys.COMPONENT] == component]
        good = [pod for pod in pods if pod.ready and not pod.deleting and not pod.draining]
        if component == keys.ROUTER:
            return len(good)
        ranks = Counter((pod.labels[keys.REVISION], pod.group) for pod in good)
        return sum(count == self.shape.size for count in ranks.values())

    def groups(self, component: str) -> set[tuple[str, int]]:
        """Return (revision, number) of each group of a role that has any pod that is not terminating."""
        pods = (pod for pod in self.world.pods.values() if pod.labels[keys.COMPONENT] == component and not pod.deleting)
        return {(pod.labels[keys.REVISION], pod.group) for pod in pods}

    @property
    def wanted(self) -> dict[str, int]:
        """Return role -> the number of groups, or of routers, that the spec of the service requests."""
        found = {keys.ENGINE: self.shape.engines, keys.DECODER: self.shape.decoders, keys.ROUTER: int(self.shape.router)}
        return {name: count for name, count in found.items() if count}

    def whole(self) -> bool:
        """Return whether every role has all of its groups and all of them serve."""
        return all(self.serving(role) >= count for role, count in self.wanted.items())

    def moves(self) -> dict[str, dict[str, Any]]:
        """Return `status.moves` by component."""
        return {one["component"]: one for one in self.world.service.status.get("moves", ())}

    def run(self, passes: int = 1) -> None:
        """Run this number of reconciliations, and check the rules of moves after each."""
        for _ in range(passes):
            self.world.run(1)
            self.check()

    def check(self) -> None:
        """Check that at most one group of each role moves."""
        stored = [one["component"] for one in self.world.service.status.get("moves", ())]
        assert len(stored) == len(set(stored)), stored
        slices = {pod.labels[keys.REVISION] for pod in self.world.pods.values()}
        for role, count in self.wanted.items():
            if role != keys.ROUTER and len(slices) == 1:
                leads = [one.key[1] for one in self.world.children.values() if one.labels.get(keys.WORKER_INDEX) == "0"]
                mine = [name for name in leads if f"-{role}-" in name]
                assert len(mine) <= count + 1, f"more than one replacement of {role}: {mine}"

    def until(self, what: str, done: Any, passes: int = 400, whole: bool = False) -> int:
        """Run reconciliations until `done` returns True, and return how many were needed. `what` describes the condition in
        messages. If `whole` is true, check after each reconciliation that every role serves with all of its groups.
        """
        for count in range(passes):
            if done():
                return count
            self.run()
            moves = f"{self.world.service.status.get('moves')}\n{self.world.log[-20:]}"
            assert not whole or self.whole(), f"a role does not serve with all of its groups: {moves}"
        raise AssertionError(f"never {what}: {self.world.service.status.get('moves')}\n{self.world.log[-20:]}")


def node(name: str) -> Node:
    """Return a node with one GPU that has the model."""
    return Node(name, 1, LABELS, True, 1, room=((GPU, 1), ("pods", 110)))


def serving(shape: Movable, spare: int, seed: int = 1) -> Fleet:
    """Return a service that serves, in a cluster with as many nodes as its pods need and `spare` further nodes."""
    fleet = Fleet(shape, spare, seed)
    fleet.until("serving", lambda: fleet.whole() and not fleet.world.service.status.get("placement"))
    return fleet


def said(fleet: Fleet) -> tuple[str, str]:
    """Return the reason and the message of the condition Moved."""
    found = fleet.world.condition("Moved")
    return found.get("reason", ""), found.get("message", "")
