"""Tests that measured speeds count only for the configuration of the groups that were measured."""

from itertools import permutations
from typing import Any

import pytest

from ome_operator.core.demand import configurations
from ome_operator.core.demand.decide import decide_size
from ome_operator.core.demand.facts import (
    DECODE,
    NO_PLAN,
    PREFILL,
    SPEED,
    Basis,
    CompletedWork,
    Configuration,
    Fleet,
    LearnedProperties,
    PlannedSpeeds,
    PrefillWork,
    RoleFleet,
    ScalingState,
)
from ome_operator.core.demand.holds import HoldReason
from tests.unit.core.demand.loads import KNOWN, NOW, TARGETS, samples, state

OLD, NEW, OTHER = (Configuration(template, "8x H200") for template in ("old", "new", "other"))
EARLIER = KNOWN._replace(configurations=(OLD, OLD))
"""The speeds that were measured with groups of the configuration `OLD`."""
SLOW = PlannedSpeeds(PrefillWork(0.0, 0.5 / 1000), ((10.0, 0.03), (90.0, 0.06)))
"""A prediction that is twice as slow for prefill as `KNOWN`."""
SHOWS_NOTHING: dict[str, Any] = {"running_now": 10**6, "late": None}
"""Fields of a sample that measures nothing."""


def fleet(prefill: int = 2, decode: int = 1, *found: Configuration, **other: Any) -> Fleet:
    """Return a fleet whose groups, of both roles, have these configurations."""
    return Fleet(RoleFleet(prefill, configurations=found), RoleFleet(decode, configurations=found), **other)


def before(prefill: int = 2, decode: int = 1, learned: LearnedProperties = EARLIER) -> ScalingState:
    """Return the state of a service of this size before a rollout."""
    return state(prefill, decode)._replace(learned=learned)


def rolled_out(prefill: int = 2, decode: int = 1, learned: LearnedProperties = EARLIER) -> ScalingState:
    """Return the state after a rollout from `OLD` to `NEW`, since which an hour has passed without a measurement."""
    found = configurations.bind_measurements(before(prefill, decode, learned), fleet(prefill, decode, NEW), NOW)
    return found._replace(configured=(NOW - 3600, NOW - 3600))


def test_rollout_moves_measurements_to_the_former_configuration() -> None:
    after = configurations.bind_measurements(before(6, 3), fleet(6, 3, NEW), NOW)
    assert after.learned == LearnedProperties(starts=KNOWN.starts, configurations=(NEW, NEW)), "the starts are kept"
    assert after.former == EARLIER._replace(starts=())
    assert after.configured == (NOW, NOW)


@pytest.mark.parametrize("planned", [NO_PLAN, SLOW])
def test_measurements_of_former_groups_add_groups_but_never_remove_one(planned: PlannedSpeeds) -> None:
    """After a rollout, measurements of the former groups never remove a group, but may add groups. Neither they nor a
    prediction show how fast the new groups are.
    """
    seen = samples(4.0, **SHOWS_NOTHING)
    made, after = decide_size(seen, fleet(6, 3, NEW), TARGETS, rolled_out(6, 3), NOW, planned)
    assert (made.size, made.hold) == ((6, 3, 1), HoldReason.PLANNED)
    assert made.basis == {PREFILL: Basis.FORMER, DECODE: Basis.FORMER}
    assert made.why.count(" (measured before the groups changed, and not since)") == 2
    assert after.lower_since == (None, None)
    made, _ = decide_size(samples(20.0, **SHOWS_NOTHING), fleet(2, 1, NEW), TARGETS, rolled_out(), NOW, planned)
    known, _ = decide_size(samples(20.0, **SHOWS_NOTHING), fleet(2, 1, OLD), TARGETS, before(), NOW, planned)
    assert made.size == known.size and made.prefill > 5


def test_new_measurements_replace_those_of_the_former_groups() -> None:
    full = {"saturated": CompletedWork(6, 12.0, 12000.0)}
    made, after = decide_size(samples(4.0, **full), fleet(6, 1, NEW), TARGETS, rolled_out(6), NOW)
    assert made.basis == {PREFILL: Basis.MEASURED, DECODE: Basis.MEASURED}
    assert "a prefill group serves 2.00 requests/s," in made.why, "half as fast as before"
    assert len(after.learned.curve) == 1 and after.former == EARLIER._replace(starts=())


def test_role_with_unchanged_configuration_keeps_its_measurements() -> None:
    found = Fleet(RoleFleet(2, configurations=(OLD,)), RoleFleet(1, configurations=(NEW,)))
    after = configurations.bind_measurements(before(), found, NOW)
    assert after.learned == EARLIER._replace(curve=(), configurations=(OLD, NEW))
    assert after.former == LearnedProperties(curve=KNOWN.curve, configurations=(Configuration(), OLD))


