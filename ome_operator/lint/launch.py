"""Parses how a container starts an engine or a router. The result contains the program, its version, its arguments and
its environment variables.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any, NamedTuple

from ome_operator.engines import images, servers
from ome_operator.engines.flags import OPTIONAL, SWITCH, VALUE, CommandLine, Flag, Versions
from ome_operator.engines.routers import SGLANG_ROUTER, SMG, of_image, parts, program
from ome_operator.lint.shell import commands, has_unknown_value, unclosed_quote

ROUTERS = (SGLANG_ROUTER, SMG)
"""Routers of SGLang: sglang-router, and its successor smg, which has the same flags and more."""
STRICT = frozenset({"sglang", *ROUTERS})
"""Programs whose parser rejects a word that belongs to no flag. Other programs accept such a word, for example as the
model."""
_MOST = {SWITCH: 0, VALUE: 1, OPTIONAL: 1}
"""Maps each kind of flag to the maximum number of words that follow the flag as its values."""
_REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")
"""Pattern of a reference to an environment variable that the kubelet expands."""
_OFF = frozenset({"", "false", "0", "no", "n"})
"""Values that SGLang reads as false, in lower or upper case (SGLang 0.5.23, environ.py). The empty value is invalid, so that
SGLang uses the default instead, which is false."""
_MODULE = re.compile(r"^-[bBdEiIOPqsSuvx]*m(?=[A-Za-z_])")
"""Beginning of a word that contains the option -m of Python and the name of a module."""
_INSIDE = re.compile(r"\s--[a-z][\w-]+.{0,80}", re.S)
_HOLDS_FLAGS = frozenset({"--sidecar-args", "--chat-template", "--completion-template"})
"""Flags whose value may contain words that have the form of flags."""
_SIZES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


class Argument(NamedTuple):
    """A flag with the words that follow it."""

    written: str
    """The flag as the user writes it, with its value if both are in the same word."""
    word: str
    """The flag without its value."""
    values: tuple[str, ...]
    flag: Flag | None
    """The definition of the flag in the program's version; None if the version does not define the flag."""
    joined: bool = False
    """Whether flag and value are in the same word, separated by a space. If so, the program does not recognize the flag."""


