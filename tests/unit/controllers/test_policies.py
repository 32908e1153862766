"""Tests of whether admission policies restrict the operator. Dry runs show this; the installed policy objects do not prove
it.
"""

import asyncio
import logging
from typing import Any

import pytest

from ome_operator.cache.scope import EVERYWHERE, Scope
from ome_operator.controllers.policies import Policies, probes
from ome_operator.kube.errors import Forbidden, Invalid, KubeError, NotFound, ServerError
from ome_operator.machinery.metrics import Metrics
from tests.support.fake_api import Call, FakeApi

NODES = [{"metadata": {"name": "n-1"}}]
ME = {"status": {"userInfo": {"username": "kubernetes-admin"}}}
AGENT = {"status": {"userInfo": {"username": "system:serviceaccount:home:ome-operator"}}}


def policy(call: Call) -> dict[str, Any]:
    """Return a policy of the chart, for either user."""
    names = [f"request.userInfo.username == '{me['status']['userInfo']['username']}'" for me in (ME, AGENT)]
    conditions = [{"name": "the-operator", "expression": " || ".join(names)}]
    return {"metadata": {"name": call.name}, "spec": {"failurePolicy": "Fail", "matchConditions": conditions}}


def binding(call: Call) -> dict[str, Any]:
    return {"metadata": {"name": call.name}, "spec": {"policyName": call.name, "validationActions": ["Deny"]}}


READ: dict[str, Any] = {"get ValidatingAdmissionPolicy": policy, "get ValidatingAdmissionPolicyBinding": binding}
NO_PODS: dict[str, Any] = {
    "create Pod": Forbidden('pods is forbidden: User "x" cannot create resource "pods" in API group ""', 403)
}
"""Answer of an API server that does not have the policy for pods. test_pod_dry_runs.py tests that policy."""
WORDS = "is forbidden: ValidatingAdmissionPolicy '{}' with binding '{}' denied request: the operator may not"


def refusing(call: Call) -> KubeError:
    """Return the refusal of an API server whose policies restrict the operator."""
    name = next(probe.policy for probe in probes(EVERYWHERE, "home", "n-1") if probe.manifest == call.body)
    return Forbidden(WORDS.format(name, name), 403)


async def looked(apply: Any, **answers: Any) -> tuple[Policies, str]:
    """Return the policies after a check, and the value of the metric."""
    answers = {"apply": apply, "list_objects Node": NODES, "create SelfSubjectReview": ME, **READ, **NO_PODS, **answers}
    made, metrics = Policies(FakeApi(answers), EVERYWHERE, "home", "ome-operator", 600.0), Metrics()
    made.watch_metrics(metrics)
    assert "ome_admission_policies{" not in await metrics.page(), "nothing is known yet"
    await made.check_policies()
    return made, await metrics.page()


async def test_enforced_admission_policies_are_reported_as_binding(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        made, metrics = await looked(refusing)
    assert set(made.found.values()) == {"binds"} and len(made.found) == 6
    assert 'ome_admission_policies{state="binds"} 6.0' in metrics
    assert 'ome_admission_policies{state="absent"} 0.0' in metrics
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "which runs as kubernetes-admin" in caplog.text


async def test_accepted_forbidden_write_is_logged_once_with_the_user(caplog: pytest.LogCaptureFixture) -> None:
    """If the API server accepts a write that the policies forbid, this is logged once, with the operator's user. It happens
    if the operator runs with an administrator's kubeconfig, or in a cluster without the policies.
    """
    made, metrics = await looked(None)
    assert 'ome_admission_policies{state="absent"} 5.0' in metrics
    (said,) = caplog.records
    assert said.levelname == "WARNING"
    assert "do not apply to this operator: ome-operator, ome-operator-objects" in said.getMessage()
    assert "The operator runs as kubernetes-admin, and may write" in said.getMessage()
    await made.check_policies()
    assert len(caplog.records) == 1


async def test_policy_deleted_later_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    gone = set[str]()

    def answer(call: Call) -> KubeError | None:
        return None if call.kind in gone else refusing(call)

    made, _ = await looked(answer)
    gone.add("Node")
    await made.check_policies()
    assert made.found["ome-operator-nodes"] == "absent"
    assert "do not apply to this operator: ome-operator-nodes. The operator runs as" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        Forbidden('serviceaccounts "x" is forbidden: User "x" cannot create resource', 403),
        Invalid('admission webhook "a.example.com" does not support dry run', 400),
        ServerError("etcdserver: request timed out", 500),
    ],
)
async def test_inconclusive_result_is_unknown(error: KubeError, caplog: pytest.LogCaptureFixture) -> None:
    made, metrics = await looked(error)
    assert made.found.pop("ome-operator-bindings") == "binds" and set(made.found.values()) == {"unknown"}
    assert 'ome_admission_policies{state="unknown"} 5.0' in metrics
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


