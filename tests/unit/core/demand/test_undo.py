"""Tests of the way back to the size before the last decision."""

import pytest

from ome_operator.core.demand import undo
from ome_operator.core.demand.decide import DECISIONS, change_size, keep_size
from ome_operator.core.demand.facts import DECODE, PREFILL, ROUTER, GroupBounds
from ome_operator.core.demand.follow import follow
from ome_operator.core.demand.holds import HoldReason
from ome_operator.core.demand.stored import to_status
from ome_operator.core.demand.task import APPLY, DemandTask, PeakTime
from tests.unit.core.demand.loads import NOW, TARGETS, fleet, samples, state

SIZE = {"prefill": 2, "decode": 1, "routers": 1}


def task(**other: object) -> DemandTask:
    """Return the task of a service with six prefill groups that a user has set back to two."""
    made = DemandTask(APPLY, fleet(6, 3), TARGETS, (6, 3, 1), fits=True, undone=(2, 1, 1))
    return made._replace(**other)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [(1, 1, 1), (12, 3, 2), (1000, 1000, 1000)])
def test_size_text_is_parsed_back(size: undo.Size) -> None:
    assert undo.size_of(undo.text(size)) == size


@pytest.mark.parametrize(
    "written",
    ["", "true", "prefill=2", "prefill=2,decode=1", "prefill=2,decode=0,routers=1", "prefill=2,decode=-1,routers=1",
     "prefill=2,decode=x,routers=1", "prefill=2,decode=1001,routers=1", "prefill=2,decode=²,routers=1",
     "prefill=2,decode=1,routers=1,more=1"],
)  # fmt: skip
def test_invalid_size_text_is_not_parsed(written: str) -> None:
    assert undo.size_of(written) is None


def test_size_before_is_the_newest_different_size() -> None:
    older, other = {**SIZE, "prefill": 9, "time": "a"}, {**SIZE, "decode": 4, "time": "b"}
    same = {**SIZE, "hold": "Unknown", "time": "c"}
    assert undo.size_before([older, other, same], SIZE) == ((2, 4, 1), "b")
    assert undo.size_before([older, {**other, "decode": "4"}, same], SIZE) == ((9, 1, 1), "a")
    assert undo.size_before([{**SIZE, "prefill": 0}, same], SIZE) is None, "zero is no size to go back to"
    assert undo.size_before([], SIZE) is None


def test_alternating_hold_reasons_do_not_displace_the_previous_size() -> None:
    after = state(2, 1, last=())
    for number, size in enumerate([(1, 1, 1), (2, 1, 1), (5, 1, 1)]):
        _, after = change_size(after, NOW + number, size, "", "")
    for number in range(24):
        _, after = keep_size(after, NOW + 10 + number, (5, 1, 1), "" if number % 2 else HoldReason.CAPPED, "")
        stored = to_status(after)
        assert undo.size_before(stored["decisions"], stored["wanted"])[0] == (2, 1, 1)  # type: ignore[index]
        assert len(after.last) == min(DECISIONS, 4 + number)
    assert [one.at - NOW for one in after.last] == [1, 2, *range(26, 34)], "also the change itself, and what is newest"
    for number in range(12):
        _, after = change_size(after, NOW + 100 + number, (6 + number, 1, 1), "", "")
    assert [one.prefill for one in after.last] == [*range(8, 18)], "the oldest changes are left out"


def test_scheduled_zeros_do_not_displace_the_previous_size() -> None:
    _, after = change_size(state(last=()), NOW, (2, 1, 1), "", "")
    for number in range(24):
        zero = number % 2 == 0
        size, hold = ((0, 0, 1), HoldReason.SCHEDULED_ZERO) if zero else ((5, 1, 1), "")
        _, after = change_size(after, NOW + 1 + number, size, hold, "")
    stored = to_status(after)
    assert undo.size_before(stored["decisions"], stored["wanted"])[0] == (2, 1, 1)  # type: ignore[index]
    assert len(after.last) == DECISIONS and after.last[-1].size == (5, 1, 1)
    for number in range(24):
        _, after = keep_size(after, NOW + 100 + number, (0, 0, 1), "" if number % 2 else HoldReason.SCHEDULED_ZERO, "")
    stored = to_status(after)
    assert undo.size_before(stored["decisions"], stored["wanted"])[0] == (5, 1, 1)  # type: ignore[index]


def test_previous_size_is_limited_by_bounds_of_the_spec() -> None:
    spec = {"engine": {"minReplicas": 0, "maxReplicas": 3}, "decoder": {"minReplicas": 2}}
    assert undo.written_limits((6, 1, 2), spec) == (3, 2, 2)
    assert undo.written_limits((2, 4, 1), {"engine": None}) == (2, 4, 1)


def test_undone_size_is_kept_under_any_load_and_recorded_once() -> None:
    before = state(6, 3)
    for load in (samples(40.0), samples(0.1), [], samples(arrivals=None)):
        made, after = follow(load, task(), before, NOW, lambda more: more)
        assert (made.size, made.hold) == ((2, 1, 1), HoldReason.UNDONE)
        assert [one.hold for one in after.last] == [HoldReason.UNDONE] and after.changes == (NOW,)
        again, later = follow(load, task(), after, NOW + 10, lambda more: more, heard=False)
        assert (again.size, later.last, later.changes) == (made.size, after.last, after.changes)


def test_demand_decides_again_after_the_undo_is_removed() -> None:
    _, after = follow(samples(), task(), state(6, 3), NOW, lambda more: more)
    made, _ = follow(samples(20.0), task(undone=None, fleet=fleet(2, 1), asked=(2, 1, 1)), after, NOW + 1, lambda more: more)
    assert made.prefill > 5 and made.hold == ""


def test_undone_size_is_limited_by_current_bounds() -> None:
    bounds = {PREFILL: GroupBounds(1, 9), DECODE: GroupBounds(2, 9), ROUTER: GroupBounds(1, 1)}
    targets = TARGETS._replace(bounds=bounds)
    asked = task(targets=targets, undone=(8, 1, 3))
    assert undo.limit_to_bounds((8, 1, 3), asked) == (8, 2, 1)
    assert undo.limit_to_bounds((8, 1, 3), asked._replace(targets=targets._replace(gpus=48))) == (4, 2, 1)
    by_hand = {**bounds, DECODE: GroupBounds(7, 7)}
    made, _ = follow(samples(), task(targets=TARGETS._replace(bounds=by_hand)), state(6, 3), NOW, lambda more: more)
    assert made.decode == 7, "a number that somebody has set counts"


def test_undone_size_overrides_a_peak_but_not_a_freeze() -> None:
    peak = PeakTime(frozenset(range(7)), 0, 0, {PREFILL: 5})
    made, _ = follow(samples(), task(peaks=(peak,)), state(6, 3), NOW, lambda more: more)
    assert made.size == (2, 1, 1)
    made, _ = follow(samples(), task(fleet=fleet(6, 3, frozen="frozen by alice")), state(6, 3), NOW, lambda more: more)
    assert (made.size, made.hold) == ((6, 3, 1), HoldReason.FROZEN)
