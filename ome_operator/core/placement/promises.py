"""The capacity that is promised to gangs that are being placed, and to gangs that an admission decision admits now."""

from collections.abc import Sequence
from typing import NamedTuple

from ome_operator.core.placement.claims import Claim, Standing, unclaimed_nodes, with_capacity, without_role_names
from ome_operator.core.placement.fit import Needs, Nodes, NodeSet, all_fit, combine_needs, merge_needs


def promises(active: Sequence[Claim], free: Nodes) -> tuple[Needs, list[Claim]]:
    """Return the capacity that the active gangs will take, and the active gangs that do not fit on the free nodes.

    The pods of a gang that does not fit may take any suitable node as long as its placement attempt lasts. A service that
    already serves is never returned as such a gang, because it must not keep nodes from other services.
    """
    left = with_capacity(free, [claim.promise for claim in active])
    ground, known = NodeSet(left), dict[Needs, bool]()
    room, blocked = list[tuple[Claim, Needs]](), list[Claim]()
    for claim in active:
        needs = without_role_names(claim.promise)
        if needs not in known:
            known[needs] = bool(left) and all_fit(needs, ground)
        if known[needs]:
            room.append((claim, needs))
        elif not claim.serves:
            blocked.append(claim)
    promised = merge_needs(combine_needs(*(needs for _, needs in room)))
    if not all_fit(promised, ground):
        promised = ()
        for claim, needs in room:
            if known[needs] and all_fit(more := merge_needs(combine_needs(promised, needs)), ground):
                promised = more
                continue
            known[needs] = False  # needs that do not fit next to these promises do not fit next to more promises either
            if not claim.serves:
                blocked.append(claim)
    if not blocked:
        return promised, []
    rest = NodeSet(unclaimed_nodes(free, blocked))
    return promised if rest.nodes and all_fit(promised, rest) else (), blocked


class _View(NamedTuple):
    """The capacity that remains for a gang that waits, next to the promises that take precedence over it. Gangs to which the
    same promises apply share a view.
    """

    promised: Needs
    ground: NodeSet
    unreserved_nodes: NodeSet
    """The nodes of `ground`, except nodes that are kept free for another gang."""
    known: dict[tuple[Needs, bool], bool]


class Capacity:
    """The free capacity of nodes, the capacity that is promised to gangs in placement, and the capacity that the present
    decision grants to gangs that wait.
    """

    def __init__(self, nodes: Nodes, active: Sequence[Claim], keeper: Claim | None) -> None:
        self._left, self._active, self._keeper = nodes, active, keeper
        self._new = [claim for claim in active if not (claim.first or claim.serves)]
        self._latest = max((claim.since for claim in self._new), default=0.0)
        self._all = NodeSet(nodes)
        self._others = self._all if keeper is None else NodeSet(unclaimed_nodes(nodes, [keeper]))
        self._views: dict[tuple[Standing, frozenset[str]], _View] = {}
        self._granted: Needs = ()
        self._next: Needs = ()
        """The pods of gangs that were admitted now, and of gangs that will be admitted when present attempts have ended."""
        self._begun, self._reserved = list[Claim](), dict[tuple[Needs, bool], bool]()

    def fits_now(self, claim: Claim) -> bool:
        """Return whether a gang fits now, next to all promises that take precedence over it (`_holds`)."""
        view, asked, mine = self._view(claim), without_role_names(claim.needs), claim is self._keeper
        ground = view.ground if mine else view.unreserved_nodes
        if (asked, mine) not in view.known:
            fit = bool(ground.nodes) and all_fit(asked, ground)
            fit = fit and all_fit(combine_needs(merge_needs(combine_needs(view.promised, self._granted)), asked), ground)
            view.known[asked, mine] = fit and (self._next is self._granted or self._free(asked, mine))
        return view.known[asked, mine]

    def grant(self, claim: Claim) -> None:
        """Promise capacity to a gang that is admitted now."""
        asked = without_role_names(claim.needs)
        same = self._next is self._granted
        self._granted = merge_needs(combine_needs(self._granted, asked))
        self._next = self._granted if same else merge_needs(combine_needs(self._next, asked))
        self._begun.append(claim)
        self._less()

    def reserve(self, claim: Claim) -> bool:
        """Reserve capacity for a gang that waits and would fit if no gang were being placed, and return whether capacity
        was reserved. The present attempts last for a limited time. When they end, either the waiting gang is admitted,
        or the gangs of these attempts have taken the nodes.
        """
        asked, mine = without_role_names(claim.needs), claim is self._keeper
        if not any(_holds(promise, claim) for promise in self._active):
            return False
        if (asked, mine) not in self._reserved:
            self._reserved[asked, mine] = self._free(asked, mine)
        if not self._reserved[asked, mine]:
            return False
        self._next = merge_needs(combine_needs(self._next, asked))
        self._begun.append(claim)
        self._less()
        return True

    def reserved_by(self, claim: Claim) -> list[str]:
        """Return the keys of the gangs in placement whose promises take precedence over a gang that waits."""
        return [promise.key for promise in self._active if _holds(promise, claim)]

    def attempts(self, claim: Claim) -> list[Claim]:
        """Return the gangs that a gang that waits has to respect: gangs that are being placed and whose promises take
        precedence over `claim`, and gangs that were admitted in this decision.
        """
        return [*(promise for promise in self._active if not promise.serves and _holds(promise, claim)), *self._begun]

    def _free(self, asked: Needs, mine: bool) -> bool:
        ground = self._all if mine else self._others
        return bool(ground.nodes) and all_fit(asked, ground) and all_fit(combine_needs(self._next, asked), ground)

    def _less(self) -> None:
        """Discard the stored results for gangs that fitted, because less capacity is free now. The results for other gangs
        are kept, because these gangs still do not fit.
        """
        for known in (self._reserved, *(view.known for view in self._views.values())):
            for asked in [asked for asked, fit in known.items() if fit]:
                del known[asked]

    def _view(self, claim: Claim) -> _View:
        late = frozenset(one.key for one in self._new if _jumped(one, claim)) if claim.first < self._latest else frozenset()
        if (claim.standing, late) not in self._views:
            promised, blocked = promises([one for one in self._active if _holds(one, claim)], self._left)
            ground = NodeSet(unclaimed_nodes(self._left, blocked))
            kept = ground if self._keeper is None else NodeSet(unclaimed_nodes(self._left, [*blocked, self._keeper]))
            self._views[claim.standing, late] = _View(promised, ground, kept, {})
        return self._views[claim.standing, late]


def _holds(promise: Claim, claim: Claim) -> bool:
    """Return whether the promise to a gang that is being placed takes precedence over `claim`, a gang that waits. The
    promise has no precedence if its gang has a worse standing than `claim`, or if its gang began although `claim` was
    waiting already (`_jumped`).
    """
    return promise.standing <= claim.standing and not _jumped(promise, claim)


def _jumped(promise: Claim, claim: Claim) -> bool:
    """Return whether the gang `promise` began its first attempt, which needs no admission, at a time when the gang `claim`
    already waited, although the priority of `claim` is at least as high.
    """
    waited = not (promise.first or promise.serves) and 0 < claim.first < promise.since
    return waited and promise.priority <= claim.priority
