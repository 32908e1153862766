"""Remember which nodes caused failures: read failures from pods, nodes and stored objects, decide which nodes are avoided,
and store what has changed (docs/bad-nodes.md).
"""

import logging
from collections.abc import Callable, Iterator
from typing import NoReturn

from ome_operator import keys
from ome_operator.cache.cluster_cache import ClusterCache
from ome_operator.core.badnodes import record
from ome_operator.core.badnodes.blame import LASTS, NOBODY, NodesToAvoid, choose_avoided_nodes
from ome_operator.core.badnodes.memory import remember
from ome_operator.core.badnodes.record import KIND, NodeMemory
from ome_operator.core.badnodes.signs import Counted, FailureSign, ReadyGroup, ready_groups, signs
from ome_operator.core.observed.objects import Manifest, Ref
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError, NotFound
from ome_operator.machinery.background import PACER, repeat
from ome_operator.util.wall_clock import WallClock

logger = logging.getLogger(__name__)

EVERY = 10.0
"""Seconds between two evaluations of all pods and nodes."""
WRITES = 20
"""Maximum number of objects that are written after each evaluation. The limit prevents a burst of writes after a fault of
many nodes."""


class BadNodes:
    """The remembered failures of each node. The failures are stored in NodeFaults objects if `stores` is true; otherwise
    they are lost when the process ends. If `acts` is false, no node is avoided. `call` is called with each service to
    reconcile.
    """

    def __init__(
        self,
        cluster: ClusterCache,
        client: Client,
        call: Callable[[Ref], None],
        wall: WallClock,
        *,
        acts: bool,
        stores: bool,
    ) -> None:
        self._cluster, self._client, self._call, self._wall = cluster, client, call, wall
        self._acts, self._stores = acts, stores
        self._memory: dict[str, NodeMemory] = {}
        self._counted: dict[Ref, Counted] = {}
        self._stored: dict[str, Manifest] = {}
        """Maps the name of a node to the status of its stored object."""
        self._uids: dict[str, str] = {}
        """Maps the name of a node to the UID of its stored object."""
        self._accepted: dict[str, tuple[Manifest, Manifest]] = {}
        """Maps the name of a node to a pair: the status that was written last, and the status that the API server then
        stored. The two differ if an older CRD drops unknown fields. Both are kept so that such a status is not written
        repeatedly."""
        self._loaded = False
        self.avoided: NodesToAvoid = NOBODY

    def avoided_nodes(self, namespace: str) -> dict[str, str]:
        """Return a mapping from the name of each node on which no new group of a service in the namespace `namespace` is
        placed to the reason.
        """
        return self.avoided.avoided_in(namespace) if self._acts else {}

    @property
    def failure_count(self) -> int:
        """The number of remembered failures, of all nodes."""
        return sum(fault.times for known in self._memory.values() for fault in known.faults)

    def avoided_counts(self) -> dict[tuple[str, ...], float]:
        """Return two numbers of avoided nodes by label of the metric: `everybody` for nodes that all services avoid, and
        `namespace` for nodes that only the services of some namespaces avoid.
        """
        some = {name for found in self.avoided.namespaces.values() for name in found}
        return {("everybody",): len(self.avoided.everybody), ("namespace",): len(some)}

    async def load(self) -> None:
        """Read the stored failures before the first service is reconciled, so that a restart places no group on a bad
        node.
        """
        try:
            await self.evaluate()
        except KubeError as error:
            logger.info("cannot read the faults of nodes: %s", error)

    async def run(self) -> NoReturn:
        """Evaluate pods and nodes periodically, without end."""
        await repeat("remembering failures of nodes", self.evaluate, lambda: EVERY)

    async def evaluate(self) -> None:
        """Evaluate all pods and nodes once: read the stored failures, add new failures, decide which nodes are avoided, and
        store what has changed. While all services are frozen or observed, nothing is recorded or decided.
        """
        nodes = self._cluster.deps().nodes
        if not nodes or self._cluster.global_hold() is not None:
            return
        if self._stores and (self._stored or not self._loaded):
            await self._read()
            self._loaded = True
        now = self._wall().timestamp()
        found, groups, floors = list[FailureSign](), list[ReadyGroup](), self._floors()
        for resource in self._cluster.services():
            pods = self._cluster.pods_of(resource.ref.namespace, resource.ref.name)
            counted = self._counted.get(resource.ref, {})
            status = resource.status.get("groups") or ()
            floor = floors.get((resource.ref.namespace, resource.ref.name), 0.0)
            new, self._counted[resource.ref] = signs(pods, status, counted, floor, now)
            found += new
            groups += ready_groups(pods)
            await PACER.yield_if_due()
        self._counted = {ref: each for ref, each in self._counted.items() if self._cluster.find_resource(ref) is not None}
        self._memory = remember(self._memory, found, groups, nodes, now)
        self._decided(choose_avoided_nodes(self._memory, nodes, now))
        if self._stores:
            await self._write()

    def _floors(self) -> dict[tuple[str, str], float]:
        """Return a mapping from each service to the time up to which its failures have been counted, according to the stored
        NodeFaults. Without this time, a restarted operator would again count failures that it finds in the pods.
        """
        found: dict[tuple[str, str], float] = {}
        for role, last in ((fault.role, fault.last) for known in self._memory.values() for fault in known.faults):
            if role is not None:
                service = role.namespace, role.service
                found[service] = max(last, found.get(service, 0.0))
        return found

    def _decided(self, avoided: NodesToAvoid) -> None:
        before, self.avoided = self.avoided, avoided
        if before == avoided:
            return
        for name, why in {**avoided.everybody, **avoided.ignored}.items():
            if name not in before.everybody and name not in before.ignored:
                logger.info("node %s: %s", name, why)
        for ref in self._concerned(before, avoided):
            self._call(ref)

    def _concerned(self, before: NodesToAvoid, after: NodesToAvoid) -> Iterator[Ref]:
        """Yield the services to reconcile after the avoided nodes have changed. A service is concerned if nodes were added
        or removed for it and at least one of these conditions holds: it has no pods, a pod of it is on one of these
        nodes, or a pod of it is not ready.
        """
        changed = {
            space: before.avoided_in(space).keys() ^ after.avoided_in(space).keys()
            for space in {*before.namespaces, *after.namespaces}
        }
        common = before.everybody.keys() ^ after.everybody.keys()
        for ref in [resource.ref for resource in self._cluster.services()]:
            names, pods = changed.get(ref.namespace, common), self._cluster.pods_of(ref.namespace, ref.name)
            if names and (not pods or any(not pod.ready or pod.node in names for pod in pods)):
                yield ref

    # --- the stored objects -------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Read the stored objects. A user can make the operator forget the failures of a node by an annotation of the node's
        object, or by deleting this object.
        """
        bodies = {str(body["metadata"]["name"]): body for body in await self._client.list_objects(KIND)}
        now = self._wall().timestamp()
        for name in self._stored.keys() - bodies.keys():
            uid = self._memory[name].uid if name in self._memory else ""
            self._memory[name] = NodeMemory(uid, (), now)
        for name, body in bodies.items():
            forgiven = record.time((body["metadata"].get("annotations") or {}).get(keys.FORGIVEN))
            mine = self._memory.get(name) or record.parse_node_memory(body.get("status") or {}, forgiven)
            self._memory[name] = mine._replace(forgiven=max(mine.forgiven, min(forgiven, now)))
        self._stored = {name: body.get("status") or {} for name, body in bodies.items()}
        self._uids = {name: str(body["metadata"].get("uid") or "") for name, body in bodies.items()}

    async def _write(self) -> None:
        """Write the objects that have changed, and delete the objects of nodes without remembered failures."""
        left = WRITES
        for name, known in sorted(self._memory.items()):
            wanted = record.status(known, self._avoiders(name))
            stored = self._stored.get(name)
            if (
                stored == wanted
                or self._accepted.get(name) == (wanted, stored)
                or not (stored is not None or self._lasts(known))
            ):
                continue
            if not left:
                return
            left -= 1
            await self._put(name, wanted)
        for name in [name for name in self._stored if name not in self._memory][:left]:
            await self._remove(name)

    def _lasts(self, known: NodeMemory) -> bool:
        """Return whether the faults of a node are worth storing: a service has failed on the node more than once, or the
        node has reported a fault for at least `LASTS` seconds.
        """
        now = self._wall().timestamp()
        return any(now - fault.first >= LASTS if fault.role is None else fault.times > 1 for fault in known.faults)

    async def _put(self, name: str, manifest: Manifest) -> None:
        body = {"apiVersion": keys.API_VERSION, "kind": KIND, "metadata": {"name": name}}
        try:
            if name not in self._stored:
                applied = await self._client.apply(body)
                self._uids[name] = str(applied.body["metadata"].get("uid") or "")
            answer = await self._client.apply({**body, "status": manifest}, subresource="status")
            self._stored[name] = answer.body.get("status") or {}
            self._accepted[name] = manifest, self._stored[name]
        except KubeError as error:
            logger.info("cannot store the faults of node %s: %s", name, error)

    async def _remove(self, name: str) -> None:
        try:
            await self._client.delete(KIND, "", name, self._uids.get(name, ""))
        except NotFound:
            pass
        except KubeError as error:
            logger.info("cannot delete the faults of node %s: %s", name, error)
            return
        self._stored.pop(name, None)
        self._accepted.pop(name, None)

    def _avoiders(self, name: str) -> list[record.AvoidingServices]:
        """Return the namespaces whose services avoid the node `name`, each with the reason. The namespace "" stands for the
        services of all namespaces.
        """
        if name in self.avoided.everybody:
            return [record.AvoidingServices("", self.avoided.everybody[name])]
        spaces = self.avoided.namespaces.items()
        return sorted(record.AvoidingServices(space, found[name]) for space, found in spaces if name in found)
