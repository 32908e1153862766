"""Find out whether the operator may create pods in dry runs, and only in dry runs.

With the right to create pods, anybody who has the operator's token could run any pod. So the chart grants this right only
together with an admission policy that permits nothing but dry runs. The operator uses the right only while a recent test has
shown that the policy applies to it. The policy also refuses pods with one particular name, even in a dry run. A dry run with
this name therefore tests the policy, and no request ever creates a pod (decisions 40).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from ome_operator import keys
from ome_operator.cache.scope import Scope
from ome_operator.core.observed.objects import Manifest
from ome_operator.kube.client import Client
from ome_operator.kube.errors import Forbidden, KubeError, NotFound, TooMany, Transient

logger = logging.getLogger(__name__)

PROBE = "ome-operator-policy-probe"
"""Name of the objects with which the operator tests, in dry runs, whether the policies refuse them. Objects with this
name are never stored."""
ANYWHERE = "default"
"""A namespace that every cluster has, and that cannot be deleted."""
BINDS, ABSENT, UNKNOWN, NO_RIGHT = "binds", "absent", "unknown", ""
SEEN = 60.0
"""Seconds for which the result of the last test of the policy is used."""
RBAC = 'cannot create resource "pods"'
"""Part of the API server's message if the operator has no right to create pods."""
_EXPRESSION = "request.dryRun"


class PolicyState(NamedTuple):
    """Whether the admission policy for pods applies to the operator."""

    state: str
    """`binds` if the policy applies to the operator, `absent` if the policy does not apply, or `unknown`; "" if the
    operator has no right to create pods, so that no policy is needed."""
    why_not: str = ""
    """Why the operator sends no dry runs of pods; "" if it may send them."""
    error: KubeError | None = None
    """The error that makes the state unknown; None if the state is known."""


class PodDryRuns:
    """Tests the policy for pods before the operator uses the right to create pods."""

    def __init__(self, client: Client, scope: Scope, own_name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._scope, self._clock = client, scope, clock
        self.policy = f"{own_name}-pods"
        self._last: tuple[float, PolicyState] | None = None
        self._lock = asyncio.Lock()

    async def why_not(self) -> str:
        """Return why the operator must not send a dry run of a pod now; "" if the operator may send it. Raises KubeError if
        this is unknown because of a temporary error.
        """
        async with self._lock:  # services that ask at the same time share a test
            fresh = self._last is not None and self._clock() < self._last[0] + SEEN
            found = self._last[1] if self._last is not None and fresh else await self.check_policy()
        if isinstance(found.error, TooMany | Transient):
            raise found.error
        return found.why_not

    async def check_policy(self) -> PolicyState:
        """Test the policy, and return its state. The state is cached unless it is unknown."""
        found = await self._tried()
        if found.state == BINDS and self._scope.cluster_kinds:  # without this right, the policy cannot be read
            found = await self._read(found)
        self._last = (self._clock() if found.state != UNKNOWN else float("-inf"), found)
        return found

    async def _tried(self) -> PolicyState:
        try:
            await self._client.create(probe(next(iter(self._scope.namespaces), ANYWHERE)), dry_run=True)
        except Forbidden as error:
            if RBAC in str(error):
                return PolicyState(
                    NO_RIGHT,
                    "the operator has no right to create pods in dry runs: set admissionPolicy.enabled and "
                    "rbac.dryRunPods of the chart",
                )
            if f"ValidatingAdmissionPolicy '{self.policy}'" in str(error):
                return PolicyState(BINDS)
            return self._unknown(error)
        except KubeError as error:
            return self._unknown(error)
        return PolicyState(ABSENT, self._absent)

    async def _read(self, policy_state: PolicyState) -> PolicyState:
        """Return `policy_state` if the stored policy and its binding apply to every pod; otherwise return that the policy is
        absent. If the operator may not read the policy, return `policy_state`, which relies on the dry run alone.
        """
        try:
            policy = await self._client.get("ValidatingAdmissionPolicy", "", self.policy)
            binding = await self._client.get("ValidatingAdmissionPolicyBinding", "", self.policy)
        except NotFound:
            return PolicyState(ABSENT, self._absent)
        except Forbidden:
            return policy_state
        except KubeError as error:
            return self._unknown(error)
        return policy_state if covers_all_pods(policy, binding) else PolicyState(ABSENT, self._absent)

    @property
    def _absent(self) -> str:
        return f"the admission policy {self.policy}, which permits only dry runs of pods, does not apply to this operator"

    def _unknown(self, error: KubeError) -> PolicyState:
        logger.info("the operator does not know whether the admission policy %s applies to it: %s", self.policy, error)
        message = f"the operator does not know whether the admission policy {self.policy} applies to it: {error}"
        return PolicyState(UNKNOWN, message, error)


def is_enforced(policy: Manifest, binding: Manifest) -> bool:
    """Return whether the binding refers to the policy, and whether policy and binding together deny requests that violate
    the policy or cannot be evaluated. They are a ValidatingAdmissionPolicy and its ValidatingAdmissionPolicyBinding.
    """
    spec, bound = policy.get("spec") or {}, binding.get("spec") or {}
    fails = spec.get("failurePolicy", "Fail") == "Fail" and "Deny" in (bound.get("validationActions") or ())
    return fails and bound.get("policyName") == (policy.get("metadata") or {}).get("name")


def covers_all_pods(policy: Manifest, binding: Manifest) -> bool:
    """Return whether a policy is enforced for the creation of pods in every namespace, and permits only dry runs."""
    spec, bound = policy.get("spec") or {}, binding.get("spec") or {}
    matched = spec.get("matchConstraints") or {}
    narrowed = ("namespaceSelector", "objectSelector", "excludeResourceRules")
    if not is_enforced(policy, binding) or spec.get("paramKind") or bound.get("paramRef") or bound.get("matchResources"):
        return False
    if any(matched.get(name) for name in narrowed):
        return False
    return any(_EXPRESSION in str(each.get("expression")) for each in spec.get("validations") or ())


def probe(namespace: str) -> Manifest:
    """Return the pod that the policy has to refuse in a dry run. Its spec complies with Pod Security's `restricted`, so that
    no other rule of a namespace refuses it first.
    """
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    amounts = {"cpu": "100m", "memory": "64Mi"}
    container = {
        "name": "probe",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": context,
    }
    metadata = {"name": PROBE, "namespace": namespace, "labels": {keys.MANAGED_BY: keys.MANAGER}}
    spec = {"containers": [container], "automountServiceAccountToken": False, "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
