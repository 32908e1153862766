"""How a container starts an engine or a router: the program, its version, its arguments and variables."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ome_operator.engines import images, servers
from ome_operator.engines.flags import OPTIONAL, SWITCH, VALUE, CommandLine, Flag, Versions
from ome_operator.engines.routers import KEYED, is_program, parts

ROUTER = "sglang-router"
STRICT = frozenset({"sglang", ROUTER})
"""Programs that end at a word that belongs to no flag; others take it for the model."""
_MOST = {SWITCH: 0, VALUE: 1, OPTIONAL: 1}
"""What follows a flag -> how many words belong to it."""
_REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)")
"""A variable as the kubelet puts it in."""
_IN_SHELL = re.compile(r"\$\{?([A-Za-z_]\w*)\b\}?")
_OPERATORS = frozenset({";", "&", "&&", "|", "||", "fi", "done", ">", ">>", "2>&1"})
"""Words behind which a line of a shell is about something else."""
_SIZES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


class Argument(NamedTuple):
    """A flag and the words behind it."""

    written: str
    """As it stands there, with its value where that is in the same word."""
    word: str
    """The flag alone."""
    values: tuple[str, ...]
    flag: Flag | None
    """What the version says of it."""
    joined: bool = False
    """Whether its value stands behind a space in the same word, which programs take for another thing."""


@dataclass(frozen=True)
class Launch:
    """A program with its arguments."""

    engine: str
    """sglang, vllm, …, or sglang-router."""
    image: str
    version: str
    """Of the program, "" where nobody says it."""
    line: CommandLine | None
    """The flags of exactly this version."""
    read_as: CommandLine | None
    """The flags by which arguments are understood: of this version, else of the nearest that is known."""
    words: tuple[str, ...]
    """Behind the program, with the values of variables that are known."""
    env: Mapping[str, str]
    """Variables with a value that is known."""
    names: frozenset[str]
    """All variables that are named."""
    open: bool
    """Whether variables may come from elsewhere, too (`envFrom`)."""
    shell: bool
    """Whether a shell starts it, which puts in variables of its own."""

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments, in their order."""
        return tuple(_arguments(self.words, self.read_as, self.engine in STRICT))

    def given(self, name: str) -> Argument | None:
        """The last argument that means this flag, by whatever name the version calls it; None without."""
        flag = self._flag(name)
        return self._last.get(flag.name if flag is not None else name)

    @cached_property
    def _last(self) -> Mapping[str, Argument]:
        """Flag -> its last argument: rules ask for hundreds."""
        return {given.flag.name if given.flag else given.word: given for given in self.arguments}

    def _flag(self, name: str) -> Flag | None:
        return self.read_as.flags.get(name) if self.read_as is not None else None

    def text(self, name: str) -> str:
        """The value of a flag: what was given, else the version's default; "" where neither says any."""
        given = self.given(name)
        if given is not None:
            return given.values[0] if given.values else ""
        flag = self._flag(name)
        return "" if flag is None or flag.default is None else str(flag.default)

    def whole(self, name: str) -> int | None:
        """The same as a number; None where it is none, or depends on a variable."""
        return number(self.text(name))

    def on(self, name: str) -> bool:
        """Whether a switch is given, and not its negation."""
        given = self.given(name)
        return given is not None and not (given.flag is not None and given.word in given.flag.negations)

    def variable(self, name: str) -> str:
        """The value of a variable: what was given, else the version's default; "" where neither says any."""
        default = self.read_as.variables.get(name) if self.read_as else None
        return self.env.get(name, "" if default is None or name in self.names else str(default))


def number(text: str) -> int | None:
    """A whole number as engines read it: 8192, 8k, 8Ki; None where it is none or far too long."""
    found = re.fullmatch(r"\s*([+-]?\d{1,18}(?:\.\d{1,18})?)\s*([kMGT]|[KMGT]i)?\s*", text)
    if found is None or ("." in found[1] and not found[2]):
        return None
    return round(float(found[1]) * _SIZES[found[2]]) if found[2] else int(found[1])


def launch(container: Mapping[str, Any], annotations: Mapping[str, str], versions: Versions) -> Launch | None:
    """How a container starts a known program; None where it does not, as far as its words tell."""
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
    """The variables that words refer to, as the kubelet puts them in."""
    return frozenset(name for word in words for name in _REFERENCE.findall(word.replace("$$", "")))


def _program(container: Mapping[str, Any]) -> tuple[str, list[str], bool]:
    """(engine, the words behind it, whether a shell starts it); "" for an unknown program."""
    lines = [[*parts(container)], *([*_split(line)] for part in parts(container) for line in _lines(part))]
    for number_, line in enumerate(lines):
        for at, word in enumerate(line):
            if is_program(word) and line[at + 1 : at + 2] not in (["server"], ["serve"]):
                return ROUTER, [item for item in line[at + 1 :] if item != "launch"], number_ > 0
        for server in servers.known():
            for start in server.starts:
                for at in range(len(line)):
                    if line[at : at + len(start)] == list(start):
                        return server.name, _ours(line[at + len(start) :], number_ > 0), number_ > 0
    if not container.get("command") and images.name(str(container.get("image", ""))) in KEYED:
        return ROUTER, parts(container), False
    return "", [], False


def _lines(part: str) -> list[str]:
    """The lines of a script; a word that is no script is none."""
    return part.replace("\\\n", " ").splitlines() if re.search(r"\s", part.strip()) else []


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # a quotation mark that does not end
        return line.split()


def _ours(words: Sequence[str], shell: bool) -> list[str]:
    """The words of a line up to what belongs to the shell."""
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
    """A word with the variables whose value is known, by the kubelet or by a shell; others stay as they are."""
    if "$" not in word:
        return word
    word = _REFERENCE.sub(lambda found: env.get(found[1], found[0]), word)
    return _IN_SHELL.sub(lambda found: env.get(found[1], found[0]), word) if shell else word


def _arguments(words: Sequence[str], line: CommandLine | None, strict: bool) -> Iterable[Argument]:
    """What argparse makes of words: a flag, and the words behind it that are no flag."""
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
