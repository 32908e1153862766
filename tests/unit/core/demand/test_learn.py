"""What a service learns about itself."""

import pytest

from ome_operator.core.demand import learn
from ome_operator.core.demand.facts import Learned, PrefillWork
from tests.unit.core.demand.loads import KNOWN, fleet, sample

FULL = {"saturated": 2, "saturated_requests": 4.0, "saturated_tokens": 4000.0}


def test_a_saturated_group_shows_its_service_rate() -> None:
    found = learn.learned(KNOWN, sample(**FULL), fleet())
    assert found.scale == pytest.approx(2 / (4 * 0.25)) and found.measured == 1
    again = learn.learned(found, sample(saturated=1, saturated_requests=4.0, saturated_tokens=4000.0), fleet())
    assert again.scale == pytest.approx(2.0 + learn.NEW * (1.0 - 2.0))


def test_a_group_that_is_not_saturated_shows_nothing_about_prefill() -> None:
    assert learn.learned(KNOWN, sample(), fleet()).scale == KNOWN.scale


def test_the_first_measurement_is_the_estimate_if_there_is_none() -> None:
    assert learn.learned(Learned(), sample(**FULL), fleet()).work == PrefillWork(0.0, 2 / 4000)


def test_a_queue_gives_an_estimate_until_the_first_measurement() -> None:
    """A group with a queue at each reading may have been idle in between, so only a faster estimate replaces the first."""
    queued = {"queued": 2, "queued_requests": 2.0, "queued_tokens": 2000.0}
    first = learn.learned(Learned(), sample(**queued), fleet())
    assert (first.work, first.scale, first.measured) == (PrefillWork(0.0, 2 / 2000), 1.0, 0)
    slower = learn.learned(first, sample(queued=2, queued_requests=1.0, queued_tokens=1000.0), fleet())
    assert slower == first
    faster = learn.learned(first, sample(queued=2, queued_requests=4.0, queued_tokens=4000.0), fleet())
    assert faster.scale == pytest.approx(0.5) and faster.measured == 0
    measured = learn.learned(first, sample(**FULL), fleet())
    assert measured.scale == pytest.approx(0.5) and measured.measured == 1
    assert learn.learned(measured, sample(**queued), fleet()) == measured


def test_decode_is_learned_where_it_is_observed_and_nowhere_else() -> None:
    found = learn.learned(KNOWN, sample(rate=32.0, output_tokens=1600.0), fleet())
    assert found.curve == ((10.0, 0.02), (64.0, 64 / 1600), (210.0, 0.06))
    for _ in range(1000):
        found = learn.learned(found, sample(rate=32.0, output_tokens=1600.0), fleet())
    assert len(found.curve) == 3 and found.curve[2] == (210.0, 0.06)


def test_a_load_that_changes_teaches_nothing_about_decode() -> None:
    assert learn.learned(KNOWN, sample(rate=4.0, running_now=90), fleet()).curve == KNOWN.curve


def test_noise_never_makes_a_larger_batch_faster() -> None:
    assert learn.rising(((10.0, 0.03), (20.0, 0.02), (40.0, 0.05))) == ((10.0, 0.03), (20.0, 0.03), (40.0, 0.05))


def test_the_start_is_the_median_of_the_last_starts() -> None:
    assert learn.cold_start(Learned()) == learn.FIRST_START
    found = Learned()
    for seconds in (900.0, 100.0, 110.0, 105.0, 500.0, 104.0):
        found = learn.with_start(found, seconds)
    assert len(found.starts) == learn.STARTS and learn.cold_start(found) == 105.0
