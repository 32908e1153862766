"""Why a service is not ready, alike things together."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator.describe import draw
from ome_operator.describe.diagnosis import EVENTS, Seen, Trouble, lacks, trouble
from ome_operator.describe.tree import tree
from tests.support import parts
from tests.support.simulator import World
from tests.unit.describe.test_tree import body, grown

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FULL = "0/16 nodes are available: 12 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint {ome.io/real: true, a: b}."


def asked(world: World, events: tuple[Seen, ...] = (), **pods: Any) -> Trouble:
    """With all pods of decode otherwise."""
    observed = world.observed()
    changed = tuple(pod._replace(**pods) if pod.component == "decoder" else pod for pod in observed.pods)
    one = body(world)
    return trouble(tree(one, replace(observed, pods=changed)), one["status"]["conditions"], events)


def text(found: Trouble) -> str:
    from rich.console import Console

    screen = Console(width=200, highlight=False)
    with screen.capture() as got:
        for line in draw.trouble(found, NOW):
            screen.print(line)
    return got.get()


def test_pods_that_no_node_takes_are_one_paragraph() -> None:
    world = grown(World(*parts.kimi(), seed=1))
    found = asked(world, ready=False, reason="Unschedulable", message=FULL)
    (one,) = found.pods
    assert (one.role, len(one.pods)) == ("decode", 12)
    assert one.lacks == ("12 nodes: Insufficient nvidia.com/gpu", "4 nodes: had untolerated taint {ome.io/real: true, a: b}")
    assert one.next.endswith("kubectl get nodes -L models.ome.io/clusterbasemodel.kimi-k2-instruct")
    assert "decode  12 pods Unschedulable\n  12 nodes: Insufficient nvidia.com/gpu\n" in text(found)


def test_a_crash_names_the_logs_of_its_group() -> None:
    found = asked(grown(World(*parts.kimi(), seed=1)), ready=False, reason="CrashLoopBackOff", message="out of memory")
    step = "ome logs kimi-k2-instruct -n kimi-k2-instruct --role decode --group 0 --previous"
    assert [one.next for one in found.pods] == [step]
    assert f"→ {step}" in text(found)


@pytest.mark.parametrize("message", ["", "no nodes", "0/3 nodes are available: pod has a claim that waits."])
def test_other_words_of_the_scheduler_stay_as_they_are(message: str) -> None:
    assert lacks(message) == []


def test_conditions_that_pods_do_not_explain_are_told() -> None:
    world = World(parts.service(engine={}), parts.deps(parts.simple(router=False)), seed=1)
    world.carry_out(world.sync())
    found = asked(world)
    assert [(one.condition, one.reason) for one in found.findings] == [("ModelReady", "BaseModelNotFound")]
    assert not found.ready


def test_a_ready_service_has_nothing_to_explain() -> None:
    found = asked(grown(World(*parts.kimi(), seed=1)))
    assert (found.ready, found.findings, found.pods, found.events) == (True, (), (), ())


def test_alike_events_are_counted_and_the_newest_come_first() -> None:
    def seen(minutes: int, message: str, count: int = 1, type_: str = "Warning") -> Seen:
        return Seen(NOW - timedelta(minutes=minutes), type_, "Failed", "Pod a", message, count)

    many = tuple(seen(60 + number, f"old {number}") for number in range(20))
    few = seen(3, "x", 2), seen(2, "y"), seen(9, "x"), seen(1, "z", 1, "Normal")
    found = asked(grown(World(*parts.kimi(), seed=1)), (*few, *many))
    assert [(one.message, one.count) for one in found.events[:2]] == [("y", 1), ("x", 3)]
    assert len(found.events) == EVENTS
    assert "3 min ago  Failed of Pod a (3 times): x" in text(found)
