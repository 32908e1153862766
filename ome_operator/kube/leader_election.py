"""Leader election by a Lease: at most one operator works, the others stand by (decisions 21).

As in client-go, nobody's wall clock is trusted: a candidate takes the Lease over when it has not *seen it change* for
the lease's duration. The holder that cannot renew in time must stop at once, before a candidate may start.
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

logger = logging.getLogger(__name__)


class Lost(OmeError):
    """We are not the leader any more."""


@dataclass(frozen=True)
class ElectionSettings:
    """Whose Lease, where, and how long; see Settings."""

    namespace: str
    name: str
    identity: str
    duration: float = 15.0
    renew: float = 10.0
    retry: float = 2.0
    labels: Mapping[str, str | None] = field(default_factory=dict)
    """Of the Lease; None takes a label away."""


@dataclass
class Sighting:
    """The Lease as it was seen to change last, by our own monotonic clock."""

    version: str = ""
    at: float = 0.0

    def note(self, lease: Manifest, now: float) -> None:
        """Remember when this state was seen first."""
        version = lease["metadata"].get("resourceVersion", "")
        if version != self.version:
            self.version, self.at = version, now


def may_take(lease: Manifest, sighting: Sighting, identity: str, now: float) -> bool:
    """Whether the Lease is ours, free, or abandoned."""
    spec = lease.get("spec") or {}
    holder = spec.get("holderIdentity") or ""
    return holder in ("", identity) or now >= sighting.at + float(spec.get("leaseDurationSeconds") or 0)


def claimed(lease: Manifest, settings: ElectionSettings, wall: datetime) -> Manifest:
    """The Lease as we hold it; its resourceVersion makes writing it a compare-and-swap."""
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
    """One candidate. `works` says whether the process still does what the Lease is for: else nothing is renewed.

    It may live on a loop of another thread than those who ask whether we lead.
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
        self._sighting = Sighting()
        self._lease: Manifest | None = None
        self._carried: Manifest = {}
        self._holder = ""
        """Whoever held it when we looked last."""
        self._until = float("-inf")

    def leads(self) -> bool:
        """Whether nobody else can lead now: also a process that was frozen must know before it writes anything."""
        return self._clock() < self._until

    async def acquire(self) -> None:
        """Return when we lead."""
        started, told = self._clock(), ""
        while not await self._try():
            if self._holder != told:
                told = self._holder
                logger.info("standing by: %s holds the Lease %s/%s", told, self._settings.namespace, self._settings.name)
            await asyncio.sleep(self._settings.retry)
            started = self._clock()
        self._until = started + self._settings.renew
        logger.info("leading as %s", self._settings.identity)

    async def hold(self) -> None:
        """Renew for ever; raises Lost when the Lease is another's or could not be renewed in time."""
        pause = self._settings.duration / 3
        while True:
            await asyncio.sleep(pause)
            started = self._clock()
            if not self._works():  # it may again; and if not, another shall lead
                if not self.leads():
                    raise Lost("the Lease was not renewed, for the event loop does not answer")
                pause = self._settings.retry
                continue
            try:
                async with asyncio.timeout(self._patience(self._until - started)):
                    if not await self._try():
                        raise Lost("another operator holds the Lease")
                self._until, pause = started + self._settings.renew, self._settings.duration / 3
            except (KubeError, TimeoutError) as error:
                pause = max(0.1, self._settings.retry - (self._clock() - started))
                logger.warning("cannot renew the Lease: %s", error or type(error).__name__)
            if not self.leads():
                raise Lost("the Lease could not be renewed in time")

    def _patience(self, left: float) -> float:
        """Seconds for a renewal: a request that hangs, as on a connection that died unseen, leaves time for another. None
        outlives our right to lead.
        """
        return max(0.1, 0.6 * left if left > self._settings.retry else left)

    async def release(self) -> None:
        """Let the next candidate start at once."""
        if self._lease is None:
            return
        try:
            async with asyncio.timeout(3.0):
                # Read again: a renewal that was cut off may have reached the server.
                if not await self._reread() or self._lease is None:
                    return
                spec = {**self._lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.update({**self._lease, "spec": spec})
        except (KubeError, TimeoutError) as error:
            logger.warning("cannot release the Lease: %s", error or type(error).__name__)

    async def _try(self) -> bool:
        """Claim or renew; False when it is another's. Only a leader's errors are its caller's business."""
        settings, wall = self._settings, self._wall()
        leading = self._lease is not None
        try:
            lease = self._lease or await self._client.get("Lease", settings.namespace, settings.name)
            self._sighting.note(lease, self._clock())
            self._carry(lease)
            self._holder = (lease.get("spec") or {}).get("holderIdentity") or ""
            if not leading and not may_take(lease, self._sighting, settings.identity, self._clock()):
                return False
            self._lease = await self._client.update(claimed(lease, settings, wall))
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
        """Our write met another Lease than ours, or none: the API server calls an update of what was deleted a conflict."""
        try:
            return await self._reread()
        except NotFound:
            return await self._create(wall)

    async def _reread(self) -> bool:
        """Somebody wrote our Lease (a label, or took it): whose is it?"""
        lease = await self._client.get("Lease", self._settings.namespace, self._settings.name)
        self._carry(lease)
        mine = (lease.get("spec") or {}).get("holderIdentity") == self._settings.identity
        self._lease = lease if mine else None
        return mine

    def _carry(self, lease: Manifest) -> None:
        """Keep what people wrote on the Lease: whoever deletes it does not mean that."""
        self._carried = lease["metadata"].get("annotations") or {}

    async def _create(self, wall: datetime) -> bool:
        settings = self._settings
        fresh = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": settings.name, "namespace": settings.namespace, "annotations": self._carried},
        }
        try:
            self._lease = await self._client.create(claimed(fresh, settings, wall))
        except AlreadyExists:
            return False
        except KubeError as error:
            logger.warning("cannot create the Lease %s/%s: %s", settings.namespace, settings.name, error)
            return False
        return True
