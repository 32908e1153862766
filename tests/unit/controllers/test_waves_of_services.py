"""Tests of an edit of a runtime over simulated services: the real reconciliation of each service, and the waves between
them.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from ome_operator import keys
from ome_operator.controllers.waves import WaveRegistry
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from ome_operator.core.waves.shared_edits import whole_before
from ome_operator.core.waves.terms import WaveTerms
from tests.support.shapes import Shape
from tests.support.simulator import START, World

RUNTIME = Ref("ClusterServingRuntime", "", "rt")
TERMS = WaveTerms(("1", "50%"), 120.0)
SIZE = 6
"""Number of services. The waves consist of the first service, the next two, and the last three."""


def numbered(shape: Shape, generation: int) -> Deps:
    deps = shape.deps()
    found: dict[Any, Any] = {ref: replace(item, uid="u", generation=generation) for ref, item in deps.runtimes.items()}
    return replace(deps, runtimes=found)


class Member(World):
    """A service of the fleet."""

    def __init__(self, fleet: "Services", number: int, shape: Shape) -> None:
        super().__init__(shape.service(), numbered(shape, 1), number)
        self.fleet, self.ref = fleet, Ref("InferenceService", "team", f"s{number}")

    @property
    def begun(self) -> bool:
        """Return whether the service has begun, as the reconciler sees it."""
        made = {child.labels.get(keys.REVISION) for child in self.children.values() if child.key[0] == "StatefulSet"}
        return bool(self.service.status.get("rejected")) or len(made | whole_before(self.service.status)) > 1

    @property
    def image(self) -> set[str]:
        """Return the images that the engines run or are about to run."""
        sets = [child for child in self.children.values() if child.key[0] == "StatefulSet"]
        return {child.manifest["spec"]["template"]["spec"]["containers"][0]["image"] for child in sets}

    def sync(self) -> Plan:
        waves = self.fleet.waves
        ahead = (lambda _: "") if self.begun else partial(waves.awaited_wave, self.ref)
        plan = sync(self.service, self.deps, replace(self.observed(), ahead=ahead), self.now)
        waves.report(self.ref, plan.stands, asks=plan.rolls or bool(plan.check), begun=self.begun)
        return plan


class Services:
    """A simulated fleet of services of one runtime, and an operator."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.now = START
        self.restart_with(())
        self.members = [Member(self, SIZE * seed + number, shape) for number in range(SIZE)]
        self.most: list[int] = []
        for member in self.members:
            member.settle()
        self.now = max(member.now for member in self.members)
        self.waves.rollout_status(RUNTIME, None)

    def restart_with(self, members: Any) -> None:
        self.waves = WaveRegistry(lambda _: TERMS, lambda: self.now, lambda _: None, lambda _: None)
        self.waves.expect(member.ref for member in members)

    def restart(self) -> None:
        """Restart the operator."""
        self.restart_with(self.members)

    def edit(self, shape: Shape, generation: int) -> None:
        for member in self.members:
            member.deps = numbered(shape, generation)

    def round(self, image: str) -> set[Ref]:
        """Reconcile each service, let the cluster take some steps, and return the services whose StatefulSets have the
        image.
        """
        for member in self.members:
            member.now = self.now
            member.carry_out(member.sync())
            member.step()
        self.now += timedelta(seconds=10)
        self.told, _ = self.waves.rollout_status(RUNTIME, None)
        return {member.ref for member in self.members if image in member.image}

    def proven(self) -> list[datetime]:
        """Return the times at which services became complete with the edit and so proved it, in ascending order."""
        proofs = [proof for member in self.members for proof in member.service.status.get("reached") or ()]
        return sorted(datetime.fromisoformat(proof["time"]) for proof in proofs)


def allowed(proven: list[datetime], now: datetime) -> int:
    """Return how many services may have begun by now: one at first, three after the first has proved the edit, and all after
    three have.
    """
    for ends in (1, 3):
        if len(proven) < ends or now - proven[ends - 1] < timedelta(seconds=TERMS.bake):
            return ends
    return SIZE


@pytest.mark.parametrize(("strategy", "restarts"), [("", 0), ("", 3), ("surge", 3), ("recreate", 3), ("blueGreen", 3)])
def test_every_service_begins_in_its_wave_and_all_are_updated(strategy: str, restarts: int) -> None:
    shape = Shape(size=1, strategy=strategy)
    services = Services(shape, 1)
    services.edit(replace(shape, image="b"), 2)
    begun: set[Ref] = set()
    for number in range(400):
        if restarts and number % 17 == restarts:
            services.restart()
        most = max(allowed(services.proven(), services.now), len(begun))
        begun |= services.round("b")
        assert len(begun) <= most, (number, begun)
        if services.told and services.told["state"] == "Complete":
            break
    assert services.told and (services.told["done"], services.told["wave"]) == (SIZE, 3)
    assert all(member.image == {"b"} for member in services.members)
    assert all(member.condition("RolledOut")["reason"] == "Complete" for member in services.members)


@pytest.mark.parametrize("rollback", [False, True])
def test_edit_that_fails_everywhere_stops_at_the_first_service(rollback: bool) -> None:
    """An edit that works for no service stops at the first one. The next edit begins with the same service, which receives
    it at once because it has already begun.
    """
    shape = Shape(size=1, rollback=rollback)
    services = Services(shape, 2)
    for member in services.members:
        member.healthy = lambda pod: services.works(pod)  # type: ignore[attr-defined]
    services.works = lambda pod: pod.labels[keys.REVISION] in first  # type: ignore[attr-defined]
    first = {str(member.service.status["revision"]) for member in services.members}
    services.edit(replace(shape, image="b"), 2)
    begun: set[Ref] = set()
    for number in range(80):
        begun |= services.round("b")
        services.now += timedelta(hours=number == 40)  # after the deadline of the rollout
    assert len(begun) == 1 and services.told is not None
    assert (services.told["state"], services.told["failed"], services.told["waiting"]) == ("Stopped", 1, SIZE - 1)
    waiting = [member.condition("RolledOut") for member in services.members if member.ref not in begun]
    assert {said["reason"] for said in waiting} == {"WaitingForTurn"}
    assert {said["message"].partition(" of ")[0] for said in waiting} == {
        "the service waits for wave 2",
        "the service waits for wave 3",
    }
    services.works = lambda _: True  # type: ignore[attr-defined]
    services.edit(replace(shape, image="c"), 3)
    assert services.round("c") <= begun
    for _ in range(200):
        services.round("c")
        if services.told["state"] == "Complete":
            break
    assert services.told["state"] == "Complete" and all(member.image == {"c"} for member in services.members)


def test_reverted_runtime_reverts_all_services_without_waves() -> None:
    shape = Shape(size=1)
    services = Services(shape, 3)
    services.edit(replace(shape, image="b"), 2)
    while len(services.proven()) < 3:
        services.round("b")
    services.edit(shape, 3)
    services.round("b")
    services.round("b")
    assert not [member for member in services.members if member.condition("RolledOut")["reason"] == "WaitingForTurn"]
