"""Parses how a container starts an engine or a router. The result contains the program, its version, its arguments and
its environment variables.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ome_operator.engines import images, servers
from ome_operator.engines.flags import OPTIONAL, SWITCH, VALUE, CommandLine, Flag, Versions
from ome_operator.engines.routers import SMG, WITH_CONTROL_KEYS, is_program, is_smg, parts, starts_engines

ROUTER = "sglang-router"
ROUTERS = (ROUTER, SMG)
"""Routers of SGLang: sglang-router, and its successor smg, which has the same flags and more."""
STRICT = frozenset({"sglang", *ROUTERS})
"""Programs whose parser rejects a word that belongs to no flag. Other programs accept such a word, for example as the
model."""
_MOST = {SWITCH: 0, VALUE: 1, OPTIONAL: 1}
"""Kind of a flag → maximum number of words that follow the flag."""
_REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")
"""Pattern of a reference to an environment variable that the kubelet expands."""
_IN_SHELL = re.compile(r"\$\{?([A-Za-z_]\w*)\b\}?")
_OPERATORS = frozenset({";", "&", "&&", "|", "||", "fi", "done", ">", ">>", "2>&1"})
"""Words in a shell script that end a command: another command or a redirection follows them."""
_SIZES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


class Argument(NamedTuple):
    """A flag with the words that follow it."""

    written: str
    """The word as the user writes it. If the flag's value is in the same word, it includes the value."""
    word: str
    """The flag without its value."""
    values: tuple[str, ...]
    flag: Flag | None
    """The definition of the flag in the program's version; None if the version does not define the flag."""
    joined: bool = False
    """Whether flag and value are in the same word, separated by a space. The program then does not recognise the flag."""


@dataclass(frozen=True)
class Launch:
    """A program as a container starts it, with its arguments and environment variables."""

    engine: str
    """Name of the program: sglang, vllm, …, sglang-router, or smg."""
    image: str
    version: str
    """Version of the program; "" if unknown."""
    line: CommandLine | None
    """The command line of exactly the program's version; None if its flags are unknown."""
    read_as: CommandLine | None
    """The command line by which the arguments are parsed: that of the program's version, or else that of the nearest
    known version."""
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

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments in the order in which they are written."""
        return tuple(_arguments(self.words, self.read_as, self.engine in STRICT))

    def given(self, name: str) -> Argument | None:
        """Return the last argument that sets the flag `name`, under any name that the version has for the flag. Return
        None if no argument sets it.
        """
        flag = self._flag(name)
        return self._last.get(flag.name if flag is not None else name)

    @cached_property
    def _last(self) -> Mapping[str, Argument]:
        """Name of each given flag → the last argument that sets it. The map is cached because rules look up flags
        hundreds of times.
        """
        return {given.flag.name if given.flag else given.word: given for given in self.arguments}

    def _flag(self, name: str) -> Flag | None:
        return self.read_as.flags.get(name) if self.read_as is not None else None

    def text(self, name: str) -> str:
        """Return the value of a flag. If it is not given, return the default of the version, or "" if the version has
        none.
        """
        given = self.given(name)
        if given is not None:
            return given.values[0] if given.values else ""
        flag = self._flag(name)
        return "" if flag is None or flag.default is None else str(flag.default)

    def whole(self, name: str) -> int | None:
        """Return the value of a flag as a whole number. Return None if the value is not a number or depends on a
        variable.
        """
        return number(self.text(name))

    def on(self, name: str) -> bool:
        """Return whether a switch is on. It is on if it is given and its last occurrence is not a negation."""
        given = self.given(name)
        return given is not None and not (given.flag is not None and given.word in given.flag.negations)

    def variable(self, name: str) -> str:
        """Return the value of an environment variable. If it is not set, return the default of the version, or "" if the
        version has none.
        """
        default = self.read_as.variables.get(name) if self.read_as else None
        return self.env.get(name, "" if default is None or name in self.names else str(default))


def number(text: str) -> int | None:
    """Parse a whole number as engines do (8192, 8k, 8Ki); None if the text is not a number or has more than 18 digits."""
    found = re.fullmatch(r"\s*([+-]?\d{1,18}(?:\.\d{1,18})?)\s*([kMGT]|[KMGT]i)?\s*", text)
    if found is None or ("." in found[1] and not found[2]):
        return None
    return round(float(found[1]) * _SIZES[found[2]]) if found[2] else int(found[1])


def launch(container: Mapping[str, Any], annotations: Mapping[str, str], versions: Versions) -> Launch | None:
    """Return how a container starts a known program. Return None if the container's command starts no known program."""
    engine, words, shell = _program(container)
    if not engine:
        return None
    env = {str(item["name"]): str(item["value"]) for item in container.get("env") or () if "value" in item}
    image = str(container.get("image", ""))
    version = images.version(image, annotations, engine)
    line = versions.get(f"{engine}-{version}") if version else None
    nearest = versions.nearest(engine, version)
    return Launch(
        engine=engine,
        image=image,
        version=version,
        line=line,
        read_as=line or (versions.get(f"{engine}-{nearest}") if nearest else None),
        words=tuple(_filled(word, env, shell) for word in words),
        env={name: _filled(value, env) for name, value in env.items()},
        names=frozenset(str(item["name"]) for item in container.get("env") or ()),
        open=bool(container.get("envFrom")),
        shell=shell,
    )


