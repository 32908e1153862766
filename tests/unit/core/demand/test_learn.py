"""Tests of what a service learns from its own measurements."""

import pytest

from ome_operator.core.demand import learn
from ome_operator.core.demand.facts import CompletedWork, LearnedProperties, PlannedSpeeds, PrefillWork
from tests.unit.core.demand.loads import KNOWN, NOW, fleet, sample

FULL = {"saturated": CompletedWork(2, 4.0, 4000.0)}


def test_a_saturated_group_shows_its_service_rate() -> None:
    found = learn.update_measurements(KNOWN._replace(measured=0), sample(**FULL), fleet())
    assert found.scale == pytest.approx(2 / (4 * 0.25)) and found.measured == 1
    again = learn.update_measurements(found, sample(saturated=CompletedWork(1, 4.0, 4000.0)), fleet())
    assert again.scale == pytest.approx(2.0 + learn.NEW * (1.0 - 2.0))


def test_unsaturated_group_gives_no_measurement_of_prefill() -> None:
    assert learn.update_measurements(KNOWN, sample(), fleet()).scale == KNOWN.scale


def test_first_measurement_becomes_the_estimate() -> None:
    assert learn.update_measurements(LearnedProperties(), sample(**FULL), fleet()).work == PrefillWork(0.0, 2 / 4000)


def test_a_queue_gives_an_estimate_until_the_first_measurement() -> None:
    """While a prefill group has a queue at each reading, its completions are an estimate of its speed. The group may have
    been idle in between, so until a real measurement exists, only a faster estimate replaces the first one.
    """
    queued = {"queued": CompletedWork(2, 2.0, 2000.0)}
    first = learn.update_measurements(LearnedProperties(), sample(**queued), fleet())
    assert (first.work, first.scale, first.measured) == (PrefillWork(0.0, 2 / 2000), 1.0, 0)
    slower = learn.update_measurements(first, sample(queued=CompletedWork(2, 1.0, 1000.0)), fleet())
    assert slower == first
    faster = learn.update_measurements(first, sample(queued=CompletedWork(2, 4.0, 4000.0)), fleet())
    assert faster.scale == pytest.approx(0.5) and faster.measured == 0
    measured = learn.update_measurements(first, sample(**FULL), fleet())
    assert measured.scale == pytest.approx(0.5) and measured.measured == 1
    assert learn.update_measurements(measured, sample(**queued), fleet()) == measured


def test_decode_curve_changes_only_at_the_observed_batch_size() -> None:
    found = learn.update_measurements(KNOWN, sample(running=64.0, running_now=64, output_tokens=1600.0), fleet())
    assert found.curve == ((10.0, 0.02), (64.0, 64 / 1600), (210.0, 0.06))
    for _ in range(1000):
        found = learn.update_measurements(found, sample(running=64.0, running_now=64, output_tokens=1600.0), fleet())
    assert len(found.curve) == 3 and found.curve[2] == (210.0, 0.06)


def test_changing_load_gives_no_measurement_of_decode() -> None:
    assert learn.update_measurements(KNOWN, sample(rate=4.0, running_now=90), fleet()).curve == KNOWN.curve


@pytest.mark.parametrize(
    ("grown", "measured"), [(0, True), (40, True), (-40, True), (50, False), (-50, False), (None, False)]
)
def test_tokens_that_are_counted_at_the_end_of_requests_measure_only_a_steady_load(
    grown: int | None, measured: bool
) -> None:
    """Some engines count the tokens of a request when the request ends. Such counts measure the speed only while the load
    is steady. In a window of 60 s, 240 requests have ended, and at its end `grown` more requests run than at its beginning
    (None: unknown). Half of the tokens of such a request are counted in the wrong window. The sample is used if at most a
    tenth of the tokens may be wrong in this way.
    """
    then = sample(NOW - 60, running_now=None if grown is None else 200 - grown)
    newest = sample(NOW, running_now=200)
    assert learn.newest_steady_sample((then, newest)) == newest._replace(
        output_tokens=newest.output_tokens if measured else None
    )
    assert learn.newest_steady_sample((newest,)).output_tokens is None, "nothing is known about the beginning of the window"


@pytest.mark.parametrize("pause", [10.0, 10.6, 11.3, 12.7, 14.2, 17.0, 20.0])
def test_a_steady_load_is_measured_whatever_the_distance_between_samples_is(pause: float) -> None:
    samples = [sample(NOW - pause * number, running_now=200) for number in range(30, -1, -1)]
    assert learn.newest_steady_sample(samples) == samples[-1]
    grown = [one._replace(running_now=round(200 + 0.9 * (one.at - NOW))) for one in samples]
    assert learn.newest_steady_sample(grown).output_tokens is None, (
        "54 requests more in a minute: more than a tenth of the tokens"
    )
    grown = [one._replace(running_now=round(200 + 0.6 * (one.at - NOW))) for one in samples]
    assert learn.newest_steady_sample(grown) == grown[-1], "36 requests more in a minute"


def test_first_measurement_takes_prompt_dependence_from_the_plan() -> None:
    planned = PlannedSpeeds(PrefillWork(0.1, 0.4 / 1000))
    found = learn.update_measurements(LearnedProperties(), sample(**FULL), fleet(), planned)
    assert found.work == planned.work and found.scale == pytest.approx(2 / (4 * 0.5)) and found.measured == 1


def test_load_served_in_time_gives_a_bound_of_the_speed() -> None:
    asked = list[tuple[int, float]]()

    def on_time(groups: int, rate: float) -> float:
        asked.append((groups, rate))
        return 0.9 * groups / rate

    found = learn.update_measurements(LearnedProperties(), sample(rate=4.0), fleet(2), on_time=on_time)
    assert asked == [(2, 4.0)] and found.shown == (1000.0, 0.45) and found.work is None
    lower = learn.update_measurements(found, sample(rate=3.0), fleet(2), on_time=on_time)
    assert lower.shown == found.shown, "a lower load shows less"
    assert learn.update_measurements(found, sample(rate=8.0), fleet(2), on_time=on_time).shown == (
        1000.0,
        pytest.approx(0.225),
    )
    assert learn.update_measurements(LearnedProperties(), sample(rate=4.0), fleet(2)).shown is None
    assert [learn.shown_seconds((1000.0, 0.4), tokens) for tokens in (10.0, 1000.0, 3000.0)] == pytest.approx(
        [0.4, 0.4, 1.2]
    )


def test_late_requests_discard_a_contradicted_speed_bound() -> None:
    """A bound of the speed ends when late requests contradict it. Two groups have served 4 requests/s in time, so a request
    took at most 0.45 s; the groups of a new revision are slower.
    """
    shown = LearnedProperties(shown=(1000.0, 0.45))

    def after(rate: float) -> tuple[float, float] | None:
        return learn.update_measurements(
            shown, sample(rate=rate), fleet(2), on_time=lambda n, r: 0.9 * n / r, late=True
        ).shown

    assert after(3.0) is None, "at 0.45 s they would have been in time"
    assert after(4.5) == shown.shown, "more load than was shown proves nothing"
    assert (
        learn.update_measurements(LearnedProperties(), sample(), fleet(2), on_time=lambda n, r: 1.0, late=True).shown is None
    )


def test_the_start_is_the_median_of_the_last_starts() -> None:
    assert learn.cold_start(LearnedProperties()) == learn.FIRST_START
    found = LearnedProperties()
    for seconds in (900.0, 100.0, 110.0, 105.0, 500.0, 104.0):
        found = learn.with_start(found, seconds)
    assert len(found.starts) == learn.STARTS and learn.cold_start(found) == 105.0
