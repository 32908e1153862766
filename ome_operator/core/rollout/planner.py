"""Compute how many groups each slice has in this pass: integers in, integers out.

Stateless: everything is derived from what exists, so an operator that restarts in the middle of a rollout continues it.

The capacity of a slice is the smallest share, over the roles, of desired groups that are ready, because prefill without
decode serves nothing. The bound of each role states how many of its groups may be missing, and the weakest bound limits the
capacity, so the roles advance together. The least valuable groups are removed first. Groups that are not ready still count
in number: if all groups become unready at once, a rollout removes no more than its bound.
"""

from collections.abc import Mapping
from math import lcm
from typing import NamedTuple

MOST_ROUTERS = 8
"""Largest number of routers of a slice: beyond it the share of requests is only as exact as this number allows."""


class GroupCounts(NamedTuple):
    """The groups of one role of one slice."""

    have: int
    """Number of existing groups, without those that are being deleted."""
    ready: tuple[bool, ...]
    """Whether each existing group serves, the most valuable group first (group_numbers.py)."""
    left: int
    """Number of groups of which any object is left, including terminating ones: they hold accelerators."""


Counts = Mapping[str, GroupCounts]
"""Role -> its groups in one slice."""
Share = dict[str, int]
"""Role -> desired number of groups of a slice."""


class Bounds(NamedTuple):
    """The limits of a rollout, in groups per role."""

    surge: Mapping[str, int]
    """Groups above the desired number, over all slices."""
    unavailable: Mapping[str, int]
    """Desired groups that may be missing."""
    whole: bool = False
    """The other slices stay unchanged until the target serves every desired group."""
    alone: bool = False
    """The target starts when nothing is left of the other slices."""


class ReplicaCounts(NamedTuple):
    """The groups of every slice, by revision."""

    wanted: Mapping[str, Share]
    """What each existing slice, and the target, would have if it were alone."""
    built: Mapping[str, Counts]
    """The existing groups. A group is ready when all its pods are."""
    seen: Mapping[str, Counts]
    """As `built`, but a slice whose routers are all unready counts as having no ready group."""
    bounds: Bounds
    paused: bool = False

    def complete(self, revision: str) -> bool:
        """Return whether every desired group of a slice is ready."""
        counts = self.built.get(revision, {})
        return all(
            not count or (role in counts and sum(counts[role].ready) >= count)
            for role, count in self.wanted.get(revision, {}).items()
        )


