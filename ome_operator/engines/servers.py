"""Recognize the servers of known engines in containers, and define their probes and arguments. The facts are data, one file
per engine.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any, NamedTuple

from ome_operator import quantity
from ome_operator.engines.routers import parts, value
from ome_operator.util.kubeyaml import document


class PinnedAdapters(NamedTuple):
    """How LoRA adapters are named where the engine accepts only pinned adapters."""

    under: tuple[str, ...]
    """The engine requires pinned adapters with any of these arguments, unless its value is 1."""
    more: tuple[str, ...]
    """Additional arguments, as flag=value."""
    each: Mapping[str, Any]
    """An adapter as JSON; $name and $path are replaced by its name and path."""


class Server(NamedTuple):
    """The HTTP server of an engine."""

    name: str
    """Name of the engine, such as sglang."""
    starts: tuple[tuple[str, ...], ...]
    """Sequences of adjacent words in a command that start the server."""
    port: int
    """Default port of the server."""
    health: str
    """Path that returns 200 while the server can serve."""
    dummy: bool
    """Whether ranks above 0 also return 200 there, even when they do not work."""
    startup: int
    """Maximum seconds of a start."""
    adapters: tuple[str, ...]
    """Arguments before the LoRA adapters, () if the engine accepts none."""
    pinned: PinnedAdapters | None
    """What differs where adapters must be pinned; None if they never must be."""
    parallel: Mapping[str, tuple[str, ...]]
    """TP, PP, DP and EP -> the arguments that set it."""


def server(container: Mapping[str, Any]) -> Server | None:
    """Return the server that a container starts, also in a shell command, or None if it is not a known server."""
    words = [word for part in parts(container) for word in part.split()]
    return next((candidate for candidate in known_servers() if _is_started_by(candidate, words)), None)


@cache
def known_servers() -> tuple[Server, ...]:
    """Return all servers for which data exists, ordered by name."""
    folder = resources.files(__package__) / "data" / "servers"
    files = {file.name.removesuffix(".yaml"): file for file in folder.iterdir() if file.name.endswith(".yaml")}
    return tuple(_read(name, document(files[name].read_text(encoding="utf-8"))) for name in sorted(files))


def takes_flags(container: Mapping[str, Any]) -> bool:
    """Return whether an additional argument reaches a known server; it does not if a shell command starts the server."""
    engine = server(container)
    lines = [part.split() for part in parts(container)]
    return engine is not None and not any(len(line) > 1 and _is_started_by(engine, line) for line in lines)


def takes_adapters(container: Mapping[str, Any]) -> bool:
    """Return whether `with_adapters` can pass LoRA adapters to the server."""
    engine = server(container)
    return engine is not None and bool(engine.adapters) and takes_flags(container)


def with_adapters(container: Mapping[str, Any], adapters: Mapping[str, str]) -> dict[str, Any]:
    """Return the container with LoRA adapters (name -> directory) as arguments, unless its own arguments name adapters."""
    args = [str(word) for word in container.get("args") or ()]
    engine = server(container)
    if not adapters or engine is None or not takes_adapters(container):
        return dict(container)
    *switches, flag = engine.adapters
    words = parts(container)
    if value(words, flag) is not None:
        return dict(container)
    adapter_arguments = [f"{name}={path}" for name, path in adapters.items()]
    if engine.pinned is not None and any(value(words, word) not in (None, "", "1") for word in engine.pinned.under):
        switches += [word for word in engine.pinned.more if value(words, word.partition("=")[0]) is None]
        adapter_arguments = [_pinned(engine.pinned, name, path) for name, path in adapters.items()]
    return {**container, "args": [*args, *(word for word in switches if word not in args), flag, *adapter_arguments]}


def _pinned(form: PinnedAdapters, name: str, path: str) -> str:
    own = {"$name": name, "$path": path}
    return json.dumps({key: own.get(str(value), value) for key, value in form.each.items()})


def strategy(container: Mapping[str, Any]) -> dict[str, str]:
    """Return how the arguments divide a model over GPUs: TP, PP, DP and EP -> the number, or "" where the number is not a
    literal.
    """
    engine = server(container)
    if engine is None:
        return {}
    words = [word for part in parts(container) for word in part.replace("=", " ").split()]
    result: dict[str, str] = {}
    for kind, flags in engine.parallel.items():
        for word, after in pairwise([*words, ""]):
            if word in flags:
                result[kind] = after if quantity.whole(after) is not None else result.get(kind, "")
    return result


def with_parallelism(container: Mapping[str, Any], sizes: Mapping[str, int], user_flags: Collection[str]) -> dict[str, Any]:
    """Return the container with these sizes (TP, PP -> the number) instead of the numbers in its arguments, also in a shell
    command.

    A value that refers to a variable is kept, and so is a size that the user sets by an argument in `user_flags`. An
    argument that is absent is not added.
    """
    engine = server(container)
    flags_of = {kind: engine.parallel.get(kind, ()) for kind in sizes} if engine is not None else {}
    numbers = {flag: sizes[kind] for kind, flags in flags_of.items() if not {*flags} & {*user_flags} for flag in flags}
    changed = {
        part: _numbered([str(word) for word in container[part]], numbers)
        for part in ("command", "args")
        if numbers and container.get(part)
    }
    return {**container, **changed}


def _numbered(words: Sequence[str], numbers: Mapping[str, int]) -> list[str]:
    """Return the words with these numbers after these flags. Flag and number may be two words, or in a shell command."""
    out: list[str] = []
    for before, word in pairwise(["", *words]):
        if before in numbers and word.isdigit():
            word = str(numbers[before])
        for flag, number in numbers.items():
            word = re.sub(rf"(?<!\S)({re.escape(flag)}(?:=|\s+))\d+(?!\S)", rf"\g<1>{number}", word)
        out.append(word)
    return out


def probes(engine: Server, port: int) -> dict[str, Any]:
    """Return the startup and readiness probes of rank 0, which serves HTTP on `port`.

    There is no liveness probe, because restarting a single rank does not repair a group.
    """
    health = {"httpGet": {"path": engine.health, "port": port}, "timeoutSeconds": 5}
    return {
        "startupProbe": {**health, "periodSeconds": 10, "failureThreshold": engine.startup // 10},
        "readinessProbe": {**health, "periodSeconds": 5, "failureThreshold": 3},
    }


def probes_dummy_page(engine: Server, container: Mapping[str, Any]) -> bool:
    """Return whether a probe of a rank above 0 requests a page that returns 200 even when the rank does not work."""
    return engine.dummy and any(
        str(((container.get(name) or {}).get("httpGet") or {}).get("path", "")).startswith(engine.health)
        for name in ("livenessProbe", "readinessProbe")
    )


def _is_started_by(engine: Server, words: Sequence[str]) -> bool:
    return any(_contains_sequence(start, words) for start in engine.starts)


def _contains_sequence(start: tuple[str, ...], words: Sequence[str]) -> bool:
    first, *rest = start
    return any(
        (word == first or word.endswith(f"/{first}")) and list(words[position + 1 : position + 1 + len(rest)]) == rest
        for position, word in enumerate(words)
    )


def _read(name: str, data: Mapping[str, Any]) -> Server:
    starts = tuple(tuple(start) for start in data["starts"])
    parallel = {kind: tuple(flags) for kind, flags in data["parallel"].items()}
    watched = data["port"], data["health"], data["dummy"], data["startup"]
    form = data.get("pinned")
    pinned = PinnedAdapters(tuple(form["under"]), tuple(form["more"]), form["each"]) if form else None
    return Server(name, starts, *watched, tuple(data["adapters"]), pinned, parallel)
