"""Check whether the existing nodes can hold the desired revision. If they cannot, the revision that serves is kept
(docs/placement.md).

The check is made only while a rank of the desired revision has no node. Otherwise the revision evidently fits.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple

from ome_operator import keys, names
from ome_operator.core import group_numbers
from ome_operator.core.observed.exclusions import MOST, Exclusion
from ome_operator.core.observed.move_requests import NamedNode, named_nodes, timeout
from ome_operator.core.observed.objects import Node
from ome_operator.core.observed.slices import Slice, has_started
from ome_operator.core.placement.demand import demand, never_share_node, placed_by_other
from ome_operator.core.placement.fit import Needs, NodeSet, UnplacedPods, all_fit, find_unplaced, ignores_fit
from ome_operator.core.placement.leaving import group_to_replace
from ome_operator.core.placement.need import Need
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import StoredRole, roles_by_component
from ome_operator.core.waves.shared_edits import whole_before


class Fitting(NamedTuple):
    """The result of the capacity check of a revision."""

    lacks: tuple[UnplacedPods, ...] = ()
    """The pods that do not fit, and why; empty if all pods fit."""
    held: bool = False
    """Whether the revision that serves is kept because the desired revision does not fit."""
    asked: bool = False
    """Whether the result depends on the existing nodes, so that a change of the nodes requires another check."""
    advice: tuple[str, ...] = ()
    moves: Needs = ()
    """The pods of the desired revision, if the rollout would remove pods of a revision that serves, and the desired pods do
    not fit on the nodes that this removal releases; otherwise ()."""
    excluded: Exclusion = ()
    """The nodes on which no new group of the service is placed."""
    again: float | None = None
    """Seconds until new groups may again use one of the nodes that `ome move` has named; None if `ome move` has named no
    node.
    """

    @property
    def sentence(self) -> str:
        """A human-readable text that states which pods do not fit, and why."""
        return "; ".join(lack.sentence for lack in self.lacks)


UNASKED = Fitting()


def choose_exclusions(
    snapshot: Snapshot, data: Mapping[str, Mapping[str, Any]], target: str, groups: Mapping[str, int], weights: bool
) -> Fitting:
    """Choose the nodes that new groups exclude, and compare the desired groups of the target revision with the nodes of the
    cluster.

    New groups exclude the avoided nodes, because these nodes may be faulty. For some time, new groups also exclude the nodes
    that `ome move` has named (`_excluded`).

    `data` maps each revision to its stored data. `groups` is the number of desired groups by component. `weights` is true if
    the nodes also have to hold the model. It is false while too few nodes hold the model, because another condition reports
    that.
    """
    deps, roles = snapshot.deps, roles_by_component(data.get(target) or {})
    wanted = {name: groups.get(name, 1) for name in roles}
    moves = snapshot.service.spec.moves
    named: Mapping[str, NamedNode] = {}
    if moves is not None and deps.policy.sees_cluster:
        named = named_nodes(deps.nodes.values(), timeout(moves), snapshot.now)
    excluded = _excluded(snapshot, roles, target, wanted, weights, named)
    found = _fitting(snapshot, data, target, groups, weights, excluded)
    return found._replace(excluded=excluded, again=min((node.left for node in named.values()), default=None))


def _excluded(
    snapshot: Snapshot,
    roles: Mapping[str, StoredRole],
    target: str,
    wanted: Mapping[str, int],
    weights: bool,
    named: Mapping[str, NamedNode],
) -> Exclusion:
    """Return the nodes that new groups exclude: the avoided nodes, and the nodes `named` by `ome move`. `wanted` is the
    desired number of groups by role.

    If the groups do not fit without these nodes, new groups may use the named nodes. If these do not suffice, new groups
    may use the avoided nodes, too. The reason is that a node that will be removed is better than a node that may be faulty,
    and a faulty node is better than none.

    A group that moves needs no further node, because it keeps its present nodes until its replacement serves. If a group
    moves without a replacement (`ome move --now`), its role lacks a group only because of the move. New groups therefore
    exclude the named node in every case, unless they are created for a rollout. If more than MOST nodes would be excluded,
    the avoided nodes take precedence.
    """
    rolls = target not in whole_before(snapshot.service.status) or snapshot.slices.keys() - {target}
    left = {name for name, node in named.items() if node.now and not rolls}
    most = {*snapshot.observed.avoided, *named}
    mine, namespace = snapshot.slices.get(target, Slice(target, (), ())), snapshot.service.namespace

    def fits_without(nodes: Exclusion) -> bool:
        """Return whether all groups fit if new groups exclude `nodes`. Groups that `leaving.group_to_replace` replaces,
        because they wait for nodes and exclude more nodes, count as new groups.
        """
        bound = {
            name: group_to_replace(snapshot, nodes, mine, name, role) | _beside(mine, name, nodes)
            for name, role in roles.items()
        }
        parts = _parts(roles, wanted, mine, nodes, bound, most.difference(nodes))
        return not find_unplaced(_needs(parts, namespace, weights), snapshot.deps.nodes)

    avoided = snapshot.observed.avoided
    first, less, least = (
        tuple(sorted(sorted(nodes, key=lambda name: (name not in avoided, name not in left, name))[:MOST]))
        for nodes in (most, {*avoided, *left}, left)
    )
    if not (first and snapshot.deps.policy.sees_cluster) or fits_without(first):
        return first
    if less != first and fits_without(less):
        return less
    return first if find_unplaced(revision_needs(roles, wanted, namespace, weights), snapshot.deps.nodes) else least


def _fitting(
    snapshot: Snapshot,
    data: Mapping[str, Mapping[str, Any]],
    target: str,
    groups: Mapping[str, int],
    weights: bool,
    excluded: Exclusion,
) -> Fitting:
    """Return the result of `choose_exclusions` for new groups that exclude the nodes `excluded`. The other parameters are
    those of `choose_exclusions`.
    """
    deps, roles = snapshot.deps, roles_by_component(data.get(target) or {})
    wanted = {name: groups.get(name, 1) for name in roles}
    mine = snapshot.slices.get(target, Slice(target, (), ()))
    if ignores_fit(snapshot.service.annotations) or _placed(mine, roles, wanted):
        return UNASKED
    others = [found for name, found in snapshot.slices.items() if name != target and has_started(found)]
    if not deps.policy.sees_cluster:
        return Fitting(advice=(_unseen(target),) if others else ())
    namespace = snapshot.service.namespace
    found = find_unplaced(_needs(_parts(roles, wanted, mine, excluded), namespace, weights), deps.nodes)
    if not (others and deps.nodes):
        return Fitting(found, asked=True)
    known = {name: roles_by_component(data.get(name) or {}) for name in snapshot.slices}
    part = _part([*others, mine], known, groups)
    least = {name: min(count, max(1, ceil(count * part))) for name, count in wanted.items()}
    asked = _needs(_parts(roles, least, mine, excluded), namespace, weights)
    lasting = bool(mine.workloads) or _ends(snapshot, others)
    held = bool(found) and bool(find_unplaced(asked, deps.nodes, lasting))
    asks = (
        part > 0 and not (held or mine.workloads) and any(has_ready_groups(known[found.revision], found) for found in others)
    )
    moves = asks and not _stays(asked, roles, others, known, deps.nodes, lasting)
    return Fitting(found, held, asked=True, moves=asked if moves else ())


def _unseen(target: str) -> str:
    return (
        "this operator reads no nodes (clusterWideKinds is false), so it could not check whether nodes have capacity "
        f"for revision {target} before the serving revision is replaced"
    )


def _placed(found: Slice, roles: Mapping[str, StoredRole], wanted: Mapping[str, int]) -> bool:
    """Return whether every rank of every desired group is on a node. `found` holds the objects of the revision, `roles` its
    stored workloads, and `wanted` the number of desired groups by component.
    """
    return all(len(group_numbers.on_nodes(name, role.size, found)) >= wanted[name] for name, role in roles.items())


def _part(slices: Iterable[Slice], roles: Mapping[str, Mapping[str, StoredRole]], groups: Mapping[str, int]) -> Fraction:
    """Return the share of the service that is on nodes. It is the smallest share of any role, because prefill groups
    cannot serve requests without decode groups.
    """
    have: dict[str, int] = {}
    there: dict[str, int] = {}
    for found in slices:
        for name, role in roles.get(found.revision, {}).items():
            have[name] = have.get(name, 0) + len(group_numbers.on_nodes(name, role.size, found))
            there[name] = there.get(name, 0) + len(group_numbers.existing_groups(name, found))
    shares = [Fraction(have[name], groups.get(name, there[name])) for name in have if groups.get(name, there[name])]
    return min(shares, default=Fraction(0))


def has_ready_groups(roles: Mapping[str, StoredRole], found: Slice) -> bool:
    """Return whether a revision has a ready group of every role. `found` holds the objects of the revision, `roles` its
    stored workloads. A revision that cannot serve is not kept, because the edit may repair the service.
    """
    return bool(roles) and all(group_numbers.ready_groups(name, role.size, found) for name, role in roles.items())


def _ends(snapshot: Snapshot, others: Iterable[Slice]) -> bool:
    """Return whether pods of the old revisions are terminating on ready nodes. If so, the capacity check ignores the state
    of nodes (not ready, cordoned), so that a node whose readiness flaps does not bring the old revisions back.

    Pods on nodes that are not ready are not considered.
    """
    nodes = snapshot.deps.nodes
    return any(pod.deleting and pod.node in nodes and nodes[pod.node].ready for found in others for pod in found.pods)


def _stays(
    asked: Needs,
    target: Mapping[str, StoredRole],
    slices: Iterable[Slice],
    roles: Mapping[str, Mapping[str, StoredRole]],
    nodes: Mapping[str, Node],
    lasting: bool,
) -> bool:
    """Return whether the pods of the target revision (`asked`) fit on the nodes of the old revisions, `slices`, once the
    pods of the old revisions are gone.

    Also return True if a queue or another scheduler, which applies its own rules, places the pods of the target. If
    `lasting` is true, the present state of nodes (not ready, cordoned) is ignored.
    """
    given: dict[str, Counter[str]] = {}
    for found in slices:
        for pod in found.pods:
            role = roles[found.revision].get(pod.component)
            workload = role and (role.worker if pod.rank else role.leader)
            if workload and pod.node in nodes:
                given.setdefault(pod.node, Counter()).update(dict(demand(workload["spec"]["template"], True).requests))
    freed = {name: nodes[name]._replace(room=tuple(amounts.items())) for name, amounts in given.items()}
    templates = (work["spec"]["template"] for role in target.values() for work in (role.leader, role.worker) if work)
    return any(map(placed_by_other, templates)) or bool(freed and all_fit(asked, NodeSet(freed, lasting)))


def _beside(mine: Slice, role: str, avoided: Exclusion) -> frozenset[int]:
    """Return the numbers of the groups of a role that have pods, but no pod on an avoided node."""
    nodes: dict[int, set[str]] = {}
    for pod in group_numbers.pods(role, mine):
        nodes.setdefault(pod.group, set()).add(pod.node)
    return frozenset(number for number, held in nodes.items() if held.isdisjoint(avoided))


class _Part(NamedTuple):
    """A number of groups of one role that all exclude the same nodes."""

    role: StoredRole
    groups: int
    excluded: Exclusion


def _parts(
    roles: Mapping[str, StoredRole],
    groups: Mapping[str, int],
    mine: Slice,
    excluded: Exclusion,
    bound: Mapping[str, Collection[int]] = MappingProxyType({}),
    usable: Collection[str] = (),
) -> list[_Part]:
    """Divide the desired groups into parts whose groups exclude the same nodes. `groups` is the number of desired groups by
    role, and `mine` are the objects of the revision.

    An existing group excludes the nodes that were avoided when it was created, so a group that serves on a node fits there
    even if the node is avoided now. New groups exclude the nodes `excluded`. Existing groups whose numbers are in `bound`
    for their role also exclude these nodes. Other existing groups are treated as if they did not exclude the nodes in
    `usable`.
    """
    parts = []
    for name, role in roles.items():
        stamped, others = group_numbers.exclusions(name, mine), bound.get(name, ())
        kept = (known for number, known in stamped.items() if number not in others)
        there = Counter(tuple(node for node in known if node not in usable) for known in kept)
        left = groups[name]
        for known, count in sorted(there.items()):
            parts.append(_Part(role, min(left, count), known))
            left -= parts[-1].groups
        parts.append(_Part(role, left, excluded))
    merged = Counter[tuple[str, Exclusion]]()
    for part in parts:
        merged[part.role.component, part.excluded] += part.groups
    return [_Part(roles[name], count, known) for (name, known), count in merged.items() if count]


def revision_needs(
    roles: Mapping[str, StoredRole], groups: Mapping[str, int], namespace: str, weights: bool, excluded: Exclusion = ()
) -> Needs:
    """Return the needs of all groups: for each role, the pods of the leaders and the pods of the workers. All these groups
    exclude the nodes `excluded`. If `weights` is false, the nodes need not hold the model.
    """
    return _needs([_Part(role, groups[name], excluded) for name, role in roles.items()], namespace, weights)


def _needs(parts: Iterable[_Part], namespace: str, weights: bool) -> Needs:
    found = []
    for role, groups, excluded in parts:
        for workload, pods in ((role.leader, groups), (role.worker, groups * (role.size - 1))):
            if workload is not None:
                found.append((role.component, workload["spec"]["template"], pods, excluded))
    both = any(component == keys.DECODER for component, *_ in found)
    asked = []
    for at, (name, template, pods, excluded) in enumerate(found):
        shy = [other for other, each in enumerate(found) if never_share_node(template, each[1], namespace)]
        others = tuple(other for other in shy if other != at)
        asked_of = demand(template, weights).without(excluded)
        asked.append(Need((name,), names.role_title(name, both), asked_of, pods, at in shy, others))
    return tuple(asked)
