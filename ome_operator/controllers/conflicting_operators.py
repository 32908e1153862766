"""Detect other operators of the same class that work on the same objects.

The operator's own Lease prevents such conflicts only between processes that use a Lease of the same name in the same
namespace. An operator with cluster-wide rights lists the Leases of all operators of its class. An operator with rights in
some namespaces keeps a further Lease (a claim) in each of them, and finds the claims of other operators there.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ome_operator import keys
from ome_operator.cache.scope import Scope
from ome_operator.core.observed.leases import is_alive
from ome_operator.kube.client import Client, Manifest
from ome_operator.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from ome_operator.machinery.background import repeat
from ome_operator.machinery.metrics import Metrics

logger = logging.getLogger(__name__)


EVERY, CLAIM_EVERY = 60.0, 300.0
"""Seconds between two checks: the first number for an operator with cluster-wide rights, the second number for an operator
with rights in some namespaces only. A list of all Leases costs the same for any number of namespaces, whereas claims
cost two requests for each namespace."""
WITHOUT = "without a class, like this operator,"


class ConflictingOperators:
    """Checks for conflicting operators, and logs them."""

    def __init__(
        self,
        client: Client,
        scope: Scope,
        home: tuple[str, str],
        watched: Callable[[str], bool],
        wall: Callable[[], datetime],
    ) -> None:
        self._client, self._scope, self._watched, self._wall = client, scope, watched, wall
        self._namespace, self._name = home
        self._me = "/".join(home)
        self.found: dict[str, str] = {}
        """Maps the namespace of a conflicting operator's Lease to a text that names the Lease and its holder."""

    def watch_metrics(self, metrics: Metrics) -> None:
        """Register the gauge of the namespaces with a conflicting operator, which is computed when it is scraped."""
        metrics.ask("ome_rivals", lambda: {(namespace,): 1.0 for namespace in self.found})

    async def run(self) -> None:
        """Check for conflicting operators periodically, forever."""
        every = EVERY if self._scope.cluster_kinds else CLAIM_EVERY
        await repeat("the check for other operators", self.check, lambda: every)

    async def check(self) -> None:
        """Check once for conflicting operators. If a Lease cannot be read, the next check reads it again."""
        try:
            found = await (self._listed() if self._scope.cluster_kinds else self._claimed())
        except KubeError as error:
            logger.warning("cannot check for other operators of this class: %s", error)
            return
        for namespace in sorted(found.keys() - self.found.keys()):
            of = f"of class {self._scope.operator_class}" if self._scope.operator_class else WITHOUT
            logger.warning(
                "another operator %s works in this cluster: Lease %s. The two operators write the same objects: stop one "
                "of them, or set operatorClass of one of them", of, found[namespace],
            )  # fmt: skip
        self.found = found

    async def _listed(self) -> dict[str, str]:
        selector = f"{keys.LEASE_CLASS}={self._scope.operator_class}"
        leases = await self._client.list_objects("Lease", label_selector=selector)
        return {each["metadata"]["namespace"]: self._called(each) for each in leases if self._meets(each)}

    def _meets(self, lease: Mapping[str, Any]) -> bool:
        """Return whether a Lease belongs to another live operator that works on the same objects."""
        namespace, name = lease["metadata"]["namespace"], lease["metadata"]["name"]
        spec = lease.get("spec") or {}
        if (namespace, name) == (self._namespace, self._name) or spec.get("holderIdentity") == self._me:
            return False  # this operator's own Lease, or a claim that it wrote earlier
        if not is_alive(lease, self._wall()):
            return False
        mine = self._scope.namespaces
        return name == self._name or not mine or namespace in mine

    def _called(self, lease: Mapping[str, Any]) -> str:
        metadata = lease["metadata"]
        return f"{metadata['namespace']}/{metadata['name']} of {(lease.get('spec') or {}).get('holderIdentity')}"

    # --- claims -----------------------------------------------------------------------------------------------------

    async def _claimed(self) -> dict[str, str]:
        found = {}
        for namespace in self._scope.namespaces:
            if self._watched(namespace) and (other := await self._claim(namespace)):
                found[namespace] = other
        return found

    async def _claim(self, namespace: str) -> str:
        """Renew this operator's claim in a namespace, and return "". If another operator holds the claim, return a text that
        names the Lease and that operator instead.
        """
        name = f"{self._name}-claim"
        try:
            lease = await self._client.get("Lease", namespace, name)
            spec = lease.get("spec") or {}
            if spec.get("holderIdentity") != self._me and is_alive(lease, self._wall()):
                return self._called(lease)
            await self._client.update({**lease, "spec": self._renewed()})
        except NotFound:
            metadata = {"name": name, "namespace": namespace, "labels": {keys.LEASE_CLASS: self._scope.operator_class}}
            kind: Manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
            with contextlib.suppress(AlreadyExists):  # another operator was faster; the next check finds it
                await self._client.create({**kind, "spec": self._renewed()})
        except Conflict:
            pass
        return ""

    def _renewed(self) -> Manifest:
        stamp = self._wall().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": self._me, "leaseDurationSeconds": int(CLAIM_EVERY), "renewTime": stamp}
