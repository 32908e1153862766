"""Tests that docs/production.md agrees with the code: metrics, values of the chart, commands, policies, reasons, limits and
defaults.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_operator import keys
from ome_operator.cli.app import commands as command_names
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.reasons import REASONS
from ome_operator.core.rollout import progress_deadline, revisions
from ome_operator.core.rollout.strategy import Strategy, strategy
from ome_operator.settings import Policy, Settings
from tests.support import metrics, parts
from tests.support.simulator import World

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/ome-resources"
PAGE = (ROOT / "docs/production.md").read_text()
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def spans() -> list[str]:
    """Return the code spans of the page, without code blocks. In a table, a vertical bar is escaped with a backslash."""
    text = re.sub(r"^ *```.*?^ *```", "", PAGE, flags=re.M | re.S)
    return [span.replace("\\|", "|") for span in re.findall(r"`([^`\n]+)`", text)]


def commands() -> list[str]:
    """Return the lines of the shell blocks."""
    return [
        line.strip() for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines() if line.strip()
    ]


def rendered() -> str:
    """Return the response of `/metrics` after at least one event of each kind."""
    return metrics.everything().text()


def test_every_documented_metric_exists_with_its_labels() -> None:
    expressions = [span for span in spans() if re.search(r"\bome_[a-z]", span)]
    assert len(expressions) >= 7
    text = rendered()
    for expression in expressions:
        for name, selector in re.findall(r"\b(ome_[a-z_]+)(?:\{([^}]*)\})?", expression):
            lines = [line for line in text.splitlines() if re.match(rf"{name}(\{{| )", line)]
            assert lines, f"{name} is no metric of the operator"
            for label, how, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', selector):
                found = {match for line in lines for match in re.findall(rf'\b{label}="([^"]*)"', line)}
                wanted = {seen for seen in found if re.fullmatch(value, seen)} if how == "=~" else found & {value}
                assert wanted, f"{name} has no {label} {value}: {sorted(found)}"


def test_page_names_only_existing_chart_values() -> None:
    words = {re.split("[:=]", span)[0] for span in spans()}
    named = {word for word in words if re.fullmatch(r"\w+(\.\w+)+", word) and word.partition(".")[0] in VALUES}
    assert len(named) >= 12
    for path in named:
        found: Any = VALUES
        for part in path.split("."):
            assert isinstance(found, dict) and part in found, f"{path} is no value of the chart"
            found = found[part]


def test_documented_defaults_equal_those_of_the_code() -> None:
    assert VALUES["operator"]["resources"] == {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
    assert VALUES["agent"]["resources"]["limits"]["memory"] == "2Gi"
    assert (VALUES["agent"]["enabled"], VALUES["agent"]["removeAfterSeconds"]) == (False, 0)
    on = VALUES["admissionPolicy"]["enabled"], VALUES["rbac"]["createSecrets"], VALUES["rbac"]["aggregateToUserRoles"]
    assert on == (True, True, True)
    assert Settings().lease_duration == 15, "another operator takes over within 15 s"
    assert VALUES["placement"] == {"gangs": True, "timeout": Policy().gang_timeout, "avoidBadNodes": True}, (
        "a process has the same default as the chart"
    )
    assert f"at most {revisions.SIZE_LIMIT:,} bytes" in PAGE
    asked = strategy(parts.service(engine={}), None)
    assert asked == Strategy() and (asked.surge, asked.unavailable) == (0, 1)
    assert progress_deadline.time_limit(parts.service(engine={})) == "1h"


def test_page_names_only_existing_commands() -> None:
    named = {span.split()[1] for span in spans() if re.match(r"ome [a-z]", span)}
    assert named and named <= {*command_names()}


def test_documented_policies_and_accounts_are_those_of_the_chart() -> None:
    text = (CHART / "templates/admissionpolicy.yaml").read_text()
    text = re.sub(r"\{\{ include \"ome.name\" [.$] \}\}", "ome-operator", text)  # the names without an operator class
    policies = {*re.findall(r"^kind: ValidatingAdmissionPolicy\nmetadata:\n  name: ([\w-]+)$", text, re.M)}
    (listed,) = [line for line in commands() if "validatingadmissionpolicies" in line]
    assert {*listed.split()[3:]} == policies
    assert any("system:serviceaccount:ome:ome-operator" in line for line in commands())
    assert "ome.name" in (CHART / "templates/serviceaccount.yaml").read_text()
    for line in commands():
        if line.startswith("helm upgrade"):
            assert (ROOT / line.split()[3]).is_dir(), line


CONDITIONS_AND_KINDS = frozenset({
    "Advice", "RolledOut", "Unschedulable", "Init", "Recovered", "Hold", "Rollback", "GroupRecycled", "Recreate",
    "CrossNamespacePodAffinity", "RoleScale",
})  # fmt: skip
"""Words that begin with a capital letter and are no reasons of this project: conditions, an event, values of fields, and
words of Kubernetes.
"""


def test_page_names_only_existing_reasons() -> None:
    words = {span for span in spans() if re.fullmatch(r"[A-Z][A-Za-z]+", span)}
    assert sorted(words - CONDITIONS_AND_KINDS - REASONS.keys()) == []


def test_page_names_only_existing_labels_and_annotations() -> None:
    known = {value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}
    named = {span.partition(":")[0] for span in spans() if span.startswith("ome.io/")}
    assert named and named <= known


def test_documented_rollout_example_is_valid() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    read = parts.service({"model": {"name": "m"}, **yaml.safe_load(block)["spec"]})
    assert strategy(read, None) == Strategy(surge=1, unavailable=0)
    assert read.spec.rollout is not None and read.spec.rollout.on_failure == "Rollback"
    assert progress_deadline.time_limit(read) == "30m"


def changed_by(change: dict[str, Any]) -> list[Manifest]:
    """Return the manifests that the next pass of a complete Kimi K2 service applies after this change of the operator's
    settings.
    """
    world = World(*parts.kimi(), seed=1)
    world.settle()
    assert not world.sync().apply, "the service needs no changes before"
    world.deps = parts.change_deps(world.deps, **change)
    plan = world.sync()
    assert not plan.delete
    return [apply.manifest for apply in (*plan.first, *plan.apply)]


def test_an_upgrade_of_the_operator_replaces_routers_and_no_engine() -> None:
    """An upgrade of the operator replaces routers, because their registry sidecar has the operator's image. The upgrade
    replaces no engine.
    """
    (deployment,) = changed_by({"registry_image": "registry:2"})
    assert deployment["kind"] == "Deployment"
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


@pytest.mark.parametrize("heading", re.findall(r"\]\(#([\w-]+)\)", PAGE))
def test_links_to_headings_of_the_page_are_valid(heading: str) -> None:
    headings = {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in re.findall(r"^## (.+)$", PAGE, re.M)}
    assert heading in headings
