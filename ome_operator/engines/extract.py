"""The command line of an installed engine or router, from its own argument parser, as a file of ome_operator/engines/data.

`python -m ome_operator.engines.extract` where the package `sglang` or `sglang-router` is installed. It imports nothing of
ours, so it also runs as a plain file in an engine's image: `python3 - < ome_operator/engines/extract.py`.
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
"""`nargs` of argparse -> what follows the flag; every other number or sign means at least a word: `values`."""
_TOLD = re.compile(r"\W*deprecated\b\W*(?:use )?(.*?)(?: instead.*|\).*)?$", re.IGNORECASE)
"""How a help text begins whose flag is deprecated, and what to write instead."""
_LOOKED_UP = re.compile(r"""(?:environ(?:\.get)?|getenv|get_\w*env_var)[\[(]\s*["'](SGLANG_\w+)["']""")
"""A variable that is read where it is needed, without being declared."""


class Program(NamedTuple):
    """What can be read."""

    package: str
    """As pip calls it."""
    module: str
    """Where its parser is made."""
    owner: str
    """The class that adds its arguments to a parser."""
    environment: str = ""
    """Module whose `Envs` has its variables."""


PROGRAMS = (
    Program("sglang", "sglang.srt.server_args", "ServerArgs", "sglang.srt.environ"),
    Program("sglang-router", "sglang_router.router_args", "RouterArgs"),
)


def extracted(program: Program) -> dict[str, Any]:
    """Everything about an installed program; PackageNotFoundError where it is not installed."""
    found = version(program.package)
    parser = argparse.ArgumentParser()
    getattr(import_module(program.module), program.owner).add_cli_args(parser)
    return {
        "package": program.package,
        "version": found,
        "abbreviations": parser.allow_abbrev,
        "flags": {name: flag for name, flag in sorted(map(described, parser._actions)) if name != "--help"},
        "variables": _variables(program) if program.environment else {},
    }


def described(action: argparse.Action) -> tuple[str, dict[str, Any]]:
    """Name of a flag, and what the parser says of it; what is empty is left out."""
    long = [word for word in action.option_strings if word.startswith("--")] or [action.dest]
    own = f"--{action.dest.replace('_', '-')}"
    name = own if own in long else long[0]
    aliases = [word for word in action.option_strings if word != name]
    help_text = " ".join((action.help or "").split())
    said = {
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
    return name, {key: value for key, value in said.items() if value not in (None, [], "", argparse.SUPPRESS)}


def _variables(program: Program) -> dict[str, Any]:
    """The variables that the program reads, name -> default: those that it declares, and those that its files look up."""
    folder = Path(str(import_module(program.module.partition(".")[0]).__file__)).parent
    read = {name for file in folder.rglob("*.py") for name in _LOOKED_UP.findall(file.read_text(encoding="utf-8"))}
    try:
        fields = vars(import_module(program.environment).Envs)
    except ModuleNotFoundError:  # before 0.5 it declared none
        fields = {}
    return dict(sorted({**dict.fromkeys(read), **declared(fields)}.items()))


def declared(fields: dict[str, Any]) -> dict[str, Any]:
    """The variables of an environment: name -> default, null where it is computed."""
    found = {name: field.default for name, field in fields.items() if hasattr(field, "default") and name.isupper()}
    return {name: None if callable(default) else _plain(default) for name, default in found.items()}


def _type(action: argparse.Action) -> str:
    """int, float or str, or the name of the function that reads the value; "" for a switch and for what has no name."""
    if action.nargs == 0:
        return ""
    reader: Callable[..., Any] | Any = action.type or str
    name = str(getattr(reader, "__name__", type(reader).__name__))
    return "" if name == "<lambda>" else name


def _choices(choices: Iterable[Any] | None) -> list[str]:
    """As people write them, sorted: some parsers list a set, whose order is chance."""
    return sorted(str(getattr(choice, "value", choice)) for choice in choices or ())


def _plain(value: Any) -> Any:
    """A default as JSON has it, or as text."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(getattr(value, "value", value))


def _deprecated(action: argparse.Action, help_text: str) -> str | None:
    """What the program says of a flag that it will lose; None for any other."""
    told = _TOLD.match(help_text)
    if told is None and not type(action).__name__.startswith("Deprecated"):
        return None
    return str(getattr(action, "new_flag", None) or (told and told[1]) or "it has no effect any more")


def text(found: dict[str, Any]) -> str:
    """The file: JSON with a line for each flag and each variable, so that two versions differ by lines."""
    lines = []
    for key, value in found.items():
        if isinstance(value, dict) and value:
            inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(said)}" for name, said in value.items())
            lines.append(f" {json.dumps(key)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """Print the file of the engine, or else of the router, that is installed here."""
    with TemporaryDirectory() as home:
        os.environ["HOME"] = home  # some defaults are folders of whoever runs this
        for program in PROGRAMS:
            try:
                found = extracted(program)
            except PackageNotFoundError:
                continue
            sys.stdout.write(text(found).replace(home, "~"))
            return 0
    names = " or ".join(program.package for program in PROGRAMS)
    sys.stderr.write(
        f"neither {names} is installed here: pip install '.[engine]' in a checkout, or run this in an engine's image\n"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
