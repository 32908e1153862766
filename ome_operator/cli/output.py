"""Output of the commands: JSON and YAML documents for programs, and text with colors on a terminal."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from pydantic.alias_generators import to_camel

from ome_operator.util.visible import document, make_visible

if TYPE_CHECKING:
    from rich.console import Console


class Format(StrEnum):
    """Output format for programs."""

    JSON = "json"
    YAML = "yaml"


Output = Annotated[Format | None, typer.Option("--output", "-o", help="Machine-readable output instead of text.")]

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""YAML writer. The writer in C is used if PyYAML has it, because the writer in Python takes most of the time of `ome
render`.
"""
_PLAIN = 10_000
"""Width in columns of output that is not written to a terminal, so that lines in a pipe are not wrapped."""


def console() -> "Console":
    """Return a console for text. It uses colors and wraps lines only on a terminal, and respects NO_COLOR."""
    from rich.console import Console

    found = Console(highlight=False, emoji=False)
    return found if found.is_terminal else Console(highlight=False, emoji=False, no_color=True, width=_PLAIN)


def print_error(sentence: str) -> None:
    """Print one line to stderr."""
    typer.echo(make_visible(sentence, keep="\n\t"), err=True)


def print_result(text: str) -> None:
    """Print lines of the result to stdout. Control characters are made visible, because text from other users may contain
    them.
    """
    typer.echo(make_visible(text, keep="\n\t"))


def emit(format_: Format, value: Any) -> None:
    """Print `value` as one document in the format `format_`. Dataclasses and named tuples become maps with keys in
    camelCase.
    """
    value = _data(value)
    if format_ is Format.JSON:
        typer.echo(document(value, indent=2))
    else:
        typer.echo(_yaml(value), nl=False)


def emit_objects(format_: Format, objects: Iterable[dict[str, Any]]) -> None:
    """Print Kubernetes objects in a form that kubectl accepts: YAML documents, or one List in JSON."""
    if format_ is Format.JSON:
        emit(format_, {"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return
    for number, item in enumerate(objects):
        typer.echo(("---\n" if number else "") + _yaml(item), nl=False)


def _data(value: Any) -> Any:
    """Return plain data for the YAML and JSON writers. No object occurs twice in it, because the YAML writer would write
    the second occurrence as an alias.
    """
    if is_dataclass(value):
        return {to_camel(field.name): _data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        return str(value)  # enumerations and reasons become plain strings, because YAML refuses other types
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {to_camel(name): _data(below) for name, below in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name: _data(below) for name, below in value.items()}
    return [_data(item) for item in value] if isinstance(value, list | tuple) else value


def _yaml(value: Any) -> str:
    text: str = yaml.dump(_data(value), Dumper=_DUMPER, sort_keys=False, width=120, allow_unicode=True)
    return text
