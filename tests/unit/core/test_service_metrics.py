"""Tests of the metrics of a service."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator import keys
from ome_operator.core import service_metrics
from ome_operator.core.observed import from_api
from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.times import Times
from ome_operator.core.recovery import record
from ome_operator.core.render.statefulsets import StoredRole, roles_by_component
from ome_operator.core.service_metrics import OTHER, PARTS, REASONS
from tests.support import metrics
from tests.support.metrics import condition, group


def pod(**more: Any) -> Pod:
    return from_api.pod(metrics.pod())._replace(**more)


def roles(size: int = 2, gpus: int = 8) -> dict[str, StoredRole]:
    return dict(roles_by_component(metrics.revision(size, gpus)["data"]))


def status(*conditions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"conditions": list(conditions), **more}


def test_pod_record_contains_gpus_and_stage_times() -> None:
    at = [f"2026-01-01T11:{minute:02}:00Z" for minute in (1, 2, 5, 9)]
    assert (pod().gpus, pod().times) == (8, Times(*at))
    bare = metrics.pod()
    bare["status"]["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": at[3]}]
    bare["status"]["containerStatuses"] = []
    assert from_api.pod(bare).times == Times(at[0], unready=at[3])


def test_metrics_of_a_new_service_are_unknown() -> None:
    found = service_metrics.service_figures({}, (), {})
    assert found.ready == ("Unknown", OTHER) and not found.step and not found.groups
    assert (found.wanted, found.held, found.wasted) == (0, 0, 0)


def test_service_metrics_count_phases_by_role() -> None:
    whole = [group(0), group(1, "Recycling"), group(0, component=keys.DECODER)]
    single = service_metrics.service_figures(status(groups=whole[:2]), (), {})
    assert single.groups == {("engine", "Ready"): 1, ("engine", "Recycling"): 1}
    split = service_metrics.service_figures(status(groups=whole, components={"engine": {}, "decoder": {}}), (), {})
    assert split.groups == {("prefill", "Ready"): 1, ("prefill", "Recycling"): 1, ("decode", "Ready"): 1}


def test_every_group_phase_has_its_own_series() -> None:
    phases = {word for name, word in vars(record).items() if name.isupper() and isinstance(word, str)}
    told = service_metrics.service_figures(
        status(groups=[group(number, phase) for number, phase in enumerate(sorted(phases))]), (), {}
    )
    assert len(phases) == 11 and told.groups == {("engine", phase): 1 for phase in phases}


def test_unknown_words_are_reported_as_other() -> None:
    odd = service_metrics.service_figures(
        status(condition("Ready", "Perhaps", "Whatever"), groups=[group(phase="Dancing")]), (), {}
    )
    assert odd.ready == (OTHER, OTHER) and odd.groups == {("engine", OTHER): 1}
    assert {"Serving", "OOMKilled", "PodDeleted", "Unschedulable"} <= REASONS and OTHER not in REASONS


def test_rollout_metrics_contain_step_and_age() -> None:
    rolling = service_metrics.service_figures(status(condition("RolledOut", "False", "WaitingForRoom")), (), {})
    assert (rolling.step, rolling.stepped) == ("WaitingForRoom", metrics.BEGAN)
    assert service_metrics.seconds_since(rolling.stepped, metrics.NOW) == 3600
    assert service_metrics.service_figures(status(condition("RolledOut", "True", "Complete")), (), {}).step == ""


def test_missing_groups_do_not_count_as_a_rollout() -> None:
    """Missing groups of a service do not count as a rollout in the metrics. Otherwise the alert OmeRolloutOld would fire for
    a service that scales while nodes are short. The alert OmeServiceIncomplete is for that.
    """
    told = status(condition("RolledOut", "False", "Progressing"))
    known, other = ({"engine": {"updateRevision": "r2", "latestReadyRevision": name}} for name in ("r2", "r1"))
    assert service_metrics.service_figures({**told, "components": known}, (), {}).step == ""
    assert service_metrics.service_figures({**told, "components": other}, (), {}).step == "Progressing"
    waits = status(condition("RolledOut", "False", "RollingOut"), components=known)
    assert service_metrics.service_figures(waits, (), {}).step == "RollingOut"


def test_service_is_complete_when_ready_and_scaled() -> None:
    early, late = (f"2026-01-01T11:0{minute}:00Z" for minute in (1, 7))
    ready = condition("Ready", since=early)
    found = {
        scaled: service_metrics.service_figures(status(ready, condition("Scaled", scaled, since=late)), (), {})
        for scaled in ("True", "False")
    }
    assert (found["True"].is_complete, found["True"].complete_at) == (True, late), "not since the first group served"
    assert (found["False"].is_complete, found["False"].complete_at, found["False"].ready[0]) == (False, "", "True")
    alone = service_metrics.service_figures(status(ready), (), {})
    assert (alone.is_complete, alone.complete_at) == (True, early), "a service without pods has no condition Scaled"
    assert not service_metrics.service_figures(status(condition("Ready", "False"), condition("Scaled")), (), {}).is_complete


@pytest.mark.parametrize(("moment", "seconds"), [("", 0), ("never", 0), ("2026-01-01T13:00:00Z", 0)])
def test_age_of_an_invalid_or_future_time_is_bounded(moment: str, seconds: float) -> None:
    assert service_metrics.seconds_since(moment, metrics.NOW) == seconds


def test_groups_that_wait_for_nodes() -> None:
    lacks = condition("EngineReady", "False", "WaitingForRoom")
    waits = service_metrics.service_figures(
        status(lacks, placement={"waiting": {"engine": 2}, "first": metrics.BEGAN}), (), {}
    )
    assert waits.waiting == {("engine", "WaitingForRoom"): 2} and waits.waits == metrics.BEGAN
    tries = service_metrics.service_figures(status(placement={"waiting": {"engine": 2}, "trying": True}), (), {})
    assert not tries.waiting and not tries.waits


def test_gpus_wanted_held_and_wasted() -> None:
    told = status(components={"engine": {"replicas": 3}}, groups=[group(0)])
    assert service_metrics.service_figures(told, (), roles(size=2)).wanted == 3 * 16
    pods = pod(), pod(name="b", group=1), pod(name="c", node=""), pod(name="d", over=True), pod(name="e", gpus=0)
    assert service_metrics.service_figures(told, pods, roles()).held == 16, (
        "a pod without a node, or a terminated one, holds no GPU"
    )
    for phase, more, wasted in (
        ("Ready", {}, 0), ("Starting", {}, 0), ("Starting", {"recyclesInARow": 1}, 8), ("Failed", {}, 8),
        ("NotReady", {}, 8), ("Preflight", {}, 0),
    ):  # fmt: skip
        assert service_metrics.service_figures(status(groups=[group(0, phase, **more)]), pods, {}).wasted == wasted, phase


def at(minutes: float) -> str:
    moment = datetime(2026, 1, 1, 11, tzinfo=UTC) + timedelta(minutes=minutes)
    return moment.isoformat()


def test_start_parts_are_consecutive() -> None:
    late = pod(times=Times(at(1.5), at(3), at(4), at(8)))
    router = pod(component=keys.ROUTER, times=Times(at(0.1)))
    found = service_metrics.start(at(0), at(10), (pod(), late, router))
    assert found == {"weights": 60, "nodes": 120, "images": 120, "start": 240, "warmup": 60}
    assert tuple(found) == PARTS


def test_start_with_missing_times_is_not_reported() -> None:
    assert service_metrics.start("", at(10), (pod(),)) == service_metrics.start(at(0), "", (pod(),)) == {}
    assert service_metrics.start(at(0), at(10), ()) == service_metrics.start(at(0), at(10), (pod(times=Times(at(1))),)) == {}


@given(st.lists(st.tuples(*[st.floats(-5, 60)] * 4), min_size=1, max_size=4), st.floats(-5, 60))
def test_start_parts_are_nonnegative_and_sum_to_the_duration(moments: list[tuple[float, ...]], ready: float) -> None:
    """The parts of a start are never negative and their sum is its duration, even if the clocks of nodes are wrong."""
    found = service_metrics.start(at(0), at(ready), [pod(times=Times(*map(at, each))) for each in moments])
    latest = max(0.0, ready, min(each[0] for each in moments), *(moment for each in moments for moment in each[1:]))
    assert all(seconds >= 0 for seconds in found.values())
    assert sum(found.values()) == pytest.approx(60 * latest, abs=1e-3)
