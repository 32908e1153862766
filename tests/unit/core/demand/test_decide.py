"""Tests of every state, and of every reason to wait, of the decision about the size of a service."""

from collections.abc import Callable
from typing import Any

import pytest

from ome_operator.core.demand.decide import DECISIONS, decide_size
from ome_operator.core.demand.facts import (
    DECODE,
    PREFILL,
    ROUTER,
    Fleet,
    GroupBounds,
    LearnedProperties,
    RoleFleet,
    ScalingState,
)
from ome_operator.core.demand.holds import HOLDS, HoldReason
from tests.unit.core.demand.loads import KNOWN, NOW, TARGETS, fleet, sample, samples, state


def test_sufficient_size_is_kept() -> None:
    made, after = decide_size(samples(), fleet(), TARGETS, state(), NOW)
    assert (made.size, made.hold) == ((2, 1, 1), "")
    assert after.last[-1].size == (2, 1, 1)
    assert "4.0 requests/s arrive; a prefill group serves 4.00 requests/s" in made.why


def test_prefill_and_decode_grow_in_one_decision() -> None:
    made, after = decide_size(samples(20.0), fleet(), TARGETS, state(), NOW)
    assert made.prefill > 5  # 20 requests/s take the time of 5 groups
    assert made.decode == 1  # 80 requests of 110
    made, after = decide_size(
        samples(40.0), fleet(), TARGETS._replace(bounds={**TARGETS.bounds, PREFILL: GroupBounds(1, 20)}), state(), NOW
    )
    assert made.prefill > 10 and made.decode == 2
    assert after.changed == NOW and after.changes == (NOW,)


def test_demand_follows_arrivals_and_not_completions() -> None:
    """The demand is derived from arrivals and not from completions: a saturated service completes only as many requests as
    it can, while more arrive.
    """
    newest = {"requests": 4.0, "prompt_tokens": 4000.0, "ended": 4.0, "output_tokens": 400.0, "waiting": 500}
    made, _ = decide_size(samples(16.0, **newest), fleet(1), TARGETS, state(1), NOW)
    assert made.prefill > 4


def test_backlog_is_served_within_two_group_starts() -> None:
    without, _ = decide_size(samples(4.0), fleet(), TARGETS, state(), NOW)
    made, _ = decide_size(samples(4.0, waiting=1200), fleet(), TARGETS, state(), NOW)
    spare = made.prefill / 0.25 - 4.0
    assert made.prefill > without.prefill
    assert spare * 100 >= 1200 + 100 * (4.0 - 8.0)  # the rest is served within another start time
    assert "the oldest request has waited 300 s" in made.why


@pytest.mark.parametrize("waiting", [2000, 20_000])
def test_backlog_adds_at_most_as_many_groups_as_have_a_queue(waiting: int) -> None:
    """A backlog adds at most as many groups as have a queue. Requests stay in the queue of their group, so further groups
    would get none of the requests that wait.
    """
    without, _ = decide_size(samples(4.0), fleet(), TARGETS, state(), NOW)
    made, _ = decide_size(samples(4.0, waiting=waiting), fleet(), TARGETS, state(), NOW)
    assert made.prefill == without.prefill + 2


def test_one_group_is_removed_per_decision_starting_with_the_longest_surplus() -> None:
    surplus = state(6, 3, lower_since=(NOW - 200, NOW - 300))
    made, after = decide_size(samples(), fleet(6, 3), TARGETS, surplus, NOW)
    assert made.size == (6, 2, 1)
    made, after = decide_size(samples(), fleet(6, 2), TARGETS, after._replace(changed=NOW - 61), NOW)
    assert made.size == (6, 1, 1)
    made, _ = decide_size(samples(), fleet(6), TARGETS, after._replace(changed=NOW - 61), NOW)
    assert made.size == (5, 1, 1)


BRAKES: dict[HoldReason, Callable[[], tuple[Any, ...]]] = {
    HoldReason.BUSY: lambda: (samples(), fleet(6, busy="a rollout"), TARGETS, state(6)),
    HoldReason.STARTING: lambda: (samples(), Fleet(RoleFleet(5, starting=1), RoleFleet(1)), TARGETS, state(6)),
    HoldReason.HOLE: lambda: ((*samples()[:20], *samples()[23:]), fleet(6), TARGETS, state(6)),
    HoldReason.LATE: lambda: (samples(late=0.06), fleet(6), TARGETS, state(6)),
    HoldReason.ERRORS: lambda: (samples(errors=0.1), fleet(6), TARGETS, state(6)),
    HoldReason.COOL_DOWN: lambda: (samples(), fleet(6), TARGETS, state(6, changed=NOW - 59)),
    HoldReason.CAP: lambda: (samples(), fleet(6), TARGETS, state(6, changes=tuple(NOW - 100 - n for n in range(40)))),
}
STAYS: dict[HoldReason, Callable[[], tuple[Any, ...]]] = {
    HoldReason.FROZEN: lambda: (samples(40.0), fleet(frozen="frozen by a person"), TARGETS, state()),
    HoldReason.UNKNOWN: lambda: (samples(40.0, arrivals=None), fleet(), TARGETS, state()),
    HoldReason.UNMEASURED: lambda: (samples(40.0), fleet(), TARGETS, state()._replace(learned=LearnedProperties())),
    HoldReason.UNREACHABLE: lambda: (samples(40.0), fleet(), TARGETS._replace(ttft=0.2), state()),
}
FEWER_THAN_NEEDED: dict[HoldReason, Callable[[], tuple[Any, ...]]] = {
    HoldReason.MAXIMUM: lambda: (samples(40.0), fleet(), TARGETS, state()),
    HoldReason.BUDGET: lambda: (samples(20.0), fleet(), TARGETS._replace(gpus=32), state()),
    HoldReason.NO_ROOM: lambda: (samples(20.0), Fleet(RoleFleet(2, room=3), RoleFleet(1)), TARGETS, state()),
}


