"""Whether the nodes that exist hold the wanted revision, or what serves stays because they do not (docs/placement.md).

Only while ranks of it are on no node: what is placed fits.
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
from ome_operator.core.placement.fit import Ground, Lack, Need, Needs, fits, lacks
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.render.statefulsets import Stored, stored


class Fitting(NamedTuple):
    """What is known of the places for a revision."""

    lacks: tuple[Lack, ...] = ()
    """What finds none."""
    held: bool = False
    """Whether nothing that serves goes for it."""
    asked: bool = False
    """Whether this rests on which nodes there are."""
    advice: tuple[str, ...] = ()
    moves: Needs = ()
    """Its pods, as many as are on nodes now, where what serves has no room for them on its own nodes; else ()."""

    @property
    def sentence(self) -> str:
        """What finds no place, and why."""
        return "; ".join(lack.sentence for lack in self.lacks)


UNASKED = Fitting()


def fitting(
    snapshot: Snapshot, data: Mapping[str, Mapping[str, Any]], target: str, groups: Mapping[str, int], weights: bool
) -> Fitting:
    """Hold the target's groups against the nodes.

    `data`: what revisions store. `groups`: wanted, by component. `weights`: whether nodes have to hold the model, too;
    while too few do, that is said by others.
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
        f"this operator reads no nodes (clusterWideKinds is false), so nobody looked whether revision {target} fits on them "
        "before it takes the place of what serves"
    )


def _placed(found: Slice, roles: Mapping[str, Stored], wanted: Mapping[str, int]) -> bool:
    """Whether every rank of every wanted group is on a node."""
    return all(len(group_numbers.on_nodes(name, role.size, found)) >= wanted[name] for name, role in roles.items())


def _part(slices: Iterable[Slice], roles: Mapping[str, Mapping[str, Stored]], groups: Mapping[str, int]) -> Fraction:
    """Which part of the service is on nodes: the smallest over the roles, as prefill without decode serves nobody."""
    have: dict[str, int] = {}
    there: dict[str, int] = {}
    for found in slices:
        for name, role in roles.get(found.revision, {}).items():
            have[name] = have.get(name, 0) + len(group_numbers.on_nodes(name, role.size, found))
            there[name] = there.get(name, 0) + len(group_numbers.existing(name, found))
    shares = [Fraction(have[name], groups.get(name, there[name])) for name in have if groups.get(name, there[name])]
    return min(shares, default=Fraction(0))


def _serves(roles: Mapping[str, Stored], found: Slice) -> bool:
    """Whether a slice has a ready group of every role: what serves nobody is not kept, for the edit may mend it."""
    return bool(roles) and all(group_numbers.ready_groups(name, role.size, found) for name, role in roles.items())


def _ends(snapshot: Snapshot, others: Iterable[Slice]) -> bool:
    """Whether something of the old slices is on its way out, so that a node that flaps must not bring it back.

    What a node took with it when it went down does not count.
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
    """Whether pods of the target find a place where these slices are, in the room that their pods give up. True as well
    where others place them, in ways of their own. `lasting`: as in `lacks`.
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
    """The pods of all groups: leaders and workers of each role."""
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