def references(words: Iterable[str]) -> frozenset[str]:
    """Return the names of the variables to which the words refer with $(NAME), the syntax that the kubelet expands."""
    return frozenset(name for word in words for name in _REFERENCE.findall(word.replace("$$", "")))


def _program(container: Mapping[str, Any]) -> tuple[str, list[str], bool]:
    """Return the name of the engine, the words after the program, and whether a shell starts the program. The name is ""
    for an unknown program.
    """
    image = str(container.get("image", ""))
    lines = [[*parts(container)], *([*_split(line)] for part in parts(container) for line in _lines(part))]
    for number_, line in enumerate(lines):
        for at, word in enumerate(line):
            if is_program(word) and not starts_engines(word, "".join(line[at + 1 : at + 2])):
                name = SMG if is_smg(image, word) else ROUTER
                return name, [item for item in line[at + 1 :] if item != "launch"], number_ > 0
        for server in servers.known_servers():
            for start in server.starts:
                for at in range(len(line)):
                    if line[at : at + len(start)] == list(start):
                        return server.name, _ours(line[at + len(start) :], number_ > 0), number_ > 0
    if not container.get("command") and images.image_name(image) in WITH_CONTROL_KEYS:
        return SMG if images.image_name(image) == SMG else ROUTER, parts(container), False
    return "", [], False


def _lines(part: str) -> list[str]:
    """Return the lines of a shell script. Return none for a word without white space, because such a word is not a
    script.
    """
    return part.replace("\\\n", " ").splitlines() if re.search(r"\s", part.strip()) else []


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # an unclosed quotation mark
        return line.split()


def _ours(words: Sequence[str], shell: bool) -> list[str]:
    """Return the words that belong to the program. These are all words, or, if `shell` is true, the words before the next
    shell operator.
    """
    if not shell:
        return list(words)
    out: list[str] = []
    for word in words:
        if word in _OPERATORS:
            break
        out.append(word.removesuffix(";"))
        if word.endswith(";"):
            break
    return out


def _filled(word: str, env: Mapping[str, str], shell: bool = False) -> str:
    """Return a word in which known variables are expanded as the kubelet does it. If `shell` is true, they are also
    expanded as a shell does it. Unknown variables are not replaced.
    """
    if "$" not in word:
        return word
    word = _REFERENCE.sub(lambda found: env.get(found[1], found[0]), word)
    return _IN_SHELL.sub(lambda found: env.get(found[1], found[0]), word) if shell else word


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
    flag = line.find(word) if line is not None else None
    most = None if strict or flag is None or "=" in written else _MOST.get(flag.takes)
    return Argument(written, word, tuple(values[:most]), flag, joined)
