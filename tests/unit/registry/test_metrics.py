"""Tests of the page on the registry's port, which anyone may read."""

from prometheus_client.parser import text_string_to_metric_families

from ome_operator.registry.metrics import STATES, RegistryMetrics
from ome_operator.registry.records import LeaderState


def test_metrics_page_contains_no_names_or_addresses() -> None:
    """The page of metrics contains no addresses and no names of pods or services, because anyone may read it (decisions 35).
    Its labels are states.
    """
    metrics = RegistryMetrics()
    metrics.count_foreign(2, 5.0)
    leader = LeaderState("secret-pod", "secret-uid", "http://10.9.8.7:1", "engine", "serving", "", listed=True, running=1)
    page = metrics.render([leader])
    labels = [sample.labels for family in text_string_to_metric_families(page) for sample in family.samples]
    assert {text for each in labels for text in each.values()} == set(STATES)
    assert "secret-pod" not in page and "10.9.8.7" not in page
