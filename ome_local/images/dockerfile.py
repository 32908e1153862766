"""The part of the Dockerfile language that images/ is written in: one text for Docker and for `ome local images`.

Known are FROM, RUN (with `--mount=type=cache`), COPY (with `--from`), ENV, USER and ENTRYPOINT. Anything else is refused, so
that an image never differs from what Docker would have made of the same text.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ome_operator.errors import UserError

_CACHE = re.compile(r"--mount=type=cache,target=(/\S+)\s+")


@dataclass(frozen=True)
class Run:
    """A shell command inside the stage's file system."""

    command: str
    caches: tuple[str, ...]
    """Folders that keep their content from build to build and are no part of the image."""
    env: Mapping[str, str]
    """What the stage's ENV lines above it set."""


@dataclass(frozen=True)
class Copy:
    """Files from the repository, or from another stage."""

    sources: tuple[str, ...]
    to: str
    stage: str | None


@dataclass
class Stage:
    """One FROM and what follows it. The builder makes one layer of each stage that an image stands on."""

    name: str
    """What AS says; of the last stage, the image itself, empty."""
    parent: str
    steps: list[Run | Copy] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    user: str = ""
    entrypoint: tuple[str, ...] = ()


def parse(text: str, where: str = "Dockerfile") -> dict[str, Stage]:
    """Stages by name, in order; the last one is the image. `where` names the file in the sentence about a mistake."""
    stages: list[Stage] = []
    for word, rest in _instructions(text):
        try:
            if word == "FROM":
                stages.append(_stage(rest))
            else:
                _add(stages[-1], word, rest)
        except (ValueError, IndexError) as error:
            raise UserError(f"{where}: `{word} {rest[:60]}` cannot be built here: {error}.") from error
    if not stages:
        raise UserError(f"{where} has no FROM line.")
    return {stage.name: stage for stage in stages}


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Keyword and the rest. A backslash continues a line; comment lines vanish, also inside a continued one."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\s*\n\s*", "", "\n".join(lines)).splitlines():
        word, _, rest = line.strip().partition(" ")
        yield word.upper(), rest.strip()


def _stage(rest: str) -> Stage:
    parent, *words = rest.split()
    if words and (len(words) != 2 or words[0].upper() != "AS"):
        raise ValueError("it is not FROM image AS name")
    return Stage(words[1] if words else "", parent)


def _add(stage: Stage, word: str, rest: str) -> None:
    if word == "RUN":
        if stage.user:
            raise ValueError("RUN after USER would run as root here")
        stage.steps.append(Run(_CACHE.sub("", rest), tuple(_CACHE.findall(rest)), dict(stage.env)))
    elif word == "COPY":
        stage.steps.append(_copy(rest))
    elif word == "ENV":
        stage.env |= dict(_pair(pair) for pair in shlex.split(rest))
    elif word == "USER":
        stage.user = rest
    elif word == "ENTRYPOINT":
        stage.entrypoint = tuple(json.loads(rest))
    else:
        raise ValueError("the instruction is not one of FROM, RUN, COPY, ENV, USER, ENTRYPOINT")


def _copy(rest: str) -> Copy:
    words = rest.split()
    stage = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else None
    if len(words) < 2 or words[0].startswith("--"):
        raise ValueError("it is not COPY [--from=stage] source… target")
    return Copy(tuple(words[:-1]), words[-1], stage)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError("it is not ENV NAME=value")
    return key, value
