"""Read the PodDisruptionBudgets of other clients in the namespaces of services."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ome_operator import keys
from ome_operator.core.observed.budgets import Budget, budget
from ome_operator.core.reasons import READY
from ome_operator.core.status.conditions import is_true
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)

KEPT = 60.0
"""Seconds for which one read of a namespace is used for all its services. Only reconciliations read, and a service at rest
is reconciled every ten minutes, so a namespace without changes costs one request in ten minutes."""
OTHERS = f"{keys.MANAGED_BY}!={keys.MANAGER}"


class BudgetReader:
    """Reads some of the PodDisruptionBudgets of a namespace that other clients have created, at most once in `KEPT` seconds.
    These objects are not watched, because the operator would then keep the budgets of the whole cluster in memory.
    """

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._read: dict[str, tuple[float, tuple[Budget, ...]]] = {}
        self._lock = asyncio.Lock()

    def known(self, namespace: str) -> tuple[Budget, ...]:
        """Return the PodDisruptionBudgets that were found at the last read of a namespace."""
        return self._read.get(namespace, (0.0, ()))[1]

    async def refresh(self, namespace: str, status: Mapping[str, Any]) -> bool:
        """Read the PodDisruptionBudgets of a namespace if the last read is too old, and if the service with this status
        serves. Return whether the budgets have changed.
        """
        if not is_true(READY, status):
            return False
        async with self._lock:
            at, before = self._read.get(namespace, (float("-inf"), ()))
            if self._clock() - at < KEPT:
                return False
            try:
                found = await self._client.list_some("PodDisruptionBudget", namespace, label_selector=OTHERS)
            except KubeError as error:
                logger.info("cannot read the budgets in %s: %s", namespace, error)
                now = before
            else:
                now = tuple(sorted(map(budget, found), key=lambda one: one.name))
            self._read = {place: read for place, read in self._read.items() if self._clock() - read[0] < 20 * KEPT}
            self._read[namespace] = (self._clock(), now)
            return now != before
