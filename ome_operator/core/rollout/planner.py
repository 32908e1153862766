"""Compute how many groups each revision has on the cluster after this pass. The inputs and the results are numbers of
groups.

The computation is stateless: everything is derived from the existing objects, so an operator that restarts during a rollout
continues it.

The capacity of a revision is the share of its desired groups that are ready, in the role where this share is smallest,
because prefill groups cannot serve requests without decode groups. The bound of each role states how many of its groups may
be missing. The lowest capacity that the bound of any role permits is the capacity that has to be kept, so the roles advance
together. The least valuable groups are removed first. The bound also limits the number of existing groups, ready or not: if
all groups become unready at once, a rollout removes no more groups than its bound allows.
"""

from collections.abc import Mapping
from math import lcm
from typing import NamedTuple

MOST_ROUTERS = 8
"""While several revisions serve, a revision may get up to this many routers, although fewer are desired. The additional
routers make the share of the revision in all routers equal to its share of the requests. The limit determines how exact
the shares can be."""


class GroupCounts(NamedTuple):
    """The numbers of groups of one role of one revision."""

    existing: int
    """Number of existing groups, without the groups that are being deleted."""
    ready: tuple[bool, ...]
    """Whether each existing group is ready; the most valuable group comes first (group_numbers.py)."""
    left: int
    """Number of groups of which any object exists. Terminating objects are included, because they hold accelerators."""


Counts = Mapping[str, GroupCounts]
"""The numbers of groups of one revision, by role."""
Share = dict[str, int]
"""A number of groups of each role of one revision."""


class Bounds(NamedTuple):
    """The limits of a rollout, as numbers of groups by role."""

    surge: Mapping[str, int]
    """How many groups may exist beyond the desired number, in all revisions together."""
    unavailable: Mapping[str, int]
    """How many of the desired groups may be missing."""
    whole: bool = False
    """Whether the other revisions stay unchanged until every desired group of the target serves."""
    alone: bool = False
    """Whether the target starts only after all objects of the groups of other revisions are gone."""

    def interrupts_serving(self, groups: Mapping[str, int]) -> bool:
        """Return whether all groups of a role are removed before new groups of the role serve. `groups` is the desired
        number of groups by role.
        """
        return self.alone or any(
            self.unavailable.get(role, 0) >= number and not self.surge.get(role, 0)
            for role, number in groups.items()
            if number
        )


class ReplicaCounts(NamedTuple):
    """The desired and the existing numbers of groups, by revision."""

    wanted: Mapping[str, Share]
    """The numbers of groups that each existing revision, and the target, would have if it were the only revision."""
    built: Mapping[str, Counts]
    """The numbers of existing groups of each revision. A group is ready when all of its pods are ready."""
    observed_counts: Mapping[str, Counts]
    """The numbers in `built`, except that a revision without any ready router has no ready group if the service has
    routers."""
    bounds: Bounds
    paused: bool = False

    def is_complete(self, revision: str) -> bool:
        """Return whether every desired group of a revision is ready."""
        counts = self.built.get(revision, {})
        return all(
            not count or (role in counts and sum(counts[role].ready) >= count)
            for role, count in self.wanted.get(revision, {}).items()
        )


