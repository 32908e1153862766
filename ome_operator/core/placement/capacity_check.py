"""Check whether the existing nodes can hold the desired revision; if they cannot, the serving revision stays
(docs/placement.md).

Only checked while ranks of the revision are on no node: a revision that is placed fits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from ome_operator import keys, names
from ome_operator.core import group_numbers
from ome_operator.core.observed.objects import Node
from ome_operator.core.observed.slices import Slice, started
from ome_operator.core.placement.demand import apart, demand, elsewhere
from ome_operator.core.placement.fit import Ground, Lack, Needs, fits, lacks
from ome_operator.core.placement.need import Need
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import Stored, stored


class Fitting(NamedTuple):
    """The result of the capacity check of a revision."""

    lacks: tuple[Lack, ...] = ()
    """What does not fit."""
    held: bool = False
    """Whether the serving revision stays because of that."""
    asked: bool = False
    """Whether the result depends on which nodes exist."""
    advice: tuple[str, ...] = ()
    moves: Needs = ()
    """The pods of the revision, as many as are on nodes now, if the nodes of the serving revision have no capacity for them;
    else ()."""

    @property
    def sentence(self) -> str:
        """What does not fit, and why, as a sentence."""
        return "; ".join(lack.sentence for lack in self.lacks)


UNASKED = Fitting()


def fitting(
    snapshot: Snapshot, data: Mapping[str, Mapping[str, Any]], target: str, groups: Mapping[str, int], weights: bool
) -> Fitting:
    """Compare the groups of the target revision with the nodes of the cluster.

    `data` is what the revisions store. `groups` is the number of desired groups by component. `weights` states whether nodes
    have to hold the model too; while too few nodes hold it, another condition reports that.
    """
    deps, roles = snapshot.deps, stored(data.get(target) or {})
    wanted = {name: groups.get(name, 1) for name in roles}
    mine = snapshot.slices.get(target, Slice(target, (), ()))
    if snapshot.service.annotations.get(keys.IGNORE_FIT) == "true" or _placed(mine, roles, wanted):
        return UNASKED
    others = [found for name, found in snapshot.slices.items() if name != target and started(found)]
    if not deps.policy.sees_cluster:
        return Fitting(advice=(_unseen(target),) if others else ())
    namespace = snapshot.service.namespace
    found = lacks(needs(roles, wanted, namespace, weights), deps.nodes)
    if not (others and deps.nodes):
        return Fitting(found, asked=True)
    known = {name: stored(data.get(name) or {}) for name in snapshot.slices}
    part = _part([*others, mine], known, groups)
    least = {name: min(count, max(1, ceil(count * part))) for name, count in wanted.items()}
    asked, lasting = needs(roles, least, namespace, weights), bool(mine.workloads) or _ends(snapshot, others)
    held = bool(found) and bool(lacks(asked, deps.nodes, lasting))
    asks = part > 0 and not (held or mine.workloads) and any(_serves(known[found.revision], found) for found in others)
    moves = asks and not _stays(asked, roles, others, known, deps.nodes, lasting)
    return Fitting(found, held, asked=True, moves=asked if moves else ())


def _unseen(target: str) -> str:
    return (
        f"this operator reads no nodes (clusterWideKinds is false), so it could not check whether revision {target} fits "
        "before the revision that serves is replaced"
    )


def _placed(found: Slice, roles: Mapping[str, Stored], wanted: Mapping[str, int]) -> bool:
    """Return whether every rank of every desired group is on a node."""
    return all(len(group_numbers.on_nodes(name, role.size, found)) >= wanted[name] for name, role in roles.items())


def _part(slices: Iterable[Slice], roles: Mapping[str, Mapping[str, Stored]], groups: Mapping[str, int]) -> Fraction:
    """Return which share of the service is on nodes: the smallest share of any role, because prefill without decode serves
    nothing.
    """
    have: dict[str, int] = {}
    there: dict[str, int] = {}
    for found in slices:
        for name, role in roles.get(found.revision, {}).items():
            have[name] = have.get(name, 0) + len(group_numbers.on_nodes(name, role.size, found))
            there[name] = there.get(name, 0) + len(group_numbers.existing(name, found))
    shares = [Fraction(have[name], groups.get(name, there[name])) for name in have if groups.get(name, there[name])]
    return min(shares, default=Fraction(0))


def _serves(roles: Mapping[str, Stored], found: Slice) -> bool:
    """Return whether a slice has a ready group of every role. A slice that serves nothing is not kept, because the edit may
    repair it.
    """
    return bool(roles) and all(group_numbers.ready_groups(name, role.size, found) for name, role in roles.items())


def _ends(snapshot: Snapshot, others: Iterable[Slice]) -> bool:
    """Return whether pods of the old slices are terminating on ready nodes, so that a node that flaps does not bring those
    slices back.

    Pods on a node that went down do not count.
    """
    nodes = snapshot.deps.nodes
    return any(pod.deleting and pod.node in nodes and nodes[pod.node].ready for found in others for pod in found.pods)


def _stays(
    asked: Needs,
    target: Mapping[str, Stored],
    slices: Iterable[Slice],
    roles: Mapping[str, Mapping[str, Stored]],
    nodes: Mapping[str, Node],
    lasting: bool,
) -> bool:
    """Return whether the pods of the target fit on the nodes of these slices once the pods of the slices have gone.

    Also True if a queue or another scheduler places the pods by rules of its own. `lasting` is as in `fit.lacks`.
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
    return any(map(elsewhere, templates)) or bool(freed and fits(asked, Ground(freed, lasting)))


def needs(roles: Mapping[str, Stored], groups: Mapping[str, int], namespace: str, weights: bool) -> Needs:
    """Return the pods of all groups: the leaders and the workers of each role."""
    found = []
    for name, role in roles.items():
        for workload, pods in ((role.leader, groups[name]), (role.worker, groups[name] * (role.size - 1))):
            if workload is not None:
                found.append((name, workload["spec"]["template"], pods))
    both = keys.DECODER in roles
    asked = []
    for at, (name, template, pods) in enumerate(found):
        shy = [other for other, each in enumerate(found) if apart(template, each[1], namespace)]
        others = tuple(other for other in shy if other != at)
        asked.append(Need((name,), names.title(name, both), demand(template, weights), pods, at in shy, others))
    return tuple(asked)
