"""Secrets that the executor makes: sent once, never read, never told."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator.controllers.inferenceservice.execution import Execution, Result
from ome_operator.controllers.inferenceservice.executor import SECRET_AGAIN, Executor
from ome_operator.controllers.inferenceservice.memory import STEP, ServiceMemory
from ome_operator.core.plan import Apply, EnsureSecret, Plan
from ome_operator.core.render import meta, ssh
from ome_operator.kube.errors import AlreadyExists, Conflict, Forbidden, KubeError, Transient
from tests.unit.core.render.test_ssh import template

SECRET = ssh.secret(meta.Owner("svc", "team", "u"), template())


class Api:
    """An API server with nothing but creation."""

    def __init__(self, answer: Exception | None = None) -> None:
        self.answer, self.sent = answer, list[dict[str, Any]]()

    async def apply(self, manifest: dict[str, Any], uid: str = "") -> None:
        raise AssertionError("a workload is made before the Secret that its pods mount")

    async def create(self, manifest: dict[str, Any], manager: str = "") -> dict[str, Any]:
        self.sent.append(manifest)
        if self.answer is not None:
            raise self.answer
        return manifest


async def passes(api: Api, memory: ServiceMemory, *times: float, workloads: tuple[Apply, ...] = ()) -> Result:
    """Passes at these times that want the Secret; the outcome of the last."""
    assert SECRET is not None
    for now in times:
        service: Any = SimpleNamespace(ref=SimpleNamespace(namespace="team", name="svc"), uid="u")
        executor = Executor(api, None, 1.0)  # type: ignore[arg-type]
        run = Execution(service, memory, set(), Result(), lambda now=now: now)  # type: ignore[misc]
        await executor.effects(Plan(ensure_secret=(EnsureSecret(SECRET),), apply=workloads), run)
    return run.result


async def test_keys_are_in_what_is_sent_and_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    api = Api()
    assert (await passes(api, ServiceMemory(), 0.0)).wrote
    (sent,) = api.sent
    assert sent["immutable"] is True and "PRIVATE KEY" in sent["stringData"]["id_ed25519"]
    assert "PRIVATE" not in caplog.text and SECRET is not None and "stringData" not in SECRET


async def test_one_that_exists_is_success_and_is_asked_for_again_after_a_while() -> None:
    api, memory = Api(AlreadyExists("there is one", 409)), ServiceMemory()
    outcome = await passes(api, memory, 0.0, 1.0, SECRET_AGAIN - 1)
    assert len(api.sent) == 1 and not outcome.wrote and outcome.error is None
    await passes(api, memory, SECRET_AGAIN + 1)
    assert len(api.sent) == 2, "it may have been a former service's, and gone with it"


async def test_a_refusal_is_told() -> None:
    memory = ServiceMemory()
    outcome = await passes(Api(Forbidden("secrets is forbidden", 403)), memory, 0.0)
    assert outcome.status_changed and memory.refused["Secret", "svc-ssh"].refusal.reason == "Forbidden"


@pytest.mark.parametrize(
    "answer",
    [Transient("no answer"), Conflict("the quota has changed", 409), Forbidden("the server has just started", 403)],
)
async def test_workloads_wait_for_a_secret_that_could_not_be_made(answer: KubeError) -> None:
    """A kubelet that cannot mount it looks again only after minutes."""
    workload = {"kind": "StatefulSet", "metadata": {"name": "svc-engine"}}
    outcome = await passes(Api(answer), ServiceMemory(), 0.0, workloads=(Apply(workload, ""),))
    assert outcome.error is answer or outcome.requeue_after in (1.0, STEP), "and it is tried again soon"
