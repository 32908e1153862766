"""Stories in which the registries of routers report how many requests a leader still has. No leader with requests is
stopped, and none is kept forever.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.api import InferenceService
from ome_operator.core.observed.objects import Deps, Observed
from ome_operator.core.observed.telemetry import DrainReport
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.rollout.drain import EMPTY_READINGS, NOTICE
from tests.conftest import STORY
from tests.support.live import LivePod
from tests.support.shapes import Shape, seeds, shapes
from tests.support.simulator import TICK, World


class ReportingWorld(World):
    """A simulated world in which the registries of routers report the requests of leaders. A leader that is marked for
    removal still has requests for `seconds` seconds. Each report is missing with the probability `deaf`.
    """

    def __init__(self, service: InferenceService, deps: Deps, seed: int, seconds: float, deaf: float) -> None:
        super().__init__(service, deps, seed)
        self.seconds, self.deaf, self.stopped = seconds, deaf, list[float]()
        self.watcher = self.check

    def observed(self) -> Observed:
        """Return the facts of a reconciliation, with the registries' reports about marked leaders."""
        facts = super().observed()
        routers = [pod for pod in facts.pods if pod.component == keys.ROUTER and not pod.over]
        drains, empty = dict[str, tuple[DrainReport, ...]](), set[str]()
        for pod in facts.pods:
            if not pod.draining:
                continue
            ended = self.passed(pod.draining) >= self.seconds
            beside = [each for each in routers if each.revision == pod.revision]
            heard = [each for each in beside if self.chance.random() >= self.deaf]
            report = DrainReport("", self.now.timestamp() - 3, 0 if ended else 4, EMPTY_READINGS if ended else 0)
            drains[pod.uid] = tuple(report._replace(router=each.uid) for each in heard)
            if ended and heard == beside:
                empty.add(pod.uid)
        self.empty = frozenset(empty)
        return replace(facts, drains=drains)

    def passed(self, mark: str) -> float:
        """Return the seconds since a leader was marked for removal, given the time of its mark."""
        return (self.now - datetime.fromisoformat(mark)).total_seconds()

    def check(self, plan: Plan) -> None:
        """Record, for each marked leader that the plan stops, the seconds since it was marked. Leaders of slices without a
        router are not recorded.
        """
        sets = {delete.uid for delete in plan.delete if delete.kind == "StatefulSet"}
        going = [pod for pod in self.pods.values() if pod.workload_uid in sets and pod.draining and not pod.deleting]
        self.stopped += [self.passed(pod.draining) for pod in going if self.routed(pod)]

    def routed(self, pod: LivePod) -> bool:
        """Return whether there is a router in the slice of this leader."""
        mine = [each for each in self.pods.values() if each.labels[keys.REVISION] == pod.labels[keys.REVISION]]
        return any(each.labels[keys.COMPONENT] == keys.ROUTER for each in mine)


ROLLOUTS = shapes(engines=st.integers(2, 3), decoders=0, scaled=False, router=True, strategy="")
GRACE = 30.0
"""Termination grace period of all pods in these tests, in seconds."""


def replaced(shape: Shape, seed: int, seconds: float, deaf: float) -> list[float]:
    """Roll out a new revision in a world of this shape. Return for each marked leader the seconds between its mark and its
    stop.
    """
    world = ReportingWorld(shape.service(), shape.deps(), seed, seconds, deaf)
    world.settle()
    after = replace(shape, image="b")
    world.edit(after.service(), after.deps())
    world.settle(800)
    return world.stopped


@STORY
@given(ROLLOUTS, seeds, st.floats(0, 60))
def test_leader_is_stopped_when_its_requests_end_or_at_the_limit(shape: Shape, seed: int, seconds: float) -> None:
    limit = timedelta(seconds=max(seconds, NOTICE) if seconds < GRACE else GRACE).total_seconds()
    found = replaced(shape, seed, seconds, deaf=0.0)
    assert all(each >= min(seconds, GRACE) for each in found)
    assert all(each <= limit + 6 * TICK for each in found), "up to some steps lie between two passes"


@STORY
@given(ROLLOUTS, seeds, st.floats(0, 60), st.floats(0, 1))
def test_every_rollout_ends_even_if_registry_reports_are_missing(
    shape: Shape, seed: int, seconds: float, deaf: float
) -> None:
    """Every rollout ends, whatever reports of registries are missing. The simulated world checks that a leader is stopped
    only after the time of notice, or earlier if every router reports that it has no requests.
    """
    found = replaced(shape, seed, seconds, deaf)
    assert all(each >= min(seconds, NOTICE) for each in found)
