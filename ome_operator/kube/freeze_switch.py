"""Whether everything is frozen: an annotation on the operator's own Lease, which it may read in any case (decisions 28).

A restart finds it there, no tool sets it back, and it needs no right and no watch. Only a Lease without the annotation says
that nothing is frozen: while the Lease cannot be read, or is gone, what was known counts.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError, NotFound

logger = logging.getLogger(__name__)

Said = Callable[[Mapping[str, str]], str]
"""Annotations of the Lease -> since when, by whom and why; "" where nothing is frozen."""


class FreezeSwitch:
    """Reads the Lease every `interval` seconds, and tells `changed` when it says something new."""

    def __init__(
        self, client: Client, namespace: str, name: str, *, said: Said, changed: Callable[[str], None], interval: float
    ) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self._said, self._changed, self._interval = said, changed, interval
        self._frozen, self._trouble = "", ""
        self.known = asyncio.Event()
        """Set once it was read: before that nothing may be rolled."""

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.look()
            await asyncio.sleep(self._interval)

    async def look(self) -> None:
        """Once."""
        try:
            lease = await self._client.get("Lease", self._namespace, self._name)
        except NotFound:
            self._found(self._frozen)
            return
        except KubeError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                waits = "what was known counts" if self.known.is_set() else "no pass runs before that"
                logger.warning(
                    "cannot read the Lease %s/%s, which says whether all is frozen: %s (%s)",
                    self._namespace, self._name, error, waits,
                )  # fmt: skip
            return
        self._found(self._said((lease.get("metadata") or {}).get("annotations") or {}))

    def _found(self, frozen: str) -> None:
        self._trouble = ""
        if frozen != self._frozen:
            self._frozen = frozen
            if frozen:
                logger.warning("all services are frozen: %s", frozen)
            else:
                logger.warning("all services are thawed")
            self._changed(frozen)
        self.known.set()
