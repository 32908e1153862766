"""What is known of engines and routers, as data: a new engine is a new file. Here: command lines of pinned versions."""

from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

import yaml


class CommandLine(NamedTuple):
    """The flags that one version of an engine or router accepts."""

    flags: Mapping[str, str | tuple[str, ...]]
    """Flag -> what follows it: `switch`, `value`, `values`, or the words of which it takes one."""
    deprecated: Mapping[str, str]
    """Flag that is accepted with a warning -> what to write instead."""
    removed: Mapping[str, str]
    """Flag of an older version that is refused -> what to write instead, "" where nothing is known."""
    variables: frozenset[str] = frozenset()
    """Of the engine's own variables, those that recipes set and that this version reads."""


def command_line(name: str) -> CommandLine:
    """The command line called `name`, for instance `sglang-0.5.23`; KeyError when there is no data for it."""
    path = resources.files(__name__) / "data" / f"{name}.yaml"
    if not path.is_file():
        raise KeyError(name)
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    flags = {flag: form if isinstance(form, str) else tuple(map(str, form)) for flag, form in data["flags"].items()}
    return CommandLine(flags, data["deprecated"], data["removed"], frozenset(data.get("variables") or ()))
