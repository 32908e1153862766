"""What anybody may read on the registry's port."""

from prometheus_client.parser import text_string_to_metric_families

from ome_operator.registry.metrics import STATES, RegistryMetrics
from ome_operator.registry.reconcile import LeaderState


def test_the_page_names_nobody() -> None:
    """Its page is open (decisions 35): words in it are states, and no pod's, service's or address's."""
    metrics = RegistryMetrics()
    metrics.count_foreign(2, 5.0)
    leader = LeaderState("secret-pod", "secret-uid", "http://10.9.8.7:1", "engine", "serving", "", listed=True, running=1)
    page = metrics.render([leader])
    labels = [sample.labels for family in text_string_to_metric_families(page) for sample in family.samples]
    assert {text for each in labels for text in each.values()} == set(STATES)
    assert "secret-pod" not in page and "10.9.8.7" not in page
