"""The declaration of an option, and a function that lists all options of a settings class."""

import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints


class Form(Enum):
    """The form in which the value of an option is written, at a flag and in a configuration file."""

    TEXT = "string"
    WHOLE = "whole number"
    NUMBER = "number"
    SWITCH = "true or false"
    LIST = "list of strings"
    """A flag that can be repeated; in a file, a list of strings."""
    STEPS = "list"
    """At a flag, values that are separated by commas. In a file, the same string, or a list of integers and strings."""
    DURATION = "duration"
    """A string such as `5m`. The field contains the number of seconds."""


LOG_FORMATS = ("console", "json")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
HTTP_URL = r"https?://([^\s/@]+@)?(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]]+)(:[0-9]{1,5})?([/?]\S*)?"
"""Pattern of the URL of an HTTP server, and of a page of such a server."""
HIGHEST_PORT = 65535
_LARGEST = 2**53
"""Largest number of an option without a maximum. Below it, each whole number is exact as a JSON number."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """Metadata of a setting for the command line, the configuration file, the chart and the documentation.

    The docstring below an annotated field continues the text of `help` in the chart's pages and in docs/options.md. It
    states the reason for the default.
    """

    flag: str
    """The flag, such as `--gang-timeout`. Without the dashes, it is the key in the configuration file."""
    help: str
    """Description of the option in one sentence, for `--help`."""
    value: str = ""
    """Path of the chart value that sets this option, such as `placement.timeout`. The description, type, bounds and
    default of the chart value are generated from this declaration."""
    part_of: str = ""
    """Path of a chart value that sets this option and also has other effects. The chart itself describes such a value."""
    chart_default: Any = None
    """Default of the chart value, if it differs from the default of the field; otherwise None."""
    chart_least: float | None = None
    """Minimum of the chart value, if it differs from `ge`; otherwise None."""
    form: Form | None = None
    """Form in which the value is written. If it is None, the form follows from the type of the field."""
    ge: float | None = None
    """Minimum of the value; None if there is no minimum."""
    le: float | None = None
    """Maximum of the value; None if there is no maximum."""
    choices: tuple[str, ...] = ()
    """The permitted values, which are compared without regard to case; empty if the values are not enumerated."""
    pattern: str = ""
    """Regular expression that must match the whole value, or each value of a list; "" if there is none."""
    fix: str = ""
    """Text that states what to write instead of a value that is not in `choices` or does not match `pattern`."""
    env: str = ""
    """Environment variable from which the value is read if the flag is not set; "" if there is none."""
    negatable: bool = True
    """Whether the flag of a switch has a second form, --no-NAME, which overrides a file or an environment variable."""
    repeats: str = "May be repeated."
    """Sentence with which the help of the flag ends if the option is a list."""
    computed: bool = False
    """Whether the program chooses the value if the option is not set. The help then explains how the value is chosen, and
    shows no default.
    """


@dataclass(frozen=True)
class Declared:
    """An option together with the settings field that it sets."""

    path: tuple[str, ...]
    """Names of the fields that lead to the field of the option, such as ("policy", "exposure", "kind")."""
    option: Option
    form: Form
    default: Any
    """Default value of the field; MISSING if the option must be set."""
    owner: type
    """Settings class that defines the field."""
    converts: type
    """Type to which the text of the flag is converted: str, int, float, bool or Path."""
    collection: type = tuple
    """Type of the field's value if the option is a list: tuple or frozenset."""

    @property
    def required(self) -> bool:
        """Return whether the option must be set."""
        return self.default is MISSING

    @property
    def key(self) -> str:
        """Return the option's name in a configuration file."""
        return self.option.flag.removeprefix("--")

    @property
    def parameter(self) -> str:
        """Return the name of the option's parameter in the function of the command."""
        return self.key.replace("-", "_")

    @property
    def written(self) -> Any:
        """Return the default in the form in which a flag's value is written. Return None for a repeatable flag, for a
        required flag, and if the operator computes the value.
        """
        if self.option.computed or self.required or self.form is Form.LIST:
            return None
        if self.form is Form.SWITCH:
            return bool(self.default)
        if self.form is Form.STEPS:
            return ",".join(self.default)
        return f"{self.default / 60:.0f}m" if self.form is Form.DURATION else self.default

    def chosen(self, text: str) -> str | None:
        """Return the choice that is equal to the text without regard to case; None if there is none."""
        return next((choice for choice in self.option.choices if choice.lower() == text.strip().lower()), None)

    def permits(self, number: float) -> bool:
        """Return whether the number is within the bounds of the option. Neither infinity nor NaN is."""
        least = -_LARGEST if self.option.ge is None else self.option.ge
        return bool(least <= number <= (_LARGEST if self.option.le is None else self.option.le))

    @property
    def fix(self) -> str:
        """Return the instruction that states what to write, such as "write a number from 0 to 3600"."""
        option = self.option
        if option.fix:
            return option.fix
        if option.choices:
            return f"write {', '.join(option.choices[:-1])} or {option.choices[-1]}."
        bounds = "" if option.ge is None else f" of at least {option.ge:g}"
        if option.le is not None:
            bounds = f" from {option.ge or 0:g} to {option.le:g}"
        return f"write {_EXAMPLES[self.form]}{bounds}."