def test_every_hold_reason_has_a_test_case() -> None:
    elsewhere = {
        HoldReason.INVALID, HoldReason.UNHEARD,  # test_follow.py
        HoldReason.UNDONE, HoldReason.CAPPED, HoldReason.SCHEDULED_ZERO,  # test_undo.py, test_cap.py, test_rest.py
        HoldReason.FIRST_STEP, HoldReason.PLANNED,  # test_unmeasured.py
    }  # fmt: skip
    assert {*BRAKES, *STAYS, *FEWER_THAN_NEEDED} | elsewhere == {*HOLDS} == {*HoldReason}


@pytest.mark.parametrize("hold", BRAKES)
def test_hold_keeps_all_groups(hold: HoldReason) -> None:
    made, _ = decide_size(*BRAKES[hold](), NOW)
    assert (made.size, made.hold) == ((6, 1, 1), hold)


@pytest.mark.parametrize("hold", [hold for hold in BRAKES if hold not in (HoldReason.LATE, HoldReason.CAP)])
def test_hold_of_a_removal_does_not_prevent_adding_groups(hold: HoldReason) -> None:
    seen, found, targets, before = BRAKES[hold]()
    more = tuple(one._replace(arrivals=28.0, requests=28.0, prompt_tokens=28000.0) for one in seen)
    made, _ = decide_size(more, found, targets, before, NOW)
    assert made.prefill > 6


@pytest.mark.parametrize("hold", STAYS)
def test_size_stays_while_a_hold_applies(hold: HoldReason) -> None:
    made, after = decide_size(*STAYS[hold](), NOW)
    assert (made.size, made.hold) == ((2, 1, 1), hold)
    assert after.last[-1].hold == hold and made.why


@pytest.mark.parametrize("hold", FEWER_THAN_NEEDED)
def test_unavailable_groups_are_requested_only_once(hold: HoldReason) -> None:
    seen, found, targets, before = FEWER_THAN_NEEDED[hold]()
    made, after = decide_size(seen, found, targets, before, NOW)
    assert made.hold == hold and made.prefill > 2
    again, later = decide_size(seen, found, targets, after, NOW)
    assert (again.size, later.changes, later.last) == (made.size, after.changes, after.last)


@pytest.mark.parametrize("hold", FEWER_THAN_NEEDED)
def test_missing_groups_of_one_role_are_reported_despite_surplus_of_the_other(hold: HoldReason) -> None:
    """The decision reports that one role has too few groups although the other role has one group too many. Prefill cannot
    get the groups that it needs. Many requests are late, so the surplus decode group is kept.
    """
    seen, found, targets, before = FEWER_THAN_NEEDED[hold]()
    seen = tuple(one._replace(late=0.5) for one in seen)
    found = found._replace(decode=RoleFleet(3))
    targets = targets._replace(gpus=targets.gpus and targets.gpus + 16)
    before = before._replace(wanted=(2, 3, 1), lower_since=(None, NOW - 300))
    made, after = decide_size(seen, found, targets, before, NOW)
    again, _ = decide_size(seen, found, targets, after._replace(changed=NOW - 3600, lower_since=(None, NOW - 300)), NOW)
    assert made.prefill > 2 and (again.size, again.hold) == (made.size, hold)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("no sample", ()),
        ("an old sample", samples()[:-3]),
        ("a sample of the future", (*samples()[1:-1], sample(NOW + 30))),
        ("no arrivals", samples(arrivals=None)),
        ("no queue", samples(waiting=None)),
    ],
)
def test_unknown_samples_are_not_treated_as_zero_load(name: str, seen: Any) -> None:
    made, _ = decide_size(seen, fleet(6), TARGETS, state(6), NOW)
    assert (made.size, made.hold) == ((6, 1, 1), HoldReason.UNKNOWN)


