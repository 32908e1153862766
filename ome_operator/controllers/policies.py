"""Whether the chart's admission policies hold this operator: in dry runs it tries what each of them has to refuse.

They are what makes its token worth little (decisions 23). That a policy exists would prove nothing. Policies hold
a user by name, so an operator that runs with the kubeconfig of somebody else is held by none of them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ome_operator import keys
from ome_operator.cache.scope import Scope
from ome_operator.core.observed.objects import Manifest
from ome_operator.kube.client import Client
from ome_operator.kube.errors import KubeError
from ome_operator.machinery.metrics import Metrics

logger = logging.getLogger(__name__)

NAME = "ome-operator-policy-probe"
"""Of objects that are never stored."""
BINDS, ABSENT, UNKNOWN = "binds", "absent", "unknown"
SOON = 60.0
"""Seconds until the next look where something could not be told: an API server that has just started refuses everything."""
_REFUSED_BY = "ValidatingAdmissionPolicy 'ome-operator"
_OURS = {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: NAME}
_ANYWHERE = "default"
"""A namespace that every cluster has, and that nobody can delete."""


class Probe(NamedTuple):
    """A write that a policy has to refuse."""

    policy: str
    manifest: Manifest


def probes(scope: Scope, own: str, node: str, policies: str = keys.MANAGER) -> Iterator[Probe]:
    """A write for each policy but that of bindings, of those that the chart's Roles allow.

    `own`: the operator's namespace, `node`: the name of any node, or "", `policies`: what their names begin with.
    """
    if scope.cluster_kinds:
        model = {"storage": {"storageUri": "hf://none/none"}}
        yield Probe(policies, _manifest(keys.API_VERSION, "ClusterBaseModel", {"name": NAME}, spec=model))
    metadata = {"name": NAME, "namespace": next(iter(scope.namespaces), _ANYWHERE)}
    yield Probe(f"{policies}-objects", _manifest("v1", "ServiceAccount", metadata))
    selects_nothing = {"ports": [{"port": 80}]}
    yield Probe(f"{policies}-content", _manifest("v1", "Service", {**metadata, "labels": _OURS}, spec=selects_nothing))
    if not scope.namespaces:
        at_home = {"name": NAME, "namespace": own, "labels": _OURS}
        yield Probe(f"{policies}-namespaces", _manifest("v1", "ServiceAccount", at_home))
    if node:
        noted = {"name": node, "annotations": {f"{keys.GROUP}/probe": ""}}
        yield Probe(f"{policies}-nodes", _manifest("v1", "Node", noted))


def _manifest(version: str, kind: str, metadata: Manifest, **body: Manifest) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


class Policies:
    """Looks at the start and again and again: policies can be deleted while the operator runs."""

    def __init__(self, client: Client, scope: Scope, namespace: str, name: str, interval: float) -> None:
        self._client, self._scope, self._namespace, self._name = client, scope, namespace, name
        self._interval = interval
        self.found: Mapping[str, str] = {}
        """Policy -> what is known of it."""

    def watch_metrics(self, metrics: Metrics) -> None:
        """A gauge of policies by what is known of them, from the first look on."""
        metrics.ask("ome_admission_policies", self._counts)

    def _counts(self) -> Mapping[tuple[str, ...], float]:
        counts = Counter(self.found.values())
        return {(state,): counts[state] for state in (BINDS, ABSENT, UNKNOWN)} if self.found else {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(min(self._interval, SOON) if UNKNOWN in self.found.values() else self._interval)

    async def look(self) -> None:
        """Try every probe, and say what has changed."""
        node = await self._any_node() if self._scope.labels_nodes else ""
        tried = probes(self._scope, self._namespace, node, self._name)
        before, self.found = self.found, {probe.policy: await self._tried(probe) for probe in tried}
        if self.found == before:
            return
        if absent := [policy for policy, state in self.found.items() if state == ABSENT]:
            logger.warning(
                "admission policies do not bind this operator: %s. As %s it may write what nobody meant it to write. "
                "Install the chart with admissionPolicy.enabled=true, and run the operator as the chart's ServiceAccount "
                "(docs/security.md)",
                ", ".join(absent),
                await self._user(),
            )
        elif UNKNOWN not in self.found.values():
            logger.info("admission policies bind this operator, which runs as %s", await self._user())

    async def _tried(self, probe: Probe) -> str:
        try:
            await self._client.apply(probe.manifest, dry_run=True)
        except KubeError as error:
            if _REFUSED_BY in str(error):
                return BINDS
            logger.info("whether the admission policy %s binds this operator is not known: %s", probe.policy, error)
            return UNKNOWN
        return ABSENT

    async def _any_node(self) -> str:
        try:
            found = await self._client.list_objects("Node", limit=1)
        except KubeError as error:
            logger.info("no node can be looked up: %s", error)
            return ""
        return str(found[0]["metadata"]["name"]) if found else ""

    async def _user(self) -> str:
        """As whom the API server knows us."""
        try:
            return await self._client.who()
        except KubeError as error:
            return f"a user whose name is not known ({error})"
