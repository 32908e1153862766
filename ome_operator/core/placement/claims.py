"""Claims: the requests of services for nodes, for the pods of their gangs (docs/placement.md)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ome_operator.core.observed.objects import Node
from ome_operator.core.placement.fit import Needs, Nodes, accepts_any, merge_needs
from ome_operator.core.placement.packing import most_pods

Standing = tuple[int, int]
"""For how long promised capacity was recently not used, as two numbers. The unit is a quarter of the time limit of a
placement attempt. The first number is the sum over all gangs in the namespace, and the second is the number of the gang
itself. Gangs with smaller numbers are considered earlier."""
GOOD: Standing = (0, 0)
Amounts = tuple[tuple[str, int], ...]
Member = tuple[str, int]
"""A group of a service: its role, and its number within the role."""


class IdleNodes(NamedTuple):
    """Nodes that a service holds although the groups on these nodes cannot serve requests, because ranks were lost, and no
    nodes were found for these ranks within the time limit of a placement attempt.
    """

    goes: frozenset[Member]
    """The groups that hold the nodes. They are removed if the service releases the nodes."""
    holds: tuple[tuple[str, Amounts], ...]
    """The name of each node, and the amounts of resources that the pods of the groups request on the node."""
    missing: tuple[Needs, ...]
    """Sets of pods. Placing any one of these sets would let the service serve with more groups than now. A set contains
    the pods that one group lacks or, if the service serves no requests at all, the pods that one group of every role
    lacks."""
    units: tuple[Needs, ...]
    """The sets of `missing`, each extended to all pods of its groups, including the pods that are on nodes already. ()
    unless several groups hold nodes, because only several groups can keep each other from being complete."""
    since: float
    """When the first of the groups in `goes` lost its rank, in seconds since the epoch."""


class Claim(NamedTuple):
    """The request of a service for nodes, for the pods of a gang."""

    key: str
    needs: Needs
    trying: bool
    """True if the pods of the gang have been created, False if the gang waits for admission."""
    priority: int = 0
    """The priority that the API server gave to the pods of the gang; 0 before the first pod was created."""
    first: float = 0.0
    """When the gang began to wait for nodes, in seconds since the epoch; 0 if it has never waited. Later placement
    attempts do not change this time."""
    since: float = 0.0
    """When the present placement attempt, or the wait for the next attempt, began, in seconds since the epoch; 0 if the time
    limit of the attempt has passed and no pod of the gang has a node."""
    rested: bool = True
    """Whether the pause after the last failed placement attempt is over."""
    priority_class: str = ""
    serves: bool = False
    """True for a service that already serves and makes the claimed capacity available itself, because a rollout, a
    recycle or a recovery removes its old pods. A timeout never withdraws such a claim."""
    failed: bool = False
    """Whether a placement attempt of the gang failed in this pass."""
    idle: IdleNodes | None = None
    """The nodes that the service could release, because the groups on them serve no requests; None if the service has no
    such nodes."""
    missing: Needs = ()
    """While the gang is being placed: the pods in `needs` that are on no node; () if none of the pods is on a node."""
    refused: bool = False
    """Whether pods of the gang could not be created, for example because of a quota. The value is about the present
    placement attempt or, if the gang waits, about the last one."""
    standing: Standing = GOOD
    unused: bool = False
    """Whether the pods of a service that serves could have taken the capacity that is promised to them for the time limit
    of a placement attempt, and have not taken it."""

    @property
    def promise(self) -> Needs:
        """The pods for which capacity is promised while the gang is being placed."""
        return self.missing or self.needs


def waiting_order(claim: Claim) -> tuple[Standing, int, float, str]:
    """Return the sort key of the order in which gangs that wait are considered."""
    return (claim.standing, -claim.priority, claim.first, claim.key)


def keeps_promise(claim: Claim, now: float, timeout: float) -> bool:
    """Return whether capacity is promised to a claim of a gang that is being placed.

    A promise lasts for at most `timeout` seconds, the time limit of a placement attempt, whether or not the attempt lasts
    longer. It ends earlier if pods could not be created. A gang whose attempt is over and whose pods have no node has no
    promise: its pods exist so that autoscalers see them, and are removed when another gang needs the nodes.

    now      The current time in seconds since the epoch.
    """
    if claim.serves:
        return not claim.unused
    return bool(claim.since) and not claim.refused and abs(now - claim.since) < timeout


def is_overdue(claim: Claim, now: float, timeout: float) -> bool:
    """Return whether the placement attempt of a gang has lasted for longer than `timeout` seconds. Attempts last that long
    only where an autoscaler creates nodes on demand.
    """
    return claim.trying and not claim.serves and bool(claim.since) and now - claim.since >= timeout


def may_end_attempt(claim: Claim, late: Claim) -> bool:
    """Return whether the gang `claim` may end the placement attempt of the gang `late`, which exceeds the time limit. This
    is permitted if no pod of `claim` is on a node, and if the standing of `claim` is not worse than the standing of
    `late`.
    """
    nowhere = not claim.trying or not (claim.serves or claim.missing)
    return claim.key != late.key and nowhere and claim.standing <= late.standing


def subtract_held(node: Node, held: Mapping[str, int]) -> Node:
    """Return the node with its free capacity: the allocatable amounts minus `held`, the amounts that pods hold. A
    resource that the node does not report stays unknown.
    """
    return node._replace(room=tuple((resource, max(0, has - held.get(resource, 0))) for resource, has in node.room))


def with_capacity(free: Nodes, several: Iterable[Needs]) -> dict[str, Node]:
    """Return the nodes that have capacity for at least one pod of the needs in `several`. Other nodes, of which a cluster
    may have thousands, cannot change a decision about these pods.
    """
    asked = {need.demand.requests for needs in several for need in needs if need.pods}
    known = dict[Amounts, bool]()
    for node in free.values():
        if node.room not in known:
            known[node.room] = any(most_pods(requests, node.room, 1) for requests in asked)
    return {name: node for name, node in free.items() if known[node.room]}


def nodes_with_room(needs: Needs, free: Nodes) -> Iterator[str]:
    """Yield the names of the nodes that accept at least one of the pods `needs` and have capacity for it, as far as their
    free capacity is known.
    """
    for name, node in free.items():
        if accepts_any(needs, node) and any(most_pods(need.demand.requests, node.room, 1) for need in needs if need.pods):
            yield name


def is_contested(needs: Needs, others: Iterable[Claim], nodes: Nodes) -> bool:
    """Return whether the pods `needs` compete with other claims: one of the claims `others` could use a node that the pods
    could use, too.
    """
    rivals = {without_role_names(claim.needs) for claim in others}
    return bool(rivals) and any(
        accepts_any(needs, node) and any(accepts_any(other, node) for other in rivals) for node in nodes.values()
    )


def without_role_names(needs: Needs) -> Needs:
    """Return the needs without the names of their roles, so that the needs of different services can be compared."""
    return merge_needs(tuple(need._replace(components=(), title="") for need in needs if need.pods > 0))


def unclaimed_nodes(free: Nodes, claims: Sequence[Claim]) -> Nodes:
    """Return the nodes in `free` that no pod of `claims` could use, regardless of the capacity of the nodes."""
    wanted = {without_role_names(claim.needs) for claim in claims}
    return (
        {name: node for name, node in free.items() if not any(accepts_any(needs, node) for needs in wanted)}
        if wanted
        else free
    )