def test_prompts_of_different_lengths_need_more_groups_than_equal_ones() -> None:
    """Prompts of different lengths need more prefill groups than equally long ones. The means of neighboring windows of 240
    requests differ by 20 % here, so single requests differ far more.
    """
    mixed = [one._replace(prompt_tokens=4000.0 * (1.1 if number // 6 % 2 else 0.9)) for number, one in enumerate(samples())]
    targets = TARGETS._replace(ttft=1.0)
    needs = [decide_size(seen, fleet(1), targets, state(1), NOW)[0].prefill for seen in (samples(), mixed)]
    assert needs[0] < needs[1]


def test_a_budget_is_divided_so_that_both_roles_serve_about_the_same_part() -> None:
    bounds = {PREFILL: GroupBounds(1, 20), DECODE: GroupBounds(1, 20)}
    free, _ = decide_size(samples(160.0), fleet(), TARGETS._replace(bounds=bounds), state(), NOW)
    made, _ = decide_size(samples(160.0), fleet(), TARGETS._replace(bounds=bounds, gpus=8 * 10), state(), NOW)
    assert made.prefill + made.decode == 10
    assert abs(made.prefill / free.prefill - made.decode / free.decode) < 0.25


def test_decision_adds_spare_groups() -> None:
    bounds = {**TARGETS.bounds, PREFILL: GroupBounds(1, 9, spare=2)}
    plain, _ = decide_size(samples(20.0), fleet(), TARGETS, state(), NOW)
    made, _ = decide_size(samples(20.0), fleet(), TARGETS._replace(bounds=bounds), state(), NOW)
    assert made.prefill == plain.prefill + 2


def test_routers_follow_the_requests_in_flight() -> None:
    targets = TARGETS._replace(in_flight_of_a_router=100)
    made, _ = decide_size(samples(in_flight=250), fleet(), targets, state(), NOW)
    assert made.routers == 3
    made, _ = decide_size(samples(), fleet(), targets, state(2, 1, 3), NOW)
    assert made.routers == 2


@pytest.mark.parametrize("hold", [HoldReason.UNMEASURED, HoldReason.UNREACHABLE])
def test_routers_are_added_although_the_numbers_of_groups_stay(hold: HoldReason) -> None:
    _, found, targets, before = STAYS[hold]()
    targets = targets._replace(in_flight_of_a_router=100)
    made, after = decide_size(samples(40.0, in_flight=250), found, targets, before, NOW)
    assert (made.size, made.hold) == ((2, 1, 3), hold)
    again, later = decide_size(samples(40.0, in_flight=150), found, targets, after, NOW)
    assert (again.size, later.changes) == (made.size, after.changes), "a router is removed only with an estimate"


def test_routers_stay_without_a_limit() -> None:
    made, _ = decide_size(samples(in_flight=10_000), fleet(), TARGETS, state(2, 1, 2), NOW)
    assert made.routers == 2
    bounds = {**TARGETS.bounds, ROUTER: GroupBounds(3, 9)}
    made, _ = decide_size(samples(), fleet(), TARGETS._replace(bounds=bounds), state(2, 1, 2), NOW)
    assert made.routers == 3


def test_first_decision_starts_from_the_existing_groups() -> None:
    begin = ScalingState(learned=KNOWN)
    made, after = decide_size(samples(), Fleet(RoleFleet(2, starting=1), RoleFleet(1)), TARGETS, begin, NOW)
    assert made.size == (3, 1, 1) == after.wanted


def test_the_decisions_that_are_kept_are_few() -> None:
    after = state()
    for number in range(50):
        rate = 40.0 if number % 2 else 4.0
        _, after = decide_size(samples(rate, arrivals=None if number % 2 else rate), fleet(), TARGETS, after, NOW)
    assert len(after.last) == DECISIONS


def test_a_service_without_requests_shrinks_to_its_minimum() -> None:
    quiet = {"running": 0.0, "running_now": 0, "requests": 0.0, "prompt_tokens": 0.0, "ended": 0.0, "output_tokens": 0.0}
    seen = tuple(one._replace(late=None, **quiet) for one in samples(0.0))
    before = state(2)._replace(learned=KNOWN._replace(request=(1000.0, 100.0)))
    made, _ = decide_size(seen, fleet(2), TARGETS, before, NOW)
    assert (made.size, made.hold) == ((1, 1, 1), "")


def test_a_budget_also_holds_while_surplus_groups_of_the_other_role_exist() -> None:
    """The budget of GPUs also holds while the other role has surplus groups. There are two surplus decode groups, and
    prefill needs more groups; the total never exceeds the budget at any step.
    """
    targets = TARGETS._replace(gpus=8 * 6)
    made, after = decide_size(samples(16.0), fleet(3, 3), targets, state(3, 3, lower_since=(None, NOW - 300)), NOW)
    assert (made.size, made.hold) == ((3, 2, 1), HoldReason.BUDGET)
    made, _ = decide_size(samples(16.0), fleet(3, 2), targets, after, NOW)
    assert (made.size, made.hold) == ((4, 2, 1), HoldReason.BUDGET)
