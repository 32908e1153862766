"""Edits, faults and repairs happen in any order. A working slice is never removed for a slice that cannot start, and
everything recovers in the end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core.observed.objects import Deps, Ref
from ome_operator.core.reconcile.plan import Plan
from tests.conftest import STORY
from tests.support import parts
from tests.support.live import Live
from tests.support.shapes import Shape, edit, grow, lags, reshape, seeds, shapes
from tests.support.simulator import World

RUNTIME = Ref("ClusterServingRuntime", "", "rt")


@dataclass
class Story:
    """Stores the current faults of a service, and checks what must not happen during these faults."""

    world: World
    shape: Shape
    model: bool = True
    runtime: str = "good"
    refused: bool = False
    revisions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world.watcher = self.watch
        self.world.verdict = lambda _: "spec.template: Forbidden" if self.refused else ""

    @property
    def closed(self) -> bool:
        """Return whether a fault or a pause currently forbids the replacement of pods, whatever the target is."""
        wrong = not self.model or self.runtime == "gone" or self.runtime == "invalid"
        return self.shape.paused or (wrong and not self.shape.pin)

    def waits(self, target: str) -> bool:
        """Return whether the service may not use edits of its runtime yet, and the target has another version of the
        runtime than a slice that exists.
        """
        stored = {
            one.labels[keys.REVISION]: one.manifest["data"]["inputs"]["runtime"]
            for one in self.world.children.values()
            if one.key[0] == "ControllerRevision"
        }
        here = {one.labels.get(keys.REVISION) for one in self.world.children.values() if one.key[0] == "StatefulSet"}
        return not self.world.may_roll and any(stored.get(str(one)) != stored.get(target) for one in here)

    def watch(self, plan: Plan) -> None:
        """Check that nothing of a slice is removed while replacements are forbidden, unless the target slice
        already serves.
        """
        target = str(plan.status.get("revision", "")).rpartition("→")[2]
        if target and target not in self.revisions:
            self.revisions.append(target)
        running = any(
            one.key[0] == "StatefulSet" and keys.WORKER_INDEX in one.labels and one.labels[keys.REVISION] == target
            for one in self.world.children.values()
        )
        if not (self.closed or self.waits(target)) or running:
            return
        for delete in plan.delete:
            found = self.world.children.get((delete.kind, delete.name))
            assert found is None or self.spare(found, plan), f"leader {delete.name} goes at a closed gate"
            taken_out = delete.kind == "Deployment" and not self.shape.router  # the user has removed it
            assert delete.kind != "Deployment" or taken_out, f"router {delete.name} goes at a closed gate"

    def spare(self, found: Live, plan: Plan) -> bool:
        """Return whether the object may be deleted: it is no leader, or its slice keeps as many groups of the role as the
        user currently requests.
        """
        if found.key[0] != "StatefulSet" or keys.WORKER_INDEX not in found.labels:
            return True
        role = found.labels[keys.COMPONENT]
        had = {one.key[1] for one in self.world.children.values() if one.labels == {**found.labels, **_group(one)}}
        goes = {delete.name for delete in plan.delete if delete.kind == "StatefulSet"}
        return len(had - goes) >= (self.shape.engines if role == keys.ENGINE else len(had))

    def tell(self) -> None:
        """Put the current spec, runtime and model into the simulated world."""
        self.world.edit(self.shape.service(), self.deps())

    def deps(self) -> Deps:
        """Return the current model and runtime."""
        found = self.shape.deps(model=self.model, runtime=self.runtime != "gone")
        if self.runtime == "invalid":
            return replace(found, runtimes={RUNTIME: parts.invalid_runtime()})
        return found

    def heal(self) -> None:
        """Remove every fault."""
        self.model, self.runtime, self.refused = True, "good", False
        self.shape = replace(self.shape, paused=False, pin="")
        self.world.may_roll = True
        self.world.restart()
        self.tell()


def _group(one: Live) -> dict[str, str]:
    return {keys.GROUP_INDEX: one.labels.get(keys.GROUP_INDEX, "")}


def _pause(story: Story, value: int) -> None:
    story.shape = replace(story.shape, paused=bool(value & 1))


def _pin(story: Story, value: int) -> None:
    known = ["", "00000000", *story.revisions]
    story.shape = replace(story.shape, pin=known[value % len(known)])


def _model(story: Story, value: int) -> None:
    story.model = bool(value & 1)


def _runtime(story: Story, value: int) -> None:
    story.runtime = ("good", "gone", "invalid", "good")[value % 4]


def _refuse(story: Story, value: int) -> None:
    story.refused = bool(value & 1)
    story.world.checks = {}


def _turn(story: Story, value: int) -> None:
    story.world.may_roll = bool(value & 1)


def _restart(story: Story, _: int) -> None:
    story.world.restart()


EVENTS: list[Callable[[Story, int], None]] = [
    edit, grow, reshape, _pause, _pin, _model, _runtime, _refuse, _turn, _restart,
]  # fmt: skip
stories = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 7), st.integers(0, 12)), max_size=12)


@STORY
@given(shapes(engines=st.integers(1, 3), scaled=False), stories, seeds, lags)
def test_serving_slice_is_kept_and_the_service_recovers(shape: Shape, events: list, seed: int, lag: int) -> None:  # type: ignore[type-arg]
    world = World(shape.service(), shape.deps(), seed)
    world.lag = lag
    story = Story(world, shape)
    for event, value, passes in events:
        event(story, value)
        story.tell()
        world.run(passes)
    story.heal()
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("RolledOut")["status"] == "True"
    assert len(world.living_pods()) == story.shape.pods
    assert {one.labels[keys.REVISION] for one in world.pods.values()} == {world.service.status["revision"]}


REASONS = {
    "model": ("ModelReady", "BaseModelNotFound"),
    "gone": ("RuntimeReady", "RuntimeNotFound"),
    "invalid": ("RuntimeReady", "InvalidRuntime"),
    "paused": ("RolledOut", "Paused"),
    "turn": ("RolledOut", "WaitingForTurn"),
    "refused": ("RolledOut", "DryRunRefused"),
    "pin": ("RolledOut", "RevisionNotFound"),
}


@STORY
@given(
    shapes(engines=st.integers(1, 2), scaled=False),
    shapes(engines=st.integers(1, 2), scaled=False, image="b"),
    st.sampled_from(sorted(REASONS)),
    seeds,
    lags,
)
def test_closed_gate_keeps_all_pods_and_the_url(old: Shape, new: Shape, cause: str, seed: int, lag: int) -> None:
    """While a fault forbids replacements, the same pods continue to serve at the URL, whatever shape the user requests."""
    world = World(old.service(), old.deps(), seed)
    world.settle()
    pods, url, front = world.living_pods(), world.service.status["url"], world.children["Service", "svc"].manifest["spec"]
    new = replace(new, engines=old.engines, decoders=new.decoders and (old.decoders or new.decoders))
    if old.decoders == 0 and new.decoders == 0 and old.router != new.router:
        new = replace(new, router=old.router)  # a change of the router alone creates no new revision
    if old.decoders and new.decoders:
        new = replace(new, router=old.router)
    story = Story(world, new)
    story.model, story.refused, world.may_roll = cause != "model", cause == "refused", cause != "turn"
    story.runtime = cause if cause in ("gone", "invalid") else "good"
    story.shape = replace(new, paused=cause == "paused", pin="00000000" if cause == "pin" else "")
    world.lag = lag
    story.tell()
    world.settle()
    assert world.living_pods() == pods
    assert world.service.status["url"] == url
    assert world.children["Service", "svc"].manifest["spec"] == front
    type_, reason = REASONS[cause]
    assert (world.condition(type_)["status"], world.condition(type_)["reason"]) == ("False", reason)
    assert world.condition("Ready")["status"] == "True"
    story.heal()
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert len(world.living_pods()) == story.shape.pods


@STORY
@given(
    shapes(engines=st.integers(1, 2), scaled=False),
    st.integers(1, 25),
    st.sampled_from(["paused", "model", "turn"]),
    seeds,
    lags,
)
def test_service_keeps_serving_whenever_a_rollout_is_stopped(
    shape: Shape, passes: int, cause: str, seed: int, lag: int
) -> None:
    """A rollout is stopped by faults or pauses. If the new slice has not started, the old slice is completed again, and it
    is removed only after the rollout can proceed. If a pause stops a rollout midway, both slices serve, and missing groups
    are created.
    """
    world = World(shape.service(), shape.deps(), seed)
    world.settle()
    story = Story(world, replace(shape, image="b"))
    world.lag = lag
    story.tell()
    world.run(passes)
    story.model, world.may_roll = cause != "model", cause != "turn"
    story.shape = replace(story.shape, paused=cause == "paused")
    story.tell()
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    revisions = {one.labels[keys.REVISION] for one in world.pods.values()}
    assert len(world.living_pods()) == shape.pods or (cause == "paused" and len(revisions) == 2)
    assert len(world.living_pods("engine")) >= shape.engines * shape.size
    assert len(world.living_pods("decoder")) >= shape.decoders * shape.size
    story.heal()
    world.settle()
    assert world.condition("RolledOut")["status"] == "True"
    assert world.service.status["revision"] in {one.labels[keys.REVISION] for one in world.pods.values()}
