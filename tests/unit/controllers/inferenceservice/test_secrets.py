"""Tests of Secrets that the executor generates: they are sent once, never read, and never logged."""

import logging

import pytest

from ome_operator.controllers.inferenceservice.execution import Result
from ome_operator.controllers.inferenceservice.executor import SECRET_AGAIN
from ome_operator.controllers.inferenceservice.memory import STEP, ServiceMemory
from ome_operator.core.reconcile.plan import Apply, EnsureSecret, Plan
from ome_operator.core.render import meta, router_key, ssh
from ome_operator.kube.errors import AlreadyExists, Conflict, Forbidden, KubeError, Transient
from tests.support.fake_api import FakeApi
from tests.unit.controllers import makers
from tests.unit.core.render.test_ssh import template

OWNER = meta.Owner("svc", "team", "u")
SECRET = ssh.secret(OWNER, template())


def server(answer: Exception | None = None) -> FakeApi:
    """Return an API server that fails for every request except creations. A creation fails with `answer`, or succeeds if
    that is None.
    """
    return FakeApi({"create": answer, "apply": AssertionError("a workload is made before the Secret that its pods mount")})


async def passes(api: FakeApi, memory: ServiceMemory, *times: float, workloads: tuple[Apply, ...] = ()) -> Result:
    """Run reconciliations at these times whose plan contains the Secret. Return the outcome of the last one."""
    assert SECRET is not None
    for now in times:
        execution = makers.execution(memory, lambda now=now: now)  # type: ignore[misc]
        plan = Plan(ensure_secret=(EnsureSecret(SECRET),), apply=workloads)
        await makers.executor(api, makers.cluster()).execute_effects(plan, execution)
    return execution.result


async def test_generated_keys_are_sent_but_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    api = server()
    assert (await passes(api, ServiceMemory(), 0.0)).created
    (sent,) = api.bodies("create")
    assert sent["immutable"] is True and "PRIVATE KEY" in sent["stringData"]["id_ed25519"]
    assert "PRIVATE" not in caplog.text and SECRET is not None and "stringData" not in SECRET


async def test_router_key_is_generated_each_time_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    box = router_key.with_key({"name": "router", "args": []}, "svc")
    made = router_key.secret(OWNER, {"spec": {"template": {"spec": {"containers": [box]}}}})
    assert made is not None
    sent = []
    for _ in range(2):
        api = server()
        execution = makers.execution(ServiceMemory(), lambda: 0.0)
        await makers.executor(api, makers.cluster()).execute_effects(Plan(ensure_secret=(EnsureSecret(made),)), execution)
        sent += api.bodies("create")
    first, second = (one["stringData"]["key"] for one in sent)
    assert first != second and len(first) == 64 and set(first) <= set("0123456789abcdef")
    assert all(one["immutable"] is True and one["type"] == "ome.io/router-key" for one in sent)
    assert first not in caplog.text


async def test_existing_secret_is_success_and_is_retried_after_a_while() -> None:
    api, memory = server(AlreadyExists("there is one", 409)), ServiceMemory()
    outcome = await passes(api, memory, 0.0, 1.0, SECRET_AGAIN - 1)
    assert len(api.calls) == 1 and not outcome.created and outcome.error is None
    await passes(api, memory, SECRET_AGAIN + 1)
    assert len(api.calls) == 2, "it may belong to a previous service, and be deleted with it"


async def test_forbidden_secret_is_reported_in_status() -> None:
    memory = ServiceMemory()
    outcome = await passes(server(Forbidden("secrets is forbidden", 403)), memory, 0.0)
    assert outcome.status_changed and memory.refused["Secret", "svc-ssh"].refusal.reason == "Forbidden"


@pytest.mark.parametrize(
    "answer",
    [Transient("no answer"), Conflict("the quota has changed", 409), Forbidden("the server has just started", 403)],
)
async def test_workloads_are_created_only_after_their_secret(answer: KubeError) -> None:
    """Workloads that mount a Secret are created only after the Secret, because a kubelet that cannot mount it tries again
    only after minutes.
    """
    workload = {"kind": "StatefulSet", "metadata": {"name": "svc-engine"}}
    outcome = await passes(server(answer), ServiceMemory(), 0.0, workloads=(Apply(workload, ""),))
    assert outcome.error is answer or outcome.requeue_after in (1.0, STEP), "the creation is tried again soon"
