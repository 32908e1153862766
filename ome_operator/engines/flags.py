"""Command lines of engines and routers, version by version: which flags there are and what follows them.

A file of `data` for each version: JSON as `extract` writes it, or YAML by hand where there is nothing to extract from. Users
may have files of their own.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import yaml

from ome_operator.errors import OmeError
from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document

SWITCH, VALUE, OPTIONAL, VALUES, ANY = "switch", "value", "optional", "values", "any"
"""What follows a flag: nothing, a word, a word or nothing, words, words or nothing."""
_INT = r"[+-]?\d+(_\d+)*"
_READ: Mapping[str, tuple[str, str]] = {
    "int": ("a whole number", _INT),
    "float": ("a number", r"[+-]?((\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)"),
    "human_readable_int": ("a whole number such as 8192, 8k or 8Ki", rf"{_INT}|\d+(\.\d+)?[kMGT]|\d+[KMGT]i"),
}
"""What reads a word -> what it takes, and how that looks."""
_JSON = frozenset({"loads", "json_list_type"})
"""What reads a word as JSON."""
_SUFFIXES = (".json", ".yaml")


class Flag(NamedTuple):
    """What a version says of a flag."""

    name: str
    takes: str
    """What follows it."""
    type: str = ""
    """int, float or str, or the name of what reads the value; "" where nobody knows."""
    choices: tuple[str, ...] = ()
    """The words that it takes; () for any."""
    default: Any = None
    aliases: tuple[str, ...] = ()
    negations: tuple[str, ...] = ()
    """Flags that say the opposite."""
    deprecated: str = ""
    """What to write instead; "" for a flag that will stay."""
    refused: str = ""
    """Why the program ends at this flag; "" where it takes it."""
    help: str = ""


class CommandLine(NamedTuple):
    """The flags that a version of an engine or router accepts."""

    flags: Mapping[str, Flag]
    """By every spelling."""
    variables: Mapping[str, Any]
    """The variables that it reads -> their default; only of engines that were asked for them."""
    abbreviations: bool
    """Whether the beginning of a flag will do where no other flag begins so."""

    def find(self, word: str) -> Flag | None:
        """The flag that a word means; None where the version does not know it, or cannot tell which."""
        if word in self.flags or not self.abbreviations or not word.startswith("--"):
            return self.flags.get(word)
        found = [spelling for spelling in self.flags if spelling.startswith(word)]
        return self.flags[found[0]] if len(found) == 1 else None


def mistake(flag: Flag, words: Sequence[str]) -> str:
    """What is wrong with the words behind a flag, as a clause whose subject is the flag; "" when all is well."""
    if flag.takes == SWITCH:
        return f"takes no value, and {words[0]} stands behind it" if words else ""
    if not words:
        return "needs a value" if flag.takes in (VALUE, VALUES) else ""
    if len(words) > 1 and flag.takes in (VALUE, OPTIONAL):
        return f"takes a single value, and {' '.join(words)} stands behind it"
    known = [word for word in words if "$" not in word]  # a variable may be anything
    odd = next((word for word in known if flag.choices and word not in flag.choices), None)
    if odd is not None:
        return f"takes {', '.join(flag.choices)}, not {odd}"
    wanted, form = _READ.get(flag.type, ("", ""))
    odd = next((word for word in known if form and not re.fullmatch(form, word.strip(), _case(flag.type))), None)
    if odd is not None:
        return f"takes {wanted}, not {odd}"
    odd = next((word for word in known if flag.type in _JSON and not _is_json(word)), None)
    return f"takes JSON, not {odd}" if odd is not None else ""


def _case(kind: str) -> re.RegexFlag:
    """Python reads 1E3 and NaN; sizes are k and Ki, never K."""
    return re.IGNORECASE if kind == "float" else re.NOFLAG


def _is_json(word: str) -> bool:
    try:
        json.loads(word)
    except ValueError:
        return False
    return True


class _Folder(Protocol):
    """A folder on disk or inside a package."""

    def iterdir(self) -> Iterator[Any]: ...


class DataError(OmeError, ValueError):
    """A file of a version that cannot be understood; says which, and why."""


class Versions:
    """The command lines that there are data for."""

    def __init__(self, folder: Path | None = None) -> None:
        """Those that come with the package, and those of a folder of the user's, which count more."""
        self._files = {**_files(resources.files(__package__) / "data"), **(_files(folder) if folder is not None else {})}
        self._read: dict[str, CommandLine] = {}

    def get(self, name: str) -> CommandLine | None:
        """The command line called `name`, for instance `sglang-0.5.23`. DataError where its file cannot be understood."""
        if name not in self._read and name in self._files:
            self._read[name] = _parsed(name, self._files[name])
        return self._read.get(name)

    def of(self, engine: str) -> tuple[str, ...]:
        """The versions of an engine or router that there are data for, the newest last."""
        start = f"{engine}-"
        found = (name.removeprefix(start) for name in self._files if name.startswith(start))
        return tuple(sorted((version for version in found if version[:1].isdigit()), key=_age))

    def nearest(self, engine: str, version: str) -> str:
        """The first version of an engine that is not older than this, else the newest; "" without any."""
        known = self.of(engine)
        later = (each for each in known if version and _age(each) >= _age(version))
        return next(later, ("", *known)[-1])

    def takes(self, engine: str, version: str, words: Sequence[str]) -> bool | None:
        """Whether a version takes all these flags.

        None where nobody knows: it is older or newer than all that there are data for, or those around it differ.
        """
        known = self.of(engine) if version else ()
        around = (
            [each for each in known if _age(each) <= _age(version)][-1:],
            [each for each in known if _age(each) >= _age(version)][:1],
        )
        lines = [self.get(f"{engine}-{each}") for side in around for each in side]
        said = {all(word in line.flags for word in words) for line in lines if line is not None}
        return said.pop() if len(lines) == 2 and len(said) == 1 else None

    def elsewhere(self, engine: str, word: str) -> tuple[str, ...]:
        """The versions of an engine that have this flag."""
        lines = ((version, self.get(f"{engine}-{version}")) for version in self.of(engine))
        return tuple(version for version, line in lines if line is not None and word in line.flags)


