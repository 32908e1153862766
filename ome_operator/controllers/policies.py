"""Verify that the chart's admission policies apply to this operator, by dry runs of requests that each policy has to refuse.

The policies limit what a stolen token of the operator can do (decisions 23). The existence of a policy does not prove that
it applies: policies name a user, so none of them applies to an operator that runs with a person's kubeconfig.

Three policies cannot be tested by a dry run. The policy for bindings refuses only bindings to existing Roles that the
operator has not created, and the policies for agents and for tenants' pods apply to other users. These policies are read by
name, together with their bindings.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ome_operator import keys
from ome_operator.cache.scope import Scope
from ome_operator.controllers.pod_dry_runs import ABSENT, ANYWHERE, BINDS, PROBE, UNKNOWN, PodDryRuns, is_enforced
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.render.exposure import GATEWAY_API, INGRESS, ROUTE
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, KubeError, NotFound
from ome_operator.machinery.background import repeat
from ome_operator.machinery.metrics import Metrics

logger = logging.getLogger(__name__)

NAME = PROBE
OTHERS = ("ome-agent", "ome-tenants")
"""Policies of the chart that apply to agents, and to pods of tenants."""
SOON = 60.0
"""Seconds until the next check if a result was unknown. An API server that has just started refuses everything."""
_REFUSED_BY = "ValidatingAdmissionPolicy 'ome-operator"
_HOST = "ome-operator-policy-probe.invalid"
_EXPOSED = {INGRESS: "networking.k8s.io/v1", ROUTE: f"{GATEWAY_API}/v1"}
"""Maps a kind of objects that expose services to its apiVersion."""
_OURS = {keys.MANAGED_BY: keys.MANAGER, keys.SERVICE: NAME}


class Probe(NamedTuple):
    """A write that a policy has to refuse."""

    policy: str
    manifest: Manifest


def probes(scope: Scope, own: str, node: str, policies: str = keys.MANAGER, exposed: str = "") -> Iterator[Probe]:
    """Yield one write for each policy: the policy has to refuse it, while the chart's Roles allow it.

    The policy for bindings and the policy for pods (`pod_dry_runs.py`) are left out.

    own         The operator's namespace.
    node        The name of any node, or "".
    policies    Prefix of the policies' names.
    exposed     Kind of the objects that expose services outside of the cluster, or "".
    """
    if scope.cluster_kinds:
        model = {"storage": {"storageUri": "hf://none/none"}}
        yield Probe(policies, _manifest(keys.API_VERSION, "ClusterBaseModel", {"name": NAME}, spec=model))
    metadata = {"name": NAME, "namespace": next(iter(scope.namespaces), ANYWHERE)}
    yield Probe(f"{policies}-objects", _manifest("v1", "ServiceAccount", metadata))
    selects_nothing = {"ports": [{"port": 80}]}
    yield Probe(f"{policies}-content", _manifest("v1", "Service", {**metadata, "labels": _OURS}, spec=selects_nothing))
    if exposed:
        elsewhere = {"hostnames": [_HOST]} if exposed == ROUTE else {"rules": [{"host": _HOST}]}
        body = _manifest(_EXPOSED[exposed], exposed, {**metadata, "labels": _OURS}, spec=elsewhere)
        yield Probe(f"{policies}-exposed", body)
    if not scope.namespaces:
        at_home = {"name": NAME, "namespace": own, "labels": _OURS}
        yield Probe(f"{policies}-namespaces", _manifest("v1", "ServiceAccount", at_home))
    if node:
        noted = {"name": node, "annotations": {f"{keys.GROUP}/probe": ""}}
        yield Probe(f"{policies}-nodes", _manifest("v1", "Node", noted))


def _manifest(version: str, kind: str, metadata: Manifest, **body: Manifest) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def policy_applies(policy: Manifest, binding: Manifest, user: str = "") -> bool:
    """Return whether a policy is enforced by its binding and, if `user` is given, applies to this user."""
    conditions = (policy.get("spec") or {}).get("matchConditions") or ()
    named = any(f"'{user}'" in str(each.get("expression")) for each in conditions)
    return is_enforced(policy, binding) and (named or not user)


class Policies:
    """Tests the policies at the start and then periodically, because they can be deleted while the operator runs."""

    def __init__(
        self,
        client: Client,
        scope: Scope,
        namespace: str,
        name: str,
        interval: float,
        pods: PodDryRuns | None = None,
        exposed: str = "",
    ) -> None:
        self._client, self._scope, self._namespace, self._name = client, scope, namespace, name
        self._interval, self._exposed = interval, exposed
        self._pods = pods if pods is not None else PodDryRuns(client, scope, name)
        self.found: Mapping[str, str] = {}
        """Maps the name of a policy to its state: `binds` if it applies to the operator, `absent` if it does not, or
        `unknown`."""

    def watch_metrics(self, metrics: Metrics) -> None:
        """Register a gauge of the number of policies by state. It has no values before the first check."""
        metrics.ask("ome_admission_policies", self._counts)

    def _counts(self) -> Mapping[tuple[str, ...], float]:
        counts = Counter(self.found.values())
        return {(state,): counts[state] for state in (BINDS, ABSENT, UNKNOWN)} if self.found else {}

    async def run(self) -> None:
        """Test the policies periodically, until the task is cancelled."""
        await repeat("the check of admission policies", self.check_policies, self._pause)

    def _pause(self) -> float:
        return min(self._interval, SOON) if UNKNOWN in self.found.values() else self._interval

    async def check_policies(self) -> None:
        """Test every policy, and log the states that have changed."""
        node = await self._any_node() if self._scope.labels_nodes else ""
        tried = probes(self._scope, self._namespace, node, self._name, self._exposed)
        found = {probe.policy: await self._tried(probe) for probe in tried}
        if state := (await self._pods.check_policy()).state:
            found[self._pods.policy] = state
        if self._scope.cluster_kinds:  # without this right, the policies cannot be read
            found |= await self._read()
        before, self.found = self.found, found
        if self.found == before:
            return
        if absent := [policy for policy, state in self.found.items() if state == ABSENT]:
            logger.warning(
                "admission policies do not apply to this operator: %s. The operator runs as %s, and may write more than "
                "it needs. Install the chart with admissionPolicy.enabled=true, and run the operator as the chart's "
                "ServiceAccount (docs/security.md)",
                ", ".join(absent),
                await self._user(),
            )
        elif UNKNOWN not in self.found.values():
            logger.info("admission policies apply to this operator, which runs as %s", await self._user())

    async def _tried(self, probe: Probe) -> str:
        try:
            await self._client.apply(probe.manifest, dry_run=True)
        except KubeError as error:
            if _REFUSED_BY in str(error):
                return BINDS
            logger.info("the operator does not know whether the admission policy %s applies to it: %s", probe.policy, error)
            return UNKNOWN
        return ABSENT

    async def _read(self) -> dict[str, str]:
        """Return the states of the policies that cannot be tested by a dry run."""
        try:
            user = await self._client.authenticated_user()
        except KubeError:
            return {f"{self._name}-bindings": UNKNOWN}
        found = {f"{self._name}-bindings": await self._stands(f"{self._name}-bindings", user)}
        if user.startswith("system:serviceaccount:"):  # the chart lets its ServiceAccount read them
            found |= {name: await self._stands(name) for name in OTHERS}
        return {name: state for name, state in found.items() if state}

    async def _stands(self, name: str, user: str = "") -> str:
        """Return the state of a policy. Return "" if the policy applies to other users and may not be read, because the
        chart then does not contain it. `user` is the user to whom the policy has to apply; "" if it applies to other users.
        """
        try:
            policy = await self._client.get("ValidatingAdmissionPolicy", "", name)
            binding = await self._client.get("ValidatingAdmissionPolicyBinding", "", name)
        except NotFound:
            return ABSENT
        except KubeError as error:
            if isinstance(error, Forbidden) and not user:
                return ""
            logger.info("the operator does not know whether the admission policy %s exists: %s", name, error)
            return UNKNOWN
        return BINDS if policy_applies(policy, binding, user) else ABSENT

    async def _any_node(self) -> str:
        try:
            found = await self._client.list_objects("Node", limit=1)
        except KubeError as error:
            logger.info("cannot read a node for the check of admission policies: %s", error)
            return ""
        return str(found[0]["metadata"]["name"]) if found else ""

    async def _user(self) -> str:
        """Return the user name that the API server assigns to the operator's requests."""
        try:
            return await self._client.authenticated_user()
        except KubeError as error:
            return f"a user whose name is not known ({error})"
