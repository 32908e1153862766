"""Tests of services whose speed is unknown, or only known from a prediction, from a queue or from a single load; and of
targets that cannot be met.
"""

from typing import Any

import pytest

from ome_operator.core.demand.decide import decide_size
from ome_operator.core.demand.facts import (
    DECODE,
    NO_PLAN,
    PREFILL,
    Basis,
    CompletedWork,
    DemandSample,
    GroupBounds,
    LearnedProperties,
    PlannedSpeeds,
    PrefillWork,
    ScalingState,
)
from ome_operator.core.demand.holds import HoldReason
from tests.unit.core.demand.loads import KNOWN, NOW, TARGETS, fleet, samples, state

PLANNED = PlannedSpeeds(PrefillWork(0.0, 0.25 / 1000), ((10.0, 0.02), (210.0, 0.06)))
"""The prediction that agrees with what the service of `KNOWN` has measured."""
MANY = {PREFILL: GroupBounds(1, 1000), DECODE: GroupBounds(1, 1000)}


def unknown(prefill: int = 2, decode: int = 1, **known: Any) -> ScalingState:
    """Return the state of a service of this size. Only the measured properties in `known` are known."""
    return state(prefill, decode)._replace(learned=LearnedProperties(starts=(100.0,), **known))


def idle(rate: float = 4.0, **other: Any) -> tuple[DemandSample, ...]:
    """Return samples that show nothing about the speed of groups: the load of decode changes, and it is unknown which
    requests were in time.
    """
    return samples(rate, **{"running_now": 10**6, "late": None, **other})


def test_prediction_is_used_until_the_first_measurement() -> None:
    made, after = decide_size(idle(20.0), fleet(), TARGETS, unknown(), NOW, PLANNED)
    measured, _ = decide_size(idle(20.0), fleet(), TARGETS, state(), NOW)
    assert made.size == measured.size and made.prefill > 5
    assert made.basis == {PREFILL: Basis.PLANNED, DECODE: Basis.PLANNED}
    assert made.why.count("predicted by `ome plan` with a margin for its error, not measured") == 2
    assert after.learned.work is None and not after.learned.curve, "a prediction is not stored as a measurement"
    assert measured.basis == {PREFILL: Basis.MEASURED, DECODE: Basis.MEASURED} and "ome plan" not in measured.why


def test_size_is_kept_and_reason_given_without_a_prediction() -> None:
    missing = PlannedSpeeds(missing="`ome plan` has no prediction: No data for the GPU x")
    made, after = decide_size(idle(20.0), fleet(), TARGETS, unknown(), NOW, missing)
    assert (made.size, made.hold, made.basis) == ((2, 1, 1), HoldReason.UNMEASURED, {})
    assert made.why.endswith("the speed of the groups: `ome plan` has no prediction: No data for the GPU x")
    assert after.learned.request == (1000.0, 100.0), "the lengths for which a prediction is asked"
    made, _ = decide_size((), fleet(), TARGETS, unknown(), NOW, missing)
    assert "ome plan" not in made.why


def test_a_measurement_replaces_the_prediction() -> None:
    full = {"saturated": CompletedWork(2, 4.0, 4000.0)}
    made, after = decide_size(samples(20.0, **full), fleet(), TARGETS, unknown(), NOW, PLANNED)
    assert made.basis == {PREFILL: Basis.MEASURED, DECODE: Basis.MEASURED}
    assert after.learned.scale == pytest.approx(2.0), "twice as slow as predicted"
    assert "a prefill group serves 2.00 requests/s," in made.why


@pytest.mark.parametrize(("rate", "basis"), [(1.0, Basis.PLANNED), (5.0, Basis.FIRST)])
def test_queue_estimate_replaces_prediction_only_if_groups_are_faster(rate: float, basis: Basis) -> None:
    queue = {"queued": CompletedWork(1, rate, 1000 * rate)}
    made, _ = decide_size(idle(20.0, **queue), fleet(), TARGETS, unknown(), NOW, PLANNED)
    assert made.basis[PREFILL] == basis and made.hold == ""


