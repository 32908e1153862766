"""Elect a leader by a Lease: at most one operator works, and the others stand by (decisions 21).

As in client-go, no clock of another machine is trusted: a candidate takes the Lease over if it has not *seen the Lease
change* for the lease's duration. A holder that cannot renew in time must stop at once, before a candidate may start.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ome_operator.errors import OmeError
from ome_operator.kube.client import Client, Manifest
from ome_operator.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from ome_operator.util.wording import error_text

logger = logging.getLogger(__name__)


class LeadershipLost(OmeError):
    """Error: this process is no longer the leader."""


@dataclass(frozen=True)
class ElectionSettings:
    """The name, the holder and the timing of the Lease; see Settings."""

    namespace: str
    name: str
    identity: str
    duration: float = 15.0
    renew: float = 10.0
    retry: float = 2.0
    labels: Mapping[str, str | None] = field(default_factory=dict)
    """Labels of the Lease; None removes a label."""


@dataclass
class LeaseObservation:
    """The version of the Lease that was seen last, and the time when this version was first seen, by this process's
    monotonic clock.
    """

    version: str = ""
    at: float = 0.0

    def record_lease(self, lease: Manifest, now: float) -> None:
        """Store the version of the Lease. If the version is new, store the time `now`, too."""
        version = lease["metadata"].get("resourceVersion", "")
        if version != self.version:
            self.version, self.at = version, now


def may_take(lease: Manifest, sighting: LeaseObservation, identity: str, now: float) -> bool:
    """Return whether this candidate may take the Lease: the candidate holds the Lease already, nobody holds it, or the
    holder has not renewed it in time.
    """
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    return holder in ("", identity) or now >= sighting.at + float(spec.get("leaseDurationSeconds") or 0)


def claim_lease(lease: Manifest, settings: ElectionSettings, wall: datetime) -> Manifest:
    """Return the Lease with this candidate as its holder. Because of its resourceVersion, the write of the Lease is a
    compare-and-swap.
    """
    old = lease.get("spec") or {}
    stamp = wall.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    same = old.get("holderIdentity") == settings.identity
    spec = {
        "holderIdentity": settings.identity,
        "leaseDurationSeconds": max(1, round(settings.duration)),
        "acquireTime": old.get("acquireTime", stamp) if same else stamp,
        "renewTime": stamp,
        "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if same or not old else 1),
    }
    labels = {**(lease["metadata"].get("labels") or {}), **settings.labels}
    kept = {name: value for name, value in labels.items() if value is not None}
    return {**lease, "metadata": {**lease["metadata"], **({"labels": kept} if labels else {})}, "spec": spec}


class Election:
    """One candidate of the election. The Lease is renewed only while `works` returns True, which means that the process
    still does its work.

    The election may run on the event loop of another thread than the callers of `is_leader`.
    """

    def __init__(
        self,
        client: Client,
        settings: ElectionSettings,
        wall: Callable[[], datetime],
        clock: Callable[[], float] = time.monotonic,
        works: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client, self._settings, self._wall, self._clock, self._works = client, settings, wall, clock, works
        self._sighting = LeaseObservation()
        self._lease: Manifest | None = None
        self._carried: Manifest = {}
        self._holder = ""
        """Holder of the Lease when it was last read."""
        self._until = float("-inf")

    def is_leader(self) -> bool:
        """Return whether this process holds the Lease, and has renewed it recently enough by its own monotonic clock. While
        this is true, no other process leads. A process that was suspended must check this before it writes anything.
        """
        return self._clock() < self._until

    async def acquire_lease(self) -> None:
        """Wait until this process leads."""
        started, logged = self._clock(), ""
        while not await self._try():
            if self._holder != logged:
                logged = self._holder
                logger.info("standing by: %s holds the Lease %s/%s", logged, self._settings.namespace, self._settings.name)
            await asyncio.sleep(self._settings.retry)
            started = self._clock()
        self._until = started + self._settings.renew
        logger.info("leading as %s", self._settings.identity)

    async def hold_lease(self) -> None:
        """Renew the Lease without end. Raises LeadershipLost if another operator holds it, or if it could not be renewed in
        time.
        """
        pause = self._settings.duration / 3
        while True:
            await asyncio.sleep(pause)
            started = self._clock()
            if not self._works():  # the process may work again; if it does not, another process has to lead
                if not self.is_leader():
                    raise LeadershipLost("the Lease was not renewed, because the event loop does not respond")
                pause = self._settings.retry
                continue
            try:
                async with asyncio.timeout(self._patience(self._until - started)):
                    if not await self._try():
                        raise LeadershipLost("another operator holds the Lease")
                self._until, pause = started + self._settings.renew, self._settings.duration / 3
            except (KubeError, TimeoutError) as error:
                pause = max(0.1, self._settings.retry - (self._clock() - started))
                logger.warning("cannot renew the Lease: %s", error_text(error))
            if not self.is_leader():
                raise LeadershipLost("the Lease could not be renewed in time")

    def _patience(self, left: float) -> float:
        """Return the timeout of a renewal in seconds; `left` is the number of seconds until the right to lead ends.

        A request that hangs, such as on a connection that died unnoticed, leaves time for another request. No request
        outlasts the right to lead.
        """
        return max(0.1, 0.6 * left if left > self._settings.retry else left)

    async def release(self) -> None:
        """Release the Lease, so that the next candidate can start at once."""
        if self._lease is None:
            return
        try:
            async with asyncio.timeout(3.0):
                # Read the Lease again, because a renewal that was cut off may have reached the server.
                if not await self._reread() or self._lease is None:
                    return
                spec = {**self._lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.update({**self._lease, "spec": spec})
        except (KubeError, TimeoutError) as error:
            logger.warning("cannot release the Lease: %s", error_text(error))

    async def _try(self) -> bool:
        """Claim or renew the Lease. Return whether this process holds it now; False if another operator holds it. Errors are
        raised only while this process is the leader.
        """
        settings, wall = self._settings, self._wall()
        leading = self._lease is not None
        try:
            lease = self._lease or await self._client.get("Lease", settings.namespace, settings.name)
            self._sighting.record_lease(lease, self._clock())
            self._carry(lease)
            self._holder = (lease.get("spec") or {}).get("holderIdentity") or ""
            if not leading and not may_take(lease, self._sighting, settings.identity, self._clock()):
                return False
            self._lease = await self._client.update(claim_lease(lease, settings, wall))
        except NotFound:
            return await self._create(wall)
        except Conflict:
            return leading and await self._again(wall)
        except KubeError as error:
            if leading:
                raise
            logger.warning("cannot read or write the Lease %s/%s: %s", settings.namespace, settings.name, error)
            return False
        return True

    async def _again(self, wall: datetime) -> bool:
        """Recover from a conflicting write of this holder: read the Lease again, or create it if it was deleted. The API
        server answers an update of a deleted object with a conflict.
        """
        try:
            return await self._reread()
        except NotFound:
            return await self._create(wall)

    async def _reread(self) -> bool:
        """Read the Lease again after another client has written it. Return whether this candidate still holds it."""
        lease = await self._client.get("Lease", self._settings.namespace, self._settings.name)
        self._carry(lease)
        mine = (lease.get("spec") or {}).get("holderIdentity") == self._settings.identity
        self._lease = lease if mine else None
        return mine

    def _carry(self, lease: Manifest) -> None:
        """Remember the annotations of the Lease, such as a freeze, so that they survive a deletion of the Lease."""
        self._carried = lease["metadata"].get("annotations") or {}

    async def _create(self, wall: datetime) -> bool:
        settings = self._settings
        fresh = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": settings.name, "namespace": settings.namespace, "annotations": self._carried},
        }
        try:
            self._lease = await self._client.create(claim_lease(fresh, settings, wall))
        except AlreadyExists:
            return False
        except KubeError as error:
            logger.warning("cannot create the Lease %s/%s: %s", settings.namespace, settings.name, error)
            return False
        return True
