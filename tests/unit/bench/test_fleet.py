"""Tests that the benchmark reads its fleet completely, and that its rows evaluate the measured values."""

from dataclasses import asdict, replace

import pytest

from bench import fleet
from bench.crowd import Size
from bench.figures import exponent
from bench.report import sections
from bench.results import Fleet, Results, Wave
from bench.rows import Row


@pytest.mark.parametrize("power", [0, 1, 2])
def test_exponent_is_fitted_to_power_law(power: int) -> None:
    assert exponent([(size, 3.0 * size**power) for size in (10, 20, 40)]) == pytest.approx(power)


async def test_benchmark_operator_reads_the_fleet_and_reacts_to_every_change() -> None:
    """The benchmark's operator reads all objects of the fleet and reacts to each kind of change. An object that cannot be
    read or is invalid would cause no work, so nothing would be measured.
    """
    found = await fleet.run("", Size(nodes=4, models=3, services=2, records=2, strangers=2))
    assert {wave.what for wave in found.waves} >= {"start", "labels set", "nodes flap", "records change"}
    assert all(wave.cpu_s > 0 for wave in found.waves)
    assert found.status_bytes > 300 and found.decode_s > 0


def made(grows: str, power: float, stall: float = 0.1) -> list[Fleet]:
    """Return the measurements of three fleets that differ in the size `grows`. Their cost in seconds is the number of nodes
    to the power `power`.
    """
    sizes = [replace(Size(), **{grows: number}) for number in (100, 200, 400)]
    return [Fleet(grows, asdict(size), [_wave(size.nodes**power / 1e3, stall)], 0.1, 90.0, 100.0, 3000) for size in sizes]


def _wave(cost: float, stall: float) -> Wave:
    return Wave("labels set", cost, stall, 0.2, "work")


def rows(fleets: list[Fleet], rest_mib: float = 500.0) -> dict[str, Row]:
    known = Fleet("", asdict(Size()), [_wave(4.9, 0.1), Wave("start", 1.0, 0.1)], 0.9, 80.0, 90.0, 10)
    largest = replace(known, rest_mib=rest_mib)
    grown = [replace(each, waves=[*each.waves, Wave("start", 1.0, 0.1)]) for each in fleets]
    return {row.what: row for section in sections(Results(fleets=[*grown, largest, known])) for row in section.rows}


@pytest.mark.parametrize(("power", "met"), [(1.0, True), (2.0, False)])
def test_cost_growing_faster_than_the_fleet_misses_the_aim(power: float, met: bool) -> None:
    found = rows(made("nodes", power))
    assert found["labels set"].met is met and f"nodes {power:.2f}" in found["labels set"].operator
    assert found["start"].met is True
    assert found["labels of all models are set on all nodes"].met is True


def test_stall_misses_the_aim_and_names_time_and_cause() -> None:
    found = rows(made("models", 1.0, stall=0.3))["the longest stall"]
    assert found.met is False
    assert "0.30 s (0.20 s of it garbage collection): labels set, " in found.operator
    assert found.operator.endswith("services, in work")


@pytest.mark.parametrize(("mib", "met"), [(599.0, True), (601.0, False)])
def test_memory_of_the_largest_has_an_aim(mib: float, met: bool) -> None:
    (found,) = [row for what, row in rows(made("nodes", 1.0), mib).items() if what.startswith("memory at rest")]
    assert found.met is met


def test_cheapest_wave_and_longest_stall_of_several_rounds_are_reported() -> None:
    waves = [[_wave(cost, stall), Wave("start", 1.0, 0.0)] for cost, stall in ((0.5, 0.1), (0.4, 0.3), (0.6, 0.2))]
    runs = [
        Fleet("nodes", asdict(Size()), each, decode, 90.0, 100.0, 10) for each, decode in zip(waves, (3, 1, 2), strict=True)
    ]
    found = fleet.cheapest(runs)
    assert [(wave.what, wave.cpu_s, wave.stall_s) for wave in found.waves] == [("labels set", 0.4, 0.3), ("start", 1.0, 0.0)]
    assert found.decode_s == 1
