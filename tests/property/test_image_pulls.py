"""Stories in which images are pulled before rollouts, some of them in vain, while pods fail, the operator restarts and
the service is edited. Nothing that serves is removed while images are pulled, every wait ends, and the rollout becomes
complete.
"""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core.reconcile.plan import Plan
from tests.conftest import STORY
from tests.support.pulling import LOST, NEW, OLD, PODLESS, PULLED, STUCK, TIMEOUT, PullingWorld, node, serving
from tests.support.shapes import Shape, seeds, shapes

SHAPES = shapes(
    size=st.integers(1, 2), engines=st.integers(1, 2), decoders=st.integers(0, 2), scaled=False, gateway=False, image=OLD
)
EDITS = st.lists(st.sampled_from(["engine:c", "engine:d", OLD]), max_size=2)
LONGEST = timedelta(seconds=TIMEOUT + 120)
"""Maximum duration of a wait for images in these tests: the timeout of the wait, and the time of the passes in which the
simulation notices that the wait begins and that it ends."""


def watched(world: PullingWorld, limit: int) -> None:
    """Check every plan before the simulated world carries it out. While images are pulled, at most `limit` Jobs pull at the
    same time, only onto nodes with pods of the service, and no pod or workload is removed.
    """

    def check(plan: Plan) -> None:
        reason = next((one["reason"] for one in plan.status["conditions"] if one["type"] == "RolledOut"), "")
        created = [apply.manifest for apply in plan.apply if apply.kind == "Job"]
        active = sum(not live.status or bool(live.status.get("active")) for live in world.jobs())
        assert not created or active + len(created) <= limit
        assert {node(job) for job in created} <= {pod.node for pod in world.pods.values()}
        if created or reason == "PullingImages":
            assert reason == "PullingImages" or plan.look
            assert not [delete for delete in plan.delete if delete.kind in ("StatefulSet", "Deployment", "Pod")]
            assert not [patch for patch in plan.patch if patch.body["metadata"]["annotations"].get(keys.DRAINING)]

    world.watcher = check


@STORY
@given(SHAPES, seeds, st.integers(1, 4), EDITS)
def test_waits_for_image_pulls_end_and_no_group_is_removed_meanwhile(
    shape: Shape, seed: int, limit: int, edits: list[str]
) -> None:
    world = serving(shape, seed=seed, limit=limit)
    fates = {name: world.chance.choice([PULLED, PULLED, LOST, STUCK, PODLESS]) for name in world.deps.nodes}
    world.answer = lambda name: fates[name]
    watched(world, limit)
    for image in (NEW, *edits):
        world.rolls_to(replace(shape, image=image))
        for _ in range(world.chance.randrange(12)):
            if world.chance.random() < 0.1:
                world.restart()
            if world.chance.random() < 0.1 and (alive := sorted(world.living_pods())):
                world.lose(world.chance.choice(alive))
            world.run(1)
    began = world.now
    for _ in range(400):
        world.run(1)
        waits = world.condition("RolledOut")["reason"] == "PullingImages"
        assert not waits or world.now - began <= LONGEST
        if world.condition("RolledOut")["status"] == "True":
            break
    assert world.condition("RolledOut")["status"] == "True"
    world.run(3)
    assert "could not pull" not in world.condition("Advice").get("message", "")
