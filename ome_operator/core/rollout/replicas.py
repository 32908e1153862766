"""What exists and what is wanted, as the numbers that a rollout is planned with."""

from ome_operator import keys
from ome_operator.core.group_numbers import by_worth, left, ready_groups
from ome_operator.core.observed.slices import Slice
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.planner import Counts, GroupCounts, ReplicaCounts, Share
from ome_operator.core.rollout.strategy import RECREATE, Strategy


def replica_counts(snapshot: Snapshot, intent: Intent) -> ReplicaCounts:
    """Count. Slices of other roles than the target's cannot stand beside it (another router is in front): they go first."""
    present = snapshot.slices
    built = {name: _counts(found, intent) for name, found in present.items()}
    routed = keys.ROUTER in intent.groups
    seen = {name: counts if not routed or _router(present[name]) else _dark(counts) for name, counts in built.items()}
    wanted = {name: _wanted(name, intent, built.get(name, {})) for name in {*present, intent.target} - {""}}
    mine = wanted.get(intent.target, {})
    alike = all(wanted[name].keys() == mine.keys() for name, found in present.items() if found.workloads)
    asked = intent.strategy if alike else Strategy(RECREATE)
    return ReplicaCounts(wanted, built, seen, asked.bounds(mine), intent.strategy.paused)


def _wanted(revision: str, intent: Intent, counts: Counts) -> Share:
    """Groups per role of a slice: those that it has where the service does not name the role any more."""
    roles = intent.roles(revision)
    unnamed = {role: counts[role].have if role in counts else 1 for role in roles}
    # in one order, stored or not: people read it
    return {role: intent.groups.get(role, unnamed[role]) for role in (keys.ENGINE, keys.DECODER) if role in roles}


def _router(one: Slice) -> bool:
    return any(pod.component == keys.ROUTER and pod.ready and not pod.deleting for pod in one.pods)


def _dark(counts: Counts) -> Counts:
    return {role: one._replace(ready=(False,) * one.have) for role, one in counts.items()}


def _counts(one: Slice, intent: Intent) -> Counts:
    return {role: groups(role, stored.size, one) for role, stored in intent.roles(one.revision).items()}


def groups(role: str, size: int, one: Slice) -> GroupCounts:
    """The groups of a role of a slice, each of `size` pods, in the order of their worth."""
    order, ready = by_worth(role, size, one), ready_groups(role, size, one)
    return GroupCounts(len(order), tuple(number in ready for number in order), left(role, one))
