"""Recordings of the faults in docs/faults.md, made with the simulated cluster: `python -m tests.support.incidents` writes
them.

A recording contains only the inputs of reconciliations. So a fault that does not change these inputs cannot be recorded;
`UNSEEN` lists such faults.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ome_operator.core.observed.objects import Node, Observed, Ref, Refusal, Taint, Termination
from ome_operator.core.reconcile.plan import Plan
from ome_operator.core.reconcile.sync import sync
from ome_operator.recorder import recording
from ome_operator.recorder.passes import PassRecorder, SharedNodes
from ome_operator.recorder.store import Recorder
from tests.support.live import Live, LivePod
from tests.support.shapes import Shape
from tests.support.simulator import World

FOLDER = Path(__file__).parents[1] / "incidents"
SERVICE = Ref("InferenceService", "team", "svc")
Change = Callable[[Observed], Observed]
BEFORE, AFTER = 2, 16
"""Number of reconciliations that are kept before and after the fault."""


class Story:
    """A service whose reconciliations are recorded in the format that an operator writes."""

    def __init__(self, shape: Shape, seed: int = 1) -> None:
        self.world = World(shape.service(), shape.deps(), seed)
        self.kept, self.around = Recorder(2**30, BEFORE + AFTER), SharedNodes()
        self.change: Change = lambda observed: observed
        """Changes the facts that the reconciliations observe, as the fault does."""

    def passes(self, count: int, refused: tuple[str, str] | None = None) -> None:
        """Run this number of reconciliations, and let the simulated cluster act between them. The API server refuses to
        create the object `refused`.
        """
        for _ in range(count):
            plan = self.look()
            taken = tuple(each for each in plan.apply if (each.kind, each.manifest["metadata"]["name"]) != refused)
            self.world.carry_out(replace(plan, apply=taken))
            self.world.step()

    def look(self) -> Plan:
        """Run a reconciliation, but do not carry out its plan."""
        world = self.world
        ear = PassRecorder(world.service, world.deps, self.change(world.observed()))
        plan = sync(world.service, ear.deps, ear.observed, world.now)
        self.kept.add(SERVICE, ear.finish_pass(world.now, plan, self.around))
        return plan

    def file(self, reason: str) -> bytes:
        """Return the content of the recording."""
        passes = self.kept.passes_of(SERVICE)
        return recording.encode(recording.to_json({"team/svc": passes}, "0", reason, datetime(2026, 1, 1, tzinfo=UTC)), True)

    def leader(self, group: int = 0) -> str:
        """Return the name of the leader of an engine group."""
        return next(
            pod.name for pod in self.world.pods.values() if pod.group == group and pod.rank == 0 and _engine(pod.name)
        )

    def child(self, kind: str) -> Live:
        """Return the first object of this kind that the operator has created."""
        return next(child for child in self.world.children.values() if child.key[0] == kind)


def _engine(name: str) -> bool:
    return "-engine-" in name


USUAL = Shape(size=2, engines=2, decoders=1)


def settled(shape: Shape = USUAL) -> Story:
    """Return a story whose service is Ready, with the reconciliations before the fault."""
    story = Story(shape)
    story.world.settle()
    story.passes(BEFORE)
    return story


def operator_killed() -> Story:
    """The operator is killed in the middle of a rollout, and loses everything that its reconciliations have
    kept in memory.
    """
    story = settled(Shape(size=2, engines=2, strategy="surge"))
    story.world.edit(deps=Shape(size=2, engines=2, strategy="surge", image="b").deps())
    story.passes(4)
    story.world.restart()
    story.passes(12)
    return story


def requests_fail() -> Story:
    """The API server refuses the Service of a new service at first, and accepts it later."""
    story, key = Story(Shape()), ("Service", "svc")
    story.passes(1, key)
    story.change = lambda seen: replace(seen, refusals={**seen.refusals, key: Refusal("ServerError", "HTTP 503: try later")})
    story.passes(3, key)
    story.passes(1)  # The request is accepted. The earlier refusal is remembered until then.
    story.change = lambda seen: seen
    story.passes(8)
    return story


def watches_lag() -> Story:
    """Reconciliations see the pods as they were up to three steps ago, and a rank is lost in this time."""
    story = settled()
    story.world.lag = 3
    story.world.lose(story.leader())
    story.passes(AFTER)
    return story


def _clock(jump: timedelta) -> Callable[[], Story]:
    """The clock jumps while a group restarts, and returns to the true time."""

    def story() -> Story:
        found = settled()
        found.world.lose(found.leader())
        found.passes(2)
        found.world.now += jump
        found.passes(2)
        found.world.now -= jump
        found.passes(12)
        return found

    return story


def two_operators() -> Story:
    """Another field manager writes the status of the service. The operator does not write it until the other manager has
    stopped.
    """
    story = settled()
    story.change = lambda seen: replace(seen, another="manager")
    story.passes(3)
    story.change = lambda seen: seen
    story.passes(3)
    return story


def stranger_edits_the_router() -> Story:
    """Another user edits the Deployment of the router."""
    story = settled()
    story.child("Deployment").owned = "edited"
    story.passes(4)
    return story


def stranger_deletes_a_stateful_set() -> Story:
    """Another user deletes the StatefulSet of the workers of a group."""
    story = settled()
    key = next(key for key in story.world.children if key[0] == "StatefulSet" and key[1].endswith("-0-w"))
    del story.world.children[key]
    story.passes(AFTER)
    return story


def stranger_has_the_name() -> Story:
    """A Service of another user has the name that the operator needs for the service."""
    story = Story(Shape())
    metadata = {"name": "svc", "labels": {}}
    story.world.children["Service", "svc"] = Live({"kind": "Service", "metadata": metadata}, "theirs", 1, "somebody", "", "")
    story.passes(8)
    return story


LABELS = {"models.ome.io/clusterbasemodel.tiny": "Ready"}


def _on_nodes() -> tuple[Story, LivePod, dict[str, Node]]:
    """Return three values: the story of a service whose pods are all on nodes, the pod of one of its leaders, and all nodes
    by name.
    """
    story = settled()
    for number, pod in enumerate(story.world.pods.values()):
        pod.node = f"node-{number}"
    nodes = {pod.node: Node(pod.node, 1, LABELS, True, 8) for pod in story.world.pods.values()}
    story.world.edit(deps=replace(story.world.deps, nodes=nodes))
    story.passes(2)
    return story, story.world.pods[story.leader()], nodes


def node_lost() -> Story:
    """The node of a leader stops reporting, and the leader's pod is marked for deletion."""
    story, lost, nodes = _on_nodes()
    silent = Node(lost.node, 2, LABELS, False, 8, alive=False)
    story.world.edit(deps=replace(story.world.deps, nodes={**nodes, lost.node: silent}))
    story.world.lose(lost.name)
    story.change = lambda seen: _changed(seen, lost.uid, ends=story.world.now.isoformat())
    story.passes(12)
    return story