@dataclass(frozen=True)
class Launch:
    """A program as a container starts it, with its arguments and environment variables."""

    engine: str
    """Name of the program: sglang, vllm, …, sglang-router, or smg."""
    image: str
    version: str
    """Version of the program; "" if it is unknown."""
    line: CommandLine | None
    """The command line of exactly the program's version; None if its flags are unknown."""
    read_as: CommandLine | None
    """The command line by which the arguments are parsed: the command line of the program's version or, if that is unknown,
    of the nearest known version."""
    words: tuple[str, ...]
    """The words after the program, with known variables expanded."""
    env: Mapping[str, str]
    """Environment variables with a known value."""
    names: frozenset[str]
    """Names of all environment variables, including those without a known value."""
    open: bool
    """Whether the container may have environment variables from other objects (`envFrom`)."""
    shell: bool
    """Whether a shell starts the program. A shell may expand variables that are not in `env`."""
    doubted: set[str] = field(default_factory=set, compare=False, repr=False)
    """Names of the flags with an unknown value, or in a wrong spelling, that were read since the set was last cleared. If
    a rule reads such a flag, its result is uncertain (`rules.py:rule_hits`)."""

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments in the order in which they are written."""
        return tuple(_arguments(self.words, self.read_as, self.engine in STRICT))

    def last_argument(self, name: str) -> Argument | None:
        """Return the last argument that sets the flag `name`, under any name that the version has for the flag. Return
        None if no argument sets it. If the flag is given only in a wrong spelling, note it in `doubted`.
        """
        flag = self._flag(name)
        found = self._last.get(flag.name if flag is not None else name)
        if found is None and flag is not None and flag.name in self._meant:
            self.doubted.add(name)
        return found

    @cached_property
    def _last(self) -> Mapping[str, Argument]:
        """Maps the name of each flag that is given to the last argument that sets the flag. The map is cached because rules
        look up flags hundreds of times.
        """
        return {given.flag.name if given.flag else given.word: given for given in self.arguments}

    def _flag(self, name: str) -> Flag | None:
        return self.read_as.flags.get(name) if self.read_as is not None else None

    @cached_property
    def _meant(self) -> frozenset[str]:
        """Names of the flags that the user probably meant by arguments that the version does not have."""
        line = self.read_as
        words = (given.word for given in self.arguments if line is not None and given.flag is None)
        return frozenset(line.flags[near].name for word in words if line is not None and (near := closest_flag(word, line)))

    def text(self, name: str) -> str:
        """Return the value of a flag. If the flag is not given, return its default in the version, or "" if it has no
        default. If the value contains an expansion that is unknown, note the flag in `doubted`.
        """
        value = self.raw_text(name)
        if has_unknown_value(value) and self.last_argument(name) is not None:
            self.doubted.add(name)
        return value

    def raw_text(self, name: str) -> str:
        """Return the same value as `text`, but never note the flag in `doubted`. Rules about the expansion itself use this
        method.
        """
        given = self.last_argument(name)
        if given is not None:
            return given.values[0] if given.values else ""
        flag = self._flag(name)
        return "" if flag is None or flag.default is None else str(flag.default)

    def whole_number(self, name: str) -> int | None:
        """Return the value of a flag as a whole number. Return None if the value is not a number or depends on a
        variable.
        """
        return number(self.text(name))

    def is_on(self, name: str) -> bool:
        """Return whether a switch is on. It is on if it is given and its last occurrence is not a negation."""
        given = self.last_argument(name)
        return given is not None and not (given.flag is not None and given.word in given.flag.negations)

    def variable(self, name: str) -> str:
        """Return the value of an environment variable. If the variable is not set, return its default in the version, or ""
        if it has no default.
        """
        default = self.read_as.variables.get(name) if self.read_as else None
        return self.env.get(name, "" if default is None or name in self.names else str(default))

    def may_be_on(self, name: str) -> bool:
        """Return whether an environment variable that is a switch may be on. A value counts as off only if SGLang reads it
        as false; an unknown value may be anything.
        """
        value = self.env.get(name)
        return (self.open or name in self.names) if value is None else has_unknown_value(value) or value.lower() not in _OFF


def closest_flag(word: str, line: CommandLine) -> str:
    """Return the flag of a command line that the user probably meant by the unknown flag `word`; "" if no flag is
    similar.
    """
    return next(iter(get_close_matches(word, line.flags, 1, 0.8)), "") if word.startswith("--") else ""


def joined_flags(argument: Argument) -> str:
    """Return the flags that the value of an argument contains; "" if it contains no flags."""
    found = (_INSIDE.search(" " * argument.joined + value) for value in argument.values if argument.word not in _HOLDS_FLAGS)
    return next((item[0].strip() for item in found if item), "")


def number(text: str) -> int | None:
    """Parse a whole number as engines do (8192, 8k, 8Ki); None if the text is not a number or has more than 18 digits."""
    found = re.fullmatch(r"\s*([+-]?\d{1,18}(?:\.\d{1,18})?)\s*([kMGT]|[KMGT]i)?\s*", text)
    if found is None or ("." in found[1] and not found[2]):
        return None
    return round(float(found[1]) * _SIZES[found[2]]) if found[2] else int(found[1])


class LaunchReading(NamedTuple):
    """The program that a container starts, as far as its arguments can be read."""

    launch: "Launch | None" = None
    """The program with its arguments; None if no program is known, or if its arguments cannot be read with certainty."""
    partly: tuple["Launch", ...] = ()
    """The programs that a script starts, if their arguments cannot be read with certainty. Each program has only the
    arguments that can be read."""
    why: str = ""
    """The reason why the arguments cannot be read with certainty; "" if they can."""


def launch(container: Mapping[str, Any], annotations: Mapping[str, str], versions: Versions) -> Launch | None:
    """Return how a container starts a known program. Return None if the container's command starts no known program, or
    if the arguments of the program cannot be read with certainty.
    """
    return read_launch(container, annotations, versions).launch


def read_launch(container: Mapping[str, Any], annotations: Mapping[str, str], versions: Versions) -> LaunchReading:
    """Return the known program that a container starts, as far as its arguments can be read."""
    env = {str(item["name"]): str(item["value"]) for item in container.get("env") or () if "value" in item}
    env = {name: _filled(value, env) for name, value in env.items()}
    found = [(start, _launch(start, container, annotations, versions, env)) for start in _starts(container, env)]
    if not found:
        return LaunchReading()
    if found[0][0].shell and any(map(unclosed_quote, parts(container))):
        return LaunchReading(why="a quote in a script is not closed")
    made = tuple(one for _, one in found)
    if len(found) > 1:
        return LaunchReading(
            partly=made,
            why=f"a script starts {' and '.join(dict.fromkeys(one.engine for one in made))} in {len(found)} places",
        )
    (start, one) = found[0]
    if not start.is_certain:
        return LaunchReading(partly=made, why=f"a script starts {one.engine} in a branch, a loop or a function")
    if (open_end := _open_end(start, one.read_as)) is not None:
        return LaunchReading(partly=made, why=f"{open_end} in a script may stand for further arguments of {one.engine}")
    if any(map(joined_flags, one.arguments)):
        return LaunchReading(partly=(one,))  # the rule `flag-joined` reports the reason
    return LaunchReading(one)


def _open_end(start: "_Start", line: CommandLine | None) -> str | None:
    """Return the first word that a shell may expand to several arguments; None if there is none. A word after a flag that
    takes a value counts as the flag's value.
    """
    for at in sorted(start.loose):
        before = start.words[at - 1] if at else ""
        flag = line.find_flag(before) if line is not None and before.startswith("-") else None
        takes_it = before.startswith("-") and "=" not in before and (flag is None or flag.takes != SWITCH)
        if not takes_it or start.words[at] in ("$@", "$*"):
            return start.words[at]
    return None


def _launch(
    start: "_Start",
    container: Mapping[str, Any],
    annotations: Mapping[str, str],
    versions: Versions,
    env: Mapping[str, str],
) -> Launch:
    image = str(container.get("image", ""))
    version = images.version(image, annotations, start.engine)
    nearest = versions.nearest_version(start.engine, version)
    line = versions.get(f"{start.engine}-{version}") if version else None
    return Launch(
        engine=start.engine,
        image=image,
        version=version,
        line=line,
        read_as=line or (versions.get(f"{start.engine}-{nearest}") if nearest else None),
        words=start.words if start.shell else tuple(_filled(word, env) for word in start.words),
        env=env,
        names=frozenset(str(item["name"]) for item in container.get("env") or ()),
        open=bool(container.get("envFrom")),
        shell=start.shell,
    )


def references(words: Iterable[str]) -> frozenset[str]:
    """Return the names of the variables to which the words refer with $(NAME), the syntax that the kubelet expands."""
    return frozenset(name for word in words for name in _REFERENCE.findall(word.replace("$$", "")))


class _Start(NamedTuple):
    """A command that starts a known program."""

    engine: str
    words: tuple[str, ...]
    """The words after the program."""
    shell: bool = False
    is_certain: bool = True
    loose: frozenset[int] = frozenset()
    """Positions of the words that may stand for several words or for none."""


def _starts(container: Mapping[str, Any], env: Mapping[str, str]) -> list[_Start]:
    """Return the commands that start a known program: the container's own command, otherwise commands of its script."""
    image = str(container.get("image", ""))
    if one_word(container):
        return []
    if (own := _start(parts(container), image)) is not None:
        return [own[0]]
    found = []
    for part in parts(container):
        # A word without white space is not a script.
        for command in commands(_filled(part, env), env) if re.search(r"\s", part.strip()) else ():
            if (hit := _start(command.words, image)) is not None:
                start, at = hit
                loose = frozenset(place - at for place in command.loose if place >= at)
                found.append(_Start(start.engine, start.words, True, command.is_certain, loose))
    router = of_image(container)
    return found or ([_Start(router, tuple(parts(container)))] if router else [])


