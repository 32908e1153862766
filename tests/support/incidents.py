"""Recordings of the faults of docs/faults.md, from the simulated cluster: `python -m tests.support.incidents` writes them.

Faults that change nothing of what a pass sees (a write is cut off, the API server is gone) cannot be made here.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ome_operator.core.observed.objects import Node, Observed, Ref, Refusal, Termination
from ome_operator.core.plan import Plan
from ome_operator.core.sync import sync
from ome_operator.recorder import recording
from ome_operator.recorder.passes import Around, Ear
from ome_operator.recorder.store import Recorder
from tests.support.live import Live
from tests.support.shapes import Shape
from tests.support.simulator import World

FOLDER = Path(__file__).parents[1] / "incidents"
SERVICE = Ref("InferenceService", "team", "svc")
Change = Callable[[Observed], Observed]
BEFORE, AFTER = 2, 16
"""Passes that are kept before and after the fault."""


class Story:
    """A service whose passes are recorded, as an operator would."""

    def __init__(self, shape: Shape, seed: int = 1) -> None:
        self.world = World(shape.service(), shape.deps(), seed)
        self.kept, self.around = Recorder(2**30, BEFORE + AFTER), Around()
        self.change: Change = lambda observed: observed
        """What the fault makes of what passes see."""

    def passes(self, count: int) -> None:
        """So many passes, with steps of the cluster in between."""
        for _ in range(count):
            plan = self.look()
            self.world.carry_out(plan)
            self.world.step()

    def look(self) -> Plan:
        """A pass that is not carried out."""
        world = self.world
        ear = Ear(world.service, world.deps, self.change(world.observed()))
        plan = sync(world.service, ear.deps, ear.observed, world.now)
        self.kept.add(SERVICE, ear.heard(world.now, plan, self.around))
        return plan

    def file(self, why: str) -> bytes:
        """The recording."""
        passes = self.kept.of(SERVICE)
        return recording.encoded(recording.written({"team/svc": passes}, "0", why, datetime(2026, 1, 1, tzinfo=UTC)), True)

    def leader(self, group: int = 0) -> str:
        """Name of the leader of a group of the engine."""
        return next(
            pod.name for pod in self.world.pods.values() if pod.group == group and pod.rank == 0 and _engine(pod.name)
        )

    def child(self, kind: str) -> Live:
        """The first object of a kind."""
        return next(child for child in self.world.children.values() if child.key[0] == kind)


def _engine(name: str) -> bool:
    return "-engine-" in name


USUAL = Shape(size=2, engines=2, decoders=1)


def settled(shape: Shape = USUAL) -> Story:
    """A service that is Ready, with the passes before the fault."""
    story = Story(shape)
    story.world.settle()
    story.passes(BEFORE)
    return story


def operator_killed() -> Story:
    """In the middle of a rollout: what passes had learned is forgotten."""
    story = settled(Shape(size=2, engines=2, strategy="surge"))
    story.world.edit(deps=Shape(size=2, engines=2, strategy="surge", image="b").deps())
    story.passes(4)
    story.world.restart()
    story.passes(12)
    return story


def requests_fail() -> Story:
    """The API server refuses the Service of a new service, then takes it."""
    story = Story(Shape())
    key = ("Service", "svc")
    story.change = lambda seen: replace(seen, refusals={**seen.refusals, key: Refusal("ServerError", "HTTP 503: try later")})
    story.passes(3)
    story.change = lambda seen: seen
    story.passes(9)
    return story


def watches_lag() -> Story:
    """Pods are seen as they were up to three steps ago, while a rank is lost."""
    story = settled()
    story.world.lag = 3
    story.world.lose(story.leader())
    story.passes(AFTER)
    return story


def clock_jumps_ahead() -> Story:
    """By two days, while a group starts again."""
    story = settled()
    story.world.lose(story.leader())
    story.passes(2)
    story.world.now += timedelta(days=2)
    story.passes(2)
    story.world.now -= timedelta(days=2)
    story.passes(12)
    return story


def two_operators() -> Story:
    """Another manager writes the status: hands off, until it is gone."""
    story = settled()
    story.change = lambda seen: replace(seen, another="manager")
    story.passes(3)
    story.change = lambda seen: seen
    story.passes(3)
    return story


def stranger_edits_the_router() -> Story:
    """A Deployment is not as applied any more."""
    story = settled()
    story.child("Deployment").owned = "edited"
    story.passes(4)
    return story


def stranger_deletes_a_stateful_set() -> Story:
    """That of the workers of a group."""
    story = settled()
    key = next(key for key in story.world.children if key[0] == "StatefulSet" and key[1].endswith("-0-w"))
    del story.world.children[key]
    story.passes(AFTER)
    return story


def stranger_has_the_name() -> Story:
    """A Service of somebody else has the name that the service needs."""
    story = Story(Shape())
    metadata = {"name": "svc", "labels": {}}
    story.world.children["Service", "svc"] = Live({"kind": "Service", "metadata": metadata}, "theirs", 1, "somebody", "", "")
    story.passes(8)
    return story


def node_lost() -> Story:
    """The node of a leader does not report any more, and its pod is told to go."""
    story = settled()
    for number, pod in enumerate(story.world.pods.values()):
        pod.node = f"node-{number}"
    labels = {"models.ome.io/clusterbasemodel.tiny": "Ready"}
    nodes = {pod.node: Node(pod.node, 1, labels, True, 8) for pod in story.world.pods.values()}
    story.world.edit(deps=replace(story.world.deps, nodes=nodes))
    story.passes(2)
    lost = story.world.pods[story.leader()]
    story.world.edit(
        deps=replace(story.world.deps, nodes={**nodes, lost.node: Node(lost.node, 2, labels, False, 8, alive=False)})
    )
    story.world.lose(lost.name)
    story.change = lambda seen: _changed(seen, lost.uid, ends=story.world.now.isoformat())
    story.passes(12)
    return story


def template_edited() -> Story:
    """A stranger edits the template of a StatefulSet while a rank is lost: its new pod is made of another template."""
    story = settled()
    lost, old = story.leader(), {pod.uid for pod in story.world.pods.values()}

    def change(seen: Observed) -> Observed:
        children = {
            key: child._replace(template="edited" if lost.startswith(key[1]) else "first")
            if key[0] == "StatefulSet"
            else child
            for key, child in seen.children.items()
        }
        pods = tuple(pod._replace(template="first" if pod.uid in old else "edited") for pod in seen.pods)
        return replace(seen, children=children, pods=pods)

    story.change = change
    story.world.lose(lost)
    story.passes(AFTER)
    return story


def _rank(how: str) -> Callable[[], Story]:
    def story() -> Story:
        found = settled()
        name = found.leader(1) if how == "hang" else found.leader(1).replace("-1-0", "-1-w-1")
        uid, began = found.world.pods[name].uid, found.world.now.isoformat()
        ending = Termination("engine", "OOMKilled", 137, "CUDA out of memory", began)
        facts = {
            "exit": {"restarts": 1, "ending": ending},
            "hang": {"ready": False, "probed": True, "reason": "NotReady", "message": "readiness probe failed"},
            "eviction": {"over": True, "running": False, "ready": False, "reason": "Evicted", "message": "low on memory"},
        }[how]
        found.change = lambda seen: _changed(seen, uid, **facts)
        for _ in range(AFTER // 4):
            found.passes(4)
            found.world.now += timedelta(minutes=2)
        return found

    return story


def _changed(seen: Observed, uid: str, **facts: object) -> Observed:
    return replace(seen, pods=tuple(pod._replace(**facts) if pod.uid == uid else pod for pod in seen.pods))


def drained() -> Story:
    """Somebody deletes the pods of a group."""
    story = settled()
    for name in [name for name, pod in story.world.pods.items() if pod.group == 1 and _engine(name)]:
        story.world.lose(name)
    story.passes(AFTER)
    return story


INCIDENTS: dict[str, Callable[[], Story]] = {
    "operator-killed": operator_killed,
    "requests-fail": requests_fail,
    "watches-lag": watches_lag,
    "clock-jumps": clock_jumps_ahead,
    "two-operators": two_operators,
    "stranger-edits-router": stranger_edits_the_router,
    "stranger-deletes-workers": stranger_deletes_a_stateful_set,
    "stranger-has-the-name": stranger_has_the_name,
    "node-lost": node_lost,
    "template-edited": template_edited,
    "rank-exits": _rank("exit"),
    "rank-hangs": _rank("hang"),
    "rank-evicted": _rank("eviction"),
    "group-drained": drained,
}
"""Name of the file -> what happens. The rows of docs/faults.md that passes can see."""


def files() -> Iterator[tuple[str, bytes]]:
    """Name and content of each recording."""
    for name, make in INCIDENTS.items():
        yield f"{name}.json.gz", make().file(f"docs/faults.md: {name}")


if __name__ == "__main__":
    for name, content in files():
        (FOLDER / name).write_bytes(content)
