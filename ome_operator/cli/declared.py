"""Commands whose flags are derived from a settings class: each field that is annotated with an `Option` becomes a flag."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

import typer

from ome_operator.errors import InvalidOption
from ome_operator.settings.option import Declared, Form

Where = Callable[[Declared], str]
"""A function that returns where the value of an option was written, for messages: the flag, or the configuration file and
the key."""
Readers = Mapping[str, Callable[[Any], Any]]
"""Name of a field -> a function that converts the value of the flag to the value of the field. It raises ValueError for an
invalid value."""
Command = TypeVar("Command", bound=Callable[..., None])


def flag_of(declared: Declared) -> str:
    """Return the flag of an option: the place that messages name if the value was written on the command line."""
    return declared.option.flag


def with_flags(options: Iterable[Declared]) -> Callable[[Command], Command]:
    """Return a decorator that gives a command a parameter for every option in place of its parameter `**given`. Typer makes
    the flags from the signature. In `--help`, the flags of the command's keyword-only parameters are listed after the
    flags of the options.
    """

    def decorated(command: Command) -> Command:
        own = inspect.signature(command).parameters.values()
        before = [each for each in own if each.kind is each.POSITIONAL_OR_KEYWORD]
        after = [each for each in own if each.kind is each.KEYWORD_ONLY]
        parameters = [*before, *map(_parameter, options), *after]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorated


def _parameter(declared: Declared) -> inspect.Parameter:
    """Return the function parameter that makes typer add the flag of an option to the command."""
    option, default, kind = declared.option, declared.written, declared.converts
    bounds = {"min": option.ge, "max": option.le} if option.ge is not None or option.le is not None else {}
    text = f"{option.help} {option.repeats}" if declared.form is Form.LIST else option.help
    names = () if option.negatable else (option.flag,)  # for flags of these names, typer would not make --no-NAME
    flag = typer.Option(*names, help=text, envvar=option.env or None, **bounds)  # type: ignore[arg-type]
    of: Any = list[str] if declared.form is Form.LIST else kind
    if declared.required:
        default = inspect.Parameter.empty
    of = of | None if default is None else of
    return inspect.Parameter(
        declared.parameter, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[of, flag]
    )


def read_values(
    options: Iterable[Declared], given: Mapping[str, Any], readers: Readers, where: Where = flag_of
) -> dict[tuple[str, ...], Any]:
    """Return a map from the path of a field to its value, for the options that are set.

    `given` maps the parameter name of each option to the value of its flag, or to None if the option is not set. Raises
    InvalidOption for an invalid value.
    """
    return {
        declared.path: _read(declared, given[declared.parameter], readers, where(declared))
        for declared in options
        if given[declared.parameter] is not None
    }


def _read(declared: Declared, value: Any, readers: Readers, where: str) -> Any:
    """Return the value of an option's field, converted from `value`, the value of the option's flag. Raises InvalidOption
    for an invalid value; the message starts with `where` and contains the fix.
    """
    option = declared.option
    if option.choices:
        value, written = declared.chosen(value), value
        if value is None:
            raise InvalidOption(f"{where}={written}: {declared.fix}")
    if (option.ge is not None or option.le is not None) and not declared.permits(value):
        raise InvalidOption(f"{where}={value}: {declared.fix}")
    for text in (value if declared.form is Form.LIST else [value]) if option.pattern else ():
        if not re.fullmatch(option.pattern, text):
            raise InvalidOption(f"{where}={text}: {declared.fix}")
    if reader := readers.get(declared.path[-1]):
        try:
            return reader(value)
        except ValueError as error:
            raise InvalidOption(f"{where}: {error}") from error
    return declared.collection(dict.fromkeys(value)) if declared.form is Form.LIST else value
