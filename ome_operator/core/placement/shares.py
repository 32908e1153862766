"""Record how much promised capacity services and namespaces did not use. Services that waste promises are admitted after
other services.
"""

from ome_operator.core.placement import timing
from ome_operator.core.placement.claims import GOOD, Claim, Standing

UNIT = 0.25
"""Unit of the times in a standing, as a fraction of the time limit of a placement attempt. A wasted time of less than
half a unit is forgotten."""


class Shares:
    """The time in seconds for which capacity was promised and was not used, by gang and by namespace. Half of a recorded
    time is forgotten after `timing.MEMORY`.

    The record exists only in memory. After a restart every service has a good standing, so each may waste one more attempt.
    """

    def __init__(self) -> None:
        self._wasted: dict[str, tuple[float, float]] = {}
        """Maps each key of `_accounts` to its wasted time in seconds, and to the time in seconds since the epoch at which
        the wasted time had this value."""

    def record_waste(self, claim: Claim, seconds: float, now: float, timeout: float) -> None:
        """Record that capacity was promised to the gang of `claim` for `seconds` seconds and was not used. `timeout` is the
        time limit of a placement attempt in seconds.
        """
        for account in _accounts(claim):
            self._wasted[account] = self._left(account, now) + seconds, now
        for account in [account for account in self._wasted if self._left(account, now) < UNIT / 2 * timeout]:
            del self._wasted[account]

    def standing_of(self, claim: Claim, now: float, timeout: float) -> Standing:
        """Return the standing of a gang, which contains the wasted times of its namespace and of the gang itself, in units
        of `UNIT`. `timeout` is the time limit of a placement attempt in seconds; 0 for no limit.
        """
        if not self._wasted or not timeout:
            return GOOD
        team, mine = (round(self._left(account, now) / (UNIT * timeout)) for account in _accounts(claim))
        return team, mine

    def _left(self, account: str, now: float) -> float:
        wasted, at = self._wasted.get(account, (0.0, now))
        halves = max(0.0, now - at) / timing.MEMORY.total_seconds()
        return float(wasted * 0.5**halves)


def _accounts(claim: Claim) -> tuple[str, str]:
    """Return the two keys under which the wasted time of a gang is recorded: one for its namespace, and one for the gang
    itself. Services that serve have a separate key for their namespace, so that a service that cannot start does not worsen
    the standing of services in the same namespace that serve.
    """
    namespace, _, _ = claim.key.partition("/")
    return f"{namespace}/ serves" if claim.serves else f"{namespace}/", claim.key
