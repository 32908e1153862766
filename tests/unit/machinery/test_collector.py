"""The garbage collector never walks all that lives long while the event loop waits."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from ome_operator.machinery import collector


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Circle:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.me = self


def walked() -> list[int]:
    """Generations that are looked at while the operator begins."""
    found: list[int] = []

    def note(what: str, info: dict[str, int]) -> None:
        if what == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    try:
        collector.patient()
        collector.listed()
        collector.passed()
    finally:
        gc.callbacks.remove(note)
    return found


def test_what_was_listed_is_never_walked_as_a_whole() -> None:
    assert max(walked()) < 2
    assert gc.get_freeze_count() > 0


def test_young_garbage_goes_before_the_rest_is_kept() -> None:
    gone = weakref.ref(Circle())
    collector.listed()
    assert gone() is None


def test_what_was_listed_goes_when_nobody_refers_to_it() -> None:
    kept = type("Plain", (), {})()
    gone = weakref.ref(kept)
    collector.listed()
    del kept
    assert gone() is None


def test_the_toll_is_the_time_of_each_collection() -> None:
    now = 0.0
    toll = collector.Toll(lambda: now)
    gc.callbacks.append(toll)
    try:
        gc.collect()
        assert toll.seconds == 0.0
    finally:
        gc.callbacks.remove(toll)
    for seconds in (1.5, 2.5):
        toll("start", {})
        now += seconds
        toll("stop", {})
        now += 10.0
    assert toll.seconds == 4.0
