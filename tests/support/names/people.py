"""Lists the names that users and other programs write or read: fields, labels, conditions, metrics, commands, values of
charts, environment variables, ports, and names in pods.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, get_args

import typer
import yaml
from typer.core import TyperGroup

from ome_operator import keys
from ome_operator.cli.app import app
from ome_operator.core import reasons
from ome_operator.machinery.metric_catalog import FAMILIES
from ome_operator.registry.metrics import RegistryMetrics
from ome_operator.settings import Settings
from tests.support.names import walk

ROOT = Path(__file__).parents[3]
_LABEL = re.compile(r"([a-z0-9-]+\.)*(ome\.io|sglang\.ai)/(?!v\d)[\w.-]*")
_WORD = re.compile(r"([A-Z][a-z]+)+")
_VARIABLE = re.compile(r"OME_[A-Z0-9_]*[A-Z0-9]")


def crds() -> Iterator[str]:
    """Yield the paths of the fields of every kind and version, with the values of enumerations, scopes, and columns of
    tables.
    """
    for file in sorted((ROOT / "crds").glob("*.yaml")):
        spec = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        for version in spec["versions"]:
            at = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
            yield f"{at} ({spec['names']['plural']}, {spec['scope']})"
            yield from (f"{at} short name {name}" for name in spec["names"].get("shortNames") or ())
            yield from (f"{at} subresource {name}" for name in version.get("subresources") or ())
            yield from (f"{at} column {c['name']} {c['jsonPath']}" for c in version.get("additionalPrinterColumns") or ())
            yield from _schema(version["schema"]["openAPIV3Schema"], at + " ")


def _schema(schema: Mapping[str, Any], at: str) -> Iterator[str]:
    yield from (f"{at} = {value}" for value in schema.get("enum") or ())
    for name, inner in (schema.get("properties") or {}).items():
        yield f"{at}.{name}"
        yield from _schema(inner, f"{at}.{name}")
    for mark, part in (("[]", schema.get("items")), ("{}", schema.get("additionalProperties"))):
        if isinstance(part, dict):
            yield from _schema(part, at + mark)


def labels() -> Iterator[str]:
    """Yield labels, annotations, and everything else by which other programs select objects."""
    yield from (value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str))
    yield from (text for text in walk.texts("ome_operator") if _LABEL.fullmatch(text))
    yield from (f"{kind} {name}" for kind, name in _written() if kind in ("label", "annotation"))


def conditions() -> Iterator[str]:
    """Yield the types of conditions, and all reasons, including the reasons of Events."""
    yield from (f"reason {reason}" for reason in reasons.REASONS)
    for name, value in vars(reasons.conditions).items():
        texts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
        yield from (f"condition {t}" for t in texts if name.isupper() and type(t) is str and _WORD.fullmatch(t))
    for module in (module for module in walk.modules("ome_operator.core") if "Event" in vars(module)):
        yield from (
            f"event {t}" for name, t in vars(module).items() if name.isupper() and type(t) is str and _WORD.fullmatch(t)
        )


def metrics() -> Iterator[str]:
    """Yield metrics with their types and labels: of the operator, and of the sidecar of routers."""
    for family in (family for families in FAMILIES.values() for family in families):
        yield f"{family.name}{{{','.join(family.labels)}}} {family.kind}"
    for line in RegistryMetrics().render(()).splitlines():
        yield line.removeprefix("# TYPE ") if line.startswith("# TYPE ") else "" if line.startswith("#") else line.split()[0]


def commands() -> Iterator[str]:
    """Yield programs, commands, their arguments, options and the values of options."""
    scripts = distribution("ome-operator").entry_points.select(group="console_scripts")
    yield from (f"program {script.name}" for script in scripts)
    yield from _command(typer.main.get_command(app), "ome")


def _command(command: Any, at: str) -> Iterator[str]:
    yield at
    for parameter in command.params:
        names = [*parameter.opts, *parameter.secondary_opts]
        metavar = (parameter.metavar or parameter.name.upper()).strip("[].")
        spelled = [metavar] if parameter.param_type_name == "argument" else names
        yield from (f"{at} {name}" for name in spelled)
        yield from (f"{at} {spelled[0]} = {choice}" for choice in _choices(parameter))
    if isinstance(command, TyperGroup):
        with typer.Context(command) as context:
            for name in command.list_commands(context):
                yield from _command(command.get_command(context, name), f"{at} {name}")


def _choices(parameter: Any) -> Iterable[Any]:
    """Return the values of an option that is an enumeration, either of typer or of click."""
    if (described := getattr(parameter, "type_descriptor", None)) is None:
        return [getattr(choice, "value", choice) for choice in getattr(parameter.type, "choices", ())]
    kinds = (described.annotation, *get_args(described.annotation))
    return [choice.value for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum) for choice in kind]


def variables() -> Iterator[str]:
    """Yield environment variables that our processes read or that pods receive."""
    yield from (text for text in walk.texts(*walk.PACKAGES) if _VARIABLE.fullmatch(text))
    for module, item in walk.nodes(*walk.PACKAGES):
        read: ast.expr | None = None
        if isinstance(item, ast.Subscript) and ast.unparse(item.value) == "os.environ":
            read = item.slice
        elif isinstance(item, ast.Call) and ast.unparse(item.func) in ("os.environ.get", "os.getenv"):
            read = item.args[0]
        elif isinstance(item, ast.keyword) and item.arg in ("envvar", "env"):
            read = item.value
        if isinstance(read, ast.Constant):
            yield str(read.value)
        elif isinstance(read, ast.Name | ast.Attribute):
            yield from walk.texts_of(vars(module).get(ast.unparse(read)))
    yield from (name for kind, name in _written() if kind == "env")


def chart_values() -> Iterator[str]:
    """Yield the paths of the values of all charts, as values.yaml and the schema have them."""
    for chart in sorted(file.parent for file in (ROOT / "charts").glob("*/Chart.yaml")):
        yield f"{chart.name} (chart)"
        if (file := chart / "values.yaml").exists():
            yield from (f"{chart.name} {path}" for path in _paths(yaml.safe_load(file.read_text(encoding="utf-8")), ""))
            schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
            yield from (f"{chart.name} {path.replace(' .', '').lstrip('.')}" for path in _schema(schema, ""))


def _paths(value: Any, at: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            path = f"{at}.{name}" if at else name
            yield path
            yield from _paths(inner, path)


def ports() -> Iterator[str]:
    """Yield ports: constants, defaults of settings and options, and those in pods."""
    for module in (module for package in walk.PACKAGES for module in walk.modules(package)):
        yield from (
            str(value) for name, value in vars(module).items() if "PORT" in name and type(value) is int and value < 65535
        )
    yield from (f"{name} {value}" for name, value in vars(Settings()).items() if name.endswith("_port"))
    yield from (f"{name}" for kind, name in _written() if kind == "port")
    for _, item in walk.nodes("ome_operator.preflight"):
        if isinstance(item, ast.Constant) and type(item.value) is int and 29000 <= item.value <= 29100:
            yield f"{item.value}"


def pods() -> Iterator[str]:
    """Yield names of containers, volumes and ports in pods: of services, and of the charts."""
    yield from (f"{kind} {name}" for kind, name in _written() if kind in ("container", "init container", "volume", "port"))
    for file in sorted((ROOT / "charts").glob("*/templates/*.yaml")):
        text = file.read_text(encoding="utf-8")
        pods_of_ours = "containers:" in text and "CustomResourceDefinition" not in text
        found = re.findall(r"- name: ([\w.-]+)$", text, re.M) if pods_of_ours else ()
        yield from (f"chart {name}" for name in found)


def _written() -> set[tuple[str, str]]:
    """Return (kind of name, name) for each name in the golden manifests, whose bytes `render` must not change. Names from
    `in.yaml`, which users wrote themselves, are left out.
    """
    written, given = (
        {name for case in golden(file) for document in case for name in _named(document)} for file in ("out.yaml", "in.yaml")
    )
    return written - given


@cache
def golden(name: str) -> list[list[Any]]:
    """Return the documents of these files of all cases of the golden tests."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    files = sorted((ROOT / "tests/golden").glob(f"*/{name}"))
    return [list(yaml.load_all(file.read_bytes(), Loader=loader)) for file in files]


def _named(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for inner in value:
            yield from _named(inner)
    if not isinstance(value, dict):
        return
    kinds = {"containers": "container", "initContainers": "init container", "volumes": "volume", "env": "env"}
    for key, inner in value.items():
        if key in ("labels", "annotations") and isinstance(inner, dict):
            yield from ((key[:-1], name) for name in inner)
        if key in kinds and isinstance(inner, list):
            yield from ((kinds[key], str(item["name"])) for item in inner if "name" in item)
        if key == "ports" and isinstance(inner, list):
            yield from (("port", f"{p.get('name', '')} {p.get('containerPort') or p.get('port')}".strip()) for p in inner)
        yield from _named(inner)