def test_measurements_are_used_again_after_a_rollback() -> None:
    slower = KNOWN._replace(scale=3.0, configurations=(NEW, NEW))
    there = rolled_out()._replace(learned=slower)
    back = configurations.bind_measurements(there, fleet(2, 1, OLD), NOW)
    assert back.learned == EARLIER and back.former == slower._replace(starts=())
    at_once = configurations.bind_measurements(rolled_out(), fleet(2, 1, OLD), NOW)
    assert at_once.learned == EARLIER and at_once.former == LearnedProperties(), "nothing was measured in between"


def test_rollout_of_an_unmeasured_revision_keeps_earlier_measurements() -> None:
    third = configurations.bind_measurements(rolled_out(), fleet(2, 1, OTHER), NOW)
    assert third.learned.configurations == (OTHER, OTHER) and third.former == EARLIER._replace(starts=())


def test_old_measurements_are_used_and_none_is_taken_during_a_rollout() -> None:
    full = {"saturated": CompletedWork(2, 20.0, 20000.0)}
    both = fleet(2, 1, OLD, NEW, busy="a rollout is in progress")
    made, after = decide_size(samples(20.0, **full), both, TARGETS, before(), NOW)
    assert made.prefill > 5 and made.basis[PREFILL] == Basis.MEASURED
    assert after.learned._replace(request=None) == EARLIER and after.former == LearnedProperties()
    assert after.configured == (NOW, NOW)


@pytest.mark.parametrize(("seconds", "measured"), [(50, False), (70, True)])
def test_the_first_minute_after_a_rollout_still_contains_the_former_groups(seconds: int, measured: bool) -> None:
    full = {"saturated": CompletedWork(2, 4.0, 4000.0)}
    recent = rolled_out()._replace(configured=(NOW - seconds, NOW - seconds))
    _, after = decide_size(samples(4.0, **full), fleet(2, 1, NEW), TARGETS, recent, NOW)
    assert bool(after.learned.measured) == bool(after.learned.curve) == measured


@pytest.mark.parametrize("found", [(OLD,), (OLD, NEW)])
def test_measurements_stored_by_earlier_version_belong_to_the_oldest_groups(found: tuple[Configuration, ...]) -> None:
    after = configurations.bind_measurements(before(learned=KNOWN), fleet(2, 1, *found), NOW)
    assert after.learned == EARLIER and after.former == LearnedProperties()
    later = configurations.bind_measurements(after, fleet(2, 1, NEW), NOW)
    assert later.former == EARLIER._replace(starts=())


def test_role_without_groups_keeps_its_measurements() -> None:
    assert configurations.bind_measurements(before(), fleet(0, 0), NOW) == before()


@pytest.mark.parametrize(
    ("known", "present", "same"),
    [
        (OLD, Configuration("old"), True),
        (Configuration("old"), OLD, True),
        (OLD, Configuration("old", "8x H100"), False),
        (Configuration("old"), Configuration("new"), False),
        (OLD, Configuration("old", "8x H100, H200"), True),
        (OLD, Configuration("old", "8x H100, B200"), False),
        (OLD, Configuration("old", "16x H200"), False),
    ],
)
def test_unknown_gpus_do_not_count_as_different_gpus(known: Configuration, present: Configuration, same: bool) -> None:
    learned = KNOWN._replace(configurations=(known, known))
    after = configurations.bind_measurements(before(learned=learned), fleet(2, 1, present), NOW)
    assert (after.learned.curve == KNOWN.curve) == same
    if same:
        assert after.learned.configurations == (OLD, OLD)


MIXED, H100, H200 = (Configuration("old", f"8x {products}") for products in ("H100, H200", "H100", "H200"))


@pytest.mark.parametrize("first", [MIXED, H100])
def test_measurements_stay_valid_if_a_group_with_other_gpus_leaves_and_returns(first: Configuration) -> None:
    """Some groups of a role have another GPU than the others, and such a group disappears and returns: the only H200 group
    is NotReady for a while, or the demand removes it, and later adds it again. The measurements stay valid.
    """
    learned = KNOWN._replace(configurations=(first, first))
    begin = after = before(learned=learned)
    for present in (MIXED, H100, MIXED, H100):
        after = configurations.bind_measurements(after, fleet(2, 1, present), NOW)
        assert after == begin, "nothing is exchanged, and nothing has to be measured again"
    moved = configurations.bind_measurements(after, fleet(2, 1, H200), NOW)
    assert (moved.learned.curve == KNOWN.curve) == (first == MIXED), "these GPUs were measured only among others"


