"""Groups are added and removed one by one. If all are ready, the highest number is removed, and the others are not
affected (decisions 4, 9).
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from tests.conftest import STORY
from tests.support.shapes import Shape, lags, seeds, shapes
from tests.support.simulator import World


def group_of(world: World, name: str) -> int:
    """Return the group number of an engine pod."""
    labels = world.pods[name].labels
    return int(labels[keys.GROUP_INDEX])


def worker_sets(world: World) -> int:
    """Return the number of worker StatefulSets."""
    return sum(kind == "StatefulSet" and keys.WORKER_INDEX not in one.labels for (kind, _), one in world.children.items())


@STORY
@given(
    shapes(engines=st.integers(1, 4), decoders=st.integers(0, 1), scaled=False),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10)), min_size=1, max_size=5),
    seeds,
    lags,
)
def test_scaling_affects_only_the_highest_numbered_groups(
    shape: Shape, changes: list[tuple[int, int]], seed: int, lag: int
) -> None:
    """Scaling creates or removes only the groups with the highest numbers, even if the number changes back before the
    scaling has ended. The simulated world checks at each deletion that leaders are deleted before workers.
    """
    world = World(shape.service(), shape.deps(), seed)
    world.settle()
    world.lag = lag
    before = world.living_pods("engine")
    groups = {name: group_of(world, name) for name in before}
    lowest = shape.engines
    for engines, passes in changes:
        shape, lowest = replace(shape, engines=engines), min(lowest, engines)
        world.edit(shape.service())
        world.run(passes)
    world.settle()
    after = world.living_pods("engine")
    assert len(after) == shape.engines * shape.size
    untouched = {name: uid for name, uid in before.items() if groups[name] < lowest}
    assert untouched.items() <= after.items()
    decoders = shape.decoders if shape.size > 1 else 0
    assert worker_sets(world) == (shape.engines if shape.size > 1 else 0) + decoders


@STORY
@given(shapes(engines=st.integers(1, 2), scaled=True), st.lists(st.integers(0, 5), max_size=4), seeds)
def test_role_scale_determines_the_size_within_its_bounds(shape: Shape, wishes: list[int], seed: int) -> None:
    world = World(shape.service(), shape.deps(), seed)
    world.settle()
    scale = world.children["RoleScale", "svc-engine"]
    wanted = shape.engines
    assert scale.manifest["spec"]["replicas"] == wanted
    for wish in wishes:
        scale.manifest["spec"]["replicas"] = wish
        wanted = min(max(wish, shape.engines), shape.engines + 1)
        world.settle()
        assert len(world.living_pods("engine")) == wanted * shape.size
        assert scale.status["replicas"] == scale.status["readyReplicas"] == wanted
    assert scale.uid == world.children["RoleScale", "svc-engine"].uid
    assert not [line for line in world.log if "change" in line and "RoleScale" in line]
