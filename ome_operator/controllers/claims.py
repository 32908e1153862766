"""Find out whether the PersistentVolumeClaims exist that hold weights. Claims are not watched: most belong to others."""

import time
from collections.abc import Callable, Iterable

from ome_operator.core.weights.mount import AnyModel, claim, weights
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError, NotFound

KIND = "PersistentVolumeClaim"
KEPT_S = 60.0
"""Seconds for which an answer of the API server is kept."""
MOST = 8
"""Maximum number of namespaces in which the claim of a cluster-wide model is looked for."""


class Claims:
    """Reads whether claims exist. `clock` returns seconds."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._known: dict[tuple[str, str], tuple[bool, float]] = {}
        """Namespace and name of a claim -> whether it exists, and when that was read."""

    async def missing(self, model: AnyModel, users: Iterable[str]) -> str:
        """Return a sentence about the claim of a model that does not exist; "" if it exists, if the weights are not in a
        claim, or if the operator has no right to read it. The claim of a cluster-wide model is that of the namespaces of its
        `users`, which are given as `namespace/name`.
        """
        found = claim(weights(model).uri)
        if found is None:
            return ""
        owner, name, _ = found
        if model.namespace and owner not in ("", model.namespace):
            return ""  # whoever writes a BaseModel learns nothing about other namespaces
        own = owner or model.namespace
        places = [own] if own else sorted({user.partition("/")[0] for user in users})[:MOST]
        absent = [place for place in places if not await self._exists(place, name)]
        if not absent:
            return ""
        where = f"namespace {absent[0]}" if len(absent) == 1 else f"the namespaces {', '.join(absent)}"
        return f"{KIND} {name} does not exist in {where}: create it, or fix spec.storage.storageUri"

    async def _exists(self, namespace: str, name: str) -> bool:
        exists, since = self._known.get((namespace, name), (True, -KEPT_S))
        if self._clock() - since < KEPT_S:
            return exists
        try:
            await self._client.get_metadata(KIND, namespace, name)
            exists = True
        except NotFound:
            exists = False
        except KubeError:
            exists = True
        self._known = {key: kept for key, kept in self._known.items() if self._clock() - kept[1] < KEPT_S}
        self._known[namespace, name] = exists, self._clock()
        return exists
