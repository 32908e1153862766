"""The scrape that is measured is a scrape of everything."""

from bench import eyes


async def test_series_do_not_grow_with_services_beyond_those_of_their_own() -> None:
    """From a certain number on, series of services are summed: with more than a hundred services, five more services add no
    series; with few services, each adds its ten series.
    """
    few, more = await eyes.measure(2), await eyes.measure(4)
    assert 0 < more.series - few.series <= 2 * 10
    assert few.kib > 10 and few.scrape_ms > 0 and few.stall_ms <= few.scrape_ms and few.pass_us > 0
