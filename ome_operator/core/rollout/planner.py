"""How many groups each slice has in this pass: integers in, integers out.

Stateless: everything is derived from what exists, so an operator that restarts in the middle goes on where it stopped.

Capacity is the smallest share, over the roles, of the wanted groups that are ready: prefill without decode serves nobody.
Each role's bound says how many of its groups may be missing, and the weaker of them bounds the capacity, so roles step
together. Removal takes the group that is worth least. What is not ready still counts in number: when every group stops being
ready at once, a rollout takes away no more than its bound.
"""

from collections.abc import Mapping
from math import lcm
from typing import NamedTuple

MOST_ROUTERS = 8
"""Beyond that a share is only as near as so many routers make it."""


class GroupCounts(NamedTuple):
    """The groups of one role of one slice."""

    have: int
    """How many there are; one that is being deleted does not count."""
    ready: tuple[bool, ...]
    """Whether each of them serves, the group that is worth most first (members.py)."""
    left: int
    """Groups of which an object is left, those included that are on their way out: they hold accelerators."""


Counts = Mapping[str, GroupCounts]
"""Role -> its groups in one slice."""
Share = dict[str, int]
"""Role -> groups that a slice is to have."""


class Bounds(NamedTuple):
    """How far a rollout may go, in groups per role."""

    surge: Mapping[str, int]
    """Groups above the wanted number, over all slices."""
    unavailable: Mapping[str, int]
    """Wanted groups that may be missing."""
    whole: bool = False
    """The other slices stay as they are until the target serves every wanted group."""
    alone: bool = False
    """The target comes when nothing is left of the others."""


class ReplicaCounts(NamedTuple):
    """Groups of every slice, by revision."""

    wanted: Mapping[str, Share]
    """Of every slice that exists and of the target: what it would have alone."""
    built: Mapping[str, Counts]
    """A group is ready when all its pods are."""
    seen: Mapping[str, Counts]
    """As `built`, but a slice whose routers are all unready counts as having no ready group."""
    bounds: Bounds
    paused: bool = False

    def complete(self, revision: str) -> bool:
        """Whether every wanted group of a slice is ready."""
        counts = self.built.get(revision, {})
        return all(
            not count or (role in counts and sum(counts[role].ready) >= count)
            for role, count in self.wanted.get(revision, {}).items()
        )


def step(wanted: Share, target: str, seen: Mapping[str, Counts], bounds: Bounds) -> dict[str, Share]:
    """Slice -> role -> groups, one safe step nearer to the target alone. No role of a slice is ever at zero alone."""
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
    """The same while nothing may be replaced: the slices keep what they have, and `first` makes up what is missing."""
    others = {name: counts for name, counts in seen.items() if name != first}
    kept = {
        name: {role: min(one.have, wanted.get(role, one.have)) for role, one in counts.items()}
        for name, counts in others.items()
    }
    mine = seen.get(first, {})
    return {**kept, first: _grown(mine, wanted, _with_dying(_left(others, wanted), mine, others), {})}


