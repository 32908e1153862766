"""Tests of the parts of the last start of a group."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ome_operator.core.observed.objects import Pod
from ome_operator.core.observed.telemetry import LeaderStart
from ome_operator.core.observed.times import Times
from ome_operator.core.recovery.group import Group
from ome_operator.core.recovery.record import NOT_READY, READY, GroupRecord
from ome_operator.core.recovery.start import PARTS, RECENT, start_duration, with_expectation, with_start

T0 = datetime(2026, 11, 28, 12, tzinfo=UTC)
READY_AT = 60.0
BEFORE = GroupRecord("g-0", "engine", "r", 0, phase="Starting")
RECORD = GroupRecord("g-0", "engine", "r", 0, phase=READY, incarnation=1)


def at(seconds: float | None) -> str:
    return "" if seconds is None else (T0 + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(rank: int = 0, restarts: int = 0, **times: float | None) -> Pod:
    """Return a pod with the times of an ordinary start, in seconds after `T0`."""
    known: dict[str, float | None] = {
        "created": 0, "scheduled": 1, "network": 3, "began": 10, "ready": READY_AT, "initialized": None
    }  # fmt: skip
    stamps = {name: at(seconds) for name, seconds in (known | times).items()}
    return Pod(
        namespace="n", name=f"g-{rank}", uid=f"uid-{rank}", version=1, service="s", component="engine", revision="r",
        group=0, rank=rank, workload="w", node="node", ready=True, deleting=False, grace=0, restarts=restarts,
        reason="", message="",
        times=Times(**stamps),
    )  # fmt: skip


def group(*pods: Pod) -> Group:
    return Group("g-0", "engine", "r", 0, max(1, len(pods)), "engine group 0", {each.rank: each for each in pods})


def moment(seconds: float) -> float:
    return (T0 + timedelta(seconds=seconds)).timestamp()


SEEN = LeaderStart(
    {"own": 30.0, "weights": 12.0, "cache": 0.25, "graphs": 8.0}, moment(47), moment(57.5), moment(62), moment(75.5)
)


def start(*pods: Pod, seen: LeaderStart | None = SEEN, now: float = 65.0) -> dict[str, Any]:
    """Return the recorded start of a group with these pods."""
    found = with_start(group(*(pods or (pod(),))), BEFORE, RECORD, seen, T0 + timedelta(seconds=now)).start
    return found or {}


def parts(found: dict[str, Any]) -> dict[str, float]:
    return {part["name"]: part["seconds"] for part in found.get("parts") or ()}


def test_a_start_has_all_parts_in_their_order() -> None:
    found = start(pod(initialized=5))
    assert found["time"] == at(READY_AT) and found["seconds"] == 60 and start_duration(found) == 62
    assert list(parts(found)) == list(PARTS)
    assert parts(found) == {
        "scheduled": 1, "volumes": 2, "init": 2, "image": 5, "imports": 7, "weights": 12, "cache": 0.2, "graphs": 8,
        "engine": 9.8, "warmup": 10.5, "probe": 2.5, "listed": 2, "firstToken": 13.5,
    }  # fmt: skip


def test_slowest_rank_determines_the_duration_of_each_part() -> None:
    found = start(pod(), pod(1, scheduled=9, network=10, began=11), pod(2, network=2, began=30))
    shown = {part["name"]: (part["seconds"], part["rank"]) for part in found["parts"] if "rank" in part}
    assert shown == {"scheduled": (9, 1), "volumes": (2, 0), "image": (28, 2)}


@pytest.mark.parametrize("missing", ["scheduled", "network", "began"])
def test_start_parts_without_pod_times_are_omitted(missing: str) -> None:
    lost = {"scheduled": {"scheduled", "volumes"}, "network": {"volumes", "image"}, "began": {"image", "imports"}}
    all_parts = parts(start())
    assert parts(start(pod(**{missing: None}))) == {
        name: each for name, each in all_parts.items() if name not in lost[missing]
    }


@pytest.mark.parametrize(
    ("seen", "lost"),
    [
        (SEEN._replace(parts={}), {"imports", "weights", "cache", "graphs", "engine"}),
        (SEEN._replace(answers_at=None), {"imports", "warmup"}),
        (SEEN._replace(healthy_at=None), {"warmup", "probe"}),
        (SEEN._replace(listed_at=None), {"listed", "firstToken"}),
        (SEEN._replace(succeeded_at=None), {"firstToken"}),
        (None, set(PARTS) - {"scheduled", "volumes", "image"}),
    ],
)
def test_start_parts_without_registry_times_are_omitted(seen: LeaderStart | None, lost: set[str]) -> None:
    assert parts(start(seen=seen)) == {name: each for name, each in parts(start()).items() if name not in lost}


def test_clock_differences_never_give_negative_parts() -> None:
    assert parts(start(seen=SEEN._replace(listed_at=moment(58.5))))["listed"] == 0
    assert parts(start(seen=SEEN._replace(listed_at=moment(50))))["listed"] == 0, "registries list healthy engines early"


def test_first_token_is_not_part_of_the_duration_and_may_be_recorded_later() -> None:
    waits = SEEN._replace(succeeded_at=None)
    first = with_start(group(pod()), BEFORE, RECORD, waits, T0 + timedelta(seconds=65))
    later = with_start(group(pod()), first, first, SEEN, T0 + timedelta(seconds=80))
    assert (
        parts(later.start or {}) == parts(start())
        and start_duration(later.start or {}) == start_duration(first.start or {}) == 62
    )
    idle = with_start(group(pod()), first, first, SEEN, T0 + timedelta(seconds=READY_AT + RECENT + 1))
    assert idle == first, "no request came in time"


def test_first_token_part_starts_when_a_router_lists_the_leader() -> None:
    found = parts(start(seen=SEEN._replace(listed_at=moment(58), succeeded_at=moment(59))))
    assert (found["listed"], found["firstToken"]) == (0, 1)
    assert parts(start(seen=SEEN._replace(succeeded_at=moment(61))))["firstToken"] == 0, "the list was read later"
    assert "firstToken" not in parts(start(seen=SEEN._replace(succeeded_at=moment(50))))


def test_restarted_container_has_no_image_part() -> None:
    found = start(pod(restarts=1, began=40), seen=None)
    assert found["seconds"] == 20 and found["parts"] == []


def test_start_parts_are_added_when_known_and_never_changed() -> None:
    first = with_start(group(pod()), BEFORE, RECORD, None, T0 + timedelta(seconds=61))
    later = with_start(group(pod()), first, first, SEEN, T0 + timedelta(seconds=66))
    assert parts(later.start or {}) == parts(start())
    again = with_start(group(pod()), later, later, SEEN._replace(listed_at=moment(90)), T0 + timedelta(seconds=99))
    assert again == later


def test_interrupted_readiness_is_not_recorded_as_a_start() -> None:
    first = with_start(group(pod()), BEFORE, RECORD, None, T0 + timedelta(seconds=61))
    assert with_start(group(pod(ready=200)), first, first, SEEN, T0 + timedelta(seconds=201)) == first
    unready = RECORD.in_phase(NOT_READY, T0)
    assert with_start(group(pod()), BEFORE, unready, SEEN, T0 + timedelta(seconds=61)) == unready


def test_unobserved_start_is_not_recorded() -> None:
    assert not start(now=READY_AT + RECENT + 1) and not start(now=READY_AT - 30)
    known = RECORD  # recorded by an operator of an earlier version
    assert with_start(group(pod()), known, known, SEEN, T0 + timedelta(seconds=61)) == known


EARLIER = {"time": at(-900), "seconds": 55, "parts": []}
OTHERS = (
    GroupRecord("f-0", "engine", "q", 0, start=EARLIER),
    GroupRecord("f-1", "engine", "q", 1, start={**EARLIER, "time": at(-1800), "seconds": 7}),
    GroupRecord("f-2", "engine", "q", 2),
    GroupRecord("d-0", "decoder", "q", 0, start={**EARLIER, "time": at(0)}),
)


def test_never_ready_group_shows_the_newest_start_of_its_component() -> None:
    """A group that was never ready shows the duration of the newest start of its component. After a rollout with the
    strategy recreate, the groups of the earlier slice are gone while the new groups start.
    """
    assert with_expectation(BEFORE, OTHERS).start == EARLIER
    assert with_expectation(BEFORE, ()).start is None
    assert with_expectation(RECORD, OTHERS).start is None, "it was ready, and its own start was not seen"
    own = replace(BEFORE, start={"time": at(-5000), "seconds": 1})
    assert with_expectation(own, OTHERS) is own


@pytest.mark.parametrize("now", [65.0, READY_AT + RECENT + 1])
def test_start_of_another_group_is_removed_when_the_group_is_ready(now: float) -> None:
    record = replace(RECORD, start=EARLIER)
    found = with_start(group(pod()), replace(BEFORE, start=EARLIER), record, SEEN, T0 + timedelta(seconds=now)).start
    assert (found or {}).get("time") == (at(READY_AT) if now < RECENT else None)
    nothing_known = pod(created=None, began=None)
    assert with_start(group(nothing_known), BEFORE, record, SEEN, T0 + timedelta(seconds=65)).start is None
