"""Read the PodDisruptionBudgets and autoscalers of other clients in the namespaces of services."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.autoscalers import autoscaler
from ome_operator.core.observed.budgets import budget
from ome_operator.core.reasons import READY
from ome_operator.core.status.conditions import is_true
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)

KEPT = {"budgets": 60.0, "autoscalers": 10.0}
"""Field of `Observed` -> seconds for which the result of one read of a namespace is used for all its services. Only
reconciliations read, and a service without changes is reconciled every ten minutes. A namespace without changes
therefore costs one request in ten minutes, and another request if a service has the class Demand."""
_FORGOTTEN = 1200.0
"""Seconds after which the result of a read is dropped if the namespace is not read again."""
_READ: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
    "budgets": ("PodDisruptionBudget", budget),
    "autoscalers": ("HorizontalPodAutoscaler", autoscaler),
}
"""Maps a field of `Observed` to the kind of the objects, and to the function that reads an object from its JSON."""
OTHERS = f"{keys.MANAGED_BY}!={keys.MANAGER}"


class ForeignReader:
    """Reads some of the PodDisruptionBudgets and HorizontalPodAutoscalers of a namespace that other clients have created,
    at most once in `KEPT` seconds. These objects are not watched, because the operator would then keep the objects of
    the whole cluster in memory. Autoscalers are read only for services with the class Demand.
    """

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._read: dict[tuple[str, str], tuple[float, tuple[Any, ...]]] = {}
        """Maps (namespace, field of `Observed`) to the time and the result of the last read."""
        self._lock = asyncio.Lock()

    def last_read_objects(self, namespace: str) -> dict[str, Any]:
        """Return the objects that were found at the last reads of a namespace, by the field of `Observed`."""
        return {field: self._read.get((namespace, field), (0.0, ()))[1] for field in _READ}

    async def refresh(self, namespace: str, status: Mapping[str, Any], *, demand: bool = False) -> bool:
        """Read the objects of a namespace if the service with this status serves, and if the last read is older than `KEPT`.
        Return whether the objects have changed. `demand` states whether the service has the class Demand.
        """
        if not is_true(READY, status):
            return False
        async with self._lock:
            fields = [field for field in _READ if demand or field != "autoscalers"]
            return any([await self._refreshed(namespace, field) for field in fields])

    async def _refreshed(self, namespace: str, field: str) -> bool:
        at, before = self._read.get((namespace, field), (float("-inf"), ()))
        if self._clock() - at < KEPT[field]:
            return False
        kind, parsed = _READ[field]
        try:
            found = await self._client.list_some(kind, namespace, label_selector=OTHERS)
        except KubeError as error:
            logger.info("cannot read the %ss of other clients in namespace %s: %s", kind, namespace, error)
            now = before
        else:
            now = tuple(sorted(map(parsed, found), key=lambda one: one.name))
        self._read = {key: read for key, read in self._read.items() if self._clock() - read[0] < _FORGOTTEN}
        self._read[namespace, field] = (self._clock(), now)
        return now != before
