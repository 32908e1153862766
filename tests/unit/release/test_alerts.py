"""Tests that each alert is explained, reads existing metrics, fires with its own fault only, and ends with it."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_local.binaries import debian
from ome_local.binaries.releases import Unavailable
from ome_operator.engines import series
from ome_operator.machinery.metric_catalog import BY_NAME, HISTOGRAM
from release import alerts
from tests.support import promql
from tests.support.prometheus import divide_durations

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/alerts.md").read_text()
ALERTS = {alert["alert"]: alert for alert in alerts.alerts()}
OF_SCRAPES = {"namespace", "pod", "instance", "job", "container", "worker", "le", "tp_rank", "status_code"}
"""Labels that Prometheus, or an engine, adds."""


def known() -> dict[str, set[str]]:
    """Return the series that a query may read, with their labels."""
    found = {name: OF_SCRAPES for each in series.known_series().values() for name in each.names} | {"up": OF_SCRAPES}
    for family in BY_NAME.values():
        ends = ("_bucket", "_sum", "_count") if family.kind == HISTOGRAM else ("",)
        found |= {family.name + end: {*family.labels, *(["le"] if end == "_bucket" else []), "instance"} for end in ends}
    return found


def test_metrics_of_a_promql_expression_are_found() -> None:
    asked = 'sum by (le) (rate(a_total{b="x or y",c!~"d"}[5m])) / max(sglang:e) > 1e3 or absent(f offset 1h) and vector(0)'
    assert promql.metrics(asked) == {"a_total", "sglang:e", "f"}
    assert promql.labels(asked) == {"a_total": {"b", "c"}} and promql.aggregation_labels(asked) == {"le"}


@pytest.mark.parametrize("name", ALERTS)
def test_every_metric_of_an_alert_exists_with_its_labels(name: str) -> None:
    expression, there = ALERTS[name]["expr"], known()
    assert promql.metrics(expression) and promql.metrics(expression) <= there.keys()
    for metric, labels in promql.labels(expression).items():
        assert labels <= there[metric], metric
    every = set().union(*(there[metric] for metric in promql.metrics(expression)))
    assert promql.aggregation_labels(expression) <= every
    fault = {re.split(r"\{", each)[0] for each in ALERTS[name]["when"]}
    assert fault <= there.keys(), "the tests of alerts must use existing series"


def test_every_alert_has_a_row_in_the_fault_table() -> None:
    rows = re.findall(r"^\| (Ome\w+) \|", PAGE.partition("## Faults")[2], re.M)
    assert sorted(rows) == sorted(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_a_documented_section(name: str) -> None:
    section = PAGE.split(f"### {name}\n")[1].split("\n#")[0]
    for part in ("Means", "Look at", "Do", "Clears"):
        assert re.search(rf"^\* \*\*{part}\*\*: .+", section, re.M), part
    assert ALERTS[name]["severity"] in ("critical", "warning", "info")
    runbook = alerts._annotations(ALERTS[name])["runbook_url"]
    assert f"(#{runbook.partition('#')[2]})" in PAGE, "the table links to the section, like the runbook"


def promtool() -> str:
    try:
        return str(debian.prometheus()["promtool"])
    except Unavailable as reason:
        pytest.skip(str(reason))


def run(tmp_path: Path, made: Mapping[str, Any]) -> "subprocess.CompletedProcess[str]":
    program = promtool()
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(alerts.rules()))
    checked = subprocess.run(
        [program, "check", "rules", tmp_path / "alerts.yaml"], capture_output=True, text=True, check=False
    )
    assert not checked.returncode, checked.stdout + checked.stderr
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(made))
    return subprocess.run([program, "test", "rules", tmp_path / "tests.yaml"], capture_output=True, text=True, check=False)


def test_each_fault_fires_only_its_own_alert_and_the_alert_clears(tmp_path: Path) -> None:
    made = alerts.unit_tests("alerts.yaml")
    assert len(made["tests"]) == len(ALERTS) + 1 >= 25
    done = run(tmp_path, made)
    assert not done.returncode, done.stdout + done.stderr


def test_alert_that_does_not_fire_is_detected(tmp_path: Path) -> None:
    made = alerts.unit_tests("alerts.yaml")
    (lost,) = [test for test in made["tests"] if test["name"] == "OmeRival"]
    lost["input_series"] = [each for each in lost["input_series"] if "rivals" not in each["series"]]
    assert run(tmp_path, {**made, "tests": [lost]}).returncode


def test_rules_with_divided_times_are_valid(tmp_path: Path) -> None:
    """The rules that tests with a real Prometheus use are valid: `for`, windows and limits in seconds are divided, and
    nothing else is changed.
    """
    program, made = promtool(), divide_durations(alerts.rules(), 10, {"OmeGangWaits": 360})
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(made))
    subprocess.run([program, "check", "rules", tmp_path / "alerts.yaml"], capture_output=True, check=True)
    found = {rule["alert"]: (rule["for"], rule["expr"]) for group in made["groups"] for rule in group["rules"]}
    assert found["OmeQueueGrows"] == (
        "60000ms", 'max(ome_queue_depth{state="waiting"}) > 50 or max(ome_queue_oldest_seconds) > 6'
    )  # fmt: skip
    assert found["OmeGangWaits"] == ("833ms", "max(ome_gang_oldest_seconds) > 10")
    assert found["OmeServiceNotReady"] == ("450000ms", ALERTS["OmeServiceNotReady"]["expr"])
    assert found["OmeLoopStalls"][1] == ALERTS["OmeLoopStalls"]["expr"].replace("[10m]", "[60000ms]")
    assert found["OmeRouterErrors"][1] == ALERTS["OmeRouterErrors"]["expr"].replace("[5m]", "[30000ms]")
