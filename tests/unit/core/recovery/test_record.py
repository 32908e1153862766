"""Tests that the records of groups fit into a status, whatever they contain and however many there are."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.core.recovery import record as module
from ome_operator.core.recovery.record import (
    LARGEST,
    WORDS,
    GroupRecord,
    format_records,
    limit_records,
    parse_records,
    with_first_starts,
)
from ome_operator.quantity import rfc3339
from tests.support.shapes import Shape
from tests.support.simulator import World

NOW = rfc3339(datetime(2026, 1, 1, tzinfo=UTC))


def group(index: int, ranks: int = 4, words: str = "", name: str = "svc-decoder-10d64ba8") -> GroupRecord:
    failure = {"podName": f"{name}-{index}-0", "reason": "Error", "message": words, "time": NOW} if words else None
    return GroupRecord(
        f"{name}-{index}-0", "decoder", "10d64ba8", index, "Ready", NOW, 3, NOW,
        {str(rank): "0123abcd.12" for rank in range(ranks)}, "node-0123456789", 7, 2, NOW, failure,
    )  # fmt: skip


def size(told: object) -> int:
    return len(json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode())


def test_records_of_a_thousand_groups_are_stored_completely() -> None:
    told = format_records(map(group, range(1000)))
    assert limit_records(told) == (tuple(told), 0)


def test_many_long_failure_messages_are_shortened() -> None:
    """Each of a thousand groups has a failure message of 4 kB, the most that a container can leave. The messages are
    shortened so that all records fit into the status.
    """
    told = format_records(group(index, words="é" * 4000) for index in range(1000))
    assert size(told) > 4 * LARGEST
    found, left = limit_records(told)
    assert left == 0 and size(found) <= LARGEST
    assert {len(each["lastFailure"]["message"]) for each in found} == {WORDS}
    assert [{**each, "lastFailure": 0} for each in found] == [{**each, "lastFailure": 0} for each in told]
    assert limit_records(found) == (found, 0), "the next pass changes nothing"


def test_last_groups_are_omitted_if_records_exceed_the_limit() -> None:
    told = format_records(group(index, ranks=64) for index in range(1000))
    found, left = limit_records(told)
    assert 0 < left < 1000 and size(found) <= LARGEST and [*found] == told[: 1000 - left]


@given(st.integers(0, 40), st.text(), st.text(min_size=1, max_size=63), st.integers(0, 10**6))
def test_record_size_does_not_exceed_its_estimate(ranks: int, words: str, name: str, index: int) -> None:
    (told,) = format_records([group(index, ranks, words, name)])
    assert size(told) + 1 <= module._most(told)


def test_message_reports_groups_without_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a service has more groups than its status has space for, a message says so. Groups without a record are still
    monitored, and the status does not change with every reconciliation.
    """
    world = World(Shape(size=2, engines=3, router=False).service(), Shape(size=2).deps(), 1)
    while world.condition("Scaled").get("status") != "True":
        world.run(1)
    whole = [
        {k: v for k, v in one.items() if k != "start"}
        for one in format_records(parse_records(world.service.status).values())
    ]
    assert len(whole) == 3  # the details of a start are left out before a group is
    monkeypatch.setattr(module, "LARGEST", size(whole[:2]) + 2)
    world.run(2)
    assert world.service.status["groups"] == whole[:2]
    said = world.condition("Advice")["message"]
    assert "status.groups has space for only 2 of 3 groups" in said
    before = world.service.status
    world.run(3)
    assert world.service.status == before and world.condition("Ready")["status"] == "True"


def test_freeze_adds_first_starts_without_changing_records_of_served_groups() -> None:
    """A freeze adds the first starts of groups to the stored records, and changes no record of a group that has served
    before. Group 0 has served before the freeze. Groups 1 and 2 become ready during the freeze; group 2 had no record.
    Group 3 has not become ready yet.
    """
    served, waits = group(0), replace(group(1), phase="Pending", incarnation=0)
    stored = format_records([served, waits, replace(waits, name="later", index=3)])
    now = format_records(
        [replace(served, phase="Recycling", recycles=8), group(1), group(2), replace(group(3), incarnation=0)]
    )
    found = with_first_starts(stored, now)
    assert found == (stored[0], now[1], now[2], stored[2])
    assert with_first_starts(found, now) == found


def test_freeze_keeps_records_with_missing_fields() -> None:
    """During a freeze, the first start of a group is recorded even if other stored records lack fields. Only the name of a
    stored record is required.
    """
    (now,) = format_records([group(1)])
    assert with_first_starts([{"name": "cut"}, {"name": "cut-too", "index": None}], [now])[-1] == now


def test_first_starts_stored_during_a_freeze_fit_into_the_status() -> None:
    told = format_records(group(index, words="x" * 4000) for index in range(1000))
    found = with_first_starts(told[:200], told)
    assert len(found) == 1000 and size(found) <= LARGEST
