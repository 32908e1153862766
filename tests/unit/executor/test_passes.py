"""What a pass takes for granted about others."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator.cluster import Cluster
from ome_operator.executor import Executor, Outcome
from ome_operator.facts import Ref
from ome_operator.kube.errors import KubeError, TooMany
from ome_operator.machinery.workqueue import WorkQueue
from ome_operator.memory import Memory
from ome_operator.passes import FIRST_WITHIN, Passes, another, premature
from ome_operator.plan import Plan
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
    memory, made, later = Memory(), Outcome(wrote=True), Outcome()
    assert premature({}, status("False"), memory, made, 10.0)
    assert made.again == FIRST_WITHIN
    assert premature({}, status("False"), memory, later, 10.9)
    assert later.again == pytest.approx(0.1)
    assert not premature({}, status("False"), memory, Outcome(), 11.0)


def test_the_first_status_waits_no_longer_than_until_ready() -> None:
    memory = Memory()
    assert premature({}, status("False"), memory, Outcome(wrote=True), 10.0)
    assert not premature({}, status("True"), memory, Outcome(), 10.1)


@pytest.mark.parametrize(
    ("stored", "outcome"),
    [
        ({"url": "http://x"}, Outcome(wrote=True)),  # it tells something already
        ({}, Outcome()),  # nothing was made, as of a spec that cannot be read: no pass will know more
        ({}, Outcome(wrote=True, error=KubeError("refused", 500))),
    ],
)
def test_any_other_status_is_written_at_once(stored: dict[str, object], outcome: Outcome) -> None:
    assert not premature(stored, status("False"), Memory(), outcome, 10.0)


class Full:
    """An API server that asks for patience."""

    def __init__(self) -> None:
        self.asked = 0

    async def apply(self, *_: object, **__: object) -> Any:
        self.asked += 1
        raise TooMany("later", 429, 30.0)


async def test_what_is_due_at_once_waits_where_its_status_cannot_be_written() -> None:
    """A rollback is due until the status that tells of it was stored."""
    now, api = 0.0, Full()
    queue: WorkQueue[Ref] = WorkQueue(workers=1, first=0.5, last=9.0, jitter=lambda: 0.5, clock=lambda: now)
    cluster = Cluster(lambda *_: None, lambda _: (), lambda _: ())
    metadata = {"name": "svc", "namespace": "ns", "uid": "u", "resourceVersion": "5"}
    cluster.seen("InferenceService", {"metadata": metadata, "spec": {"engine": {}}})
    made: Any = Passes
    executor = Executor(api, cluster, lambda: now, 1.0)  # type: ignore[arg-type]
    due = Plan(status={"rejected": ["r"]}, requeue_after=0.0)
    passes = made(cluster, api, executor, queue, Settings(), lambda *_: due, None, clock=lambda: now)
    await passes.handle(Ref("InferenceService", "ns", "svc"))
    assert api.asked == 1
    now = 29.0
    assert queue.depth == 0
    now = 30.0
    assert queue.depth == 1
