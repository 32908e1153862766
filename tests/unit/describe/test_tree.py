"""Tests of services as trees, and of their layout in 80 columns."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from ome_operator import keys
from ome_operator.core.observed.objects import Observed, Pod
from ome_operator.core.reasons import State
from ome_operator.describe import draw, overview, states
from ome_operator.describe.tree import Tree, tree
from ome_operator.describe.words import MISSING
from tests.support import parts
from tests.support.simulator import World

OOM = "container ome-container exited with code 1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 98.00 GiB"
FAILED = "container ome of pod p-3 exited with code 9: ValueError: b"


def body(world: World) -> dict[str, Any]:
    """Return the service as the API server returns it."""
    one = world.service
    metadata = {"name": one.name, "namespace": one.namespace, "uid": one.uid, "generation": 1}
    return {"metadata": metadata, "spec": one.spec.dump(), "status": dict(one.status)}


def grown(world: World) -> World:
    """Run passes until the service is complete, and return it."""
    while not world.service.status.get("conditions") or not tree(body(world), world.observed()).ready:
        world.carry_out(world.sync())
        world.step()
    return world


def kimi() -> World:
    return World(*parts.kimi(), seed=1)


def placed(observed: Observed, **changes: dict[str, Any]) -> Observed:
    """Place each pod on its own node, and change the named pods."""
    pods = (
        pod._replace(node=f"h200-{number:02}", **changes.get(pod.name.replace("-", "_"), {}))
        for number, pod in enumerate(observed.pods)
    )
    return replace(observed, pods=tuple(pods))


def drawn(one: Tree, *, ranks: bool = False, width: int = 80) -> str:
    screen = Console(file=io.StringIO(), width=width, highlight=False)
    screen.print(draw.service(one, every=ranks))
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_tree_of_128_gpus_has_nine_lines() -> None:
    world = grown(kimi())
    text = drawn(tree(body(world), placed(world.observed())))
    revision = world.service.status["revision"]
    assert text.splitlines()[:1] == ["✓ kimi-k2-instruct  in kimi-k2-instruct"]
    assert f"└── revision {revision}\n" in text
    assert "    ├── ✓ prefill  1/1 group, 4/4 pods, 32 GPUs\n" in text
    assert "    ├── ✓ decode   1/1 group, 12/12 pods, 96 GPUs\n" in text
    assert "    └── ✓ router   1/1 pod\n" in text
    assert len(text.splitlines()) == 9
    assert len(drawn(tree(body(world), placed(world.observed())), ranks=True).splitlines()) == 9 + 16 + 1


def test_tree_counts_gpus_and_ranks() -> None:
    world = grown(kimi())
    (one,) = tree(body(world), world.observed()).slices
    prefill, decode, router = one.roles
    assert (prefill.role, prefill.wanted, prefill.ready, prefill.pods, prefill.ready_pods) == ("prefill", 1, 1, 4, 4)
    assert prefill.gpus == 32
    assert [rank.rank for rank in decode.groups[0].ranks] == list(range(12))
    assert {rank.gpus for rank in decode.groups[0].ranks} == {8}
    assert (router.wanted, router.ready, router.gpus) == (1, 1, 0)


def test_missing_rank_is_shown_in_its_group() -> None:
    world = grown(kimi())
    observed = world.observed()
    lost = next(pod for pod in observed.pods if pod.component == keys.DECODER and pod.rank == 5)
    found = tree(body(world), replace(observed, pods=tuple(pod for pod in observed.pods if pod is not lost)))
    decode = found.slices[0].roles[1]
    assert (decode.ready, decode.ready_pods, decode.pods) == (0, 11, 12)
    assert decode.groups[0].ranks[5].reason == MISSING
    assert "✗ rank 5  not created yet\n" in drawn(found)


def test_equal_ranks_are_shown_together_with_their_reason() -> None:
    world = grown(kimi())
    observed = world.observed()

    def crashed(pod: Pod) -> Pod:
        bad = pod.component == keys.DECODER and pod.rank in (3, 4, 5, 9)
        return pod._replace(ready=False, reason="CrashLoopBackOff", message=OOM, restarts=4) if bad else pod

    found = tree(body(world), replace(observed, pods=tuple(crashed(pod) for pod in observed.pods)))
    text = " ".join(drawn(found).replace("│", " ").split())
    assert f"✗ ranks 3–5, 9 4 restarts each CrashLoopBackOff: {OOM}" in text
    assert max(len(line) for line in drawn(found).splitlines()) <= 80


def test_many_ready_groups_are_one_line() -> None:
    service = parts.service(engine={"minReplicas": 9}, router={"minReplicas": 2})
    world = grown(World(service, parts.deps(parts.model(), parts.simple(2)), seed=1))
    observed = world.observed()
    names = [pod.name for pod in observed.pods if pod.group == 4 and pod.rank == 1]
    assert len(names) == 1
    pods = tuple(pod._replace(ready=pod.name not in names, reason="Starting") for pod in observed.pods)
    text = drawn(tree(body(world), replace(observed, pods=pods)))
    assert "✓ groups 0–3  8 ranks\n" in text
    assert "✗ group 4  1/2 ranks\n" in text
    assert "✓ groups 5–8  8 ranks\n" in text
    assert "✗ engine  8/9 groups, 17/18 pods, 18 GPUs\n" in text
    assert "✓ router  2/2 pods\n" in text


def test_groups_are_numbered_like_their_statefulsets() -> None:
    """Groups in the tree have the numbers of their StatefulSets, even if a group has no pods. A group that was replaced
    left an unused number.
    """
    world = grown(
        World(parts.service(engine={"minReplicas": 3}, router={}), parts.deps(parts.model(), parts.simple(2)), seed=1)
    )
    leader = next(key for key in world.children if key[0] == "StatefulSet" and key[1].endswith("-1"))
    del world.children[leader]
    world.settle()
    observed = world.observed()
    assert "✓ engine  3/3 groups, 6/6 pods, 6 GPUs\n" in drawn(tree(body(world), observed))
    assert [one.group for one in tree(body(world), observed).slices[0].roles[0].groups] == [0, 2, 3]
    found = tree(body(world), replace(observed, pods=tuple(pod for pod in observed.pods if pod.group != 3)))
    assert [(one.group, one.ready) for one in found.slices[0].roles[0].groups] == [(0, True), (2, True), (3, False)]


def test_both_revisions_are_shown_during_a_rollout() -> None:
    world = grown(World(parts.service(engine={}, router={}), parts.deps(parts.model(), parts.simple()), seed=1))
    old = world.service.status["revision"]
    world.deps = parts.deps(parts.model(), parts.simple(image="engine:2"))
    for _ in range(50):
        world.carry_out(world.sync())
        found = tree(body(world), world.observed())
        if found.revision != old:
            break
    assert old in [one.revision for one in found.slices]
    assert found.revision != old
    assert [one.state for one in found.slices if one.revision == old] == ["old"]


def test_conditions_not_visible_in_pods_are_printed() -> None:
    world = World(parts.service(engine={}), parts.deps(parts.simple(router=False)), seed=1)
    world.carry_out(world.sync())
    found = tree(body(world), world.observed())
    assert found.slices == () and not found.ready
    assert [one.type for one in found.conditions] == ["ModelReady"]
    assert "BaseModelNotFound: ClusterBaseModel tiny does not exist: apply it" in drawn(found, width=200)


def test_a_service_without_status_has_a_tree() -> None:
    found = tree({"metadata": {"name": "new", "namespace": "team"}}, Observed())
    assert not found.ready
    assert "no operator has processed it yet" in drawn(found)
    classed = {"metadata": {"name": "new", "namespace": "team", "labels": {keys.OPERATOR_CLASS: "team-b"}}}
    assert "no operator of the class team-b" in tree(classed, Observed()).message


def test_service_with_missing_groups_shows_url_and_reason() -> None:
    world = grown(kimi())
    short = body(world)
    said = "prefill waits for 4 nodes: 2 are free"
    told = {"Scaled": {"status": "False", "reason": "WaitingForRoom", "message": said}}
    short["status"]["conditions"] = [each | told.get(each["type"], {}) for each in short["status"]["conditions"]]
    found = tree(short, placed(world.observed()))
    assert found.ready and found.missing == ("Scaled", "WaitingForRoom", said)
    assert states.service_state(found, short["status"]["conditions"]) is State.WAITING
    assert [line.strip(" │├└─") for line in drawn(found).splitlines()[1:3]] == [found.url, f"WaitingForRoom: {said}"]
    row = overview.row(found, short)
    assert (row.reason, row.message, row.state) == ("WaitingForRoom", said, State.WAITING)
    whole = tree(body(world), placed(world.observed()))
    assert whole.missing is None and overview.row(whole, body(world)).reason == ""


def test_unprocessed_edit_is_not_shown_as_ready() -> None:
    world = grown(kimi())
    later = body(world)
    later["metadata"]["generation"] = 2
    assert tree(body(world), world.observed()).ready
    found = tree(later, world.observed())
    assert (found.ready, found.reason) == (False, "Outdated")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"phase": "Ready", "recyclesInARow": 1}, f"  recycled 2 times; last failure: {FAILED}\n"),
        ({"phase": "Ready"}, "  recycled 2 times\n"),
        ({"phase": "Recycling"}, f"  Recycling; recycled 2 times; last failure: {FAILED}\n"),
    ],
)
def test_recycles_and_last_failure_of_a_group_are_shown(more: dict[str, Any], said: str) -> None:
    world = grown(kimi())
    one = body(world)
    failure = {"podName": "p-3", "containerName": "ome", "reason": "Error", "exitCode": 9, "message": "a\nValueError: b"}
    group = {"component": "decoder", "revision": one["status"]["revision"], "index": 0}
    one["status"]["groups"] = [{"name": "x", **group, "recycles": 2, "lastFailure": failure, **more}]
    assert f"✓ group 0  12 ranks{said}" in drawn(tree(one, world.observed()), width=200)


def test_tree_shows_the_serving_model() -> None:
    """The model in a tree is the one that serves. Reported: after an edit of the model that could not be rolled out, the
    list showed the model of the edit.
    """
    world = grown(kimi())
    edited = body(world)
    edited["spec"]["model"]["name"] = "another"
    assert edited["status"]["model"] != "another" and tree(edited, world.observed()).model == edited["status"]["model"]
    del edited["status"]["model"]
    assert tree(edited, world.observed()).model == "another", "the status of an operator without this field"


def test_pinned_service_shows_its_revision() -> None:
    world = grown(kimi())
    pinned = body(world)
    pinned["spec"]["rollout"] = {"revision": pinned["status"]["revision"]}
    assert f"pinned to {pinned['status']['revision']} by spec.rollout.revision" in drawn(tree(pinned, world.observed()))
    pinned["spec"]["rollout"] = {"revision": "deadbeef"}
    assert "pinned" not in drawn(tree(pinned, world.observed()))


def test_serving_without_a_service_is_shown_as_a_tree() -> None:
    condition = {"type": "Ready", "status": "False", "reason": "NoRuntimeFits", "message": "no runtime fits"}
    spec = {"baseModel": "kimi-k2-chat", "runtime": "sglang"}
    found = tree(
        {"metadata": {"name": "chat", "namespace": "t"}, "spec": spec, "status": {"conditions": [condition]}}, Observed()
    )
    assert (found.model, found.runtime, found.reason, found.slices) == ("kimi-k2-chat", "sglang", "NoRuntimeFits", ())
    assert "no runtime fits" in drawn(found)
