"""The command lines of engines and routers by version. A command line states which flags exist and which values they
take.

The folder `data` contains a file for each version: JSON as `extract` writes it, or YAML that is written by hand if the
command line cannot be extracted. Users may add files.
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
from ome_operator.util.versions import numbers

SWITCH, VALUE, OPTIONAL, VALUES, ANY = "switch", "value", "optional", "values", "any"
"""Kinds of values that a flag takes: none, one word, at most one word, one or more words, any number of words."""
_INT = r"[+-]?\d+(_\d+)*"
_VALUE_FORMS: Mapping[str, tuple[str, str]] = {
    "int": ("a whole number", _INT),
    "float": ("a number", r"[+-]?((\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)"),
    "human_readable_int": ("a whole number such as 8192, 8k or 8Ki", rf"{_INT}|\d+(\.\d+)?[kMGT]|\d+[KMGT]i"),
}
"""Maps the type of a value to a description of valid values, and to their pattern."""
_JSON = frozenset({"loads", "json_list_type"})
"""Names of the functions with which programs parse a value as JSON."""
_SUFFIXES = (".json", ".yaml")


class Flag(NamedTuple):
    """A command-line flag, as one version of a program accepts it."""

    name: str
    takes: str
    """The kind of values that the flag takes: SWITCH, VALUE, OPTIONAL, VALUES or ANY."""
    type: str = ""
    """The type of the value: int, float or str, or the name of the function that parses the value; "" if unknown."""
    choices: tuple[str, ...] = ()
    """The permitted values; () if any value is permitted."""
    default: Any = None
    aliases: tuple[str, ...] = ()
    negations: tuple[str, ...] = ()
    """Names of flags that have the opposite effect."""
    deprecated: str = ""
    """Text that states what to write instead of a deprecated flag; "" if the flag is not deprecated."""
    refused: str = ""
    """The reason why the program exits if the flag is given; "" if the program accepts the flag."""
    help: str = ""


class CommandLine(NamedTuple):
    """The flags and environment variables that a version of an engine or router accepts."""

    flags: Mapping[str, Flag]
    """Maps each spelling of a flag to the flag."""
    variables: Mapping[str, Any]
    """Maps the environment variables that the program reads to their defaults. Empty if the variables of this program were
    not extracted."""
    abbreviations: bool
    """Whether the program accepts an unambiguous prefix of a flag instead of the flag."""

    def find_flag(self, word: str) -> Flag | None:
        """Return the flag to which a word refers. Return None if the version does not have the flag, or if the word is an
        ambiguous prefix.
        """
        if word in self.flags or not self.abbreviations or not word.startswith("--"):
            return self.flags.get(word)
        matches = [spelling for spelling in self.flags if spelling.startswith(word)]
        return self.flags[matches[0]] if len(matches) == 1 else None


def usage_error(flag: Flag, words: Sequence[str]) -> str:
    """Return a clause that states what is wrong with the words after a flag; the flag is the subject of the clause.
    Return "" if the words are valid.
    """
    if flag.takes == SWITCH:
        return f"takes no value, but is followed by {words[0]}" if words else ""
    if not words:
        return "needs a value" if flag.takes in (VALUE, VALUES) else ""
    if len(words) > 1 and flag.takes in (VALUE, OPTIONAL):
        return f"takes a single value, but is followed by {' '.join(words)}"
    literals = [word for word in words if "$" not in word]  # a variable may have any value
    wrong = next((word for word in literals if flag.choices and word not in flag.choices), None)
    if wrong is not None:
        return f"takes {', '.join(flag.choices)}, not {wrong}"
    expected, form = _VALUE_FORMS.get(flag.type, ("", ""))
    wrong = next((word for word in literals if form and not re.fullmatch(form, word.strip(), _case(flag.type))), None)
    if wrong is not None:
        return f"takes {expected}, not {wrong}"
    wrong = next((word for word in literals if flag.type in _JSON and not is_json(word)), None)
    return f"takes JSON, not {wrong}" if wrong is not None else ""


def _case(kind: str) -> re.RegexFlag:
    """Return the flags (such as `re.IGNORECASE`) of the regular expression for a type of value. Python accepts 1E3 and NaN
    in any case; the suffixes of sizes are k and Ki, but not K.
    """
    return re.IGNORECASE if kind == "float" else re.NOFLAG


def is_json(word: str) -> bool:
    """Return whether a word is valid JSON. It has to be valid JSON for flags whose values programs parse as JSON."""
    try:
        json.loads(word)
    except ValueError:
        return False
    return True


class _Folder(Protocol):
    """A folder on disk or inside a package."""

    def iterdir(self) -> Iterator[Any]: ...


class DataError(OmeError, ValueError):
    """The error for an invalid data file of a version. Its message names the file and the error."""


class Versions:
    """The command lines of all versions for which data files exist."""

    def __init__(self, folder: Path | None = None) -> None:
        """Find the data files in the package and in the user's folder. A file in the user's folder takes precedence."""
        self._files = {**_files(resources.files(__package__) / "data"), **(_files(folder) if folder is not None else {})}
        self._read: dict[str, CommandLine] = {}

    def get(self, name: str) -> CommandLine | None:
        """Return the command line with this name, such as `sglang-0.5.23`; None if there is no data for it. Raises
        DataError if its file is invalid.
        """
        if name not in self._read and name in self._files:
            self._read[name] = _parsed(name, self._files[name])
        return self._read.get(name)

    def versions_of(self, engine: str) -> tuple[str, ...]:
        """Return the versions of an engine or router for which data exists, the oldest first."""
        start = f"{engine}-"
        versions = (name.removeprefix(start) for name in self._files if name.startswith(start))
        return tuple(sorted((version for version in versions if version[:1].isdigit()), key=numbers))

    def nearest_version(self, engine: str, version: str) -> str:
        """Return the oldest version of an engine for which data exists and that is not older than `version`. If there is no
        such version, return the newest version with data, or "" if the engine has no data.
        """
        known = self.versions_of(engine)
        later = (candidate for candidate in known if version and numbers(candidate) >= numbers(version))
        return next(later, ("", *known)[-1])

    def accepts_flags(self, engine: str, version: str, words: Sequence[str]) -> bool | None:
        """Return whether a version accepts all flags in `words`.

        The result is None if this is unknown, because the version is older or newer than all data, or because the results
        for the neighboring versions differ.
        """
        known = self.versions_of(engine) if version else ()
        neighbours = (
            [candidate for candidate in known if numbers(candidate) <= numbers(version)][-1:],
            [candidate for candidate in known if numbers(candidate) >= numbers(version)][:1],
        )
        lines = [self.get(f"{engine}-{candidate}") for side in neighbours for candidate in side]
        results = {all(word in line.flags for word in words) for line in lines if line is not None}
        return results.pop() if len(lines) == 2 and len(results) == 1 else None

    def versions_with_flag(self, engine: str, word: str) -> tuple[str, ...]:
        """Return the versions of an engine that have the flag `word`."""
        lines = ((version, self.get(f"{engine}-{version}")) for version in self.versions_of(engine))
        return tuple(version for version, line in lines if line is not None and word in line.flags)


@cache
def packaged_versions() -> Versions:
    """Return the command lines in the package."""
    return Versions()


def command_line(name: str) -> CommandLine:
    """Return the command line with this name from the package. Raises KeyError if there is no data for it."""
    found = packaged_versions().get(name)
    if found is None:
        raise KeyError(name)
    return found


@cache
def translations(engine: str) -> Mapping[str, str]:
    """Return a mapping from flags of other engines to what a user has to write for this engine: a flag with the same
    meaning, or a sentence of advice, which does not begin with `--`.
    """
    flags: Mapping[str, str] = document(package_data.text(__package__, "translated.yaml")).get(engine) or {}
    return flags


@cache
def replacements(engine: str) -> Mapping[str, str]:
    """Return flags that some version of an engine does not accept or will remove. Each flag is mapped to a text that
    states what to write instead.
    """
    text = package_data.text(__package__, "replaced.yaml")
    flags: Mapping[str, str] = document(text).get(engine) or {}
    return flags


def _files(folder: _Folder) -> dict[str, Any]:
    """Return a mapping from the names of versions to their data files in a folder."""
    files = sorted(folder.iterdir(), key=lambda file: str(file.name))
    return {file.name.removesuffix(suffix): file for file in files for suffix in _SUFFIXES if file.name.endswith(suffix)}


def _parsed(name: str, file: Any) -> CommandLine:
    try:
        text = file.read_text(encoding="utf-8")
        data = json.loads(text) if file.name.endswith(".json") else document(text)
        flags = [_flag(flag, entry) for flag, entry in data["flags"].items()]
        return CommandLine(
            flags={spelling: flag for flag in reversed(flags) for spelling in _spellings(flag)},
            variables=dict(data.get("variables") or {}),
            abbreviations=bool(data.get("abbreviations", True)),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        raise DataError(f"{name}: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _flag(name: str, entry: Any) -> Flag:
    """Return a flag from its entry in a data file. The entry has all properties, or, in a file that is written by hand,
    only the kind of values or the choices.
    """
    if isinstance(entry, str):
        return Flag(name, entry)
    if isinstance(entry, list):
        return Flag(name, VALUE, choices=tuple(map(str, entry)))
    lists = {key: tuple(map(str, entry[key])) for key in ("choices", "aliases", "negations") if key in entry}
    return Flag(name, **{**entry, **lists})


def _spellings(flag: Flag) -> Iterable[str]:
    return (flag.name, *flag.aliases, *flag.negations)
