"""Ready is True if and only if requests to the URL are answered, whatever is edited, scaled, lost or frozen.

The test computes which pods answer from the objects and pods of the simulated cluster, independently of the operator.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core.observed.objects import Deps
from ome_operator.core.reconcile.plan import Plan
from tests.conftest import STORY
from tests.support.live import LivePod
from tests.support.shapes import Shape, edit, grow, reshape, seeds, shapes
from tests.support.simulator import World

Ranks = dict[tuple[str, str, int], set[int]]


def answers(world: World, plan: Plan) -> bool:
    """Return whether the pods behind the Service answer requests. A Service that the plan creates counts as existing."""
    applied = [one.manifest for one in plan.apply if (one.kind, one.manifest["metadata"]["name"]) == ("Service", "svc")]
    found = world.children.get(("Service", "svc"))
    labels = found.labels if found is not None else applied[0]["metadata"]["labels"] if applied else None
    if labels is None:
        return False
    routed = labels[keys.COMPONENT] == keys.ROUTER
    uids = {one.uid for one in world.children.values() if one.key[0] == "StatefulSet"}
    ranks: Ranks = {}
    for pod in world.pods.values():
        if pod.ready and not pod.deleting and pod.workload_uid in uids:
            ranks.setdefault((pod.labels[keys.REVISION], pod.labels[keys.COMPONENT], pod.group), set()).add(pod.rank)
    drained = {_group(pod) for pod in world.pods.values() if routed and pod.draining}
    for revision, roles in _roles(world).items():
        routers = any(
            _group(pod)[:2] == (revision, keys.ROUTER) and pod.ready and not pod.deleting for pod in world.pods.values()
        )
        whole = {
            name
            for name, size in roles.items()
            for group, ready in ranks.items()
            if group[:2] == (revision, name) and len(ready) == size and group not in drained
        }
        if roles and whole == roles.keys() and (routers or not routed):
            return True
    return False


def _group(pod: LivePod) -> tuple[str, str, int]:
    return pod.labels[keys.REVISION], pod.labels[keys.COMPONENT], pod.group


def _roles(world: World) -> dict[str, dict[str, int]]:
    """Return the number of pods in a group of each role of each stored revision."""
    stored = [one for one in world.children.values() if one.key[0] == "ControllerRevision"]
    return {
        one.labels[keys.REVISION]: {name: role["size"] for name, role in one.manifest["data"]["workloads"].items()}
        for one in stored
    }


@dataclass
class Story:
    """A service and the events that happen to it. Every pass is checked."""

    world: World
    shape: Shape
    frozen: bool = False
    serving: int = 0
    """Number of passes with Ready True."""
    short: int = 0
    """Number of passes with Ready True and Scaled False."""

    def __post_init__(self) -> None:
        self.world.watcher = self.watch

    def watch(self, plan: Plan) -> None:
        """Check the condition Ready against the pods and the Service that exist at this moment."""
        told = {each["type"]: each for each in plan.status["conditions"]}
        ready, scaled = told["Ready"]["status"] == "True", told.get("Scaled", {}).get("status") == "True"
        assert ready == answers(self.world, plan), (told["Ready"], told.get("Scaled"), self.world.log[-10:])
        assert ready == (told["Ready"]["reason"] == "Serving")
        self.serving += ready
        self.short += ready and not scaled

    def tell(self) -> None:
        """Put the current spec, runtime and freeze state into the cluster."""
        held: dict[str, str] = {keys.FREEZE: "true"} if self.frozen else {}
        self.world.edit(replace(self.shape.service(), annotations=held), self.deps())

    def deps(self) -> Deps:
        """Return the objects that the service refers to."""
        return self.shape.deps()


def _lose(story: Story, value: int) -> None:
    if names := sorted(story.world.pods):
        story.world.lose(names[value % len(names)])


def _sick(story: Story, value: int) -> None:
    """Let some of the pods that start from now on never become ready, as if nodes were short."""
    story.world.healthy = lambda pod: hash((pod.uid, value)) % 2 == 0 if value & 1 else True


def _scale(story: Story, value: int) -> None:
    for (kind, _), item in story.world.children.items():
        if kind == "RoleScale":
            item.manifest["spec"]["replicas"] = 1 + value % 3


def _freeze(story: Story, value: int) -> None:
    story.frozen = bool(value & 1)


def _pause(story: Story, value: int) -> None:
    story.shape = replace(story.shape, paused=bool(value & 1))


def _restart(story: Story, _: int) -> None:
    story.world.restart()


EVENTS: list[Callable[[Story, int], None]] = [edit, grow, reshape, _lose, _sick, _scale, _freeze, _pause, _restart]
events = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 7), st.integers(0, 12)), max_size=10)


@STORY
@given(shapes(engines=st.integers(1, 3)), st.booleans(), events, seeds)
def test_ready_is_true_if_and_only_if_the_service_answers(shape: Shape, up: bool, during: list, seed: int) -> None:  # type: ignore[type-arg]
    world = World(shape.service(), shape.deps(), seed)
    story = Story(world, shape)
    if up:
        world.settle()
    for event, value, passes in during:
        event(story, value)
        story.tell()
        world.run(passes)
    story.frozen, story.shape, world.healthy = False, replace(story.shape, paused=False), lambda _: True
    story.tell()
    world.settle(800)
    assert {name: world.condition(name)["status"] for name in ("Ready", "Scaled", "RolledOut")} == {
        "Ready": "True", "Scaled": "True", "RolledOut": "True",
    }  # fmt: skip


@STORY
@given(st.integers(1, 3), st.integers(0, 2), st.booleans(), st.integers(1, 3), seeds)
def test_unavailable_additional_groups_do_not_affect_readiness(
    engines: int, decoders: int, router: bool, size: int, seed: int
) -> None:
    """A user requests more groups than the nodes can hold. The service stays Ready in every reconciliation, and the
    condition Scaled reports the missing groups.
    """
    shape = Shape(size=size, engines=engines, decoders=decoders, router=router)
    world = World(shape.service(), shape.deps(), seed)
    world.settle()
    story = Story(world, replace(shape, engines=engines + 1))
    here = {pod.uid for pod in world.pods.values()}
    world.healthy = lambda pod: pod.uid in here
    story.tell()
    before = story.serving
    world.run(12)
    assert story.serving == before + 12 and story.short >= 10
    assert world.condition("Scaled")["status"] == "False" and world.service.status["url"]