def module(word: str) -> str:
    """Return the module of a word of a Python command such as `-mMODULE`; any other word is returned unchanged."""
    return _MODULE.sub("", word)


def one_word(container: Mapping[str, Any]) -> str:
    """Return the first entry of the container's command if it contains white space, so that no program can have this name;
    "" otherwise.
    """
    command = container.get("command")
    first = str(command[0]) if isinstance(command, list) and command else ""
    return first if re.search(r"\s", first.strip()) else ""


def _start(line: Sequence[str], image: str) -> tuple[_Start, int] | None:
    """Return the known program that a command line starts, and the position of its first argument; None if it starts no
    known program.
    """
    plain = [module(word) for word in line]
    for at, word in enumerate(plain):
        if name := program(word, "".join(line[at + 1 : at + 2]), image):
            words = [item for item in line[at + 1 :] if item != "launch"]
            return _Start(name, tuple(words)), len(line) - len(words)
    for server in servers.known_servers():
        for start in server.starts:
            for at, word in enumerate(plain):
                if (word.rpartition("/")[2], *line[at + 1 : at + len(start)]) == start:
                    return _Start(server.name, tuple(line[at + len(start) :])), at + len(start)
    return None


def _filled(word: str, env: Mapping[str, str]) -> str:
    """Return a word in which the kubelet has expanded the known variables. Unknown variables are not replaced."""
    return _REFERENCE.sub(lambda found: env.get(found[1], found[0]), word) if "$" in word else word


def _arguments(words: Sequence[str], line: CommandLine | None, strict: bool) -> Iterable[Argument]:
    """Split words into arguments as argparse does. An argument is a flag and the words after it that are not flags."""
    written, word, values, joined = "", "", list[str](), False
    for item in [*words, "--"]:
        if not item.startswith("-") or re.fullmatch(r"-\d.*", item):
            values.append(item)
            continue
        if word:
            yield _argument(written, word, values, joined, line, strict)
        written, (word, equals, value) = item, item.partition("=")
        values, joined = [value] if equals else [], False
        if re.search(r"\s", word):
            word, *behind = word.split()
            values, joined = [*behind, *([f"{equals}{value}"] if equals else [])], True


def _argument(written: str, word: str, values: list[str], joined: bool, line: CommandLine | None, strict: bool) -> Argument:
    flag = line.find_flag(word) if line is not None else None
    most = None if strict or flag is None or "=" in written else _MOST.get(flag.takes)
    return Argument(written, word, tuple(values[:most]), flag, joined)
