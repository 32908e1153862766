"""Tests of the queue of keys to reconcile that can wait, with a simulated time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator.machinery.backlog import TimeShare
from ome_operator.machinery.schedule import IDLE_S, Schedule, SharedLimits
from tests.unit.machinery.test_schedule import of


def schedule(share: float = 1.0, runs: float = 100, **others: object) -> Schedule[str]:
    return Schedule(group=of, shared=SharedLimits(share, runs), **others)  # type: ignore[arg-type]


def run(s: Schedule[str], now: float, seconds: float = 0.0) -> str | None:
    """Run the next key that is due to its end, and return it; None if no key is due."""
    if (key := s.pop(now)) is not None:
        s.record_run(now, seconds)
        s.finish(key)
    return key


def test_new_edit_during_pending_runs_runs_each_key_once() -> None:
    s = schedule()
    for key in ("a1", "a2", "a3"):
        s.add_shared(key, 0.0)
    assert run(s, 0.0) == "a1"
    for key in ("a1", "a2", "a3"):
        s.add_shared(key, 1.0)
    assert [run(s, 1.0) for _ in range(4)] == ["a2", "a3", "a1", None], "a key that has only seen the previous edit is last"


def test_edit_during_a_run_causes_another_run() -> None:
    s = schedule()
    s.add_shared("a1", 0.0)
    assert s.pop(0.0) == "a1"
    s.add_shared("a1", 0.0)
    assert (s.pop(1.0), s.next_due()) == (None, None), "not before the present run ends"
    s.finish("a1")
    assert (run(s, 1.0), run(s, 1.0)) == ("a1", None)


def test_urgent_and_shared_keys_alternate() -> None:
    s = schedule()
    for number in range(5000):
        s.add_shared(f"noisy{number}", 0.0)
    for number in range(3):
        s.add(f"quiet{number}", 1.0)
    assert [run(s, 1.0) for _ in range(6)] == ["noisy0", "quiet0", "noisy1", "quiet1", "noisy2", "quiet2"]


def test_groups_of_shared_keys_alternate() -> None:
    s = schedule()
    for number in range(5000):
        s.add_shared(f"noisy{number}", 0.0)
    s.add_shared("quiet1", 1.0)
    assert [run(s, 2.0) for _ in range(3)] == ["noisy0", "quiet1", "noisy1"]


def test_run_covers_every_earlier_edit() -> None:
    s = schedule()
    s.add("a1", 0.0)
    s.add_shared("a1", 0.0)
    assert (s.due_count(0.0), run(s, 0.0), run(s, 0.0)) == (1, "a1", None)
    s.add("a1", 0.0, 600.0)
    s.add_shared("a1", 1.0)
    assert (s.due_count(1.0), s.longest_wait(3.0), run(s, 1.0)) == (1, 2.0, "a1")
    assert (s.next_due(), s.due_count(700.0)) == (None, 0), "that run also replaces the later one"


def test_shared_runs_use_a_limited_time_share_while_others_wait() -> None:
    s = schedule(share=0.2)
    for number in range(100):
        s.add_shared(f"a{number}", 0.0)
    s.add("b1", 0.0)
    assert [run(s, 0.0, 0.004) for _ in range(4)] == ["a0", "b1", "a1", "a2"]
    assert run(s, 0.0) is None, "8 ms were used since b1 began, which is more than a time slice"
    again = s.next_due()
    assert again == pytest.approx(0.032), "a pause of four times that"
    assert run(s, again - 0.001) is None
    s.add("b1", 0.01)
    assert run(s, 0.01) == "b1", "other keys do not pause"
    assert run(s, again) == "a3"


def test_shared_runs_use_all_time_while_no_other_key_is_due() -> None:
    s = schedule(share=0.2)
    for number in range(200):
        s.add_shared(f"a{number}", 0.0)
    s.add("b1", 0.0)
    assert (s.pop(0.0), s.pop(0.0)) == ("a0", "b1")
    s.finish("a0")
    s.record_run(0.0, 0.0)
    now = 5.0
    assert run(s, now, 0.006) == "a1"
    assert s.next_due() == pytest.approx(now + 0.024), "b1 is still running"
    s.finish("b1")
    now += IDLE_S
    for _ in range(100):
        assert run(s, now, 0.006) is not None
        now += 0.006


def test_time_share_counts_time_beyond_a_slice() -> None:
    share = TimeShare(0.25, 0.01)
    share.record_run(0.0, 0.006, alone=False)
    assert share.again == 0.0
    share.record_run(1.0, 0.024, alone=False)
    assert share.again == pytest.approx(1.09)


def test_number_of_concurrent_shared_runs_is_limited() -> None:
    """Only a limited number of keys that write run at the same time. Such runs wait for the API server, and some workers
    must remain for other keys.
    """
    s = schedule(runs=2)
    for key in ("a1", "a2", "a3"):
        s.add_shared(key, 0.0)
    assert (s.pop(0.0), s.pop(0.0), s.pop(0.0), s.next_due()) == ("a1", "a2", None, None)
    s.add("b1", 0.0)
    assert s.pop(0.0) == "b1"
    s.finish("a1")
    assert s.pop(0.0) == "a3"


def test_consecutive_long_runs_are_summed() -> None:
    s = schedule(is_long=lambda key: of(key) != "short", long_runs=1)
    s.add("a1", 0.0)
    s.add_shared("b1", 0.0)
    assert (s.pop(0.0), s.pop(0.0), s.next_due()) == ("b1", None, None)
    s.add_shared("c1", 0.0)
    s.add_shared("short1", 0.0)
    assert s.pop(0.0) == "short1", "a group whose next run is long delays no other group"
    s.finish("b1")
    assert s.pop(0.0) == "a1"
    s.finish("a1")
    assert s.pop(0.0) == "c1"


def test_superseded_later_runs_are_dropped() -> None:
    """Requests for a later run are dropped when an earlier run makes them unnecessary. Each run requests another one in ten
    minutes. Previously, a million of these requests were kept while a runtime was edited all the time.
    """
    s = schedule()
    for turn in range(10_000):
        s.add_shared("a1", float(turn))
        assert run(s, float(turn)) == "a1"
        s.add("a1", float(turn), 600.0)
    assert len(s._later) < 1000
    assert s.next_due() == 9_999.0 + 600.0


STEPS = st.tuples(st.sampled_from(["add", "shared", "pop", "done", "forget"]), st.integers(0, 8), st.integers(0, 3))


@given(st.lists(STEPS, max_size=80), st.sampled_from([0.2, 1.0]))
def test_every_dirty_key_runs_after_it_was_marked(steps: list[tuple[str, int, int]], share: float) -> None:
    """After a key was marked as dirty, it runs. No edit is lost, whatever happens in between, and only dirty keys run."""
    s = schedule(share, runs=2, is_long=lambda key: key.endswith("1"), long_runs=2)
    dirty, busy, now = set[str](), list[str](), 0.0
    for what, number, after in steps:
        key, now = f"{'abc'[number % 3]}{number}", now + after
        if what == "add":
            s.add(key, now, after)
            dirty.add(key)
        elif what == "shared":
            s.add_shared(key, now)
            dirty.add(key)
        elif what == "forget":
            s.forget(key)
            dirty.discard(key)
        elif what == "done" and busy:
            s.finish(busy.pop(0))
        elif what == "pop" and (got := s.pop(now)) is not None:
            s.record_run(now, 0.01)
            dirty.remove(got)
            busy.append(got)
            assert busy.count(got) == 1
    for key in busy:
        s.finish(key)
    while (due := s.next_due()) is not None:
        now = max(now, due)
        key = s.pop(now)
        assert key is not None, "a due key can be taken, or the loop would spin"
        s.record_run(now, 0.01)
        dirty.remove(key)
        s.finish(key)
    assert dirty == set()
