"""Tests of how many services may begin, given only counts and times."""

from datetime import UTC, datetime, timedelta

import pytest

from ome_operator import keys
from ome_operator.api import Invalid
from ome_operator.core.waves.terms import (
    LONGEST,
    CurrentWave,
    WaveTerms,
    parse_waves,
    present_wave,
    read_bake,
    sizes,
    terms,
    wave_of,
)

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
USUAL = WaveTerms()


def ago(*minutes: float) -> list[datetime]:
    return sorted(NOW - timedelta(minutes=each) for each in minutes)


@pytest.mark.parametrize(
    ("waves", "total", "ends"),
    [
        (USUAL.waves, 200, [1, 10, 50, 200]),
        (USUAL.waves, 201, [1, 11, 51, 201]),
        (USUAL.waves, 3, [1, 2, 3]),
        (USUAL.waves, 1, [1]),
        (USUAL.waves, 0, []),
        (("100%",), 200, [200]),
        (("1",), 200, [1, 200]),
        (("1", "10", "1000"), 200, [1, 10, 200]),
        (("50%", "3"), 200, [100, 101, 200]),
        (("1", "2", "3", "4"), 2, [1, 2]),
    ],
)
def test_wave_sizes_are_rounded_up_and_grow(waves: tuple[str, ...], total: int, ends: list[int]) -> None:
    """A wave that is a share of the services is rounded up. Each wave has at least one service more than the previous one,
    and the last wave has all services.
    """
    assert sizes(waves, total) == ends


@pytest.mark.parametrize(
    ("whole", "under_way", "failed", "wave", "room"),
    [
        ([], 0, 0, 1, 1),
        ([], 1, 0, 1, 0),
        ([], 0, 1, 1, 0),
        ([1], 0, 0, 1, 0),
        ([5], 0, 0, 2, 9),
        ([6, 1], 3, 0, 2, 5),
        ([6] * 10, 0, 0, 3, 40),
        ([6] * 9 + [1], 0, 0, 2, 0),
        ([6] * 10, 7, 1, 3, 0),
        ([60] * 50, 0, 0, 4, 150),
        ([60] * 200, 0, 0, 4, 0),
        # A service lost a group after the wave was complete. It keeps its place in the wave.
        ([6] * 9, 1, 0, 2, 0),
        # More services roll out than the wave has, because they began with a previous edit.
        ([], 12, 0, 1, 0),
    ],
)  # fmt: skip
def test_wave_limits_number_of_services_that_begin(
    whole: list[float], under_way: int, failed: int, wave: int, room: int
) -> None:
    found = present_wave(USUAL, 200, ago(*whole), under_way, failed, NOW)
    assert found is not None and (found.wave, found.of, found.room) == (wave, 4, room)


def test_bake_time_of_a_wave_starts_with_its_last_service() -> None:
    found = present_wave(USUAL, 200, ago(*[20.0] * 9, 2), 0, 0, NOW)
    assert found is not None and found.until == NOW + timedelta(minutes=3) and found.seconds_until_next_wave(NOW) == 180
    found = present_wave(USUAL, 200, ago(*[20.0] * 9, 5), 0, 0, NOW)
    assert found is not None and found.until is None and found.seconds_until_next_wave(NOW) is None
    assert present_wave(USUAL._replace(bake=0.0), 200, [NOW], 0, 0, NOW) == (2, 4, 10, 9, None)


def test_later_service_does_not_delay_a_baked_wave() -> None:
    """The bake time of a wave is measured from its own services. The tenth service, the last of this wave, was complete long
    ago; the eleventh, which became complete a minute ago, belongs to the next wave and does not delay it.
    """
    found = present_wave(USUAL, 200, ago(*[20.0] * 10, 1), 0, 0, NOW)
    assert found is not None and (found.wave, found.room) == (3, 39)


def test_number_of_simultaneous_rollouts_is_limited() -> None:
    """At most `at_once` services may be in the middle of a rollout at the same time, however large the wave is. Clusters
    that have spare accelerators only for that number of services need this limit.
    """
    found = present_wave(USUAL._replace(at_once=4), 200, ago(*[20.0] * 10), 3, 0, NOW)
    assert found is not None and found.room == 1
    found = present_wave(USUAL._replace(at_once=4), 200, ago(*[20.0] * 10), 9, 0, NOW)
    assert found is not None and found.room == 0


def test_no_wave_exists_without_services() -> None:
    assert present_wave(USUAL, 0, [], 0, 0, NOW) is None


