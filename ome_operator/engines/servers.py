"""Recognize the servers of known engines in containers, and define their probes and arguments. The facts are stored as
data, with one file for each engine.
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
from ome_operator.util.memoize import memoize_by_identity


class PinnedAdapters(NamedTuple):
    """The arguments for LoRA adapters if the engine accepts only pinned adapters."""

    required_by: tuple[str, ...]
    """Arguments with which the engine requires pinned adapters. Each has this effect unless its value is 1."""
    more: tuple[str, ...]
    """Additional arguments for pinned adapters, as flag=value."""
    each: Mapping[str, Any]
    """The JSON value of an adapter. $name and $path are replaced by the adapter's name and path."""


class Variable(NamedTuple):
    """An environment variable with a value that is better for an engine in a group than the engine's own default."""

    name: str
    value: str
    unless: frozenset[str]
    """Names of other variables. If any of them is set, the engine needs its own default."""


class Server(NamedTuple):
    """The HTTP server of an engine."""

    name: str
    """Name of the engine, such as sglang."""
    starts: tuple[tuple[str, ...], ...]
    """Sequences of adjacent words in a command that start the server."""
    port: int
    """Default port of the server."""
    health: str
    """Path of the HTTP server that returns 200 while the server can serve."""
    dummy: bool
    """Whether ranks above 0 also return 200 at the path `health`, even when they do not work."""
    startup: int
    """Maximum duration of a start, in seconds."""
    adapters: tuple[str, ...]
    """Arguments that precede the LoRA adapters; () if the engine accepts no adapters."""
    pinned: PinnedAdapters | None
    """The arguments for LoRA adapters if the adapters must be pinned. None if the engine never requires pinned adapters."""
    parallel: Mapping[str, tuple[str, ...]]
    """Maps TP, PP, DP and EP to the arguments that set the size."""
    env: tuple[Variable, ...]
    """Environment variables that every rank gets."""
    caches: Mapping[str, str]
    """Maps environment variables to folders. Each variable determines where the engine keeps a part of what it compiles.
    Its folder is relative to the directory of a compile cache; "" stands for the directory itself."""


@memoize_by_identity(2048)
def server(container: Mapping[str, Any]) -> Server | None:
    """Return the server that a container starts, directly or in a shell command. Return None if the container starts no
    known server.
    """
    words = [word for part in parts(container) for word in part.split()]
    return next((candidate for candidate in known_servers() if _is_started_by(candidate, words)), None)


@cache
def known_servers() -> tuple[Server, ...]:
    """Return all servers for which data exists, ordered by name."""
    folder = resources.files(__package__) / "data" / "servers"
    files = {file.name.removesuffix(".yaml"): file for file in folder.iterdir() if file.name.endswith(".yaml")}
    return tuple(_read(name, document(files[name].read_text(encoding="utf-8"))) for name in sorted(files))


def takes_flags(container: Mapping[str, Any]) -> bool:
    """Return whether an argument that is added to the container reaches a known server. The argument does not reach a server
    that a shell command starts.
    """
    engine = server(container)
    lines = [part.split() for part in parts(container)]
    return engine is not None and not any(len(line) > 1 and _is_started_by(engine, line) for line in lines)


def takes_adapters(container: Mapping[str, Any]) -> bool:
    """Return whether `with_adapters` can pass LoRA adapters to the server."""
    engine = server(container)
    return engine is not None and bool(engine.adapters) and takes_flags(container)


def with_adapters(container: Mapping[str, Any], adapters: Mapping[str, str]) -> dict[str, Any]:
    """Return the container with arguments for LoRA adapters. `adapters` maps the name of each adapter to its directory.
    If the container's own arguments name adapters, the container is not changed.
    """
    args = [str(word) for word in container.get("args") or ()]
    engine = server(container)
    if not adapters or engine is None or not takes_adapters(container):
        return dict(container)
    *switches, flag = engine.adapters
    words = parts(container)
    if value(words, flag) is not None:
        return dict(container)
    adapter_arguments = [f"{name}={path}" for name, path in adapters.items()]
    if engine.pinned is not None and any(value(words, word) not in (None, "", "1") for word in engine.pinned.required_by):
        switches += [word for word in engine.pinned.more if value(words, word.partition("=")[0]) is None]
        adapter_arguments = [_pinned(engine.pinned, name, path) for name, path in adapters.items()]
    return {**container, "args": [*args, *(word for word in switches if word not in args), flag, *adapter_arguments]}


def _pinned(form: PinnedAdapters, name: str, path: str) -> str:
    own = {"$name": name, "$path": path}
    return json.dumps({key: own.get(str(value), value) for key, value in form.each.items()})


def strategy(container: Mapping[str, Any]) -> dict[str, str]:
    """Return how the container's arguments divide a model over GPUs. The result maps TP, PP, DP and EP to the number, or
    to "" if the number is not a literal. A size without an argument is left out.
    """
    engine = server(container)
    if engine is None:
        return {}
    words = [word for part in parts(container) for word in part.replace("=", " ").split()]
    result: dict[str, str] = {}
    for kind, flags in engine.parallel.items():
        for word, after in pairwise([*words, ""]):
            if word in flags:
                result[kind] = after if quantity.whole_number(after) is not None else result.get(kind, "")
    return result


def with_parallelism(container: Mapping[str, Any], sizes: Mapping[str, int], user_flags: Collection[str]) -> dict[str, Any]:
    """Return the container with other parallel sizes in its arguments, including the arguments in a shell command. `sizes`
    maps TP and PP to the new numbers.

    A value that refers to a variable is not changed. A size is also not changed if the user sets it by an argument in
    `user_flags`. An argument that is absent is not added.
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
    """Return the words with the numbers after flags replaced. `numbers` maps each flag to its new number. Flag and number
    may be two words, or parts of a shell command in one word.
    """
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

    After the engine has started, up to one period of the startup probe passes until Kubernetes notices this, so the period
    is short. There is no liveness probe, because restarting a single rank does not repair a group.
    """
    health = {"httpGet": {"path": engine.health, "port": port}, "timeoutSeconds": 5}
    return {
        "startupProbe": {**health, "periodSeconds": 1, "failureThreshold": engine.startup},
        "readinessProbe": {**health, "periodSeconds": 5, "failureThreshold": 3},
    }


def with_variables(engine: Server, container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container with the variables of the engine, after the user's variables. A variable is not added if the
    container's variables or command mention the variable, or one of the variables in its `unless`. It is not added
    either if the container takes variables from an object that cannot be read here (`envFrom`).
    """
    own = container.get("env") or []
    mentioned = " ".join([*parts(container), *(str(variable["name"]) for variable in own)])
    added = [
        {"name": variable.name, "value": variable.value}
        for variable in engine.env
        if not (container.get("envFrom") or any(name in mentioned for name in (variable.name, *variable.unless)))
    ]
    return {**container, "env": [*own, *added]} if added else dict(container)


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
    env = tuple(Variable(one["name"], one["value"], frozenset(one["unless"])) for one in data.get("env") or ())
    return Server(name, starts, *watched, tuple(data["adapters"]), pinned, parallel, env, data.get("caches") or {})