def test_a_prediction_never_removes_a_group() -> None:
    before = unknown(6, 3)
    made, after = decide_size(idle(), fleet(6, 3), TARGETS, before, NOW, PLANNED)
    assert (made.size, made.hold) == ((6, 3, 1), HoldReason.PLANNED)
    assert after.lower_since == (None, None)


def test_groups_that_served_a_load_in_time_suffice_for_a_smaller_load() -> None:
    """Groups that have served a load in time are enough for a smaller load. Six groups served 20 requests/s within the
    target, and no other measurement exists.
    """
    _, after = decide_size(idle(20.0, late=0.0), fleet(6), TARGETS, unknown(6), NOW, PLANNED)
    assert after.learned.shown is not None and 0.25 < after.learned.shown[1] < 6 / 20
    after = after._replace(lower_since=(NOW - 200, None), wanted=(6, 1, 1), changed=NOW - 3600)
    made, _ = decide_size(idle(4.0), fleet(6), TARGETS, after, NOW, PLANNED)
    assert made.size == (5, 1, 1)
    _, after = decide_size(idle(20.0, late=0.06), fleet(6), TARGETS, unknown(6), NOW, PLANNED)
    assert after.learned.shown is None, "requests that were late show nothing"


@pytest.mark.parametrize(("rate", "seconds", "kept"), [(10.0, 310, False), (10.0, 250, True), (40.0, 310, True)])
def test_load_served_in_time_is_discarded_after_minutes_of_late_requests(rate: float, seconds: float, kept: bool) -> None:
    """If groups are late for minutes, a load that they have served in time earlier does not count any more. Six groups have
    served 20 requests/s in time with another revision. With this one they are late with fewer requests.
    """
    before = unknown(6, shown=(1000.0, 0.27))
    seen = tuple(one._replace(late=0.2 if one.at > NOW - seconds else 0.0) for one in idle(rate))
    _, after = decide_size(seen, fleet(6), TARGETS, before, NOW, PLANNED)
    assert after.learned.shown == (before.learned.shown if kept else None)
    _, recent = decide_size(seen, fleet(6), TARGETS, before._replace(changed=NOW - 200), NOW, PLANNED)
    assert recent.learned.shown == before.learned.shown, "the size has just changed"
    if not kept:
        made, _ = decide_size(idle(4.0), fleet(6), TARGETS, after, NOW, PLANNED)
        assert (made.size, made.hold) == ((6, 1, 1), HoldReason.PLANNED)


def test_single_decode_measurement_at_most_doubles_the_groups() -> None:
    """A single measured load of decode at most doubles the number of groups. One request was measured at 39 ms. In
    proportion, the target of 40 ms would leave 0.17 requests to a group, so that 100 groups would be needed.
    """
    before = unknown(work=PrefillWork(0.0, 0.0001 / 1000), measured=1, curve=((1.0, 0.039),))
    targets = TARGETS._replace(bounds=MANY)
    made, after = decide_size(idle(20.0), fleet(), targets, before, NOW)
    assert (made.decode, made.hold, made.basis[DECODE]) == (2, HoldReason.FIRST_STEP, Basis.FIRST)
    assert "a decode group holds at least 1 requests" in made.why and made.why.endswith(
        "at most doubles the groups that serve"
    )
    again, _ = decide_size(idle(20.0), fleet(), targets, after, NOW)
    assert again.decode == 2, "the second group does not serve yet"
    made, _ = decide_size(idle(20.0), fleet(2, 2), targets, after, NOW)
    assert made.decode == 4


def test_a_load_that_groups_serve_well_needs_no_more_groups() -> None:
    """If the load equals a load that was measured, no more groups are needed than were measured. Three decode groups with
    one request each were measured at 30 ms.
    """
    before = unknown(2, 3, work=PrefillWork(0.0, 0.0001 / 1000), measured=1)
    steady = samples(1.0, running=3.0, running_now=3)
    made, _ = decide_size(steady, fleet(2, 3), TARGETS._replace(bounds=MANY), before, NOW)
    assert (made.decode, made.hold) == (3, "")


