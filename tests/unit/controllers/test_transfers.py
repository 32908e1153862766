"""Tests of when reports of registries about failing transfers cause a reconciliation."""

from typing import Any

from tests.unit.controllers.test_telemetry import SERVICE, Registry, registry, summary

__all__ = ["registry"]


def failing(failed: int) -> dict[str, Any]:
    """Return a summary with a pair whose transfers fail."""
    return summary(pairs=[{"prefill": "a", "decode": "b", "probes": 20, "failed": failed}])


async def test_failing_pair_and_its_end_cause_a_reconciliation_but_counts_do_not(registry: Registry) -> None:
    for body, news in ((failing(3), 1), (failing(4), 1), (summary(), 2)):
        registry.answers(body)
        await registry.walk()
        assert registry.news == [SERVICE] * news
