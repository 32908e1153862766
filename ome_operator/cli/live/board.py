"""Everything that the page of `ome ui` shows, read from a live cluster. For a kind that the user may not read, the board
contains the message with which the API server refused the read.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from ome_operator import keys
from ome_operator.cache.resources import ACCELERATORS, MODELS, RUNTIMES, SERVICE, SERVING
from ome_operator.cli.live import avoided
from ome_operator.cli.live.cluster_from_manifests import build_cluster
from ome_operator.cli.live.operator_lease import find_late_operators as late_operators
from ome_operator.cli.live.simulated import simulated_nodes
from ome_operator.cli.live.trees import OURS
from ome_operator.core.observed.from_api import controller
from ome_operator.core.observed.nodes import node, node_record
from ome_operator.core.observed.objects import Manifest, Node, NodeRecord, Observed
from ome_operator.describe import cluster
from ome_operator.describe.moves import moves_under_way
from ome_operator.describe.readiness import operator_class, with_late_operator
from ome_operator.describe.tree import Tree, tree
from ome_operator.describe.unknown_weights import UnknownWeights, unknown_weights
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, NotServed
from ome_operator.kube.resources import RESOURCES, kind_of_resource

RECORD = "NodeModels"
FAULTS = "NodeFaults"
AGENTS = "agents"
"""Key under which the pods of the model agents are stored beside the objects that were read by kind."""
OFTEN = (SERVICE, "StatefulSet", "Deployment", "Pod")
"""Kinds that are read at every poll."""
SELDOM = ("ControllerRevision", SERVING, "Node", RECORD, FAULTS, *RUNTIMES, *MODELS, *ACCELERATORS)
"""Kinds that are large or change seldom."""
SELECTED = ("ControllerRevision", "StatefulSet", "Deployment", "Pod")
"""Kinds of which only the operator's own objects are read."""
PERIOD = 15.0
"""Seconds between two reads of the kinds in SELDOM."""

Key = tuple[str, str]
"""Namespace and name of the service that the board shows."""


@dataclass(frozen=True)
class ClusterState:
    """The state of the cluster at one moment."""

    at: datetime
    namespace: str
    """The namespace that is shown; "" for all namespaces."""
    bodies: Mapping[Key, Manifest] = field(default_factory=dict)
    """Services as the API server returned them."""
    trees: Mapping[Key, Tree] = field(default_factory=dict)
    observed: Mapping[Key, Observed] = field(default_factory=dict)
    """Objects and pods of each service."""
    pods: Mapping[str, Manifest] = field(default_factory=dict)
    """Maps `namespace/name` of each pod of the operator to the body of the pod."""
    stored: Mapping[str, str] = field(default_factory=dict)
    """Maps `namespace/name` of each ControllerRevision to its creation time."""
    nodes: tuple[Node, ...] = ()
    records: tuple[NodeRecord, ...] = ()
    unknown: Mapping[str, UnknownWeights] = field(default_factory=dict)
    """Maps the name of each node whose weights no agent reports to the reason why they are unknown."""
    avoided: Mapping[str, str] = field(default_factory=dict)
    """Maps the name of each avoided node to a text that states which services avoid the node, and why."""
    simulated: frozenset[str] = frozenset()
    """Names of simulated (kwok) nodes, on which no process runs."""
    shared: tuple[Manifest, ...] = ()
    """Runtimes, models and accelerator classes."""
    denied: Mapping[str, str] = field(default_factory=dict)
    """Maps the plural name of a kind to the reason why the kind could not be read."""

    @property
    def late_operator_sentences(self) -> tuple[str, ...]:
        """The sentences about services on which no operator works (`Tree.late`), without duplicates."""
        return tuple(dict.fromkeys(tree.late for tree in self.trees.values() if tree.late))


