"""Keep the claims of all services, and find out which promises of capacity were not used."""

from collections.abc import Callable, Iterable, Mapping

from ome_operator.core.observed.objects import Ref
from ome_operator.core.placement.claims import Claim, Standing, is_overdue, with_capacity
from ome_operator.core.placement.fit import Needs, Nodes, NodeSet, all_fit
from ome_operator.core.placement.shares import Shares


class ClaimBook:
    """The present claim of each service, and the standing of its gang: how much promised capacity the gang did not use.

    Capacity is promised to each placement attempt. An attempt has failed if it ended without success, was replaced by
    another attempt, or exceeds the time limit. The promise to a failed attempt counts as wasted in two cases: its pods could
    not be created, or its pods without a node would have fitted on the free nodes. It does not count as wasted if too few
    nodes were free.

    free      Returns the nodes with their free capacity.
    timeout   Returns the seconds within which all pods of a gang have to be bound to nodes.
    """

    def __init__(self, free: Callable[[], Nodes], timeout: Callable[[], float]) -> None:
        self._free, self._timeout = free, timeout
        self._claims: dict[Ref, Claim] = {}
        self._shares = Shares()
        self._counted: dict[Ref, float] = {}
        """Maps each service to the start of its latest placement attempt that `_waste` has handled, in seconds since the
        epoch."""
        self._fits: dict[Ref, float] = {}
        """Maps each service that serves to the time since which the capacity that is promised to it has been free, in
        seconds since the epoch."""

    @property
    def claims(self) -> Mapping[Ref, Claim]:
        """The present claim of each service that has one."""
        return self._claims

    def store_claim(self, ref: Ref, claim: Claim | None, now: float, *, gone: bool = False) -> bool:
        """Store `claim`, the present claim of the service `ref`; None if the service has no claim. Return whether the claim
        has changed. `now` is the time in seconds since the epoch.

        `gone`: True if the service was deleted. The promise to its placement attempt then counts as wasted. Otherwise a user
        could create and delete services again and again, each of which takes a promise.
        """
        before = self._claims.pop(ref, None)
        ended = before is not None and before.trying and not before.serves and before.since > 0
        if ended and before is not None and (gone or (claim is not None and _over(before, claim))):
            self._waste(ref, before, now)
        if claim is None:
            self._counted.pop(ref, None)
            self._fits.pop(ref, None)
            return before is not None
        self._claims[ref] = claim = self._marked(ref, claim, before, now)
        if is_overdue(claim, now, self._timeout()):
            self._waste(ref, claim, now)
        return before != claim

    def standing_of(self, ref: Ref, now: float) -> Standing:
        """Return the standing of a service, whether or not it has a claim."""
        claim = self._claims.get(ref) or Claim(f"{ref.namespace}/{ref.name}", (), trying=False)
        return self._shares.standing_of(claim, now, self._timeout())

    def review(self, now: float) -> None:
        """Update the standing of all gangs. End the promises to services that already serve and that have not used the
        promised capacity for the time limit of a placement attempt, although it was free.
        """
        serving = {ref: claim for ref, claim in self._claims.items() if claim.serves}
        there = self._there(serving.values())
        for ref, claim in serving.items():
            if not there[claim.promise]:
                self._fits.pop(ref, None)
                self._claims[ref] = claim._replace(unused=False)
            elif claim.unused:
                continue
            elif now - self._fits.setdefault(ref, now) >= self._timeout():
                self._shares.record_waste(claim, self._timeout(), now, self._timeout())
                self._claims[ref] = claim._replace(unused=True)
        for ref, claim in self._claims.items():
            if (standing := self._shares.standing_of(claim, now, self._timeout())) != claim.standing:
                self._claims[ref] = claim._replace(standing=standing)

    def _marked(self, ref: Ref, claim: Claim, before: Claim | None, now: float) -> Claim:
        standing = self._shares.standing_of(claim, now, self._timeout())
        if before is not None and before.serves and claim.serves and before.promise == claim.promise:
            return claim._replace(standing=standing, unused=before.unused)
        self._fits.pop(ref, None)
        return claim._replace(standing=standing)

    def _waste(self, ref: Ref, claim: Claim, now: float) -> None:
        """Charge the time of a failed placement attempt to the standing of the gang, once for each attempt. An attempt is
        charged only if its pods could not be created, or if they would fit on the free nodes.
        """
        if self._counted.get(ref) == claim.since:
            return
        self._counted[ref] = claim.since
        if claim.refused or self._there([claim])[claim.promise]:
            self._shares.record_waste(claim, min(self._timeout(), max(0.0, now - claim.since)), now, self._timeout())

    def _there(self, claims: Iterable[Claim]) -> Mapping[Needs, bool]:
        """Return a mapping from the pods of each claim's promise to whether these pods fit on the free nodes. The other
        promises are disregarded.
        """
        asked = dict.fromkeys(claim.promise for claim in claims)
        if not asked:
            return {}
        free = with_capacity(self._free(), asked)
        ground = NodeSet(free)
        return {needs: bool(free) and all_fit(needs, ground) for needs in asked}


def _over(before: Claim, after: Claim) -> bool:
    """Return whether the placement attempt of the claim `before` has ended without success, according to `after`, the next
    claim of the same service.
    """
    return after.failed or (after.trying and after.since > before.since)
