"""Tests that the operator reads only a limited number of objects of kinds that tenants can create in any number, such as
Events.
"""

from datetime import UTC, datetime

from ome_operator.controllers.events import create_failures
from ome_operator.controllers.inferenceservice.foreign_objects import ForeignReader
from ome_operator.core.reasons import READY
from ome_operator.kube.client import SOME
from ome_operator.kube.errors import NotFound
from tests.support.fake_api import FakeApi

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SERVES = {"conditions": [{"type": READY, "status": "True"}]}


async def test_number_of_events_read_is_limited() -> None:
    about = {"type": "Warning", "reason": "FailedCreate", "message": "no", "lastTimestamp": NOW.isoformat()}
    flood = [{**about, "involvedObject": {"uid": f"u{number}"}} for number in range(10 * SOME)]
    reader = create_failures(FakeApi({"list_objects Event": flood}), lambda: 0.0, lambda: NOW)
    assert len(await reader.values_by_uid("tenant")) == SOME


async def test_number_of_budgets_read_is_limited() -> None:
    flood = [{"metadata": {"name": f"b{number}", "namespace": "tenant"}, "spec": {}} for number in range(10 * SOME)]
    reader = ForeignReader(FakeApi({"list_objects PodDisruptionBudget": flood}), lambda: 0.0)
    await reader.refresh("tenant", SERVES)
    assert len(reader.last_read_objects("tenant")["budgets"]) == SOME


async def test_autoscalers_are_read_only_for_class_demand_and_kept_after_errors() -> None:
    hpa = {"metadata": {"name": "mine"}, "spec": {"scaleTargetRef": {"kind": "RoleScale", "name": "svc-decoder"}}}
    api, now = FakeApi({"list_objects HorizontalPodAutoscaler": [hpa], "list_objects PodDisruptionBudget": []}), [0.0]
    reader = ForeignReader(api, lambda: now[0])
    assert not await reader.refresh("tenant", SERVES) and reader.last_read_objects("tenant") == {
        "budgets": (),
        "autoscalers": (),
    }
    assert await reader.refresh("tenant", SERVES, demand=True)
    assert [one.target for one in reader.last_read_objects("tenant")["autoscalers"]] == [("RoleScale", "svc-decoder")]
    api.answers["list_objects HorizontalPodAutoscaler"] = NotFound("no")
    now[0] = 11.0
    assert not await reader.refresh("tenant", SERVES, demand=True) and reader.last_read_objects("tenant")["autoscalers"], (
        "kept"
    )
    api.answers["list_objects HorizontalPodAutoscaler"] = []
    now[0] = 16.0
    assert not await reader.refresh("tenant", SERVES, demand=True) and reader.last_read_objects("tenant")["autoscalers"], (
        "too early"
    )
    now[0] = 22.0
    assert await reader.refresh("tenant", SERVES, demand=True) and not reader.last_read_objects("tenant")["autoscalers"]
    assert reader.last_read_objects("other") == {"budgets": (), "autoscalers": ()}
