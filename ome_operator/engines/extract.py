"""Extract the command line of an installed engine or router from its argument parser, and print it as a file for
ome_operator/engines/data.

Run `python -m ome_operator.engines.extract` where the package `sglang` or `sglang-router` is installed. The module imports
no other module of this project, so that it also runs as a plain file in an engine's image: `python3 - <
ome_operator/engines/extract.py`.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

_TAKES = {0: "switch", None: "value", "?": "optional", "*": "any"}
"""Maps `nargs` of argparse to the kind of values that the flag takes. Any other value of `nargs` requires at least one
word, and stands for the kind `values`."""
_DEPRECATED = re.compile(r"\W*deprecated\b\W*(?:use )?(.*?)(?: instead.*|\).*)?$", re.IGNORECASE)
"""Pattern of the help text of a deprecated flag. The group is the replacement."""
_LOOKED_UP = re.compile(r"""(?:environ(?:\.get)?|getenv|get_\w*env_var)[\[(]\s*["'](SGLANG_\w+)["']""")
"""Pattern of a place in the source code that reads an environment variable by its name."""


class Program(NamedTuple):
    """A program whose command line can be extracted."""

    package: str
    """Name of the package that pip installs."""
    module: str
    """Name of the module that creates the argument parser."""
    owner: str
    """Name of the class that adds the program's arguments to a parser."""
    environment: str = ""
    """Name of the module whose class `Envs` declares the program's environment variables; "" if there is none."""


PROGRAMS = (
    Program("sglang", "sglang.srt.server_args", "ServerArgs", "sglang.srt.environ"),
    Program("sglang-router", "sglang_router.router_args", "RouterArgs"),
    Program("smg", "smg.router_args", "RouterArgs"),
)


def extract_program(program: Program) -> dict[str, Any]:
    """Return the data of an installed program. Raises PackageNotFoundError if it is not installed."""
    installed = version(program.package)
    parser = argparse.ArgumentParser()
    getattr(import_module(program.module), program.owner).add_cli_args(parser)
    return {
        "package": program.package,
        "version": installed,
        "abbreviations": parser.allow_abbrev,
        "flags": {name: flag for name, flag in sorted(map(describe_flag, parser._actions)) if name != "--help"},
        "variables": _variables(program) if program.environment else {},
    }


def describe_flag(action: argparse.Action) -> tuple[str, dict[str, Any]]:
    """Return the name of a flag, and its properties in the parser. Empty properties are left out."""
    long = [word for word in action.option_strings if word.startswith("--")] or [action.dest]
    derived = f"--{action.dest.replace('_', '-')}"
    name = derived if derived in long else long[0]
    aliases = [word for word in action.option_strings if word != name]
    help_text = " ".join((action.help or "").split())
    properties = {
        "takes": _TAKES.get(action.nargs, "values"),
        "type": _type(action),
        "choices": _choices(action.choices),
        "default": _plain(action.default),
        "aliases": [word for word in aliases if not word.startswith("--no-")],
        "negations": [word for word in aliases if word.startswith("--no-")],
        "deprecated": _deprecated(action, help_text),
        "refused": getattr(action, "error_message", None),
        "help": help_text,
    }
    return name, {key: value for key, value in properties.items() if value not in (None, [], "", argparse.SUPPRESS)}


def _variables(program: Program) -> dict[str, Any]:
    """Return the environment variables that the program reads, with their defaults. They are the declared variables, and
    the variables that the program's source files look up by name.
    """
    folder = Path(str(import_module(program.module.partition(".")[0]).__file__)).parent
    read = {name for file in folder.rglob("*.py") for name in _LOOKED_UP.findall(file.read_text(encoding="utf-8"))}
    try:
        fields = vars(import_module(program.environment).Envs)
    except ModuleNotFoundError:  # versions before 0.5 declare no variables
        fields = {}
    return dict(sorted({**dict.fromkeys(read), **declared_variables(fields)}.items()))


def declared_variables(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the environment variables that a class declares, with their defaults. `fields` maps each name in the class
    to its value. A default is None if the program computes it.
    """
    defaults = {name: field.default for name, field in fields.items() if hasattr(field, "default") and name.isupper()}
    return {name: None if callable(default) else _plain(default) for name, default in defaults.items()}


def _type(action: argparse.Action) -> str:
    """Return the type of a flag's value: int, float or str, or the name of the function that parses the value. Return ""
    for a switch and for a function without a name.
    """
    if action.nargs == 0:
        return ""
    reader: Callable[..., Any] | Any = action.type or str
    name = str(getattr(reader, "__name__", type(reader).__name__))
    return "" if name == "<lambda>" else name


def _choices(choices: Iterable[Any] | None) -> list[str]:
    """Return the permitted values of a flag as users write them. They are sorted, because some parsers store them in a set,
    whose order is random.
    """
    return sorted(str(getattr(choice, "value", choice)) for choice in choices or ())


def _plain(value: Any) -> Any:
    """Return the default value of a flag as JSON data; as a string if JSON cannot represent the value."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(getattr(value, "value", value))


def _deprecated(action: argparse.Action, help_text: str) -> str | None:
    """Return the replacement of a flag that the program will remove; None for any other flag."""
    match = _DEPRECATED.match(help_text)
    if match is None and not type(action).__name__.startswith("Deprecated"):
        return None
    return str(getattr(action, "new_flag", None) or (match and match[1]) or "it no longer has an effect")


def text(program: dict[str, Any]) -> str:
    """Return the content of the data file of a program: JSON with one line for each flag and each variable, so that a diff
    compares versions line by line.
    """
    lines = []
    for key, value in program.items():
        if isinstance(value, dict) and value:
            inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """Print the file for the engine or router that is installed here, and return the exit code."""
    with TemporaryDirectory() as home:
        os.environ["HOME"] = home  # some defaults are folders in the home directory of the user
        for program in PROGRAMS:
            try:
                program_data = extract_program(program)
            except PackageNotFoundError:
                continue
            sys.stdout.write(text(program_data).replace(home, "~"))
            return 0
    names = " or ".join(program.package for program in PROGRAMS)
    sys.stderr.write(
        f"{names} is not installed here: run pip install '.[engine]' in a checkout, or run this in an engine's image\n"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
