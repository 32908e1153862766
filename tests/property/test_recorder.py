"""For every story of a service, a recording of its reconciliations leads to the same decisions when it is replayed from a
file on another machine.
"""

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from ome_operator.core.observed.objects import Ref
from ome_operator.core.reconcile.sync import sync
from ome_operator.recorder import recording, replay
from ome_operator.recorder.passes import PassRecorder, SharedNodes
from ome_operator.recorder.store import Recorder
from tests.conftest import SOAK
from tests.support.shapes import Shape, seeds, shapes
from tests.support.simulator import World

REF = Ref("InferenceService", "team", "svc")


@settings(max_examples=25 if SOAK else 10)
@given(
    shapes(),
    shapes(),
    st.lists(st.sampled_from(["pass", "pass", "pass", "edit", "lose", "model", "runtime"]), max_size=14),
    seeds,
)
def test_replayed_recording_gives_the_same_decisions(shape: Shape, other: Shape, story: list[str], seed: int) -> None:
    world, kept, around = World(shape.service(), shape.deps(), seed), Recorder(2**30), SharedNodes()
    for happens in ["pass", *story, "pass"]:
        if happens == "edit":
            world.edit(other.service(), other.deps())
        elif happens == "lose" and world.pods:
            world.lose(next(iter(world.pods)))
        elif happens in ("model", "runtime"):
            world.edit(deps=shape.deps(model=happens != "model", runtime=happens != "runtime"))
        recorder = PassRecorder(world.service, world.deps, world.observed())
        plan = sync(world.service, recorder.deps, recorder.observed, world.now)
        kept.add(REF, recorder.finish_pass(world.now, plan, around))
        world.carry_out(plan)
        world.step()
    data = recording.to_json({"team/svc": kept.passes_of(REF)}, "0", "", datetime(2026, 1, 1, tzinfo=UTC))
    found = recording.decode(recording.encode(data, False))
    told = {step.number: step.other for step in replay.replay(found.services["team/svc"], False) if step.other}
    assert not told
