"""Tests of the options of operator and agent in the chart and on their page. All are derived from the declarations."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ome_operator.settings.option import Declared, Form
from release import options, pages
from release.values import values

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts/ome-resources"
VALUES = (CHART / "values.yaml").read_text()
LISTED = {value.path: value for value in values(VALUES)}
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
PAGE = (ROOT / options.PAGE).read_text()
COMMANDS = {
    "operator": (options.OPTIONS, ("deployment.yaml", "_helpers.tpl"), PAGE.partition("## `ome agent`")[0]),
    "agent": (options.AGENT_OPTIONS, ("agent.yaml",), PAGE.partition("## `ome agent`")[2]),
}
"""For each command its options, the templates that start it, and the part of the page with its table."""
OF_CHART = list(options.described().values())


def set_by(templates: tuple[str, ...], pattern: str = r"--(?:no-)?([a-z][a-z-]+)") -> set[str]:
    """Return what templates set: flags without dashes, or what the pattern finds."""
    return {key for name in templates for key in re.findall(pattern, (CHART / "templates" / name).read_text())}


def schema(path: tuple[str, ...]) -> dict[str, Any]:
    found = SCHEMA
    for part in path:
        found = found["properties"][part]
    return found


@pytest.mark.parametrize("declared", OF_CHART, ids=lambda declared: declared.key)
def test_chart_value_has_text_default_and_limits_of_the_option(declared: Declared) -> None:
    option, path = declared.option, tuple(declared.option.value.split("."))
    rules = schema(path)
    assert LISTED[path].text == rules["description"] == options.description(declared)
    assert json.loads(LISTED[path].default) == options.default(declared)
    assert rules.get("minimum") == (option.ge if option.chart_least is None else option.chart_least)
    assert rules.get("maximum") == option.le
    assert option.choices == tuple(item for item in rules.get("enum", ()) if item is not False)


@pytest.mark.parametrize(
    "command, declared",
    [pytest.param(name, one, id=f"{name}-{one.key}") for name, (known, _, _) in COMMANDS.items() for one in known],
)
def test_documentation_and_pod_template_contain_the_option(command: str, declared: Declared) -> None:
    _, templates, table = COMMANDS[command]
    (row,) = [line for line in table.splitlines() if line.startswith(f"| `{declared.key}` |")]
    assert declared.option.help in row
    path = tuple((declared.option.value or declared.option.part_of).split("."))
    if path != ("",):
        assert path in LISTED
        assert declared.key in set_by(templates) or declared.option.env in set_by(templates, r"\{name: ([A-Z_]+),")
        assert f"`{'.'.join(path)}`" in row


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_in_a_template_is_an_option(command: str) -> None:
    known, templates, _ = COMMANDS[command]
    assert set() < set_by(templates) <= {declared.key for declared in known}


def test_option_pages_update_only_comments_and_defaults() -> None:
    text = VALUES.replace("  timeout: 60\n", "  timeout: 61 # a remark\n").replace(
        "# -- Seconds within", "# -- Minutes within"
    )
    assert "61" in text and "Minutes within" in text
    assert pages.with_options(text) == VALUES.replace("  timeout: 60\n", "  timeout: 60 # a remark\n")


def test_additional_schema_keywords_are_kept() -> None:
    (waves,) = [declared for declared in OF_CHART if declared.form is Form.STEPS]
    made = options.schema(waves, {"type": "object", "minItems": 1, "items": {"type": ["integer", "string"]}})
    assert (made["type"], made["minItems"], made["items"]) == ("array", 1, {"type": ["integer", "string"]})
    (mode,) = [declared for declared in OF_CHART if declared.key == "preflight"]
    assert options.schema(mode, {"enum": ["Other", False]})["enum"] == ["Off", "Warn", "Require", False]


def test_option_defaults_are_written_as_yaml_values() -> None:
    found = {declared.key: options.default(declared) for declared in OF_CHART}
    assert (found["gang-timeout"], found["waves"], found["bake"], found["log-format"]) == (
        60,
        [1, "5%", "25%", "100%"],
        "5m",
        "json",
    )
    assert yaml.safe_load(VALUES)["rollout"]["waves"] == found["waves"]
