"""Tests that the operator creates pods in dry runs only if dry runs have shown that the admission policy for pods applies to
it.
"""

import asyncio
from typing import Any

import pytest

from ome_operator.cache.scope import EVERYWHERE, Scope
from ome_operator.controllers.pod_dry_runs import PROBE, SEEN, PodDryRuns, covers_all_pods
from ome_operator.controllers.policies import Policies
from ome_operator.kube.errors import Forbidden, KubeError, NotFound, ServerError
from tests.support.fake_api import FakeApi

NAME = "ome-operator-pods"
DENIED = Forbidden(f"pods is forbidden: ValidatingAdmissionPolicy '{NAME}' with binding '{NAME}' denied request: no", 403)
NO_RIGHT = Forbidden('pods is forbidden: User "x" cannot create resource "pods" in API group "" in the namespace "default"')
BY_OTHERS = Forbidden(
    "pods is forbidden: ValidatingAdmissionPolicy 'allowed-repos' with binding 'x' denied request: no", 403
)
DOWN = ServerError('failed calling webhook "a.example.com"', 500)
POLICY: dict[str, Any] = {
    "metadata": {"name": NAME},
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"namespaceSelector": {}, "objectSelector": {}, "resourceRules": [{"resources": ["pods"]}]},
        "validations": [{"expression": "has(request.dryRun) && request.dryRun"}],
    },
}
BINDING: dict[str, Any] = {"metadata": {"name": NAME}, "spec": {"policyName": NAME, "validationActions": ["Deny"]}}
READ = {"get ValidatingAdmissionPolicy": POLICY, "get ValidatingAdmissionPolicyBinding": BINDING}


def made(create: Any, scope: Scope = EVERYWHERE, **answers: Any) -> tuple[PodDryRuns, FakeApi, list[float]]:
    """Return the object that finds out whether the admission policy for pods applies, the API server that it asks, and its
    clock.
    """
    api, now = FakeApi({"create Pod": create, **READ, **answers}), [0.0]
    return PodDryRuns(api, scope, "ome-operator", lambda: now[0]), api, now


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (DENIED, "binds", ""),
        (
            None,
            "absent",
            f"the admission policy {NAME}, which permits only dry runs of pods, does not apply to this operator",
        ),
        (
            NO_RIGHT,
            "",
            "has no right to create pods in dry runs: set admissionPolicy.enabled and rbac",
        ),
        (BY_OTHERS, "unknown", "applies to it: pods is forbidden: ValidatingAdmissionPolicy 'allowed-repos'"),
    ],
)
async def test_dry_run_result_shows_whether_the_policy_binds(answer: KubeError | None, state: str, words: str) -> None:
    pods, api, _ = made(answer)
    assert (await pods.check_policy()).state == state
    why = await pods.why_not()
    assert words in why and bool(why) == bool(words)
    sent = [call for call in api.calls if call.verb == "create"]
    assert sent and all(call.dry_run and call.name == PROBE for call in sent), "no request ever creates a pod"


async def test_unavailable_api_server_leaves_the_policy_state_unknown() -> None:
    pods, api, _ = made(DOWN)
    for _ in range(2):
        with pytest.raises(ServerError):
            await pods.why_not()
    api.answers["create Pod"] = DENIED
    assert await pods.why_not() == "", "the next service asks again at once"


async def test_simultaneous_policy_tests_are_shared() -> None:
    pods, api, now = made(DENIED)
    assert await asyncio.gather(*(pods.why_not() for _ in range(100))) == [""] * 100
    now[0] += SEEN - 1.0
    await pods.why_not()
    assert api.kinds("create") == ["Pod"]
    now[0] += 1.0
    api.answers["create Pod"] = None
    assert "does not apply" in await pods.why_not(), "somebody has deleted the policy"


@pytest.mark.parametrize("kind", ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"])
async def test_policy_and_binding_objects_must_also_exist(kind: str) -> None:
    pods, api, _ = made(DENIED, **{f"get {kind}": NotFound("gone", 404)})
    assert (await pods.check_policy()).state == "absent"
    api.answers[f"get {kind}"] = Forbidden("an older chart", 403)
    assert (await pods.check_policy()).state == "binds"
    api.answers[f"get {kind}"] = DOWN
    assert (await pods.check_policy()).state == "unknown"


async def test_namespaced_operator_does_not_read_policies() -> None:
    pods, api, _ = made(DENIED, Scope(("team-a",), cluster_kinds=False))
    assert await pods.why_not() == "" and api.kinds("get") == []
    assert api.bodies("create")[0]["metadata"]["namespace"] == "team-a"


def test_policy_with_a_gap_is_not_accepted() -> None:
    spec, bound = POLICY["spec"], BINDING["spec"]
    match, some = spec["matchConstraints"], {"matchLabels": {"a": "b"}}
    gaps: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"failurePolicy": "Ignore"}, {}),
        ({"validations": [{"expression": "true"}]}, {}),
        ({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}, {}),
        ({"matchConstraints": {**match, "namespaceSelector": some}}, {}),
        ({"matchConstraints": {**match, "objectSelector": some}}, {}),
        ({"matchConstraints": {**match, "excludeResourceRules": match["resourceRules"]}}, {}),
        ({}, {"validationActions": ["Audit", "Warn"]}),
        ({}, {"policyName": "another"}),
        ({}, {"paramRef": {"name": "x"}}),
        ({}, {"matchResources": {"namespaceSelector": some}}),
    ]
    assert covers_all_pods(POLICY, BINDING)
    for policy, binding in gaps:
        assert not covers_all_pods({**POLICY, "spec": {**spec, **policy}}, {**BINDING, "spec": {**bound, **binding}})


async def test_policy_metric_requires_the_right_to_bind() -> None:
    for answer, found in ((DENIED, "binds"), (None, "absent"), (NO_RIGHT, None)):
        answers = {"apply": DOWN, "list_objects Node": [], "create SelfSubjectReview": DOWN, "create Pod": answer, **READ}
        policies = Policies(FakeApi(answers), EVERYWHERE, "home", "ome-operator", 600.0)
        await policies.check_policies()
        assert policies.found.get(NAME) == found
