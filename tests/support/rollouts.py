"""Simulates rollouts in which only the numbers of groups matter. Groups are created, become ready, fail and are removed at
random, and the planner is called again and again. The checks do not use the planner: they compute the bounds independently,
from the groups that exist at every step.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from ome_operator.core.rollout.planner import Bounds, GroupCounts, Share, keep_groups, step

STARTING, READY, ENDING = "starting", "ready", "ending"
WHOLE = 60
"""The capacity of a complete service in the checks. It is divisible by all numbers up to six, so that shares of groups are
integers.
"""
DRAIN = 2
"""Number of steps between the decision to remove a group and its end."""


@dataclass
class Role:
    """The groups of a role in a slice."""

    states: dict[int, str] = field(default_factory=dict)
    """Group number → state."""
    marks: dict[int, int] = field(default_factory=dict)
    """Number of a group that is being removed → steps since the decision."""

    def order(self) -> list[int]:
        """Return the groups that are not being removed, ordered by how long they are kept: the first to be removed comes
        last.
        """
        there = [number for number, state in self.states.items() if state != ENDING]
        return sorted(there, key=lambda number: (number in self.marks, self.states[number] != READY, number))

    def groups(self) -> GroupCounts:
        """Return the counts of groups that the planner sees."""
        ready = tuple(self.states[number] == READY for number in self.order())
        return GroupCounts(len(ready), ready, len(self.states))

    def scale(self, count: int) -> None:
        """Scale to this number of groups: surplus groups are drained and end, missing ones are created."""
        order = self.order()
        self.marks = {number: self.marks.get(number, 0) + 1 for number in order[count:]}
        for number in order[count:]:
            if self.marks[number] > DRAIN or self.states[number] != READY:
                self.states[number] = ENDING
        for _ in range(count - len(order)):
            self.states[min(set(range(len(self.states) + 1)) - self.states.keys())] = STARTING


@dataclass
class Rollout:
    """A service, from its first revision to its last edit."""

    chance: random.Random
    wanted: Share
    bounds: Bounds
    slices: dict[str, dict[str, Role]] = field(default_factory=dict)
    target: str = "r0"
    paused: bool = False
    broken: int = 0
    """How often a bound was violated while groups of three revisions existed. In this situation a violation cannot always
    be avoided.
    """
    faults: float = 0.0
    """Probability with which a ready group fails in a step."""

    def observed_counts(self) -> dict[str, dict[str, GroupCounts]]:
        """Return for each slice and role the counts of groups that the planner sees."""
        return {name: {role: one.groups() for role, one in roles.items()} for name, roles in self.slices.items()}

    def plan(self) -> dict[str, Share]:
        """Return the planner's decision, after a check that it keeps the bounds."""
        seen = self.observed_counts()
        said = (
            keep_groups(self.wanted, self.target, seen) if self.paused else step(self.wanted, self.target, seen, self.bounds)
        )
        self.check(seen, said)
        return said

    def act(self) -> None:
        """Run a step: carry out the plan as far as draining permits, and change the state of some groups."""
        for name, share in self.plan().items():
            for role, count in share.items():
                self.slices.setdefault(name, {}).setdefault(role, Role()).scale(count)
        for roles in self.slices.values():
            for one in roles.values():
                self._live(one)
        gone = [n for n, roles in self.slices.items() if not any(one.states for one in roles.values())]
        for name in gone:
            del self.slices[name]

    def _live(self, one: Role) -> None:
        for number, state in list(one.states.items()):
            if state == ENDING and self.chance.random() < 0.5:
                del one.states[number]
            elif state == STARTING and self.chance.random() < 0.5:
                one.states[number] = READY
            elif state == READY and self.chance.random() < self.faults:
                one.states[number] = STARTING
            elif state == READY and self.chance.random() < self.faults / 5:
                one.states[number] = ENDING  # a user deletes its StatefulSet

    # --- what must hold -----------------------------------------------------------------------------------------------

    def minimum_capacity(self) -> int:
        """Return the capacity that must stay available according to the weaker of the two bounds; WHOLE is the capacity of
        the complete service.
        """
        if self.bounds.alone:
            return 0
        missing = {role: min(count, self.bounds.unavailable.get(role, 0)) for role, count in self.wanted.items()}
        return min((count - missing[role]) * WHOLE // count for role, count in self.wanted.items())

    def paired(self, kept: Mapping[str, Share], seen: Mapping[str, Mapping[str, GroupCounts]]) -> int:
        """Return the available capacity if each request stays within one slice: for each slice the smallest share of ready
        groups of any role, summed over the slices. WHOLE is the capacity of the complete service.
        """
        shares = ([ready_groups(kept, seen, name, role) * WHOLE // n for role, n in self.wanted.items()] for name in seen)
        return sum(min(one) for one in shares)

    def summed(self, kept: Mapping[str, Share], seen: Mapping[str, Mapping[str, GroupCounts]]) -> int:
        """Return the available capacity if a request may use the groups of several slices: the smallest share, over the
        roles, of ready groups of all slices. WHOLE is the capacity of the complete service.
        """
        return min(
            sum(ready_groups(kept, seen, name, role) for name in seen) * WHOLE // n for role, n in self.wanted.items()
        )

    def check(self, seen: Mapping[str, Mapping[str, GroupCounts]], said: Mapping[str, Share]) -> None:
        """Check a decision against the bounds before it is carried out."""
        before = {name: {role: one.existing for role, one in roles.items()} for name, roles in seen.items()}
        assert said.keys() == before.keys() | {self.target}
        after, least = {name: said[name] for name in seen}, self.minimum_capacity()
        kept = self.paired(after, seen) >= min(self.paired(before, seen), least)
        if len(seen.keys() - {self.target}) > 1:  # three revisions
            kept |= self.summed(after, seen) >= min(self.summed(before, seen), least)
            stuck = all(all(one.ready) and one.existing == one.left for roles in seen.values() for one in roles.values())
            self.broken += stuck and not kept
            kept |= stuck
        assert kept, f"capacity below {least / WHOLE:.2f}: {seen} -> {said}"
        for role, count in self.wanted.items():
            grown = (max(0, said[name].get(role, 0) - roles[role].existing) for name, roles in seen.items() if role in roles)
            left = sum(grown) + sum(roles[role].left for roles in seen.values() if role in roles)
            left += said[self.target][role] if self.target not in seen else 0
            held = sum(roles[role].left for roles in seen.values() if role in roles)
            most = count + self.bounds.surge.get(role, 0)
            alone = not seen.keys() - {self.target}  # a lost group is created again while its pods still terminate
            assert alone or left <= max(held, most), f"{left} groups of {role} exist, {most} are allowed: {seen} -> {said}"
        for name, share in said.items():
            whole = name not in seen or all(one.existing for one in seen[name].values())
            both = len({bool(count) for count in share.values()}) == 1
            assert not whole or both, f"slice {name} keeps groups of one role and none of another: {seen} -> {said}"

    @property
    def is_done(self) -> bool:
        """Return whether only the target slice exists, with all of its groups ready."""
        if self.slices.keys() != {self.target}:
            return False
        mine = self.slices[self.target]
        return all(mine[role].groups() == GroupCounts(n, (True,) * n, n) for role, n in self.wanted.items())

    def settle(self, steps: int = 400) -> int:
        """Carry out decisions until the rollout is done, and return the number of steps. The target slice must never lose
        groups, and other slices must never get more groups.
        """
        for number in range(steps):
            if self.is_done:
                return number
            before = {name: {role: len(one.order()) for role, one in roles.items()} for name, roles in self.slices.items()}
            self.act()
            for name, roles in self.slices.items():
                for role, one in roles.items():
                    had = before.get(name, {}).get(role, 0)
                    has = len(one.order())
                    rising = has >= min(had, self.wanted[role])
                    wrong = f"{role} of slice {name} went from {had} to {has} groups; the target is {self.target}"
                    assert rising if name == self.target else has <= had, wrong
        asked = f"target {self.target}, groups {self.wanted}, bounds {self.bounds}"
        raise AssertionError(f"the rollout is not done after {steps} steps ({asked}): {self.slices}")


def ready_groups(kept: Mapping[str, Share], seen: Mapping[str, Mapping[str, GroupCounts]], name: str, role: str) -> int:
    """Return the number of ready groups among those that are kept."""
    return sum(seen[name][role].ready[: kept[name].get(role, 0)]) if role in seen[name] else 0


def story(chance: random.Random) -> tuple[int, int, int]:
    """Simulate a service with random groups and bounds, which is edited, paused and disturbed, and is left alone in the end.

    Returns the number of edits, the number of steps from the last edit until it was rolled out, and how often a bound was
    violated.
    """
    roles = ("engine", "decoder") if chance.random() < 0.8 else ("engine",)
    wanted = {role: chance.randint(1, 6) for role in roles}
    one = Rollout(chance, wanted, bounds(chance, wanted))
    one.settle()
    edits = chance.randint(1, 4)
    for number in range(1, edits + 1):
        one.target = f"r{number if chance.random() < 0.8 else max(0, number - 2)}"
        one.faults = chance.choice((0.0, 0.0, 0.05, 0.3))
        for _ in range(chance.randint(0, 25)):
            one.paused = chance.random() < 0.05
            one.act()
    one.faults, one.paused = 0.0, False
    steps = one.settle()
    return edits, steps, one.broken


def bounds(chance: random.Random, share: Share) -> Bounds:
    """Return random bounds that a strategy can produce."""
    kind = chance.random()
    if kind < 0.1:
        return Bounds({}, dict(share), alone=True)
    if kind < 0.3:
        return Bounds(dict(share), {}, whole=True)
    surge = {role: chance.randint(0, min(count, 2)) for role, count in share.items()}
    return Bounds(surge, {role: chance.randint(0 if surge[role] else 1, min(count, 3)) for role, count in share.items()})