def test_an_estimate_from_a_queue_doubles_the_groups_at_most() -> None:
    slow = {"queued": CompletedWork(2, 1.0, 1000.0)}
    before = unknown(curve=KNOWN.curve)
    targets = TARGETS._replace(ttft=10.0, bounds=MANY)
    made, _ = decide_size(idle(20.0, **slow), fleet(), targets, before, NOW)
    assert (made.prefill, made.hold, made.basis[PREFILL]) == (4, HoldReason.FIRST_STEP, Basis.FIRST)
    assert "a prefill group serves at least 0.50 requests/s" in made.why
    planned = PlannedSpeeds(PLANNED.work)
    made, _ = decide_size(idle(20.0, **slow), fleet(), targets, before, NOW, planned)
    assert made.prefill > 4 and made.hold == "", "a prediction bounds it better"


UNMET = {
    "measured prefill": (TARGETS._replace(ttft=0.2), state(), NO_PLAN, HoldReason.UNREACHABLE, "takes 0.25 s even without"),
    "measured decode": (TARGETS._replace(tbt=0.015), state(), NO_PLAN, HoldReason.UNREACHABLE, "the target is 15 ms"),
    "predicted prefill": (TARGETS._replace(ttft=0.2), unknown(), PLANNED, HoldReason.UNMEASURED, "`ome plan` predicts"),
    "predicted decode": (TARGETS._replace(tbt=0.015), unknown(), PLANNED, HoldReason.UNMEASURED, "`ome plan` predicts"),
    "prefill from a queue": (
        TARGETS._replace(ttft=0.2), unknown(work=KNOWN.work, curve=KNOWN.curve), NO_PLAN, HoldReason.UNMEASURED,
        "a first estimate says",
    ),
    "one load of decode": (
        TARGETS, unknown(work=KNOWN.work, measured=1, curve=((1.2, 0.05),)), NO_PLAN, HoldReason.UNREACHABLE, "it is 50 ms",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNMET)
@pytest.mark.parametrize("rate", [4.0, 400.0])
def test_unreachable_target_is_reported_once_and_the_size_is_kept(name: str, rate: float) -> None:
    targets, before, planned, hold, words = UNMET[name]
    seen = idle(rate, waiting=5000, late=1.0)
    made, after = decide_size(seen, fleet(), targets, before, NOW, planned)
    assert (made.size, made.hold) == ((2, 1, 1), hold)
    assert words in made.why and ". " not in made.why
    again, later = decide_size(seen, fleet(), targets, after, NOW, planned)
    assert (again.size, later.changes, later.last) == (made.size, after.changes, after.last), "reported once"


def test_groups_are_added_once_if_a_single_decode_measurement_is_too_slow() -> None:
    """If decode is too slow with a single measured load, groups are added once. A group with 100 requests was measured at 50
    ms, and the target is 40 ms. With more groups, each has fewer requests and may be faster.
    """
    before = unknown(work=KNOWN.work, measured=1, curve=((100.0, 0.05),))
    seen = idle(20.0, output_tokens=2000.0)
    made, after = decide_size(seen, fleet(9), TARGETS, before._replace(wanted=(9, 1, 1)), NOW)
    assert made.decode == 2
    slow = after._replace(learned=after.learned._replace(curve=((50.0, 0.049), (100.0, 0.05))))
    made, _ = decide_size(seen, fleet(9, 2), TARGETS, slow, NOW)
    assert (made.decode, made.hold) == (2, HoldReason.UNREACHABLE), "half as many requests are hardly faster"


def test_prediction_scaled_by_one_measurement_does_not_prove_unreachable_target() -> None:
    """A prediction that was scaled by one measured load does not prove that a target cannot be met. 64 requests were
    measured at 60 ms, which is 1.31 times the prediction. Scaled like this, the predicted 42 ms for a single request would
    become 55 ms, above the target of 50 ms. Only a measurement proves that.
    """
    planned = PlannedSpeeds(PLANNED.work, ((1.0, 0.04206), (64.0, 0.04584), (200.0, 0.054)))
    targets = TARGETS._replace(tbt=0.05, bounds=MANY)
    before = unknown(work=KNOWN.work, measured=1, curve=((64.0, 0.06),))
    made, after = decide_size(
        idle(20.0, output_tokens=1200.0), fleet(9), targets, before._replace(wanted=(9, 1, 1)), NOW, planned
    )
    assert made.decode > 1 and made.hold == "" and "a decode group holds 53 requests" in made.why
    slow = after._replace(learned=after.learned._replace(curve=((1.2, 0.055), (64.0, 0.06))))
    made, _ = decide_size(idle(20.0), fleet(9, made.decode), targets, slow, NOW, planned)
    assert made.hold == HoldReason.UNREACHABLE and "with 1 requests in a group it is 55 ms" in made.why


@pytest.mark.parametrize(
    ("limits", "size", "hold"),
    [
        ({}, (9, 9, 1), HoldReason.MAXIMUM),
        ({"gpus": 8 * 6}, (3, 3, 1), HoldReason.BUDGET),
    ],
)
def test_saturated_service_scales_to_its_limit_although_that_is_too_slow(
    limits: dict[str, Any], size: tuple[int, int, int], hold: HoldReason
) -> None:
    seen = samples(4000.0, waiting=10**6, late=1.0, running_now=0)
    made, after = decide_size(seen, fleet(), TARGETS._replace(**limits), state(), NOW)
    assert (made.size[0] + made.size[1], made.hold) == (size[0] + size[1], hold)
    again, later = decide_size(seen, fleet(*made.size[:2]), TARGETS._replace(**limits), after, NOW)
    assert (again.size, again.hold, later.changes) == (made.size, hold, after.changes), "the number of groups stays"


@pytest.mark.parametrize(
    ("target", "rate", "groups"), [(10.0, 4.4, 1), (0.1, 4.32, 1), (0.1, 4.4, 2), (0.024, 4.4, 2), (0.1, 60.0, 2)]
)
def test_a_load_slightly_above_the_measured_one_waits_for_a_measurement(target: float, rate: float, groups: int) -> None:
    """A load slightly above the measured one adds no group at once. A decode group was measured with 6 requests at 22 ms,
    which is 4.3 requests of 64 tokens per second. With a slightly higher rate, the requests need longer to reach the limit
    than a measurement and a start of a group take, so the decision waits for a measurement. A group is added if the target
    is near the measured time, or if the load is larger.
    """
    known = KNOWN._replace(curve=((6.0, 0.022),))
    targets = TARGETS._replace(tbt=target)
    load = samples(rate, running=6.0, running_now=6, output_tokens=None)
    load = tuple(one._replace(ended=4.3, output_tokens=64 * 4.3) for one in load[:-1]) + load[-1:]
    made, _ = decide_size(load, fleet(20, 1), targets._replace(bounds={**targets.bounds, PREFILL: GroupBounds(20, 20)}),
                     state(20, 1, learned=known), NOW)  # fmt: skip
    assert made.decode == groups


@pytest.mark.parametrize("field", ["high", "room"])
def test_decode_groups_are_not_added_for_requests_that_prefill_cannot_serve(field: str) -> None:
    """No decode group is added for requests that prefill cannot pass on. 28 requests/s need more groups of both roles. A
    single prefill group passes on only 4 requests/s, so another decode group would have nothing to do.
    """
    here, targets = fleet(1, 1), TARGETS
    if field == "high":
        targets = targets._replace(bounds={**targets.bounds, PREFILL: GroupBounds(1, 1)})
    else:
        here = here._replace(prefill=here.prefill._replace(room=1))
    busy = samples(28.0, requests=4.0, prompt_tokens=4000.0, waiting=100, running=40.0, running_now=0)
    free, _ = decide_size(busy, fleet(1, 1), TARGETS, state(1, 1), NOW)
    made, _ = decide_size(busy, here, targets, state(1, 1), NOW)
    assert free.decode > 1 and free.prefill >= 7
    assert (made.prefill, made.decode) == (1, 1) and made.hold in (HoldReason.MAXIMUM, HoldReason.NO_ROOM)