_EXAMPLES: Mapping[Form, str] = {
    Form.TEXT: "a string, in quotes if YAML would read another type",
    Form.WHOLE: "a whole number",
    Form.NUMBER: "a number",
    Form.SWITCH: "true or false",
    Form.LIST: "a list of strings, such as [a, b]",
    Form.STEPS: 'a list of whole numbers and percentages, such as [1, "50%", "100%"]',
    Form.DURATION: "a duration such as 90s, 5m or 1h30m",
}
_FORMS: Mapping[Any, Form] = {
    str: Form.TEXT,
    Path: Form.TEXT,
    int: Form.WHOLE,
    float: Form.NUMBER,
    bool: Form.SWITCH,
    tuple: Form.LIST,
    frozenset: Form.LIST,
}


def options(of: type, path: tuple[str, ...] = ()) -> Iterator[Declared]:
    """Yield the options of a settings class, including the options of the settings classes of its fields, in the order of
    the fields.
    """
    defaults = _defaults(of)
    for name, hint in get_type_hints(of, include_extras=True).items():
        bare = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
        option = next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Option)), None)
        if option is not None:
            plain = _without_none(bare)
            form = option.form or _FORMS[get_origin(plain) or plain]
            converts = {Form.WHOLE: int, Form.NUMBER: float, Form.SWITCH: bool}.get(form, Path if plain is Path else str)
            collection = frozenset if get_origin(plain) is frozenset else tuple
            yield Declared((*path, name), option, form, defaults.get(name, MISSING), of, converts, collection)
        elif isinstance(bare, type) and (is_dataclass(bare) or hasattr(bare, "_field_defaults")):
            yield from options(bare, (*path, name))


def _defaults(of: type) -> Mapping[str, Any]:
    if is_dataclass(of):
        return {field.name: field.default for field in fields(of) if field.default is not MISSING}
    return of._field_defaults  # type: ignore[attr-defined, no-any-return]


def _without_none(hint: Any) -> Any:
    """Return the type X for the type `X | None`, and any other type unchanged."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(part for part in get_args(hint) if part is not types.NoneType)
    return hint


def build_settings_object(of: type, values: Mapping[tuple[str, ...], Any]) -> Any:
    """Return an object of a settings class. `values` maps the path of a field to its value; all other fields have their
    defaults.
    """
    nested: dict[str, dict[tuple[str, ...], Any]] = {}
    given: dict[str, Any] = {}
    for path, value in values.items():
        if len(path) == 1:
            given[path[0]] = value
        else:
            nested.setdefault(path[0], {})[path[1:]] = value
    hints = get_type_hints(of)
    return of(**given, **{name: build_settings_object(hints[name], inner) for name, inner in nested.items()})
