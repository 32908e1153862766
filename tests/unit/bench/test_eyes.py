"""The scrape that is measured is a scrape of everything."""

from bench import eyes


async def test_series_do_not_grow_with_services_beyond_those_of_their_own() -> None:
    """What services add is summed: 5 more services beyond a hundred would add nothing; a few add their own ten series."""
    few, more = await eyes.measure(2), await eyes.measure(4)
    assert 0 < more.series - few.series <= 2 * 10
    assert few.kib > 10 and few.scrape_ms > 0 and few.stall_ms <= few.scrape_ms and few.pass_us > 0
