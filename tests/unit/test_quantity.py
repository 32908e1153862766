"""Tests of quantities in the spelling in which the API server stores them (apimachinery's resource.Quantity)."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ome_operator import quantity

CANONICAL = [
    ("1000m", "1"), ("1500m", "1500m"), ("0.5", "500m"), (".5", "500m"), ("+2", "2"), (2, "2"), (0.5, "500m"), ("0Gi", "0"),
    ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("0.5Gi", "512Mi"), ("0.5Ki", "512"), ("1023", "1023"), ("2048", "2048"),
    ("1000Ki", "1000Ki"), ("1000k", "1M"), ("1e3", "1e3"), ("2E3", "2e3"), ("1e4", "10e3"), ("1e-3", "1e-3"), ("10", "10"),
    ("1E", "1E"), ("0.0000000001", "1n"), ("-0.0000000001", "-1n"), ("100000000000000000000", "9223372036854775807"),
    ("1.1Ki", "1126400m"), ("64Gi", "64Gi"), ("12e0", "12"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "stored"), CANONICAL)
def test_canonical_quantity_matches_api_server(written: object, stored: str) -> None:
    assert quantity.canonical_text(written) == stored


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1GiB", "1e", "--1", "true", "1e9999999", "1e-9999", "9" * 5000, "٣"])
def test_invalid_quantity_is_unchanged_and_counts_as_zero(text: str) -> None:
    assert quantity.canonical_text(text) == text
    assert quantity.parse(text) == 0


def test_largest_exponent_is_computed_quickly_and_capped() -> None:
    assert quantity.parse("1e999") == 2**63 - 1 and quantity.canonical_text("1e-999") == "1e-9"
    assert quantity.is_valid("1e+003") and not quantity.is_valid("1e1000")


@pytest.mark.parametrize(("text", "number"), [("7", 7), (7, 7), ("007", 7), (str(2**63 - 1), 2**63 - 1)])
def test_whole_number_is_parsed(text: object, number: int) -> None:
    assert quantity.whole_number(text) == number


@pytest.mark.parametrize("text", ["", "²", "٣", "-1", "+1", "1.0", "1_0", " 1", "9" * 5000, True, None, [1]])
def test_invalid_whole_number_is_none(text: object) -> None:
    assert quantity.whole_number(text) is None


numbers = st.decimals(min_value=0, max_value=10**9, places=3).map(str)
quantities = st.builds(
    lambda number, suffix: number + suffix, numbers, st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "e-2"])
)


@given(quantities)
def test_canonical_quantity_keeps_its_value_and_is_idempotent(written: str) -> None:
    once = quantity.canonical_text(written)
    assert quantity.canonical_text(once) == once
    assert abs(quantity.parse(once) - quantity.parse(written)) < Fraction(1, 10**9)


@given(quantities)
def test_canonical_quantity_has_the_largest_suffix_without_a_fraction(written: str) -> None:
    once = quantity.canonical_text(written)
    assert "." not in once
    if not once.endswith("i") and "e" not in once:
        assert not once.rstrip("numkMGTPE").endswith("000")


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ({"limits": {"nvidia.com/gpu": "8", "cpu": "4"}}, 8),
        ({"requests": {"amd.com/gpu": 4}}, 4),
        ({"requests": {"nvidia.com/gpu": 8}, "limits": {"nvidia.com/gpu": 8}}, 8),
        ({"limits": None}, 0),
        (None, 0),
    ],
)
def test_gpu_count_is_read_from_resources(resources: object, gpus: int) -> None:
    assert quantity.gpus({"resources": resources}) == gpus


@pytest.mark.parametrize(
    ("written", "seconds"), [("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("2us", 2e-6), ("0s", 0)]
)
def test_duration_text_is_parsed(written: str, seconds: float) -> None:
    assert quantity.seconds(written) == pytest.approx(seconds)


def test_times_are_parsed_as_comparable_instants() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert quantity.moment("2026-01-01T00:00:00Z", now) == quantity.moment(now.isoformat(), now) == now
    assert quantity.moment("2026-01-01T00:00:00", now) is None, "the time has no zone"
    assert quantity.moment("", now) is quantity.moment("yesterday", now) is None
    assert quantity.moment("2026-01-01T00:00:01Z", now) is None, "a clock was set back"


ODD_TIMES = [
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "0000-12-31T00:01:00Z", "1969-12-31T23:59:59Z", "2026",
    "2026-01-01T00:00:00", "NaN", "", "٢", "9" * 5000, 1e300, 10**400, True, None, [], {},
]  # fmt: skip


@pytest.mark.parametrize("text", ODD_TIMES)
def test_invalid_time_is_none(text: object) -> None:
    assert quantity.parse_instant(text) is None and quantity.moment(text, datetime(2026, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize("text", ["1970-01-01T00:00:00Z", "8999-12-31T23:59:59-12:00", "2026-01-01T00:00:00.123456789Z"])
def test_parsed_times_can_be_converted_and_extended(text: str) -> None:
    when = quantity.parse_instant(text)
    assert when is None or (when.astimezone(UTC) + timedelta(seconds=quantity.LONGEST)).timestamp() > 0


@pytest.mark.parametrize("text", ["99999999999999h", "9" * 400 + "h", "9" * 5000 + "s"])
def test_long_duration_is_capped(text: str) -> None:
    assert quantity.seconds(text) == quantity.LONGEST
