"""The YAML files of `config/`, and the arguments and variables in them."""

import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ome_operator.engines.flags import CommandLine, usage_error
from ome_operator.engines.servers import known_servers

CONFIG = Path(__file__).parents[2] / "config"
RUNTIME, SEED = "runtimes/srt/kimi-k2-pd-rt.yaml", "runtimes/srt/kimi-k2-pd-seed-rt.yaml"
AGENTS = "runtimes/srt/kimi-k2-pd-agentic-rt.yaml"
GPUS = 8


@cache
def documents(path: str) -> list[dict[str, Any]]:
    return [one for one in yaml.load_all((CONFIG / path).read_text(encoding="utf-8"), yaml.CSafeLoader) if one]


def runtime(path: str) -> dict[str, Any]:
    return documents(path)[0]["spec"]


def pairs(args: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield (flag, the words after it) for `--flag`, `--flag=word` and `--flag word …`."""
    flag, words = "", []
    for arg in args:
        if arg.startswith("--"):
            if flag:
                yield flag, words
            flag, _, word = arg.partition("=")
            words = [word] if "=" in arg else []
        else:
            words = [*words, arg]
    if flag:
        yield flag, words


def problems(line: CommandLine, args: list[str]) -> list[str]:
    found = []
    for flag, words in pairs(args):
        known = line.flags.get(flag)
        if known is None:
            found.append(f"{flag} is unknown")
        elif known.deprecated:
            found.append(f"{flag} is deprecated, write {known.deprecated}")
        elif said := usage_error(known, words):
            found.append(f"{flag} {said}")
    return found


def servers_words(runner: dict[str, Any]) -> list[str]:
    """Return the arguments of the server that a runner starts, directly or by a shell; [] if it starts no server."""
    args = list(runner.get("args") or ())
    if runner["command"][-1] != "-c":
        return args
    words = shlex.split(args[0].replace("\\\n", " "), comments=True)
    for start in (list(start) for one in known_servers() for start in one.starts):
        for at in range(len(words)):
            if words[at : at + len(start)] == start:
                return words[at + len(start) :]
    return []


def rank(component: dict[str, Any], part: str) -> dict[str, Any]:
    """Return the runner of the leader or of the workers; fields that the role does not set come from the runner of both."""
    return component["runner"] | ((component.get(part) or {}).get("runner") or {})


def flags(component: dict[str, Any], part: str = "leader") -> dict[str, str]:
    return {flag: " ".join(words) for flag, words in pairs(servers_words(rank(component, part)))}


def env(component: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in component["runner"]["env"] if "value" in one}