def test_position_in_the_order_determines_the_wave() -> None:
    assert [wave_of(USUAL, 200, place)[0] for place in (1, 2, 10, 11, 50, 51, 200, 201)] == [1, 2, 2, 3, 3, 4, 4, 4]
    assert wave_of(USUAL, 0, 1) == (1, 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [("1, 5%,25% ,100%", ("1", "5%", "25%", "100%")), ("100%", ("100%",)), ("1,10,50%", ("1", "10", "50%"))],
)
def test_wave_list_is_parsed(text: str, found: tuple[str, ...]) -> None:
    assert parse_waves(text) == found


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("0", "0 is not a wave"), ("1,300%", "300% is not a wave"), ("", "an empty text is not a wave"),
        ("1,,2", "an empty text is not a wave"),
        ("5%,1%", "5%, 1% does not increase"), ("3,3", "3, 3 does not increase"), ("100%,5", "does not increase"),
        ("-1", "-1 is not a wave"),
        ("1.5", "1.5 is not a wave"), ("0%", "0% is not a wave"), ("٣", "٣ is not a wave"), ("9999999999", "is not a wave"),
    ],
)  # fmt: skip
def test_invalid_wave_list_is_refused(text: str, word: str) -> None:
    found = parse_waves(text)
    assert isinstance(found, Invalid) and word in found.why and "such as 1, 5%, 25%, 100%" in found.why


@pytest.mark.parametrize("text", ["", "5", "fast", "9000h", "99999999999999999999h", "1" * 70 + "s", "-5m"])
def test_invalid_bake_time_is_refused(text: str) -> None:
    assert isinstance(read_bake(text), Invalid)


def test_bake_time_is_parsed() -> None:
    assert [read_bake(text) for text in ("0s", "90s", "1h30m", "720h")] == [0.0, 90.0, 5400.0, LONGEST]


def test_annotations_override_the_terms_and_invalid_ones_are_reported() -> None:
    assert terms({}, USUAL) == (USUAL, ())
    assert terms({keys.WAVES: "1, 50%", keys.BAKE: "1h"}, USUAL) == (WaveTerms(("1", "50%"), 3600.0), ())
    found, said = terms({keys.WAVES: "0", keys.BAKE: "soon"}, USUAL)
    assert found == USUAL and len(said) == 2
    assert (
        said[0].startswith("annotation ome.io/rollout-waves: 0 is not a wave")
        and "that the operator is configured with" in said[0]
    )


def test_a_tenth_of_services_may_lack_resources_from_the_second_wave() -> None:
    """From the second wave on, a tenth of the services, and at least one, may lack something of their own. The first wave
    must be complete, and a failure still stops all services.
    """
    whole = ago(60, 50)
    assert present_wave(USUAL, 10, whole, 1, 0, NOW) == CurrentWave(3, 4, 3, 0)
    assert present_wave(USUAL, 10, whole, 1, 0, NOW, lacking=1) == CurrentWave(4, 4, 10, 7)
    assert present_wave(USUAL, 10, whole, 2, 0, NOW, lacking=2) == CurrentWave(4, 4, 10, 6), "the limit is one of ten"
    assert present_wave(USUAL, 10, whole[:1], 2, 0, NOW, lacking=2) == CurrentWave(3, 4, 3, 0), (
        "the second one delays the wave"
    )
    assert present_wave(USUAL, 10, [], 1, 0, NOW, lacking=1) == CurrentWave(1, 4, 1, 0)
    assert present_wave(USUAL, 10, whole, 1, 1, NOW, lacking=1) == CurrentWave(4, 4, 10, 0)
    assert present_wave(USUAL, 100, ago(*range(60, 55, -1)), 20, 0, NOW, lacking=20) == CurrentWave(3, 4, 25, 0)
    assert present_wave(WaveTerms(at_once=1), 10, whole, 1, 0, NOW, lacking=1) == CurrentWave(4, 4, 10, 1)


def test_single_service_wave_also_bakes() -> None:
    turn = present_wave(USUAL, 10, ago(60, 3), 1, 0, NOW, lacking=1)
    assert turn == CurrentWave(3, 4, 3, 0, NOW + timedelta(minutes=2))
    late = present_wave(USUAL, 10, ago(60, 3), 1, 0, NOW + timedelta(minutes=2), lacking=1)
    assert late is not None and (late.wave, late.room) == (4, 7)
