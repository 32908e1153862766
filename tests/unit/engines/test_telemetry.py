"""Tests of the names of the series that the registry reads."""

from ome_operator.engines import series, servers, telemetry

WORK = {"requests", "promptTokens", "outputTokens", "failedTransfers"}
LOAD = {"running", "waiting", "cacheUse"}


def test_each_registry_series_belongs_to_a_known_engine_with_its_prefix() -> None:
    found = telemetry.engine_series()
    assert set(found) <= {each.name for each in servers.known_servers()}
    for name, each in found.items():
        assert all(word.startswith(f"{name}:") for word in (*each.counters, *each.gauges, *each.histograms))
        assert set(each.counters.values()) <= WORK and set(each.gauges.values()) <= LOAD
        assert set(each.histograms.values()) == {"firstToken", "betweenTokens"}


def test_registry_series_are_also_those_of_the_dashboards() -> None:
    """The histograms and token counters that the registry reads are also among the series of the dashboards."""
    for name, each in telemetry.engine_series().items():
        panels = series.known_series()[name].names
        assert set(each.histograms) <= panels
        read = {value: word for word, value in each.counters.items() if value.endswith("Tokens")}
        assert set(read.values()) <= panels
