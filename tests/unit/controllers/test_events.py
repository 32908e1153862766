"""Tests that of objects that tenants can create in any number, such as Events, only a limited number is read."""

from datetime import UTC, datetime

from ome_operator.controllers.events import create_failures
from ome_operator.controllers.inferenceservice.foreign_budgets import BudgetReader
from ome_operator.core.reasons import READY
from ome_operator.kube.client import SOME
from tests.support.fake_api import FakeApi

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SERVES = {"conditions": [{"type": READY, "status": "True"}]}


async def test_a_flood_of_events_is_read_in_part() -> None:
    about = {"type": "Warning", "reason": "FailedCreate", "message": "no", "lastTimestamp": NOW.isoformat()}
    flood = [{**about, "involvedObject": {"uid": f"u{number}"}} for number in range(10 * SOME)]
    reader = create_failures(FakeApi({"list_objects Event": flood}), lambda: 0.0, lambda: NOW)
    assert len(await reader.of("tenant")) == SOME


async def test_a_flood_of_budgets_is_read_in_part() -> None:
    flood = [{"metadata": {"name": f"b{number}", "namespace": "tenant"}, "spec": {}} for number in range(10 * SOME)]
    reader = BudgetReader(FakeApi({"list_objects PodDisruptionBudget": flood}), lambda: 0.0)
    await reader.refresh("tenant", SERVES)
    assert len(reader.known("tenant")) == SOME