@cache
def packaged() -> Versions:
    """Those that come with the package."""
    return Versions()


def command_line(name: str) -> CommandLine:
    """The command line called `name`, of those that come with the package; KeyError when there is no data for it."""
    found = packaged().get(name)
    if found is None:
        raise KeyError(name)
    return found


@cache
def replaced(engine: str) -> Mapping[str, str]:
    """Flag that a version of an engine does not take or will lose -> what to write instead."""
    text = package_data.text(__package__, "replaced.yaml")
    found: Mapping[str, str] = document(text).get(engine) or {}
    return found


def _age(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _files(folder: _Folder) -> dict[str, Any]:
    """Name of a version -> its file."""
    files = sorted(folder.iterdir(), key=lambda file: str(file.name))
    return {file.name.removesuffix(suffix): file for file in files for suffix in _SUFFIXES if file.name.endswith(suffix)}


def _parsed(name: str, file: Any) -> CommandLine:
    try:
        text = file.read_text(encoding="utf-8")
        data = json.loads(text) if file.name.endswith(".json") else document(text)
        flags = [_flag(flag, said) for flag, said in data["flags"].items()]
        return CommandLine(
            flags={spelling: flag for flag in reversed(flags) for spelling in _spellings(flag)},
            variables=dict(data.get("variables") or {}),
            abbreviations=bool(data.get("abbreviations", True)),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        raise DataError(f"{name}: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _flag(name: str, said: Any) -> Flag:
    """A flag from what a file says of it: everything, or by hand only what follows it."""
    if isinstance(said, str):
        return Flag(name, said)
    if isinstance(said, list):
        return Flag(name, VALUE, choices=tuple(map(str, said)))
    lists = {key: tuple(map(str, said[key])) for key in ("choices", "aliases", "negations") if key in said}
    return Flag(name, **{**said, **lists})


def _spellings(flag: Flag) -> Iterable[str]:
    return (flag.name, *flag.aliases, *flag.negations)