async def test_other_policies_are_tested_without_nodes() -> None:
    for none in ([], ServerError("not now", 500)):
        made, _ = await looked(refusing, **{"list_objects Node": none})
        assert set(made.found.values()) == {"binds"} and "ome-operator-nodes" not in made.found


async def test_unknown_user_is_logged_as_unknown(caplog: pytest.LogCaptureFixture) -> None:
    await looked(None, **{"create SelfSubjectReview": Forbidden("no", 403)})
    assert "The operator runs as a user whose name is not known (no), and may" in caplog.text


async def test_unknown_policy_state_is_checked_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, answers = list[float](), iter([ServerError("starting", 500), None])
    current: list[Any] = [next(answers)]

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise asyncio.CancelledError
        current[0] = next(answers)

    monkeypatch.setattr("ome_operator.machinery.background.asyncio.sleep", sleep)
    given = {"apply": lambda _: current[0], "list_objects Node": NODES, "create SelfSubjectReview": ME, **READ, **NO_PODS}
    api = FakeApi(given)
    with pytest.raises(asyncio.CancelledError):
        await Policies(api, EVERYWHERE, "home", "ome-operator", 600.0).run()
    assert waits == [60.0, 600.0]


def test_only_writes_permitted_by_the_roles_are_tested() -> None:
    """The operator tests its policies only with writes that its Roles allow. RBAC refuses all other writes, so their
    refusal would show nothing about the policies.
    """

    def tried(scope: Scope) -> list[tuple[str, str]]:
        found = probes(scope, "home", "n-1" if scope.labels_nodes else "", "ome-operator-blue")
        return [(probe.policy, probe.manifest["metadata"].get("namespace", "")) for probe in found]

    places = [("ome-operator-blue-objects", "team-a"), ("ome-operator-blue-content", "team-a")]
    assert tried(Scope(("team-a", "team-b"), cluster_kinds=False)) == places
    assert tried(Scope(("team-a", "team-b"))) == [("ome-operator-blue", ""), *places]
    for kind in ("Ingress", "HTTPRoute"):
        one = next(each for each in probes(Scope(("team-a",)), "home", "", exposed=kind) if each.policy.endswith("-exposed"))
        assert one.manifest["kind"] == kind and "policy-probe.invalid" in str(one.manifest["spec"])


async def state_of(name: str, me: dict[str, Any], **answers: Any) -> str | None:
    made, _ = await looked(refusing, **{"create SelfSubjectReview": me, **answers})
    return made.found.get(name)


BINDINGS, POLICY, BOUND = "ome-operator-bindings", "get ValidatingAdmissionPolicy", "get ValidatingAdmissionPolicyBinding"
GONE = NotFound("no such policy", 404)


@pytest.mark.parametrize("name", [BINDINGS, "ome-agent", "ome-tenants"])
async def test_untestable_policy_is_read_instead(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert await state_of(name, AGENT) == "binds"
    for what in (POLICY, BOUND):
        usual = policy if what == POLICY else binding
        gone: Any = {what: lambda call, usual=usual: GONE if call.name == name else usual(call)}
        caplog.clear()
        assert await state_of(name, AGENT, **gone) == "absent"
        assert f"admission policies do not apply to this operator: {name}. The operator runs as" in caplog.text
    warns = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Warn"]}}
    assert await state_of(name, AGENT, **{BOUND: warns}) == "absent"
    assert await state_of(name, AGENT, **{POLICY: ServerError("not now", 500)}) == "unknown"


async def test_binding_policy_must_name_the_operator_user() -> None:
    stranger = {"status": {"userInfo": {"username": "somebody"}}}
    assert await state_of(BINDINGS, stranger) == "absent"


async def test_policies_missing_from_the_chart_are_not_reported() -> None:
    """A policy that the chart does not contain is not reported as missing. The chart then grants no right to read it. An
    administrator may read everything, so that right alone proves nothing.
    """
    refused: Any = {POLICY: lambda call: policy(call) if call.name == BINDINGS else Forbidden("no", 403)}
    assert await state_of("ome-agent", AGENT, **refused) is None
    assert await state_of("ome-tenants", ME, **{POLICY: GONE}) is None
    assert await state_of(BINDINGS, AGENT, **{POLICY: Forbidden("no", 403)}) == "unknown"


async def test_cluster_policies_are_not_read_without_cluster_rights() -> None:
    api = FakeApi({"apply": Forbidden("no", 403)})
    made = Policies(api, Scope(("team-a",), cluster_kinds=False), "home", "ome-operator", 600.0)
    await made.check_policies()
    assert BINDINGS not in made.found
