"""What a pass takes for granted about others."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.cluster import Cluster
from ome_operator.executor import Executor
from ome_operator.facts import Ref
from ome_operator.kube.errors import TooMany
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.passes import FIRST_WITHIN, Passes, another, first_wait
from ome_operator.plan import Apply, Plan
from ome_operator.settings import Settings

WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("later", "known"),
    [
        (timedelta(minutes=4), True),
        (timedelta(minutes=5), False),
        (timedelta(seconds=-2), True),  # the API server's clock is a little ahead of ours
        (timedelta(days=-1), False),  # ours was set back
    ],
)
def test_somebody_else_who_writes_our_statuses_is_known_for_five_minutes(later: timedelta, known: bool) -> None:
    assert another([("manager", WRITTEN)], WRITTEN + later) == ("manager" if known else "")


def status(ready: str) -> dict[str, object]:
    return {"conditions": [{"type": "Ready", "status": ready}]}


def test_the_first_status_of_what_comes_up_waits_for_a_second() -> None:
    assert first_wait({}, status("False"), 10.0, 10.0) == FIRST_WITHIN
    assert first_wait({}, status("False"), 10.0, 10.9) == pytest.approx(0.1)
    assert first_wait({}, status("False"), 10.0, 11.0) <= 0.0


@pytest.mark.parametrize(
    ("stored", "ready", "made_at"),
    [
        ({}, "True", 10.0),
        ({"url": "http://x"}, "False", 10.0),  # it tells something already
        ({}, "False", None),  # nothing was made, as of a spec that cannot be read: no pass will know more
    ],
)
def test_any_other_status_is_written_at_once(stored: dict[str, object], ready: str, made_at: float | None) -> None:
    assert first_wait(stored, status(ready), made_at, 10.0) == 0.0


class Api:
    """An API server that asks for patience when it is to write objects of some kinds."""

    def __init__(self, *full: str) -> None:
        self._full, self.asked = full, list[str]()

    async def apply(self, manifest: dict[str, Any], *_: object, **__: object) -> Any:
        self.asked.append(manifest["kind"])
        if manifest["kind"] in self._full:
            raise TooMany("later", 429, 30.0)
        metadata = {**manifest["metadata"], "uid": manifest["kind"], "resourceVersion": "9"}
        return SimpleNamespace(body={**manifest, "metadata": metadata}, warnings=())


SERVICE = Ref("InferenceService", "ns", "svc")


def passes(api: Api, plan: Plan, clock: Callable[[], float]) -> tuple[Any, WorkQueue[Ref]]:
    """Passes over a new service, of which `sync` always wants the same."""
    queue: WorkQueue[Ref] = WorkQueue(workers=1, first=0.5, last=9.0, jitter=lambda: 0.5, clock=clock)
    cluster = Cluster(lambda *_: None, lambda _: (), lambda _: ())
    metadata = {"name": "svc", "namespace": "ns", "uid": "u", "resourceVersion": "5"}
    cluster.seen("InferenceService", {"metadata": metadata, "spec": {"engine": {}}})
    made: Any = Passes
    executor = Executor(api, cluster, clock, 1.0)  # type: ignore[arg-type]
    return made(cluster, api, executor, queue, Settings(), lambda *_: plan, None, clock=clock), queue


async def test_what_is_due_at_once_waits_where_its_status_cannot_be_written() -> None:
    """A rollback is due until the status that tells of it was stored."""
    now, api = 0.0, Api("InferenceService")
    made, queue = passes(api, Plan(status={"rejected": ["r"]}, requeue_after=0.0), lambda: now)
    await made.handle(SERVICE)
    assert api.asked == ["InferenceService"]
    now = 29.0
    assert queue.depth == 0
    now = 30.0
    assert queue.depth == 1


@pytest.mark.parametrize("full", [False, True])
async def test_a_first_status_waits_only_where_everything_was_made(full: bool) -> None:
    labels = {keys.SERVICE: "svc", keys.MANAGED_BY: keys.MANAGER}
    manifests = [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": "svc", "namespace": "ns", "labels": labels}}
        for kind in ("StatefulSet", "ServiceAccount")
    ]
    now, api = 0.0, Api("StatefulSet") if full else Api()
    plan = Plan(apply=tuple(Apply(one, "") for one in manifests), status=status("False"))
    made, queue = passes(api, plan, lambda: now)
    await made.handle(SERVICE)
    assert sorted(api.asked) == [*["InferenceService"] * full, "ServiceAccount", "StatefulSet"]
    now = FIRST_WITHIN
    assert queue.depth == 1