@pytest.mark.parametrize("former", [MIXED, H200])
def test_measurements_of_the_same_gpus_are_preferred_to_a_prediction(former: Configuration) -> None:
    """After a rollout, the first new groups have only some of the GPU models of the former groups. The measured speed of the
    former groups is used for them, and not the prediction of the planner.
    """
    found = fleet(2, 1, Configuration("new", "8x H200"))
    begin = configurations.bind_measurements(before(learned=KNOWN._replace(configurations=(former, former))), found, NOW)
    made, _ = decide_size(samples(8.0, **SHOWS_NOTHING), found, TARGETS, begin._replace(configured=(0.0, 0.0)), NOW, SLOW)
    assert made.basis == {PREFILL: Basis.FORMER, DECODE: Basis.FORMER}


UNKNOWN = Configuration("old")


@pytest.mark.parametrize("found", [*permutations((UNKNOWN, H100, H200))])
def test_groups_with_different_gpus_are_not_measured_together(found: tuple[Configuration, ...]) -> None:
    """Groups with different GPUs are not measured together. A group whose GPU is unknown agrees with both kinds, but does
    not make the two kinds equal, whatever the order.
    """
    assert configurations.bind_measurements(before(), fleet(2, 1, *found), NOW).configured == (NOW, NOW)
    for pair in permutations((UNKNOWN, H200)):
        assert configurations.bind_measurements(before(), fleet(2, 1, *pair), NOW).configured == before().configured


def test_prediction_is_used_for_other_gpus_if_available() -> None:
    other = Configuration("new", "8x H100")
    seen, there = samples(8.0, **SHOWS_NOTHING), fleet(2, 1, other)
    after = configurations.bind_measurements(before(), there, NOW)._replace(configured=(0.0, 0.0))
    planned, _ = decide_size(seen, there, TARGETS, after, NOW, SLOW)
    former, _ = decide_size(seen, there, TARGETS, after, NOW)
    assert planned.basis == {PREFILL: Basis.PLANNED, DECODE: Basis.PLANNED}
    assert former.basis == {PREFILL: Basis.FORMER, DECODE: Basis.FORMER}
    assert planned.prefill > former.prefill


def test_an_upper_bound_of_the_former_groups_replaces_a_slow_prediction() -> None:
    """If a prediction is slower than the load that the former groups have served in time, that load counts instead. Groups
    that were never saturated have only shown such a bound. So a rollout alone adds no groups.
    """
    shown = LearnedProperties(shown=(1000.0, 0.25), curve=KNOWN.curve, configurations=(OLD, OLD), starts=KNOWN.starts)
    sizes = [
        decide_size(samples(8.0, **SHOWS_NOTHING), fleet(3, 1, now), TARGETS, there, NOW, SLOW)[0].size
        for now, there in ((OLD, before(3, learned=shown)), (NEW, rolled_out(3, learned=shown)))
    ]
    assert sizes[0] == sizes[1] == (3, 1, 1)


def test_late_requests_after_rollout_discard_the_load_served_by_former_groups() -> None:
    """If requests are late after a rollout, the load that the former groups have served in time does not count any more. Two
    groups have served 4 requests/s in time before the rollout, and are late with them after it.
    """
    late = tuple(one._replace(late=0.3 if one.at > NOW - 310 else 0.0) for one in samples(4.0, **SHOWS_NOTHING))
    late = (*late[:-1], late[-1]._replace(late=0.3))
    made, after = decide_size(late, fleet(2, 1, NEW), TARGETS, rolled_out(), NOW, SLOW)
    assert made.size == (2, 1, 1) and after.doubted
    made, _ = decide_size(late, fleet(2, 1, NEW), TARGETS, after, NOW, SLOW)
    assert made.prefill > 2 and made.basis[PREFILL] == Basis.PLANNED
    _, kept = decide_size(late, fleet(2, 1, NEW), TARGETS, rolled_out()._replace(configured=(NOW - 200,) * 2), NOW, SLOW)
    assert not kept.doubted, "not long enough"
    more = tuple(one._replace(requests=40.0, prompt_tokens=40000.0) for one in late)
    _, kept = decide_size(more, fleet(2, 1, NEW), TARGETS, rolled_out(), NOW, SLOW)
    assert not kept.doubted, "more load than the former groups could have served"
    back = configurations.bind_measurements(after, fleet(2, 1, OLD), NOW)
    assert back.learned.work == KNOWN.work and not back.doubted, "a rollback still finds what they have shown"


def test_former_measurements_prove_no_unreachable_target() -> None:
    made, _ = decide_size(samples(4.0, **SHOWS_NOTHING), fleet(2, 1, NEW), TARGETS._replace(ttft=0.2), rolled_out(), NOW)
    assert made.hold == HoldReason.UNMEASURED and made.why.startswith("measurements from before the groups changed say that")


def test_every_measured_speed_belongs_to_a_role() -> None:
    """Each field of `LearnedProperties` is listed as a property of the requests, of the starts, or of the speed of a role,
    so that a new field is not forgotten.
    """
    assert {name for names in SPEED.values() for name in names} == {*LearnedProperties._fields} - {
        "request", "starts", "configurations",
    }  # fmt: skip
