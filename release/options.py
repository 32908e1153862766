"""Generate docs/options.md from the declarations of the options, and the descriptions of the chart values that are
options of the operator or of the agent.
"""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from ome_operator.settings import Settings
from ome_operator.settings.agent import AgentOptions
from ome_operator.settings.option import Declared, Form, options

PAGE = Path("docs/options.md")
OPTIONS = tuple(options(Settings))
AGENT_OPTIONS = tuple(options(AgentOptions))
_HEAD = """# Options of `ome operator` and `ome agent`

<!-- Written by `make charts` from ome_operator/settings; edit the declarations there. -->
In a cluster the [chart](../charts/ome-resources/README.md) sets the options from its values. An operator that you start
yourself takes flags, and a file:

```sh
ome operator --config operator.yaml --gang-timeout 90
```

```yaml
# operator.yaml: the flags without their dashes
gang-timeout: 120
watch-namespace: [team-a, team-b]
waves: [1, "25%", "100%"]
lint-refuse: false
```

Flags take precedence over environment variables, environment variables over the file, and the file over the defaults.
The keys are the names of the flags, and not the chart's values, because every option has a flag: some values of the
chart set several options, and some options have no value there. If a key is unknown or written twice, or if a value
has a wrong type or is out of bounds, the operator does not start. Its message names the file, the key and what to write.

An option that accepts `true` or `false` is switched off by `--no-…` (`--no-lint-refuse`); an option with a list is a
flag that can be repeated. *by* before a chart value means that this value sets the option and also has another effect.
"""
_TABLE = """
| option | default | accepts | chart value | what it does |
|---|---|---|---|---|
"""
_AGENT_HEAD = """
## `ome agent`

The model agent ([models-agent.md](models-agent.md)) takes flags and environment variables only. The chart passes
the flags of `agent.extraArgs` to its agents in addition to those of this table.
"""


def page() -> str:
    """Return the page: a table of every option of the operator, and one of the agent."""
    return _HEAD + _TABLE + "".join(map(_row, OPTIONS)) + _AGENT_HEAD + _TABLE + "".join(map(_row, AGENT_OPTIONS))


def described() -> Mapping[tuple[str, ...], Declared]:
    """Return path of a chart value -> declaration, for the options that are chart values."""
    return {
        tuple(declared.option.value.split(".")): declared for declared in (*OPTIONS, *AGENT_OPTIONS) if declared.option.value
    }


def default(declared: Declared) -> Any:
    """Return the default of an option's chart value in the form of YAML."""
    if declared.option.chart_default is not None:
        return declared.option.chart_default
    if declared.form is Form.LIST:
        return sorted(declared.default)
    if declared.form is Form.STEPS:
        return [int(step) if step.isdecimal() else step for step in declared.default]
    whole = declared.form is Form.NUMBER and declared.written == int(declared.written)
    return int(declared.written) if whole else declared.written


def schema(declared: Declared, present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an option's chart value: the type, choices, bounds and pattern of the option, merged into the
    schema `present`.

    Choices that are not strings keep their type, because YAML reads an unquoted `Off` as false.
    """
    option, kept = declared.option, {key: rule for key, rule in present.items() if key not in _RULES}
    rules: dict[str, Any] = {"type": _TYPES[declared.form]}
    if option.choices:
        rules = {"enum": [*option.choices, *(item for item in present.get("enum", ()) if not isinstance(item, str))]}
    least = option.ge if option.chart_least is None else option.chart_least
    rules |= {"minimum": least} if least is not None else {}
    rules |= {"maximum": option.le} if option.le is not None else {}
    if declared.form is Form.LIST:
        rules["items"] = {**present.get("items", {}), "type": "string"}
        kept.pop("items", None)
    if option.pattern:
        where = rules["items"] if declared.form is Form.LIST else rules
        where["pattern"] = f"^{option.pattern}$"
        kept.pop("pattern", None)
    return {"description": description(declared), **rules, **kept}


_RULES = ("description", "type", "enum", "minimum", "maximum")
_TYPES = {
    Form.TEXT: "string",
    Form.WHOLE: "integer",
    Form.NUMBER: "number",
    Form.SWITCH: "boolean",
    Form.LIST: "array",
    Form.STEPS: "array",
    Form.DURATION: "string",
}


def description(declared: Declared) -> str:
    """Return the help text of an option, followed by the docstring of its field, as one paragraph."""
    detail = _details(declared.owner).get(declared.path[-1], "")
    return f"{declared.option.help} {detail}".strip()


@cache
def _details(owner: type) -> Mapping[str, str]:
    """Return field name -> docstring below the field of a class, each on one line."""
    (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    body = parsed.body if isinstance(parsed, ast.ClassDef) else []
    found = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value.value if isinstance(text.value, ast.Constant) else ""
            found[field.target.id] = " ".join(str(value).split())
    return found


def _row(declared: Declared) -> str:
    option = declared.option
    value = f"`{option.value}`" if option.value else f"by `{option.part_of}`" if option.part_of else ""
    if option.env:
        value = value or f"(`${option.env}`)"
    text = description(declared).replace("|", "\\|")
    return f"| `{declared.key}` | {_default(declared)} | {_accepts(declared)} | {value} | {text} |\n"


def _default(declared: Declared) -> str:
    if declared.required:
        return "required"
    if declared.option.computed or declared.default is None:
        return ""
    if declared.form is Form.LIST:
        return ", ".join(f"`{item}`" for item in declared.default) or "none"
    if declared.form is Form.SWITCH:
        return "`true`" if declared.written else "`false`"
    text = f"{declared.written:g}" if declared.form is Form.NUMBER else str(declared.written)
    return f"`{text}`" if text else "empty"


def _accepts(declared: Declared) -> str:
    option = declared.option
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices if choice)
    if option.le is not None:
        return f"{declared.form.value}, {option.ge or 0:g} to {option.le:g}"
    return declared.form.value + (f", at least {option.ge:g}" if option.ge is not None else "")