def step(wanted: Share, target: str, seen: Mapping[str, Counts], bounds: Bounds) -> dict[str, Share]:
    """Return slice -> role -> groups, one safe step nearer to the target alone. No role of a slice is ever at zero while
    another is not.
    """
    others = {name: counts for name, counts in seen.items() if name != target}
    mine = seen.get(target, {})
    need = _need(capacity(mine, wanted), wanted, bounds)
    least = {role: -(-need * count // _whole(wanted)) for role, count in wanted.items()}
    kept = _without_slices(others, wanted, least)
    fewer = _without_groups(kept, others, wanted, least)
    if _could(fewer, mine, wanted, bounds) > _could(kept, mine, wanted, bounds):
        kept = fewer
    left = _left(others, wanted)
    if bounds.alone and any(one.left for counts in others.values() for one in counts.values()):
        left = wanted
    said = {**kept, target: _grown(mine, wanted, _with_dying(left, mine, others), bounds.surge)}
    return _freed(said, target, seen, wanted) if len(others) > 1 else said


def stay(wanted: Share, first: str, seen: Mapping[str, Counts]) -> dict[str, Share]:
    """Return the groups while nothing may be replaced: the slices keep what they have, and `first` adds what is missing."""
    others = {name: counts for name, counts in seen.items() if name != first}
    kept = {
        name: {role: min(one.have, wanted.get(role, one.have)) for role, one in counts.items()}
        for name, counts in others.items()
    }
    mine = seen.get(first, {})
    return {**kept, first: _grown(mine, wanted, _with_dying(_left(others, wanted), mine, others), {})}


def capacity(counts: Counts, wanted: Share) -> int:
    """Return the capacity of a slice, in units of which all desired groups together have `_whole`."""
    unit = _whole(wanted)
    shares = [sum(counts[role].ready) * unit // count if role in counts else 0 for role, count in wanted.items() if count]
    return min([unit, *shares]) if shares else 0


def within(wanted: Share, seen: Mapping[str, Counts], bounds: Bounds) -> bool:
    """Return whether each slice, by itself, serves at least what the bounds require."""
    serves = sum(capacity(counts, wanted) for counts in seen.values())
    return serves > 0 and serves >= _least(wanted, bounds)


def routers(replicas: int, wanted: Share, seen: Mapping[str, Counts]) -> dict[str, int]:
    """Return slice -> router replicas: every router gets the same share of requests, so the shares follow capacity.

    A slice that is coming up has one router. If `replicas` is too small to express the shares, there are more routers while
    both slices serve, at most `MOST_ROUTERS` for a slice.
    """
    serves = {name: capacity(counts, wanted) for name, counts in seen.items()}
    serving = [one for one in serves.values() if one]
    if len(serving) < 2 or not replicas:
        return {name: replicas if one or not serving else min(replicas, 1) for name, one in serves.items()}
    unit = _whole(wanted)
    return {name: max(1, -(-one * replicas // unit), min(one // min(serving), MOST_ROUTERS)) for name, one in serves.items()}


def _whole(wanted: Share) -> int:
    """Return the capacity of all desired groups: a number that the group count of every role divides."""
    return lcm(*(count for count in wanted.values() if count))


def _need(serves: int, wanted: Share, bounds: Bounds) -> int:
    """Return the capacity that the other slices have to keep while the target serves `serves`."""
    if bounds.whole:
        return _whole(wanted) if serves < _whole(wanted) else 0
    return max(0, _least(wanted, bounds) - serves)


def _least(wanted: Share, bounds: Bounds) -> int:
    """Return the capacity that the weakest bound of the roles requires."""
    missing = {role: min(count, bounds.unavailable.get(role, 0)) for role, count in wanted.items()}
    return min(((count - missing[role]) * _whole(wanted) // count for role, count in wanted.items() if count), default=0)


def _least_first(others: Mapping[str, Counts], wanted: Share) -> list[str]:
    """Return the other slices in order of removal: the slice that serves and has the least comes first."""
    has = {name: sum(one.have for one in counts.values()) for name, counts in others.items()}
    return sorted(others, key=lambda name: (capacity(others[name], wanted), has[name], name))


def _without_slices(others: Mapping[str, Counts], wanted: Share, least: Share) -> dict[str, Share]:
    """Return what the other slices keep, without slices that can be spared completely."""
    kept = {name: {role: one.have for role, one in counts.items()} for name, counts in others.items()}
    for name in _least_first(others, wanted):
        without = {**kept, name: dict.fromkeys(kept[name], 0)}
        if _spared(kept, without, others, least):
            kept = without
    return kept


def _without_groups(
    kept: Mapping[str, Share], others: Mapping[str, Counts], wanted: Share, least: Share
) -> dict[str, Share]:
    """Return what the other slices keep, without single groups that can be spared."""
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


def _freed(said: dict[str, Share], target: str, seen: Mapping[str, Counts], wanted: Share) -> dict[str, Share]:
    """Return the shares without the slice that serves the least if three revisions block each other permanently, else the
    same shares.

    Each slice has a group of every role, so together they may fill the capacity of a small role while the capacity of all is
    needed. This is so only if every group is ready and nothing moves; a slice that serves nothing is removed in any case.
    """
    changes = target not in seen and any(said[target].values())
    changes |= any(not one.have == one.left == said[name][role] for name in seen for role, one in seen[name].items())
    if changes or all(said[target][role] >= count for role, count in wanted.items()):
        return said
    others = {name: counts for name, counts in seen.items() if name != target}
    least = _least_first(others, wanted)[0]
    ready = all(all(one.ready) for counts in seen.values() for one in counts.values())
    idle = not capacity(seen[least], wanted) and any(capacity(counts, wanted) for counts in seen.values())
    return {**said, least: dict.fromkeys(said[least], 0)} if ready or idle else said


def _could(kept: Mapping[str, Share], mine: Counts, wanted: Share, bounds: Bounds) -> int:
    """Return the capacity that the target could reach next to these groups: a group whose removal does not raise it need
    not go.
    """
    share = _grown(mine, wanted, {role: _number(kept, role) for role in wanted}, bounds.surge)
    return min((share[role] * _whole(wanted) // count for role, count in wanted.items() if count), default=0)


def _spared(before: Mapping[str, Share], after: Mapping[str, Share], others: Mapping[str, Counts], least: Share) -> bool:
    """Return whether the groups that remain satisfy the minimum, both in number and in ready groups."""
    for role, count in least.items():
        if _number(after, role) < min(count, _number(before, role)):
            return False
        if _ready(after, others, role) < min(count, _ready(before, others, role)):
            return False
    return True


def _left(others: Mapping[str, Counts], wanted: Share) -> Share:
    return {role: sum(counts[role].left for counts in others.values() if role in counts) for role in wanted}


def _with_dying(left: Share, mine: Counts, others: Mapping[str, Counts]) -> Share:
    """Return the groups that hold capacity: those of other slices, and groups of the slice itself that are terminating."""
    dying = {role: one.left - one.have for role, one in mine.items()} if others else {}
    return {role: count + dying.get(role, 0) for role, count in left.items()}


def _number(kept: Mapping[str, Share], role: str) -> int:
    return sum(share.get(role, 0) for share in kept.values())


def _ready(kept: Mapping[str, Share], others: Mapping[str, Counts], role: str) -> int:
    return sum(sum(others[name][role].ready[: share[role]]) for name, share in kept.items() if role in share)


def _grown(mine: Counts, wanted: Share, left: Share, surge: Mapping[str, int]) -> Share:
    """Return a slice grown to what the others leave capacity for; it begins with a group of every role or not at all."""
    have = {role: min(count, mine[role].have if role in mine else 0) for role, count in wanted.items()}
    room = {role: count + surge.get(role, 0) - left[role] for role, count in wanted.items()}
    share = {role: max(have[role], min(count, room[role])) for role, count in wanted.items()}
    return share if all(share[role] for role, count in wanted.items() if count) else have
