"""Tests that the declared metrics are those that are scraped, follow the conventions of Prometheus, and are listed on the
page.
"""

import re

from ome_operator.machinery import metric_page
from ome_operator.machinery.metric_catalog import BY_NAME, COUNTER, FAMILIES, HISTOGRAM
from tests.support import metrics


def test_every_metric_is_scraped_with_its_declared_type_labels_and_help() -> None:
    text = metrics.everything().text()
    assert metrics.families(text) == {family.name: (family.kind, family.text) for family in BY_NAME.values()}
    for family in BY_NAME.values():
        lines = re.findall(rf"^{family.name}(?:_bucket|_sum|_count)?(?:\{{(.*)\}})? ", text, re.M)
        assert lines, f"{family.name} has no sample"
        for labels in lines:
            assert set(re.findall(r'(\w+)="', labels)) - {"le"} == set(family.labels), family.name


def test_metric_names_and_units_follow_prometheus_conventions() -> None:
    for family in BY_NAME.values():
        assert re.fullmatch(r"ome_[a-z_]+[a-z]", family.name)
        assert (family.kind == COUNTER) == family.name.endswith("_total"), family.name
        assert bool(family.buckets) == (family.kind == HISTOGRAM)
        assert family.kind != HISTOGRAM or family.name.endswith("_seconds")
        assert not re.search(r"_(ms|milliseconds|minutes|kb|gb|mib|percent)(_|$)", family.name)
        assert family.text and not family.text.endswith(".") and not set("|`\n") & set(family.text)


def test_metric_names_are_unique() -> None:
    assert len(BY_NAME) == sum(map(len, FAMILIES.values()))


def test_metrics_page_is_generated_from_the_declarations() -> None:
    assert metric_page.PAGE.read_text() == metric_page.text(), "run python -m ome_operator.machinery.metric_page"
    assert metric_page.PAGE.read_text().count(metric_page.MARK) == 1
