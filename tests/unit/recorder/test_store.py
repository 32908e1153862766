"""Tests of which passes are kept, with a limit in bytes over all services."""

import gc
import tracemalloc
from dataclasses import replace
from datetime import timedelta

import pytest

from ome_operator.core.observed.objects import Node, Observed, Ref
from ome_operator.core.reconcile.sync import sync
from ome_operator.recorder.passes import Pass, PassRecorder, SharedNodes, relevant_nodes
from ome_operator.recorder.store import PASSES, Recorder
from tests.support.parts import change_deps
from tests.support.shapes import Shape
from tests.support.simulator import World

SHAPE = Shape(size=2, engines=2, decoders=1)
WORLD = World(SHAPE.service(), SHAPE.deps(), 1)
WORLD.settle()
SEEN = WORLD.observed()
AROUND = SharedNodes()


def ref(number: int) -> Ref:
    return Ref("InferenceService", "team", f"s{number}")


def made(number: int, uid: str = "u", seen: Observed = SEEN) -> Pass:
    """Return a pass in which the message of a pod differs from that in the previous pass."""
    first, *others = seen.pods
    pods = (first._replace(version=number, message=f"{number:>05}", reason="Starting", ready=False), *others)
    service, now = replace(WORLD.service, uid=uid), WORLD.now + timedelta(seconds=number)
    recorder = PassRecorder(service, WORLD.deps, replace(seen, pods=pods))
    return recorder.finish_pass(now, sync(service, recorder.deps, recorder.observed, now), AROUND)


def test_last_reconciliations_of_a_service_are_kept_in_order() -> None:
    kept = Recorder(2**30)
    for number in range(PASSES + 5):
        kept.add(ref(0), made(number))
    assert [found.observed.pods[0].version for found in kept.passes_of(ref(0))] == list(range(5, PASSES + 5))


def test_equal_reconciliations_are_kept_once() -> None:
    kept = Recorder(2**30)
    for _ in range(3):
        kept.add(ref(0), made(1)._replace(now=WORLD.now))
    later = made(1)._replace(now=WORLD.now + timedelta(seconds=9))
    kept.add(ref(0), later)
    (found,) = kept.passes_of(ref(0))
    assert (found.times, found.now) == (4, later.now)


def test_recordings_of_a_recreated_or_deleted_service_are_dropped() -> None:
    kept = Recorder(2**30)
    kept.add(ref(0), made(1))
    kept.add(ref(0), made(2, "other"))
    assert [found.service.uid for found in kept.passes_of(ref(0))] == ["other"]
    kept.forget(ref(0))
    assert (len(kept), kept.bytes, kept.services()) == (0, 0, ())


def test_total_size_is_limited_and_largest_service_loses_first() -> None:
    kept, passes = Recorder(600_000), [made(number) for number in range(200)]
    for quiet in range(10):
        kept.add(ref(quiet), passes[quiet])
    for number in range(100):
        kept.add(ref(99), passes[number])
        assert kept.bytes <= 600_000
    assert len(kept.passes_of(ref(99))) > 2
    assert all(len(kept.passes_of(ref(quiet))) == 1 for quiet in range(10)), "a busy service takes nothing from the others"
    for number, each in enumerate(passes):
        kept.add(ref(number), each)
        assert kept.bytes <= 600_000
    assert len(kept) > 50


def test_recorder_with_limit_zero_keeps_nothing() -> None:
    kept = Recorder(0)
    kept.add(ref(0), made(1))
    assert (len(kept), kept.bytes) == (0, 0)


def test_shared_node_table_is_counted_once_and_freed_with_the_last_user() -> None:
    nodes = {f"n{number}": Node(f"n{number}", 1, {}, True, 8) for number in range(1000)}
    kept, around, deps = Recorder(2**30), SharedNodes(), replace(WORLD.deps, nodes=nodes)

    def looked() -> Pass:
        recorder = PassRecorder(WORLD.service, deps, SEEN)
        return recorder.finish_pass(WORLD.now, sync(WORLD.service, recorder.deps, recorder.observed, WORLD.now), around)

    kept.add(ref(0), looked())
    first = kept.bytes
    kept.add(ref(1), looked())
    assert kept.bytes - first < 10_000 < first
    assert kept.passes_of(ref(0))[0].deps.nodes is kept.passes_of(ref(1))[0].deps.nodes
    nodes["n0"] = nodes["n0"]._replace(version=2)
    assert kept.passes_of(ref(0))[0].deps.nodes["n0"].version == 1, "what the operator changes is copied"
    for number in range(2):
        kept.forget(ref(number))
    assert kept.bytes == 0


@pytest.mark.parametrize("waits", [False, True])
def test_nodes_are_recorded_only_if_the_decision_depends_on_them(waits: bool) -> None:
    """Nodes are stored in a recording only if the decision of the reconciliation depends on them. With gangs, which are on
    by default, a reconciliation of a placed service must not store 5,000 nodes.
    """
    nodes = {f"n{number}": Node(f"n{number}", 1, {}, True, 8) for number in range(10)}
    deps = change_deps(WORLD.deps, nodes=nodes, gang_timeout=60.0)
    stored = {"placement": {"revision": WORLD.service.status["revision"], "waiting": {"engine": 1}, "trying": False}}
    service = replace(WORLD.service, status={**WORLD.service.status, **(stored if waits else {})})
    on = tuple(pod._replace(node=f"n{number % 2}") for number, pod in enumerate(SEEN.pods))
    recorder = PassRecorder(service, deps, replace(SEEN, pods=on))
    found = recorder.finish_pass(WORLD.now, sync(service, recorder.deps, recorder.observed, WORLD.now), SharedNodes())
    assert relevant_nodes(found).keys() == (nodes.keys() if waits else {"n0", "n1"})


def test_computed_size_is_at_least_the_used_memory() -> None:
    """The computed size of the kept recordings is at least the memory that they use. That memory is measured with Python's
    own counters, as the amount that becomes free when the recordings are dropped.
    """
    kept, shared = Recorder(2**30), [made(number) for number in range(2)]
    del shared
    gc.collect()
    tracemalloc.start()
    for service in range(2):
        for number in range(PASSES):
            kept.add(ref(service), made(number))
    counted = kept.bytes
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    for service in range(2):
        kept.forget(ref(service))
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.3 * counted < before - after < 1.1 * counted, (counted, before - after)
