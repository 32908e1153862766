"""Simulates a cluster, without an API server, for tests of pure code: groups fail on bad nodes and are created there again,
until the operator's record of failures keeps them away from these nodes (docs/bad-nodes.md).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ome_operator.core.badnodes.blame import NOBODY, NodesToAvoid, choose_avoided_nodes
from ome_operator.core.badnodes.memory import remember
from ome_operator.core.badnodes.record import Memory, format_time, parse_node_memory, status
from ome_operator.core.badnodes.signs import Counted, ready_groups, signs
from ome_operator.core.observed.objects import Node, Pod, Termination, Times

START = 1_800_000_000.0
STEP = 30.0


@dataclass
class LiveGroup:
    """A group of a service. It runs on one node for each rank."""

    namespace: str
    service: str
    size: int
    number: int = 0
    nodes: list[str] = field(default_factory=list)
    created: float = 0.0
    ended: dict[int, float] = field(default_factory=dict)
    """Rank -> time at which its container ended."""
    deleting: bool = False
    starts: int = 0
    failures: list[str] = field(default_factory=list)
    """The node of each failure."""

    def pods(self) -> list[Pod]:
        """Return the group's pods as the operator sees them. They are ready 60 s after their creation."""
        return [self._pod(rank, node) for rank, node in enumerate(self.nodes)]

    def _pod(self, rank: int, node: str) -> Pod:
        at = self.ended.get(rank)
        up = at is None and not self.deleting
        ending = None if at is None else Termination("engine", "Error", 1, f"rank {rank} died", format_time(at))
        return Pod(
            namespace=self.namespace, name=f"{self.service}-{self.number}-{rank}", version=1, service=self.service,
            uid=f"{self.service}-{self.number}-{self.starts}-{rank}", component="engine", revision="r1", group=self.number,
            rank=rank, workload=f"{self.service}-engine-r1-{self.number}", node=node, ready=up, deleting=self.deleting,
            grace=0, restarts=0, reason="", message="",
            ending=ending, running=up,
            times=Times(created=format_time(self.created), ready=format_time(self.created + 60) if up else ""),
        )  # fmt: skip


class FailingCluster:
    """A simulated cluster: its nodes, and the groups of its services. Each rank of a group needs a whole node with GPUs."""

    def __init__(self, seed: int, nodes: int) -> None:
        self.chance, self.now = random.Random(seed), START
        self.nodes = {f"n{number:03}": node(f"n{number:03}") for number in range(nodes)}
        self.groups: list[LiveGroup] = []
        self.memory: Memory = {}
        self.counted: dict[tuple[str, str], Counted] = {}
        self.avoided: NodesToAvoid = NOBODY
        self.most = 0
        """Largest number of nodes that any single namespace avoided at the same time."""

    def add(self, namespace: str, service: str, groups: int, size: int) -> None:
        """Add a service with this number of groups, each with `size` ranks."""
        self.groups += [LiveGroup(namespace, service, size, number) for number in range(groups)]

    def step(self, kills: Mapping[str, float], broken: frozenset[str] = frozenset()) -> None:
        """Advance the clock by STEP seconds: ranks fail, failed groups are created again, and the operator looks at the
        result. `kills` maps a node to the probability that it ends a rank running there during the step. `broken` are the
        services whose containers end on every node, whatever their rank.
        """
        self.now += STEP
        for group in self.groups:
            if group.deleting or not group.nodes:
                self._place(group)
            elif group.ended:
                group.deleting = True  # recovery recycles it
            else:
                self._live(group, kills, broken)
        self.look()

    def _place(self, group: LiveGroup) -> None:
        """Create the pods of a group again. The group gets its former nodes, except those that it has to avoid, and other
        free nodes for the rest. Without enough nodes, the group gets no node at all.
        """
        avoided, taken = self.avoided.avoided_in(group.namespace), {name for each in self.groups for name in each.nodes}
        kept = [name for name in group.nodes if name not in avoided and name in self.nodes]
        free = [name for name in self.nodes if name not in taken and name not in avoided]
        self.chance.shuffle(free)
        found = [*kept, *free][: group.size]
        group.nodes, group.ended, group.deleting = (found if len(found) == group.size else []), {}, False
        group.created, group.starts = self.now, group.starts + 1

    def _live(self, group: LiveGroup, kills: Mapping[str, float], broken: frozenset[str]) -> None:
        dies = [rank for rank, name in enumerate(group.nodes) if self.chance.random() < kills.get(name, 0.0)]
        if not dies and group.service in broken:
            dies = [self.chance.randrange(group.size)]
        if not dies:
            return
        group.failures.append(group.nodes[dies[0]])
        group.ended = {rank: self.now + (1 if rank == dies[0] else self.chance.uniform(2, 20)) for rank in range(group.size)}

    def look(self) -> None:
        """Compute from the pods which nodes to avoid, as `controllers/bad_nodes.py` does, but without requests to an API
        server.
        """
        found, groups = [], []
        for key in {(group.namespace, group.service) for group in self.groups}:
            pods = [pod for group in self.groups if (group.namespace, group.service) == key for pod in group.pods()]
            new, self.counted[key] = signs(pods, (), self.counted.get(key, {}), 0.0, self.now + STEP)
            found += new
            groups += ready_groups(pods)
        self.memory = remember(self.memory, found, groups, self.nodes, self.now + STEP)
        self.avoided = choose_avoided_nodes(self.memory, self.nodes, self.now + STEP)
        spaces = {group.namespace for group in self.groups}
        self.most = max([self.most, *(len(self.avoided.avoided_in(space)) for space in spaces)])

    def restart(self) -> None:
        """Restart the operator: only what it stores in the statuses of NodeFaults survives."""
        self.memory = {name: parse_node_memory(status(known, []), known.forgiven) for name, known in self.memory.items()}
        last = [(fault.role, fault.last) for known in self.memory.values() for fault in known.faults if fault.role]
        floors = {key: max((at for role, at in last if role[:2] == key), default=0.0) for key in self.counted}
        self.counted = {
            key: {("engine", "r1", group.number): floor for group in self.groups if (group.namespace, group.service) == key}
            for key, floor in floors.items()
        }


def node(name: str, *faults: tuple[str, str], **facts: Any) -> Node:
    """Return a node with eight GPUs. `faults` are faults of the node (see Node), and `facts` are values of its other
    fields.
    """
    return Node(name, 1, {}, True, 8, **{"uid": f"uid-{name}", "faults": faults, **facts})
