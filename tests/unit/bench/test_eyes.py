"""Test that the page of metrics that the benchmark scrapes contains the series of all services."""

from bench import eyes


async def test_number_of_series_is_limited_for_many_services() -> None:
    """Only the first hundred services have ten series of their own each. Those of further services are summed, so five more
    services add no series.
    """
    few, more = await eyes.measure(2), await eyes.measure(4)
    assert 0 < more.series - few.series <= 2 * 10
    assert few.kib > 10 and few.scrape_ms > 0 and few.stall_ms <= few.scrape_ms and few.pass_us > 0
