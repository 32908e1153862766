"""Tests of next steps that name a toleration, or the way back to a complete revision."""

from dataclasses import replace
from typing import Any

import pytest

from ome_operator.describe.diagnosis import find_trouble, next_step
from ome_operator.describe.tree import tree
from tests.support import parts
from tests.support.simulator import World
from tests.unit.describe.test_diagnosis import FULL, asked
from tests.unit.describe.test_tree import body, grown


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            FULL,
            "free GPUs (who holds them: ome nodes), add a toleration of ome.io/real to spec.decoder.tolerations (if",
        ),
        ("0/2 nodes are available: 2 node(s) had untolerated taint {a/b: c}.", "add a toleration of a/b to"),
        ("0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.", ""),
        ("0/2 nodes are available: 2 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }.", ""),
        ("0/2 nodes are available: 2 node(s) had untolerated taint(s).", ""),
    ],
)
def test_toleration_of_the_named_taint_is_suggested(message: str, said: str) -> None:
    world = grown(World(*parts.kimi(), seed=1))
    (one,) = asked(world, ready=False, reason="Unschedulable", message=message).pods
    assert one.next.startswith(said) and ("toleration of" in one.next) is bool(said)


@pytest.mark.parametrize(
    ("role", "component"), [("decode", "decoder"), ("prefill", "engine"), ("engine", "engine"), ("router", "router")]
)
def test_condition_that_names_a_taint_suggests_the_toleration(role: str, component: str) -> None:
    world = grown(World(*parts.kimi(), seed=1))
    message = f"{role} needs 2 nodes without the taint dedicated=team:NoSchedule: no node is without it"
    found = next_step("DoesNotFit", message, tree(body(world), world.observed()))
    assert found.startswith(
        f"add a toleration of dedicated to spec.{component}.tolerations (if the pods may use such nodes), "
    )
    assert found.endswith("ome.io/ignore-fit=true")


def test_undo_is_suggested_if_the_new_revision_may_be_the_cause() -> None:
    """`ome undo` is suggested if the pods have a reason that may come from the new revision, such as a wrong image. It is
    not suggested for other reasons, for a pinned revision, or if there is no earlier complete revision.
    """
    world = grown(World(*parts.kimi(), seed=1))
    one, observed = body(world), world.observed()

    def offered(reason: str, back: str, **changes: Any) -> str:
        pods = tuple(pod._replace(ready=False, reason=reason) for pod in observed.pods)
        seen = replace(tree(one, replace(observed, pods=pods)), **changes)
        return find_trouble(seen, one["status"]["conditions"], (), back=back).back

    for reason in ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CrashLoopBackOff", "OOMKilled", "Error"):
        assert offered(reason, "old") == (
            f"revision old was complete before; to go back to this revision: ome undo {one['metadata']['name']} -n "
            f"{one['metadata']['namespace']}"
        )
    for reason in ("Starting", "Unschedulable", "NodeLost", "NotReady", "NotCreated"):
        assert offered(reason, "old") == ""
    assert offered("ImagePullBackOff", "") == "" == offered("ImagePullBackOff", "old", pin="old")
    assert offered("ImagePullBackOff", "old", revision="other") == ""
