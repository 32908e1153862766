"""Tests of the status about workers that another client has added to the list of a router."""

from dataclasses import replace
from datetime import timedelta

from ome_operator.core.observed.telemetry import ForeignWorkers
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.status.foreign_workers import REPORTED_FOR, foreign_workers_condition
from tests.support import parts
from tests.support.simulator import START, World

AT = START.timestamp()


def test_no_condition_without_recent_foreign_workers() -> None:
    assert foreign_workers_condition([], "", START) is None
    assert foreign_workers_condition([ForeignWorkers(0, 0.0)], "", START) is None
    assert foreign_workers_condition([ForeignWorkers(3, AT)], "", START + REPORTED_FOR) is None


def test_condition_states_count_time_and_remedy_for_foreign_workers() -> None:
    told = foreign_workers_condition([ForeignWorkers(2, AT - 60), ForeignWorkers(1, AT - 3)], "", START)
    assert told is not None and (told.type, told.status, told.reason) == ("RouterIntact", False, "StrangerInRouter")
    assert "(3 so far, the last at" in told.message and "23:59:57 UTC" in told.message and "/v1/" in told.message
    keyed = foreign_workers_condition([ForeignWorkers(1, AT)], "svc-router-key", START)
    assert keyed is not None and "delete the Secret svc-router-key" in keyed.message


def service() -> World:
    """Return a service that serves."""
    made = World(parts.service(engine={}, router={}), parts.deps(parts.simple(), parts.model()), 1)
    made.settle()
    return made


def test_foreign_workers_give_condition_and_one_event_and_service_stays_ready() -> None:
    here = service()
    (router,) = [pod for pod in here.observed().pods if pod.component == "router"]
    seen = replace(here.observed(), strangers={router.uid: ForeignWorkers(1, here.now.timestamp())})
    plan = sync(here.service, here.deps, seen, here.now)
    told = {item["type"]: item["status"] for item in plan.status["conditions"]}
    assert told["RouterIntact"] == "False" and told["Ready"] == "True"
    assert [(item.type, item.reason) for item in plan.events] == [("Warning", "StrangerInRouter")] and plan.urgent
    again = sync(replace(here.service, status=plan.status), here.deps, seen, here.now)
    assert again.events == () and not again.urgent
    later = sync(replace(here.service, status=plan.status), here.deps, seen, here.now + 2 * REPORTED_FOR)
    assert "RouterIntact" not in {item["type"] for item in later.status["conditions"]}


def test_reports_from_pods_that_are_not_routers_are_ignored() -> None:
    here = service()
    seen = replace(
        here.observed(), strangers={"somebody's": ForeignWorkers(9, (here.now - timedelta(seconds=1)).timestamp())}
    )
    assert "RouterIntact" not in {
        item["type"] for item in sync(here.service, here.deps, seen, here.now).status["conditions"]
    }
