"""Count the existing and the desired groups of a service: the numbers from which a rollout is planned."""

from ome_operator import keys
from ome_operator.core.group_numbers import by_worth, ready_groups, remaining_groups
from ome_operator.core.observed.slices import Slice
from ome_operator.core.reconcile.snapshot import Snapshot
from ome_operator.core.rollout.intent import Intent
from ome_operator.core.rollout.planner import Counts, GroupCounts, ReplicaCounts, Share
from ome_operator.core.rollout.strategy import RECREATE, Strategy


def replica_counts(snapshot: Snapshot, intent: Intent) -> ReplicaCounts:
    """Return, for each revision, how many groups of each role it should have and has, together with the bounds of the
    rollout.

    If a revision has other roles than the target, both cannot run next to each other, because they need different routers.
    In this case the other revisions are removed first.
    """
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
    """Return the desired number of groups of a revision by role. A role that is no longer in the spec of the service keeps
    its existing groups.
    """
    roles = intent.roles(revision)
    unnamed = {role: counts[role].existing if role in counts else 1 for role in roles}
    # in a fixed order, because people read it
    return {role: intent.groups.get(role, unnamed[role]) for role in (keys.ENGINE, keys.DECODER) if role in roles}


def _router(one: Slice) -> bool:
    return any(pod.component == keys.ROUTER and pod.ready and not pod.deleting for pod in one.pods)


def _dark(counts: Counts) -> Counts:
    return {role: one._replace(ready=(False,) * one.existing) for role, one in counts.items()}


def _counts(one: Slice, intent: Intent) -> Counts:
    return {role: groups(role, stored.size, one) for role, stored in intent.roles(one.revision).items()}


def groups(role: str, size: int, one: Slice) -> GroupCounts:
    """Return the group counts of a role of a revision. Each group has `size` pods."""
    order, ready = by_worth(role, size, one), ready_groups(role, size, one)
    return GroupCounts(len(order), tuple(number in ready for number in order), remaining_groups(role, one))
