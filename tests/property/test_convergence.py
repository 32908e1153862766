"""From any state, reconciliations converge: the cluster matches the user's specification, and another reconciliation
plans nothing.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from tests.conftest import STORY
from tests.support.effects import effects
from tests.support.shapes import Shape, lags, seeds, shapes
from tests.support.simulator import World


def settled(shape: Shape, seed: int, strict: bool = False, lag: int = 0) -> World:
    """Return the simulated world of a service of this shape that is Ready."""
    world = World(shape.service(), shape.deps(), seed)
    world.strict, world.lag = strict, lag
    world.settle()
    return world


@STORY
@given(shapes(), seeds, lags)
def test_any_service_is_created_from_nothing(shape: Shape, seed: int, lag: int) -> None:
    world = settled(shape, seed, strict=True, lag=lag)
    assert len(world.living_pods()) == shape.pods
    serves = shape.engines > 0
    assert world.condition("Ready")["status"] == str(serves)
    assert world.condition("RolledOut")["status"] == "True"
    assert effects(world.sync()) == ()


SERVING = st.integers(1, 3)
OTHER = shapes(engines=SERVING, image=st.sampled_from("ab"), scaled=False)


@STORY
@given(shapes(engines=SERVING), OTHER, seeds, st.integers(0, 30), lags)
def test_any_service_can_be_edited_into_any_other(old: Shape, new: Shape, seed: int, early: int, lag: int) -> None:
    """An edit of components, sizes, counts or images converges, whatever state the service is in."""
    world = World(old.service(), old.deps(), seed)
    world.lag = lag
    world.run(early)
    world.edit(new.service(), new.deps())
    world.settle()
    assert len(world.living_pods()) == new.pods
    assert world.condition("Ready")["status"] == "True"
    fresh = settled(new, seed)
    wanted = {key: one.hash for key, one in fresh.children.items()}
    have = {key: one.hash for key, one in world.children.items() if key in wanted or key[0] != "ControllerRevision"}
    assert have.keys() == wanted.keys()
    differing = {key for key in wanted if have[key] != wanted[key]}
    assert not {key for key in differing if key[0] != "ControllerRevision"}  # its revision number increases


@STORY
@given(shapes(engines=SERVING), seeds, st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_a_restart_of_the_operator_changes_nothing(shape: Shape, seed: int, restarts: list[int]) -> None:
    new = replace(shape, image="b")
    world = settled(shape, seed)
    world.edit(deps=new.deps())
    for passes in restarts:
        world.run(passes)
        world.restart()
    world.settle()
    log = list(world.log)
    world.restart()
    world.settle()
    assert world.log == log
    assert {one.labels[keys.REVISION] for one in world.pods.values()} == {world.service.status["revision"]}
    assert len(world.living_pods()) == shape.pods