def step(share: Share, target: str, seen: Mapping[str, Counts], bounds: Bounds) -> dict[str, Share]:
    """Return the number of groups of each revision and role after the next safe step towards the state in which only the
    target exists. `share` is the desired number of groups by role, and `seen` are the counts of each revision. No step
    removes all groups of one role of a revision and keeps groups of another role.
    """
    others = {name: counts for name, counts in seen.items() if name != target}
    mine = seen.get(target, {})
    need = _need(capacity(mine, share), share, bounds)
    least = {role: -(-need * count // _whole(share)) for role, count in share.items()}
    kept = _without_slices(others, share, least)
    fewer = _without_groups(kept, others, share, least)
    if _could(fewer, mine, share, bounds) > _could(kept, mine, share, bounds):
        kept = fewer
    left = _left(others, share)
    if bounds.alone and any(one.left for counts in others.values() for one in counts.values()):
        left = share
    shares = {**kept, target: _grown(mine, share, _with_dying(left, mine, others), bounds.surge)}
    return _freed(shares, target, seen, share) if len(others) > 1 else shares


def keep_groups(share: Share, first: str, seen: Mapping[str, Counts]) -> dict[str, Share]:
    """Return the number of groups of each revision and role while nothing may be replaced. The revisions keep their groups,
    and the revision `first` gets the groups that are missing from the desired number `share`. `seen` are the counts of each
    revision.
    """
    others = {name: counts for name, counts in seen.items() if name != first}
    kept = {
        name: {role: min(one.existing, share.get(role, one.existing)) for role, one in counts.items()}
        for name, counts in others.items()
    }
    mine = seen.get(first, {})
    return {**kept, first: _grown(mine, share, _with_dying(_left(others, share), mine, others), {})}


def capacity(counts: Counts, share: Share) -> int:
    """Return the capacity of a revision. All desired groups (`share`) together have the capacity `_whole(share)`."""
    unit = _whole(share)
    shares = [sum(counts[role].ready) * unit // count if role in counts else 0 for role, count in share.items() if count]
    return min([unit, *shares]) if shares else 0


def is_within_bounds(share: Share, seen: Mapping[str, Counts], bounds: Bounds) -> bool:
    """Return whether the capacities of all revisions in `seen` add up to at least the capacity that the bounds require.
    `share` is the desired number of groups by role.
    """
    serves = sum(capacity(counts, share) for counts in seen.values())
    return serves > 0 and serves >= _least(share, bounds)


def routers(replicas: int, share: Share, seen: Mapping[str, Counts]) -> dict[str, int]:
    """Return the number of router replicas of each revision in `seen`. `replicas` is the desired number of a single
    revision, and `share` is the desired number of groups by role. Every router gets the same share of requests, so the
    replicas are in proportion to the capacities of the revisions.

    A revision that does not serve yet has one router. If `replicas` is too small to express the shares, there are more
    routers while several revisions serve, up to `MOST_ROUTERS` for a revision.
    """
    serves = {name: capacity(counts, share) for name, counts in seen.items()}
    serving = [one for one in serves.values() if one]
    if len(serving) < 2 or not replicas:
        return {name: replicas if one or not serving else min(replicas, 1) for name, one in serves.items()}
    unit = _whole(share)
    return {name: max(1, -(-one * replicas // unit), min(one // min(serving), MOST_ROUTERS)) for name, one in serves.items()}


def _whole(share: Share) -> int:
    """Return the capacity of all desired groups: the least common multiple of the desired group counts of all roles."""
    return lcm(*(count for count in share.values() if count))


def _need(serves: int, share: Share, bounds: Bounds) -> int:
    """Return the capacity that the revisions other than the target have to keep while the target has the capacity
    `serves`.
    """
    if bounds.whole:
        return _whole(share) if serves < _whole(share) else 0
    return max(0, _least(share, bounds) - serves)


def _least(share: Share, bounds: Bounds) -> int:
    """Return the capacity that has to be kept according to the bounds. It is the minimum over the roles, because requests
    need all roles.
    """
    missing = {role: min(count, bounds.unavailable.get(role, 0)) for role, count in share.items()}
    return min(((count - missing[role]) * _whole(share) // count for role, count in share.items() if count), default=0)


def _least_first(others: Mapping[str, Counts], share: Share) -> list[str]:
    """Return the revisions other than the target in the order of their removal: the revision with the least capacity first
    and, of revisions with equal capacities, the revision with the fewest groups first.
    """
    has = {name: sum(one.existing for one in counts.values()) for name, counts in others.items()}
    return sorted(others, key=lambda name: (capacity(others[name], share), has[name], name))


def _without_slices(others: Mapping[str, Counts], share: Share, least: Share) -> dict[str, Share]:
    """Return the number of groups that each of the revisions `others` keeps if every revision that is not necessary for the
    minimum `least` (groups by role) is removed completely.
    """
    kept = {name: {role: one.existing for role, one in counts.items()} for name, counts in others.items()}
    for name in _least_first(others, share):
        without = {**kept, name: dict.fromkeys(kept[name], 0)}
        if _spared(kept, without, others, least):
            kept = without
    return kept


def _without_groups(
    kept: Mapping[str, Share], others: Mapping[str, Counts], wanted: Share, least: Share
) -> dict[str, Share]:
    """Return the number of groups that each of the revisions `others` keeps if, of the groups `kept`, every group that is
    not necessary for the minimum `least` (groups by role) is removed. A revision keeps at least one group of each role that
    it has.
    """
    out = {name: dict(share) for name, share in kept.items()}
    number = {role: _number(kept, role) for role in wanted}
    ready = {role: _ready(kept, others, role) for role in wanted}
    for name in _least_first(others, wanted):
        for role, count in out[name].items():
            bits = others[name][role].ready
            while count > 1 and number[role] > least[role] and (ready[role] > least[role] or not bits[count - 1]):
                count -= 1
                number[role] -= 1
                ready[role] -= bits[count]
            out[name][role] = count
    return out


def _freed(shares: dict[str, Share], target: str, seen: Mapping[str, Counts], share: Share) -> dict[str, Share]:
    """Return `shares`. If three revisions block each other permanently, return `shares` without the groups of the revision
    with the least capacity.

    The revisions can block each other if a role has few groups. Each revision keeps a group of every role, so the revisions
    may already have as many groups of this role as may exist, while the bounds require the capacity of all revisions. In
    this case a revision is removed only if every group is ready and the step changes nothing. A revision without capacity is
    also removed while groups are not ready, if the step changes nothing and another revision has capacity.
    """
    changes = target not in seen and any(shares[target].values())
    changes |= any(not one.existing == one.left == shares[name][role] for name in seen for role, one in seen[name].items())
    if changes or all(shares[target][role] >= count for role, count in share.items()):
        return shares
    others = {name: counts for name, counts in seen.items() if name != target}
    least = _least_first(others, share)[0]
    ready = all(all(one.ready) for counts in seen.values() for one in counts.values())
    idle = not capacity(seen[least], share) and any(capacity(counts, share) for counts in seen.values())
    return {**shares, least: dict.fromkeys(shares[least], 0)} if ready or idle else shares


def _could(kept: Mapping[str, Share], mine: Counts, wanted: Share, bounds: Bounds) -> int:
    """Return the capacity that the target could reach if the other revisions had the groups `kept`. `mine` are the present
    counts of the target. A group whose removal does not raise this capacity need not be removed.
    """
    share = _grown(mine, wanted, {role: _number(kept, role) for role in wanted}, bounds.surge)
    return min((share[role] * _whole(wanted) // count for role, count in wanted.items() if count), default=0)


def _spared(before: Mapping[str, Share], after: Mapping[str, Share], others: Mapping[str, Counts], least: Share) -> bool:
    """Return whether the groups `after` satisfy the minimum `least`, both in their number and in the number of ready groups.
    If the groups `before` are already below the minimum, neither number may decrease.
    """
    for role, count in least.items():
        if _number(after, role) < min(count, _number(before, role)):
            return False
        if _ready(after, others, role) < min(count, _ready(before, others, role)):
            return False
    return True


def _left(others: Mapping[str, Counts], share: Share) -> Share:
    return {role: sum(counts[role].left for counts in others.values() if role in counts) for role in share}


def _with_dying(share: Share, mine: Counts, others: Mapping[str, Counts]) -> Share:
    """Return the number of groups by role that hold accelerators besides the existing groups of the target. These are the
    groups of other revisions (`share`) and, if other revisions exist, the terminating groups of the target. `mine` are the
    counts of the target.
    """
    dying = {role: one.left - one.existing for role, one in mine.items()} if others else {}
    return {role: count + dying.get(role, 0) for role, count in share.items()}


def _number(kept: Mapping[str, Share], role: str) -> int:
    return sum(share.get(role, 0) for share in kept.values())


def _ready(kept: Mapping[str, Share], others: Mapping[str, Counts], role: str) -> int:
    return sum(sum(others[name][role].ready[: share[role]]) for name, share in kept.items() if role in share)


def _grown(mine: Counts, wanted: Share, left: Share, surge: Mapping[str, int]) -> Share:
    """Return the number of groups by role to which a revision with the groups `mine` can grow: the desired number `wanted`,
    as far as the `surge` and the groups of other revisions (`left`) permit. A revision starts with a group of every role, or
    not at all. `surge` is the number of groups by role that may exist above the desired number.
    """
    have = {role: min(count, mine[role].existing if role in mine else 0) for role, count in wanted.items()}
    room = {role: count + surge.get(role, 0) - left[role] for role, count in wanted.items()}
    share = {role: max(have[role], min(count, room[role])) for role, count in wanted.items()}
    return share if all(share[role] for role, count in wanted.items() if count) else have
