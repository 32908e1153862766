"""A service may be frozen at any moment. Whatever happens during the freeze, no object that determines pods is written.

The world checks the law `a_service_that_is_held_is_only_told_of` at every reconciliation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core.observed.objects import Deps
from tests.conftest import STORY
from tests.support.effects import effects
from tests.support.parts import change_deps
from tests.support.shapes import Shape, edit, grow, lags, reshape, seeds, shapes
from tests.support.simulator import World

WHEN = "2026-11-24T15:40:00Z by alice"
OF_PODS = ("StatefulSet", "Deployment", "ControllerRevision", "PodDisruptionBudget", "HorizontalPodAutoscaler", "RoleScale")


@dataclass
class Story:
    """A service and the events that happen to it."""

    world: World
    shape: Shape
    how: str = ""
    """What freezes the service: "all" or "single"; "" if nothing does."""

    def tell(self) -> None:
        """Put the story's current spec, runtime and freeze state into the simulated world."""
        held: dict[str, str] = {keys.FREEZE: WHEN} if self.how == "single" else {}
        self.world.edit(replace(self.shape.service(), annotations=held), self.deps())

    def deps(self) -> Deps:
        """Return the objects that the service refers to, and whether all services are frozen."""
        return replace(self.shape.deps(), frozen=WHEN if self.how == "all" else "")

    def written(self) -> dict[tuple[str, str], tuple[str, int]]:
        """Return UID and version of each object that determines pods or their number."""
        return {key: (item.uid, item.version) for key, item in self.world.children.items() if key[0] in OF_PODS}


def _lose(story: Story, value: int) -> None:
    if names := sorted(story.world.pods):
        story.world.lose(names[value % len(names)])


def _sick(story: Story, value: int) -> None:
    """Let some of the pods that start from now on never become ready."""
    story.world.healthy = lambda pod: hash((pod.uid, value)) % 2 == 0 if value & 1 else True


def _scale(story: Story, value: int) -> None:
    """Set a number of replicas, as an autoscaler does."""
    for (kind, _), item in story.world.children.items():
        if kind == "RoleScale":
            item.manifest["spec"]["replicas"] = 1 + value % 3


def _wait(story: Story, value: int) -> None:
    """Let more time pass than any deadline of the operator allows."""
    story.world.now += timedelta(hours=value)


def _restart(story: Story, _: int) -> None:
    story.world.restart()


EVENTS: list[Callable[[Story, int], None]] = [edit, grow, reshape, _lose, _sick, _scale, _wait, _restart]
events = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 7), st.integers(0, 8)), max_size=6)
removal_holds = st.sampled_from(["all", "single"])


@STORY
@given(shapes(engines=st.integers(1, 3)), st.booleans(), events, removal_holds, events, seeds, lags)
@example(Shape(size=1, engines=2, router=False, scaled=True), True, [], "all", [(edit, 1, 0), (grow, 0, 0)], 0, 0)
def test_frozen_service_is_unchanged_until_the_thaw_and_then_converges(
    shape: Shape,
    up: bool,
    before: list,
    how: str,
    during: list,
    seed: int,
    lag: int,  # type: ignore[type-arg]
) -> None:
    world = World(shape.service(), shape.deps(), seed)
    story = Story(world, shape)
    if up:
        world.settle()
    world.lag = lag
    for event, value, passes in before:
        event(story, value)
        story.tell()
        world.run(passes)

    story.how = how
    story.tell()
    still, stored = story.written(), groups(world)
    for event, value, passes in during:
        event(story, value)
        story.tell()
        world.run(passes)
        world.carry_out(world.sync())
        assert story.written() == still
        stored = proven(stored, groups(world))
        assert world.condition("Frozen")["message"].startswith("frozen ")
    world.settle()
    assert story.written() == still

    story.how, world.healthy = "", lambda _: True
    story.tell()
    world.settle(800)
    assert not world.condition("Frozen")
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("RolledOut")["status"] == "True"
    assert {item.labels[keys.REVISION] for item in world.pods.values()} == {world.service.status["revision"]}
    assert story.shape.scaled or len(world.living_pods()) == story.shape.pods


def groups(world: World) -> dict[str, dict[str, Any]]:
    """Return the stored groups by their names."""
    return {one["name"]: one for one in world.service.status.get("groups") or ()}


def proven(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Check that the stored groups `before` and `after` a period of a freeze differ only in groups whose first start was
    recorded during that period. Return `after`.
    """
    assert before.keys() <= after.keys()
    changed = {name for name, one in after.items() if one != before.get(name)}
    assert not any(before[name].get("incarnation") for name in changed & before.keys())
    assert {(after[name]["phase"], after[name]["incarnation"]) for name in changed} <= {("Ready", 1)}
    return after


@STORY
@given(shapes(engines=st.integers(2, 3), decoders=0, scaled=False, router=True, strategy=""), removal_holds, seeds)
def test_leaders_marked_for_removal_keep_serving_while_frozen(shape: Shape, how: str, seed: int) -> None:
    """Leaders are marked for removal when the service is frozen. The freeze removes their marks, and no pod is deleted."""
    world = World(shape.service(), shape.deps(), seed)
    world.settle()
    story = Story(world, replace(shape, image="b"))
    story.tell()
    for _ in range(4):
        world.carry_out(world.sync())
    assert draining(world)
    story.how = how
    story.tell()
    before = world.living_pods()
    world.settle()
    assert not draining(world)
    assert world.living_pods() == before and world.condition("Ready")["status"] == "True"


def draining(world: World) -> list[str]:
    """Return the leaders that are marked for removal and still exist."""
    return [pod.name for pod in world.pods.values() if pod.draining and pod.workload_uid in sets(world)]


def sets(world: World) -> set[str]:
    """Return the UIDs of the objects that create pods."""
    return {item.uid for key, item in world.children.items() if key[0] == "StatefulSet"}


@given(shapes(engines=st.integers(1, 2)), st.booleans(), events, seeds)
def test_no_object_is_written_in_observe_mode(shape: Shape, up: bool, during: list, seed: int) -> None:  # type: ignore[type-arg]
    world = World(shape.service(), shape.deps(), seed)
    story = Story(world, shape)
    if up:
        world.settle()
    for event, value, _ in during:
        event(story, value)
        story.tell()
        world.deps = change_deps(world.deps, observe=True)
        plan = world.sync()
        assert effects(plan) == ()
        world.carry_out(plan)
        world.step()
        assert world.condition("Frozen")["reason"] == "Observed"