def node_tainted() -> Story:
    """A taint evicts the pod of a leader from its node, and keeps other pods away."""
    story, lost, nodes = _on_nodes()
    taint = Taint("test", "", "NoExecute")
    story.world.edit(
        deps=replace(story.world.deps, nodes={**nodes, lost.node: nodes[lost.node]._replace(version=2, taints=(taint,))})
    )
    story.world.lose(lost.name)
    driven = {
        "ready": False,
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
    }
    story.change = lambda seen: _changed(seen, lost.uid, **driven)
    story.passes(12)
    return story


def node_deleted() -> Story:
    """A Node is deleted because its machine no longer exists, and so the pod on the node is deleted at once."""
    story, lost, nodes = _on_nodes()
    story.world.edit(deps=replace(story.world.deps, nodes={name: nodes[name] for name in nodes if name != lost.node}))
    del story.world.pods[lost.name]
    story.passes(12)
    return story


def template_edited() -> Story:
    """Another user edits the template of a StatefulSet while a rank is lost, so that the new pod has another template."""
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


def _changed(observed: Observed, uid: str, **facts: object) -> Observed:
    return replace(observed, pods=tuple(pod._replace(**facts) if pod.uid == uid else pod for pod in observed.pods))


def rank_deleted() -> Story:
    """A user deletes the pod of a rank above 0."""
    story = settled()
    story.world.lose(story.leader(1).replace("-1-0", "-1-w-1"))
    story.passes(AFTER)
    return story


def drained() -> Story:
    """A user deletes the pods of a group."""
    story = settled()
    for name in [name for name, pod in story.world.pods.items() if pod.group == 1 and _engine(name)]:
        story.world.lose(name)
    story.passes(AFTER)
    return story


INCIDENTS: dict[str, Callable[[], Story]] = {
    "operator-killed": operator_killed,
    "requests-fail": requests_fail,
    "watches-lag": watches_lag,
    "clock-jumps": _clock(timedelta(days=2)),
    "clock-jumps-back": _clock(-timedelta(days=2)),
    "two-operators": two_operators,
    "stranger-edits-router": stranger_edits_the_router,
    "stranger-deletes-workers": stranger_deletes_a_stateful_set,
    "stranger-has-the-name": stranger_has_the_name,
    "node-lost": node_lost,
    "node-tainted": node_tainted,
    "node-deleted": node_deleted,
    "template-edited": template_edited,
    "rank-exits": _rank("exit"),
    "rank-hangs": _rank("hang"),
    "rank-evicted": _rank("eviction"),
    "rank-deleted": rank_deleted,
    "group-drained": drained,
}
"""Name of each file → the function that creates its story."""
ROWS: dict[str, tuple[str, ...]] = {
    "operator killed": ("operator-killed",),
    "requests fail": ("requests-fail",),
    "watches break": ("watches-lag",),
    "clock jumps": ("clock-jumps", "clock-jumps-back"),
    "two operators lead at once": ("two-operators",),
    "other clients edit and delete": ("stranger-edits-router", "stranger-deletes-workers", "stranger-has-the-name"),
    "a node is tainted or deleted": ("node-tainted", "node-deleted", "node-lost"),
    "a template is changed and a rank is lost": ("template-edited",),
    "a group fails, and must be recycled exactly once": (
        "rank-exits",
        "rank-hangs",
        "rank-evicted",
        "rank-deleted",
        "group-drained",
    ),
}
"""Row of docs/faults.md → names of its files."""
UNSEEN: dict[str, str] = {
    "API server killed": "a write without an answer is no part of what a pass sees; that what it sees is old: watches-lag",
    "etcd hangs": "the same",
    "operator suspended until its Lease has expired": (
        "a suspended operator makes no pass, and whether it may send a write is decided below the passes"
    ),
}
"""Row of docs/faults.md without a recording → why the fault does not change the facts of a reconciliation."""


def files() -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each recording."""
    for name, make in INCIDENTS.items():
        yield f"{name}.json.gz", make().file(f"docs/faults.md: {name}")


if __name__ == "__main__":
    for name, content in files():
        (FOLDER / name).write_bytes(content)
