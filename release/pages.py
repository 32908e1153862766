"""`make charts`: generate all pages and files of the charts. README.md and the descriptions in values.schema.json come
from the chart's own files, the files for Prometheus and Grafana from alerts.yaml and dashboards.yaml, and
docs/options.md from the declarations of the options.
"""

import json
import sys
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import yaml

from release import alerts, dashboards, options
from release.charts import CHARTS
from release.values import Path as Place
from release.values import Value, commented, replace_values, values

ROOT = Path(__file__).resolve().parents[1]
_HEAD = "<!-- Written by `make charts` from Chart.yaml, values.yaml and install.md; edit those. -->\n"


def files(root: Path = ROOT) -> Mapping[Path, str]:
    """Return path in the repository -> text of every generated file."""
    out: dict[Path, str] = {**alerts.files(), **dashboards.files(), options.PAGE: options.page()}
    for name in CHARTS:
        chart = root / "charts" / name
        facts = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
        listed: list[Value] = []
        if (file := chart / "values.yaml").exists():
            text = out[Path("charts") / name / "values.yaml"] = with_options(file.read_text(encoding="utf-8"))
            listed = values(text)
        install = (chart / "install.md").read_text(encoding="utf-8")
        out[Path("charts") / name / "README.md"] = readme(facts, install, listed)
        schema = chart / "values.schema.json"
        if schema.exists():
            out[Path("charts") / name / "values.schema.json"] = described(
                json.loads(schema.read_text(encoding="utf-8")), listed
            )
    return out


def with_options(text: str) -> str:
    """Return the text of values.yaml in which the options of operator and agent have the descriptions and defaults of their
    declarations.
    """
    present = {value.path: json.loads(value.default) for value in values(text)}
    wanted = {path: declared for path, declared in options.described().items() if path in present}
    other = {path: options.default(declared) for path, declared in wanted.items()}
    text = replace_values(text, {path: value for path, value in other.items() if value != present[path]})
    return commented(text, {path: options.description(declared) for path, declared in wanted.items()})


def readme(chart: Mapping[str, Any], install: str, listed: list[Value]) -> str:
    """Return the README of a chart, in the format of helm-docs."""
    lines = [f"# {chart['name']}", "", _HEAD, chart["description"], "", install.strip(), ""]
    lines += ["## Requirements", "", f"Kubernetes: `{chart['kubeVersion']}`", ""]
    if listed:
        lines += ["## Values", "", "| Key | Type | Default | Description |", "|-----|------|---------|-------------|"]
        lines += [f"| {item.key} | {item.kind} | `{_cell(item.default)}` | {_cell(item.text)} |" for item in listed]
        lines.append("")
    return "\n".join(lines)


def described(schema: dict[str, Any], listed: list[Value]) -> str:
    """Return the schema in which each value's comment is its description. Descriptions of values that no longer exist are
    removed.

    Parts of a value, for example the items of a list, have no comment of their own; the schema itself contains their
    descriptions.
    """
    _forget(schema, {value.path for value in listed})
    for item in listed:
        node = schema
        for part in item.path:
            node = (node.get("properties") or {}).get(part) or {}
        if not node:
            raise SystemExit(f"values.schema.json has no {item.key}: add the type of this value to the schema.")
        kept = {key: told for key, told in node.items() if key != "description"}
        rules = {"description": item.text, **kept}
        if (declared := options.described().get(item.path)) is not None:
            rules = options.schema(declared, kept)
        node.clear()
        node.update(rules)
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _forget(schema: dict[str, Any], known: Set[Place], at: Place = ()) -> None:
    """Remove the descriptions of all places in the schema that are not in `known` and not inside a known value."""
    if at in known:
        return
    schema.pop("description", None)
    for name, below in (schema.get("properties") or {}).items():
        _forget(below, known, (*at, name))


def _cell(text: str) -> str:
    """Return text for a table cell, with bars escaped."""
    return text.replace("|", "\\|")


def differences(root: Path = ROOT) -> list[str]:
    """Return the paths of the generated files whose content is out of date."""
    return [
        str(path) for path, text in files(root).items() if not (root / path).exists() or (root / path).read_text() != text
    ]


def write(root: Path = ROOT) -> None:
    """Write all generated files."""
    for path, text in files(root).items():
        (root / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
    sys.exit(0)
