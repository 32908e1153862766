"""Read the freeze of the whole operator from an annotation on its own Lease, which the operator can read in any case
(decisions 28).

The annotation survives restarts, no deployment tool resets it, and reading it needs no additional right and no watch. Only a
Lease without the annotation ends a freeze. While the Lease cannot be read, or does not exist, the last known state applies.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError, NotFound

logger = logging.getLogger(__name__)

ReadFreeze = Callable[[Mapping[str, str]], str]
"""A function that returns, from the annotations of the Lease, a text that states since when, by whom and why everything
is frozen; "" if nothing is frozen."""


class FreezeSwitch:
    """Reads the Lease every `interval` seconds, and calls `changed` when the freeze has changed."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        *,
        read_freeze: ReadFreeze,
        changed: Callable[[str], None],
        interval: float,
    ) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self._read_freeze, self._changed, self._interval = read_freeze, changed, interval
        self._frozen, self._trouble = "", ""
        self.known = asyncio.Event()
        """An event that is set once the Lease has been read. No rollout may begin before the event is set."""

    async def run(self) -> None:
        """Read the Lease periodically, without end."""
        while True:
            await self.check()
            await asyncio.sleep(self._interval)

    async def check(self) -> None:
        """Read the Lease once."""
        try:
            lease = await self._client.get("Lease", self._namespace, self._name)
        except NotFound:
            self._update(self._frozen)
            return
        except KubeError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                waits = (
                    ("the last known state stays in effect")
                    if self.known.is_set()
                    else "no reconciliation starts until the Lease has been read"
                )
                logger.warning(
                    "cannot read the Lease %s/%s, which states whether everything is frozen: %s (%s)",
                    self._namespace, self._name, error, waits,
                )  # fmt: skip
            return
        self._update(self._read_freeze((lease.get("metadata") or {}).get("annotations") or {}))

    def _update(self, frozen: str) -> None:
        self._trouble = ""
        if frozen != self._frozen:
            self._frozen = frozen
            if frozen:
                logger.warning("all services are frozen: %s", frozen)
            else:
                logger.warning("all services are thawed")
            self._changed(frozen)
        self.known.set()