def capacity(counts: Counts, wanted: Share) -> int:
    """What a slice serves, in parts of which all wanted groups together are `_whole`."""
    unit = _whole(wanted)
    shares = [sum(counts[role].ready) * unit // count if role in counts else 0 for role, count in wanted.items() if count]
    return min([unit, *shares]) if shares else 0


def within(wanted: Share, seen: Mapping[str, Counts], bounds: Bounds) -> bool:
    """Whether the slices serve, each for itself, at least what the bounds leave."""
    serves = sum(capacity(counts, wanted) for counts in seen.values())
    return serves > 0 and serves >= _least(wanted, bounds)


def routers(replicas: int, wanted: Share, seen: Mapping[str, Counts]) -> dict[str, int]:
    """Slice -> replicas of its router: every router gets the same share of the requests, so shares follow capacity.

    A slice that is coming up has one router. Where `replicas` are too few to tell two slices apart there are more of them
    while both serve, at most `MOST_ROUTERS` for a slice.
    """
    serves = {name: capacity(counts, wanted) for name, counts in seen.items()}
    serving = [one for one in serves.values() if one]
    if len(serving) < 2 or not replicas:
        return {name: replicas if one or not serving else min(replicas, 1) for name, one in serves.items()}
    unit = _whole(wanted)
    return {name: max(1, -(-one * replicas // unit), min(one // min(serving), MOST_ROUTERS)) for name, one in serves.items()}


def _whole(wanted: Share) -> int:
    """The capacity of all wanted groups: a number that every role divides."""
    return lcm(*(count for count in wanted.values() if count))


def _need(serves: int, wanted: Share, bounds: Bounds) -> int:
    """The capacity that the other slices have to keep while the target serves so much."""
    if bounds.whole:
        return _whole(wanted) if serves < _whole(wanted) else 0
    return max(0, _least(wanted, bounds) - serves)


def _least(wanted: Share, bounds: Bounds) -> int:
    """The capacity that the weaker of the roles' bounds leaves."""
    missing = {role: min(count, bounds.unavailable.get(role, 0)) for role, count in wanted.items()}
    return min(((count - missing[role]) * _whole(wanted) // count for role, count in wanted.items() if count), default=0)


def _least_first(others: Mapping[str, Counts], wanted: Share) -> list[str]:
    """The other slices, that which serves least and has least first."""
    has = {name: sum(one.have for one in counts.values()) for name, counts in others.items()}
    return sorted(others, key=lambda name: (capacity(others[name], wanted), has[name], name))


def _without_slices(others: Mapping[str, Counts], wanted: Share, least: Share) -> dict[str, Share]:
    """What the other slices have, without those that can be spared as a whole."""
    kept = {name: {role: one.have for role, one in counts.items()} for name, counts in others.items()}
    for name in _least_first(others, wanted):
        without = {**kept, name: dict.fromkeys(kept[name], 0)}
        if _spared(kept, without, others, least):
            kept = without
    return kept


def _without_groups(
    kept: Mapping[str, Share], others: Mapping[str, Counts], wanted: Share, least: Share
) -> dict[str, Share]:
    """The same without the single groups that can be spared."""
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
    """What was said, or, where three revisions are in each other's way for good, without the slice that serves least.

    Each has a group of every role, so together they may fill the room of a small role while the capacity of all is needed.
    That is so when every group is ready and nothing moves; a slice that serves nobody goes in any case.
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
    """What the target could serve beside these groups: what does not raise it need not go."""
    share = _grown(mine, wanted, {role: _number(kept, role) for role in wanted}, bounds.surge)
    return min((share[role] * _whole(wanted) // count for role, count in wanted.items() if count), default=0)


def _spared(before: Mapping[str, Share], after: Mapping[str, Share], others: Mapping[str, Counts], least: Share) -> bool:
    """Whether what goes leaves the least, both in groups and in groups that are ready."""
    for role, count in least.items():
        if _number(after, role) < min(count, _number(before, role)):
            return False
        if _ready(after, others, role) < min(count, _ready(before, others, role)):
            return False
    return True


def _left(others: Mapping[str, Counts], wanted: Share) -> Share:
    return {role: sum(counts[role].left for counts in others.values() if role in counts) for role in wanted}


def _with_dying(left: Share, mine: Counts, others: Mapping[str, Counts]) -> Share:
    """Groups that hold room: beside other slices those of the slice itself count that are on their way out."""
    dying = {role: one.left - one.have for role, one in mine.items()} if others else {}
    return {role: count + dying.get(role, 0) for role, count in left.items()}


def _number(kept: Mapping[str, Share], role: str) -> int:
    return sum(share.get(role, 0) for share in kept.values())


def _ready(kept: Mapping[str, Share], others: Mapping[str, Counts], role: str) -> int:
    return sum(sum(others[name][role].ready[: share[role]]) for name, share in kept.items() if role in share)


def _grown(mine: Counts, wanted: Share, left: Share, surge: Mapping[str, int]) -> Share:
    """A slice with everything for which the others leave room; it begins with a group of every role or not at all."""
    have = {role: min(count, mine[role].have if role in mine else 0) for role, count in wanted.items()}
    room = {role: count + surge.get(role, 0) - left[role] for role, count in wanted.items()}
    share = {role: max(have[role], min(count, room[role])) for role, count in wanted.items()}
    return share if all(share[role] for role, count in wanted.items() if count) else have
