"""Tests that objects of others change no answer although they carry the labels of a service: copies of its objects, the
ControllerRevisions of its StatefulSets, copies of its pods, and pods of other controllers.
"""

import re
from copy import deepcopy
from dataclasses import replace

import pytest

from ome_operator.core.observed.objects import Child, Observed, Pod
from ome_operator.core.reconcile.sync import sync
from tests.support import console
from tests.support.answered import answered
from tests.support.bodies import Cluster, Manifest
from tests.support.heard import hear
from tests.support.shapes import Shape
from tests.support.simulator import World

TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)|\b\d+ ?(s|min|h|d)\b|\"(age|at|seconds)\": [^,]*")
KINDS = ("StatefulSet", "Deployment", "ControllerRevision")


def copied_child(child: Child) -> list[Child]:
    """Return a copy of another owner, a copy without an owner, and for revisions what a StatefulSet stores."""
    copy = child._replace(name=f"{child.name}-copy", uid=f"{child.uid}-copy", version=99, owned="")
    content = {"revision": 99, "data": {"spec": {}}}
    stored = copy._replace(name=f"0-{child.name}", uid=f"{child.uid}-set", owner="uid-of-a-set", content=content)
    return [
        copy._replace(owner="stranger"),
        copy._replace(name=f"a-{child.name}", uid=f"{child.uid}-bare", owner=""),
        *([stored] if child.kind == "ControllerRevision" else []),
    ]


def copied_pod(pod: Pod) -> list[Pod]:
    """Return the copy that `kubectl debug --copy-to` makes with `--keep-labels`, and a pod of another controller."""
    live = pod._replace(version=99, ready=True, running=True, reason="", message="", deleting=False, node="far", gpus=8)
    return [
        live._replace(name=f"{pod.name}-debug", uid=f"{pod.uid}-debug", workload="", workload_uid=""),
        live._replace(name=f"other-{pod.rank}", uid=f"{pod.uid}-other", workload="other", workload_uid="uid-other"),
    ]


def with_foreign(observed: Observed) -> Observed:
    """Return the facts of a pass with copies of every child and pod."""
    copies = [copy for each in observed.children.values() for copy in copied_child(each)]
    children = {**observed.children, **{(copy.kind, copy.name): copy for copy in copies}}
    pods = [copy for each in observed.pods for copy in copied_pod(each)]
    return replace(observed, children=children, pods=(*observed.pods, *pods))


@pytest.mark.parametrize(
    "shape",
    [
        Shape(size=1),
        Shape(size=2, engines=2, router=True),
        Shape(size=2, engines=2, router=True, strategy="blueGreen"),
        Shape(size=1, engines=2, router=True, scaled=True),
    ],
    ids=str,
)
def test_foreign_objects_do_not_change_any_reconciliation(shape: Shape) -> None:
    """Foreign objects change no reconciliation. While a service starts, rolls out an edit and is complete, each pass has
    the same plan with and without the copies of its objects.
    """
    world, passes = World(shape.service(), shape.deps(), 1), 0
    for edit in (lambda: None, lambda: world.edit(deps=replace(shape, image="b").deps())):
        edit()
        for _ in range(40):
            observed = world.observed()
            plan = sync(world.service, world.deps, observed, world.now)
            assert sync(world.service, world.deps, with_foreign(observed), world.now) == plan
            passes += bool(observed.pods)
            world.carry_out(plan)
            world.step()
    assert passes > 40 and world.condition("Ready")["status"] == "True"


def copied_body(body: Manifest) -> list[Manifest]:
    """Return copies of an object that belong to others, as `copied_child` and `copied_pod` do for facts."""
    found = []
    for number, (owner, name) in enumerate((("StatefulSet", "0-{}"), ("InferenceService", "{}-copy"), ("", "{}-debug"))):
        copy = deepcopy(body)
        copy["metadata"] |= {
            "name": name.format(body["metadata"]["name"]),
            "uid": f"{body['metadata']['uid']}-{number}",
            "resourceVersion": "99",
            "ownerReferences": [{"kind": owner, "uid": "uid-other", "controller": True, "name": "other"}] if owner else [],
        }
        if body["kind"] == "ControllerRevision":
            copy["data"] = {"spec": {"template": {"$patch": "replace"}}}
        if body["kind"] == "Pod":
            copy["spec"]["nodeName"] = "h200-21"
        found.append(copy)
    return found


def beside(cluster: Cluster) -> Cluster:
    """Add the copies to the cluster. Routers among the copies answer requests for their summaries, too."""
    for kind in (*KINDS, "Pod"):
        for body in list(cluster.objects[kind]):
            for copy in copied_body(body):
                cluster.add(kind, copy)
                name = body["metadata"]["name"]
                if kind == "Pod" and name in cluster.summaries:
                    cluster.summaries[copy["metadata"]["name"]] = cluster.summaries[name]
    return cluster


COMMANDS = (
    "status -A -o json",
    "status qwen3-coder -n code",
    "top -A -o json",
    "top groups qwen3-coder -n code -o json",
    "nodes -o json",
    "explain qwen3-coder -n code",
    "explain glm-4-6 -n research",
    "history qwen3-coder -n code",
    "scale qwen3-coder -n code -o json",
    "logs qwen3-coder -n code --rank 7",
)


@pytest.mark.parametrize("words", COMMANDS)
def test_foreign_objects_do_not_change_any_command_output(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = hear(console.fleet(kimi=False, hostile=False))
    alone = TIMES.sub("T", answered(there, words, monkeypatch))
    assert "Usage" not in alone and len(alone) > 20
    assert TIMES.sub("T", answered(beside(there), words, monkeypatch)) == alone


def test_foreign_objects_do_not_change_the_pages() -> None:
    cluster = console.fleet(kimi=False, hostile=False)
    alone = cluster.seen().trees
    assert beside(cluster).seen().trees == alone