class ClusterPoller:
    """Polls a cluster. Kinds that change seldom are read only every PERIOD seconds."""

    def __init__(self, client: Client, namespace: str, fallback: str = "") -> None:
        self._client, self._namespace, self._fallback = client, namespace, fallback
        self._kept: dict[str, tuple[list[Manifest], str]] = {}
        """Maps a kind to its objects, and to the reason why they could not be read ("" if they could be read)."""
        self._late: dict[str, str] = {}
        """Class of operators → the sentence that no operator of the class works; "" if an operator works."""
        self._next = 0.0

    async def poll(self) -> ClusterState:
        """Return the current state. Raises KubeError if services cannot be read at all."""
        now = asyncio.get_running_loop().time()
        try:
            services = await self._client.list_objects(SERVICE, self._namespace)
        except Forbidden:
            if self._namespace or not self._fallback:
                raise
            self._namespace = self._fallback
            services = await self._client.list_objects(SERVICE, self._namespace)
        except NotServed as error:
            raise NotServed(f"this cluster has no kind InferenceService: install the chart ome-crd ({error})") from error
        kinds = list(OFTEN[1:])
        if now >= self._next:
            kinds += SELDOM
        for kind, found in zip(kinds, await asyncio.gather(*map(self._read, kinds)), strict=True):
            self._kept[kind] = found
        if now >= self._next:
            self._kept[AGENTS] = await self._agents()
            self._late = await late_operators(self._client, [*services, *self._kept[SERVING][0]], datetime.now(UTC))
            self._next = now + PERIOD
        elif self._unknown():
            self._kept["ControllerRevision"] = await self._read("ControllerRevision")
        return board(datetime.now(UTC), self._namespace, services, self._kept, self._late)

    def discard_cached_kinds(self) -> None:
        """Read all kinds at the next poll."""
        self._next = 0.0

    def _unknown(self) -> bool:
        """Return whether some workload belongs to a revision that has not been read yet."""
        known = {_revision(body) for body in self._kept["ControllerRevision"][0] if _of_a_service(body)}
        return any(_revision(body) not in known for body in self._kept["StatefulSet"][0])

    async def _read(self, kind: str) -> tuple[list[Manifest], str]:
        where = self._namespace if RESOURCES[kind].namespaced else ""
        try:
            found = await self._client.list_objects(kind, where, label_selector=OURS if kind in SELECTED else "")
        except NotServed:
            return [], ""
        except Forbidden as error:
            return [], str(error)
        return [{"apiVersion": RESOURCES[kind].api_version, "kind": kind_of_resource(kind), **body} for body in found], ""

    async def _agents(self) -> tuple[list[Manifest], str]:
        """Return the pods of the model agents, and the text of an error, which is always "". If the user may not read the
        pods of all namespaces, the list is empty, and this is not an error.
        """
        try:
            return await self._client.list_objects("Pod", label_selector=f"app.kubernetes.io/name={keys.AGENT}"), ""
        except Forbidden:
            return [], ""


def node_rows(found: ClusterState) -> list[cluster.NodeRow]:
    """Return a row for each node with GPUs, services or weights."""
    moving = [move for key, tree in found.trees.items() for move in moves_under_way(tree, found.bodies[key], found.at)]
    return cluster.node_rows(found.trees.values(), found.nodes, found.records, found.avoided, found.unknown, moving)


def _of_a_service(body: Mapping[str, Any]) -> bool:
    """Return whether a service controls an object. Labels do not show this, because the ControllerRevisions of StatefulSets
    have the labels of the pods.
    """
    return (controller(body.get("metadata") or {}) or {}).get("kind") == SERVICE


def _revision(body: Mapping[str, Any]) -> tuple[str, str, str]:
    metadata = body.get("metadata") or {}
    labels = metadata.get("labels") or {}
    return metadata.get("namespace") or "", labels.get(keys.SERVICE) or "", labels.get(keys.REVISION) or ""


def board(
    at: datetime,
    namespace: str,
    services: Iterable[Manifest],
    read: Mapping[str, tuple[list[Manifest], str]],
    late: Mapping[str, str] = MappingProxyType({}),
) -> ClusterState:
    """Build the board from the objects that were read. Invalid objects cause no error: each service gets a row. `late` maps
    a class of operators to the sentence that no operator of the class works.
    """
    bodies = {_key(body): body for body in services}
    for body in read.get(SERVING, ([], ""))[0]:
        bodies.setdefault(_key(body), body)
    there = build_cluster(body for kind in SELECTED for body in read.get(kind, ([], ""))[0])
    observed = {key: Observed(there.children_of(*key), there.pods_of(*key)) for key in bodies}
    nodes = read.get("Node", ([], ""))[0]
    pods = read.get("Pod", ([], ""))[0]
    records, why_not = read.get(RECORD, ([], ""))
    shared = (body for kind in (*RUNTIMES, *MODELS, *ACCELERATORS) for body in read.get(kind, ([], ""))[0])
    return ClusterState(
        at=at,
        namespace=namespace,
        bodies=bodies,
        trees={
            key: with_late_operator(tree(body, observed[key], at), late.get(operator_class(body), ""))
            for key, body in bodies.items()
        },
        observed=observed,
        pods={"/".join(_key(body)): body for body in pods},
        stored={
            "/".join(_key(body)): body["metadata"].get("creationTimestamp") or ""
            for body in read.get("ControllerRevision", ([], ""))[0]
        },
        nodes=tuple(map(node, nodes)),
        records=tuple(node_record(body) for body in records),
        unknown=unknown_weights(nodes, records, read.get(AGENTS, ([], ""))[0], at, denied=bool(why_not)),
        avoided=avoided.parse_avoided_nodes(read.get(FAULTS, ([], ""))[0]).nodes,
        simulated=simulated_nodes(nodes),
        shared=tuple(shared),
        denied={RESOURCES[kind].plural: why for kind, (_, why) in read.items() if why and kind not in (FAULTS, AGENTS)},
    )


def _key(body: Mapping[str, Any]) -> Key:
    return body["metadata"].get("namespace") or "", body["metadata"]["name"]
