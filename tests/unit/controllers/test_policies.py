"""Whether the admission policies hold the operator: told by dry runs, and never by what is installed."""

import asyncio
import logging
from typing import Any

import pytest

from ome_operator.cache.scope import EVERYWHERE, Scope
from ome_operator.controllers.policies import Policies, probes
from ome_operator.kube.errors import Forbidden, Invalid, KubeError, ServerError
from ome_operator.machinery.metrics import Metrics
from tests.support.fake_api import Call, FakeApi

NODES = [{"metadata": {"name": "n-1"}}]
ME = {"status": {"userInfo": {"username": "kubernetes-admin"}}}
WORDS = "is forbidden: ValidatingAdmissionPolicy '{}' with binding '{}' denied request: the operator may not"


def refusing(call: Call) -> KubeError:
    """As an API server whose policies hold us."""
    name = next(probe.policy for probe in probes(EVERYWHERE, "home", "n-1") if probe.manifest == call.body)
    return Forbidden(WORDS.format(name, name), 403)


async def looked(apply: Any, **answers: Any) -> tuple[Policies, str]:
    """After a look, and the metric."""
    answers = {"apply": apply, "list_objects Node": NODES, "create SelfSubjectReview": ME, **answers}
    made, metrics = Policies(FakeApi(answers), EVERYWHERE, "home", "ome-operator", 600.0), Metrics()
    made.watch_metrics(metrics)
    assert "ome_admission_policies{" not in await metrics.page(), "nothing is known yet"
    await made.look()
    return made, await metrics.page()


async def test_policies_that_refuse_bind(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        made, metrics = await looked(refusing)
    assert set(made.found.values()) == {"binds"} and len(made.found) == 5
    assert 'ome_admission_policies{state="binds"} 5.0' in metrics
    assert 'ome_admission_policies{state="absent"} 0.0' in metrics
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "which runs as kubernetes-admin" in caplog.text


async def test_what_is_accepted_is_told_once_with_the_user(caplog: pytest.LogCaptureFixture) -> None:
    """An administrator's kubeconfig, or a cluster without the policies: every write goes through."""
    made, metrics = await looked(None)
    assert 'ome_admission_policies{state="absent"} 5.0' in metrics
    (said,) = caplog.records
    assert said.levelname == "WARNING"
    assert "do not bind this operator: ome-operator, ome-operator-objects" in said.getMessage()
    assert "As kubernetes-admin it may write" in said.getMessage()
    await made.look()
    assert len(caplog.records) == 1


async def test_one_policy_that_is_deleted_later_is_told(caplog: pytest.LogCaptureFixture) -> None:
    gone = set[str]()

    def answer(call: Call) -> KubeError | None:
        return None if call.kind in gone else refusing(call)

    made, _ = await looked(answer)
    gone.add("Node")
    await made.look()
    assert made.found["ome-operator-nodes"] == "absent"
    assert "do not bind this operator: ome-operator-nodes. As" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        Forbidden('serviceaccounts "x" is forbidden: User "x" cannot create resource', 403),
        Invalid('admission webhook "a.example.com" does not support dry run', 400),
        ServerError("etcdserver: request timed out", 500),
    ],
)
async def test_an_answer_that_proves_nothing_is_unknown(error: KubeError, caplog: pytest.LogCaptureFixture) -> None:
    made, metrics = await looked(error)
    assert set(made.found.values()) == {"unknown"}
    assert 'ome_admission_policies{state="unknown"} 5.0' in metrics
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


async def test_without_nodes_the_others_are_tried() -> None:
    for none in ([], ServerError("not now", 500)):
        made, _ = await looked(refusing, **{"list_objects Node": none})
        assert set(made.found.values()) == {"binds"} and "ome-operator-nodes" not in made.found


async def test_a_user_that_nobody_tells_is_said_so(caplog: pytest.LogCaptureFixture) -> None:
    await looked(None, **{"create SelfSubjectReview": Forbidden("no", 403)})
    assert "As a user whose name is not known (no) it may" in caplog.text


async def test_it_looks_again_and_soon_where_something_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, answers = list[float](), iter([ServerError("starting", 500), None])
    current: list[Any] = [next(answers)]

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise asyncio.CancelledError
        current[0] = next(answers)

    monkeypatch.setattr("ome_operator.machinery.rounds.asyncio.sleep", sleep)
    api = FakeApi({"apply": lambda _: current[0], "list_objects Node": NODES, "create SelfSubjectReview": ME})
    with pytest.raises(asyncio.CancelledError):
        await Policies(api, EVERYWHERE, "home", "ome-operator", 600.0).run()
    assert waits == [60.0, 600.0]


def test_only_what_the_roles_allow_is_tried() -> None:
    """RBAC refuses the rest, which would say nothing of the policies."""

    def tried(scope: Scope) -> list[tuple[str, str]]:
        found = probes(scope, "home", "n-1" if scope.labels_nodes else "", "ome-operator-blue")
        return [(probe.policy, probe.manifest["metadata"].get("namespace", "")) for probe in found]

    places = [("ome-operator-blue-objects", "team-a"), ("ome-operator-blue-content", "team-a")]
    assert tried(Scope(("team-a", "team-b"), cluster_kinds=False)) == places
    assert tried(Scope(("team-a", "team-b"))) == [("ome-operator-blue", ""), *places]
