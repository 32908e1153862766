"""How servers of known engines are told apart, and how they are watched. The facts are data, one file for each engine."""

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


class Pinned(NamedTuple):
    """How adapters are named where the engine takes only pinned ones."""

    under: tuple[str, ...]
    """Arguments with any of which it is so, unless its value is 1."""
    more: tuple[str, ...]
    """Arguments that stand before, as flag=value."""
    each: Mapping[str, Any]
    """An adapter as JSON; $name and $path stand for its own."""


class Server(NamedTuple):
    """The HTTP server of an engine."""

    name: str
    """The engine's, such as sglang."""
    starts: tuple[tuple[str, ...], ...]
    """Words that stand side by side in a command that starts it."""
    port: int
    """Where it serves unless it is told otherwise."""
    health: str
    """Path that answers 200 while it can serve."""
    dummy: bool
    """Whether ranks above 0 answer there too, whatever happens."""
    startup: int
    """Seconds that a start may take."""
    adapters: tuple[str, ...]
    """Arguments before LoRA adapters, () when it takes none."""
    pinned: Pinned | None
    """What is different where adapters have to be pinned, if they ever have to."""
    parallel: Mapping[str, tuple[str, ...]]
    """TP, PP, DP and EP -> the arguments that set it."""


def server(container: Mapping[str, Any]) -> Server | None:
    """The server that a container starts, also from a shell line; None when it is not a known one."""
    words = [word for part in parts(container) for word in part.split()]
    return next((one for one in known() if _starts(one, words)), None)


@cache
def known() -> tuple[Server, ...]:
    """All servers that there are data for, by name."""
    folder = resources.files(__package__) / "data" / "servers"
    files = {one.name.removesuffix(".yaml"): one for one in folder.iterdir() if one.name.endswith(".yaml")}
    return tuple(_read(name, document(files[name].read_text(encoding="utf-8"))) for name in sorted(files))


def takes_flags(container: Mapping[str, Any]) -> bool:
    """Whether an argument behind the others reaches a known server: not where a shell line starts it."""
    found = server(container)
    lines = [part.split() for part in parts(container)]
    return found is not None and not any(len(line) > 1 and _starts(found, line) for line in lines)


def takes_adapters(container: Mapping[str, Any]) -> bool:
    """Whether `with_adapters` can name LoRA adapters to the server."""
    found = server(container)
    return found is not None and bool(found.adapters) and takes_flags(container)


def with_adapters(container: Mapping[str, Any], adapters: Mapping[str, str]) -> dict[str, Any]:
    """The container with LoRA adapters (name -> directory) as arguments, unless its own arguments name some."""
    args = [str(one) for one in container.get("args") or ()]
    found = server(container)
    if not adapters or found is None or not takes_adapters(container):
        return dict(container)
    *switches, flag = found.adapters
    words = parts(container)
    if value(words, flag) is not None:
        return dict(container)
    named = [f"{name}={path}" for name, path in adapters.items()]
    if found.pinned is not None and any(value(words, one) not in (None, "", "1") for one in found.pinned.under):
        switches += [one for one in found.pinned.more if value(words, one.partition("=")[0]) is None]
        named = [_pinned(found.pinned, name, path) for name, path in adapters.items()]
    return {**container, "args": [*args, *(one for one in switches if one not in args), flag, *named]}


def _pinned(form: Pinned, name: str, path: str) -> str:
    own = {"$name": name, "$path": path}
    return json.dumps({key: own.get(str(value), value) for key, value in form.each.items()})


def strategy(container: Mapping[str, Any]) -> dict[str, str]:
    """How a server divides its model, as its arguments say it: TP, PP, DP and EP -> the number, "" where it says none."""
    found = server(container)
    if found is None:
        return {}
    words = [word for part in parts(container) for word in part.replace("=", " ").split()]
    out: dict[str, str] = {}
    for kind, flags in found.parallel.items():
        for word, after in pairwise([*words, ""]):
            if word in flags:
                out[kind] = after if quantity.whole(after) is not None else out.get(kind, "")
    return out


def with_parallelism(container: Mapping[str, Any], sizes: Mapping[str, int], own: Collection[str]) -> dict[str, Any]:
    """The container with these sizes (TP, PP -> the number) in place of the numbers in its arguments, also in a shell line.

    What refers to a variable stays, and so does a size of which somebody said more by an argument in `own`. An argument that
    does not stand there is not added.
    """
    found = server(container)
    named = {kind: found.parallel.get(kind, ()) for kind in sizes} if found is not None else {}
    numbers = {flag: sizes[kind] for kind, flags in named.items() if not {*flags} & {*own} for flag in flags}
    changed = {
        part: _numbered([str(word) for word in container[part]], numbers)
        for part in ("command", "args")
        if numbers and container.get(part)
    }
    return {**container, **changed}


def _numbered(words: Sequence[str], numbers: Mapping[str, int]) -> list[str]:
    """The words with the number behind each of these flags; flag and number may be two words or stand in a shell line."""
    out: list[str] = []
    for before, word in pairwise(["", *words]):
        if before in numbers and word.isdigit():
            word = str(numbers[before])
        for flag, number in numbers.items():
            word = re.sub(rf"(?<!\S)({re.escape(flag)}(?:=|\s+))\d+(?!\S)", rf"\g<1>{number}", word)
        out.append(word)
    return out


def probes(found: Server, port: int) -> dict[str, Any]:
    """Start-up and readiness of rank 0, which serves HTTP on `port`.

    No liveness probe: restarting one rank does not heal a group.
    """
    health = {"httpGet": {"path": found.health, "port": port}, "timeoutSeconds": 5}
    return {
        "startupProbe": {**health, "periodSeconds": 10, "failureThreshold": found.startup // 10},
        "readinessProbe": {**health, "periodSeconds": 5, "failureThreshold": 3},
    }


def trusts_dummy(found: Server, container: Mapping[str, Any]) -> bool:
    """Whether a probe of a rank above 0 asks a page that proves nothing."""
    return found.dummy and any(
        str(((container.get(name) or {}).get("httpGet") or {}).get("path", "")).startswith(found.health)
        for name in ("livenessProbe", "readinessProbe")
    )


def _starts(found: Server, words: Sequence[str]) -> bool:
    return any(_side_by_side(start, words) for start in found.starts)


def _side_by_side(start: tuple[str, ...], words: Sequence[str]) -> bool:
    first, *rest = start
    return any(
        (word == first or word.endswith(f"/{first}")) and list(words[at + 1 : at + 1 + len(rest)]) == rest
        for at, word in enumerate(words)
    )


def _read(name: str, data: Mapping[str, Any]) -> Server:
    starts = tuple(tuple(start) for start in data["starts"])
    parallel = {kind: tuple(flags) for kind, flags in data["parallel"].items()}
    watched = data["port"], data["health"], data["dummy"], data["startup"]
    form = data.get("pinned")
    pinned = Pinned(tuple(form["under"]), tuple(form["more"]), form["each"]) if form else None
    return Server(name, starts, *watched, tuple(data["adapters"]), pinned, parallel)
