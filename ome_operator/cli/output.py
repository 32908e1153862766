"""How the commands print: documents for programs, colours only for people at a terminal."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from pydantic.alias_generators import to_camel

from ome_operator.util.visible import document, visible

if TYPE_CHECKING:
    from rich.console import Console


class Format(StrEnum):
    """For programs."""

    JSON = "json"
    YAML = "yaml"


Output = Annotated[Format | None, typer.Option("--output", "-o", help="For programs, instead of text.")]

_PLAIN = 10_000
"""Columns where nobody looks: a pipe gets whole lines."""


def console() -> "Console":
    """For text. Colours and line breaks only on a terminal; NO_COLOR is respected."""
    from rich.console import Console

    found = Console(highlight=False, emoji=False)
    return found if found.is_terminal else Console(highlight=False, emoji=False, no_color=True, width=_PLAIN)


def complain(sentence: str) -> None:
    """One line beside the answer."""
    typer.echo(visible(sentence, keep="\n\t"), err=True)


def say(text: str) -> None:
    """Lines of an answer; a cell or a name in them that strangers wrote was made visible before."""
    typer.echo(visible(text, keep="\n\t"))


def emit(format_: Format, value: Any) -> None:
    """One document: JSON data, or objects of ours with their fields in camelCase."""
    value = _data(value)
    if format_ is Format.JSON:
        typer.echo(document(value, indent=2))
    else:
        typer.echo(_yaml(value), nl=False)


def emit_objects(format_: Format, objects: Iterable[dict[str, Any]]) -> None:
    """Kubernetes objects as kubectl takes them: YAML documents, or one List in JSON."""
    if format_ is Format.JSON:
        emit(format_, {"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return
    for number, one in enumerate(objects):
        typer.echo(("---\n" if number else "") + _yaml(one), nl=False)


def _data(value: Any) -> Any:
    """Plain data, in which no object stands twice (YAML would make it an anchor)."""
    if is_dataclass(value):
        return {to_camel(field.name): _data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {to_camel(name): _data(below) for name, below in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name: _data(below) for name, below in value.items()}
    return [_data(one) for one in value] if isinstance(value, list | tuple) else value


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(_data(value), sort_keys=False, width=120, allow_unicode=True))
