"""Tests of free nodes for the groups that the class Demand adds: which service gets them, and for how long they are
reserved.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from ome_operator.cache.resources import SERVICE
from ome_operator.controllers.demand import FIRST, PAUSE, DemandScaler, FitQuestions
from ome_operator.core.demand.estimate import PERIOD
from ome_operator.core.demand.task import DemandTask
from ome_operator.core.observed.objects import Ref
from ome_operator.core.placement.demand import Demand
from ome_operator.core.placement.fit import Need, Needs
from tests.support.simulator import START
from tests.unit.controllers.scaled import REF, STORED, Follower


class Counted(DemandScaler):
    """An autoscaler that knows how many groups fit on the free nodes, and counts its searches for free nodes."""

    free, looks = 40, 0

    def fits(self, ref: Ref, task: DemandTask, more: Mapping[str, int], taken: list[Needs], now: datetime) -> Needs | None:
        """Return what these groups need from nodes; None if the free nodes that the test has set cannot hold them."""
        self.looks += 1
        asked = sum(more.values()) + sum(need.pods for needs in taken for need in needs)
        return (Need(("engine",), "engine", Demand(), sum(more.values())),) if asked <= self.free else None


def counted(here: Follower) -> Counted:
    return Counted(here.handler.cache, here.reports, here.has_capacity, here.news.append, lambda: here.now, 5.0)


async def test_groups_that_a_namespace_never_creates_reserve_no_nodes() -> None:
    """Free nodes are not reserved forever for groups that are never created. A tenant asks for all free nodes before
    everybody else, but its quota lets it create no group. Previously, another tenant waited forever (finding U14).
    """
    here = Follower((), scaling=STORED)
    victim = Ref(SERVICE, "other", "svc")
    for at in range(5):
        here.see(f"a{at}", {"scaling": STORED})
    here.see("svc", {"scaling": STORED}, "other")
    here.scaler, here.rate, waited = counted(here), 40.0, 0.0
    while waited < 3600:
        for at in range(5):
            here.scaler.report(Ref(SERVICE, "ns", f"a{at}"), here.task._replace(priority=1000))
        here.scaler.report(victim, here.task)
        here.now += timedelta(seconds=PERIOD)
        await here.scaler.decide_all()
        found = here.handler.cache.find_resource(victim)
        assert found is not None
        if (here.scaler.scaling_status(found) or {}).get("applied", {}).get("engine", 0) > 5:
            break
        waited += PERIOD
    assert waited <= 180


async def test_node_reservation_time_does_not_depend_on_number_of_services() -> None:
    """The time for which nodes are reserved for a namespace does not depend on its number of services. Previously, ten
    services that waited for their pods for one round counted as one minute of waiting of their namespace.
    """
    here = Follower(("svc", *(f"a{at}" for at in range(9))), scaling=STORED)
    here.scaler = counted(here)
    here.scaler.free = 10**6
    for rate, seconds in ((4.0, FIRST + PAUSE), (40.0, 50.0)):
        here.rate = rate
        for _ in range(round(seconds / PERIOD)):
            for at in range(9):
                here.scaler.report(Ref(SERVICE, "ns", f"a{at}"), here.task)
            await here.wait()
    found = here.scaler._followed
    assert all(one.reserved for one in found.values()) and 0 < here.scaler._unused["ns"][0] < 50
    for _ in range(5):
        for at in range(9):
            here.scaler.report(Ref(SERVICE, "ns", f"a{at}"), here.task)
        await here.wait()
    assert not any(one.reserved for one in found.values()), "a minute has passed"


async def test_number_of_fitting_groups_is_found_with_few_searches() -> None:
    """How many groups fit on the free nodes is found with few searches. A tenant may ask for 1,000 groups of each role, and
    with 1,000 nodes each search takes a millisecond.
    """
    here = Follower()
    scaler = counted(here)
    for free, more, granted in (
        (40, {"prefill": 1000, "decode": 1000}, (20, 20)),
        (41, {"prefill": 1000, "decode": 1000}, (21, 20)),
        (40, {"prefill": 1000, "decode": 5}, (35, 5)),
        (40, {"prefill": 0, "decode": 1000}, (0, 40)),
        (0, {"prefill": 3, "decode": 3}, (0, 0)),
        (40, {"prefill": 20, "decode": 20}, (20, 20)),
    ):
        scaler.free, scaler.looks = free, 0
        found = FitQuestions(scaler, REF, here.task, [], START).granted(more)
        assert (found["prefill"], found["decode"]) == granted and scaler.looks < 30


async def test_services_of_higher_priority_get_free_nodes_first() -> None:
    here = Follower(("high", "low"), scaling=STORED)
    order = list[str]()

    def has_capacity(ref: Ref, needs: Needs, now: datetime) -> bool:
        order.append(ref.name)
        return True

    here.scaler = DemandScaler(here.handler.cache, here.reports, has_capacity, here.news.append, lambda: here.now, 5.0)
    here.now += timedelta(seconds=FIRST)
    for rate in (4.0, 40.0):
        here.rate = rate
        for name, priority in (("low", 1), ("high", 2)):
            here.scaler.report(Ref(SERVICE, "ns", name), here.task._replace(priority=priority))
        for _ in range(9):
            here.now += timedelta(seconds=PERIOD)
            await here.scaler.decide_all()
    assert order[0] == "high" and "low" in order
