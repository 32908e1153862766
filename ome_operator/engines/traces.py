"""Determine whether SGLang and its router can send traces to a collector, and add the arguments for it (docs/traces.md)."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ome_operator import keys
from ome_operator.engines import flags, images, routers, servers
from ome_operator.engines.routers import parts

SWITCH, ENDPOINT = "--enable-trace", "--otlp-traces-endpoint"
"""Arguments that enable traces. The engine and the router use the same names."""
ENGINE, ROUTER = "sglang", routers.SGLANG_ROUTER
_TITLES = {ENGINE: "SGLang", ROUTER: ROUTER, routers.SMG: "smg"}


def trace_obstacle(container: Mapping[str, Any], annotations: Mapping[str, str]) -> str:
    """Return a clause that states why the arguments for traces cannot be added to a container; "" if they can be added or
    are already set.

    The arguments are added only to versions that are known to accept them, because a program exits at an unknown argument
    (decisions 36).
    """
    if not _missing(container):
        return ""
    program = _program(container)
    if program not in _TITLES:
        return "its container starts no known SGLang program"
    by_hand = f"add {SWITCH} and {ENDPOINT} to its arguments"
    takes = servers.takes_flags if program == ENGINE else routers.takes_flags
    if not takes(container):
        return f"a shell starts it: {by_hand}"
    version = images.version(str(container.get("image", "")), annotations, program)
    if not version:
        return f"its image does not state its version: annotate the component with {keys.ENGINE_VERSION}, or {by_hand}"
    known = flags.packaged_versions().accepts_flags(program, version, (SWITCH, ENDPOINT))
    title = f"{_TITLES[program]} {version}"
    if known is None:
        return f"it is not known whether {title} supports {SWITCH}: if it does, {by_hand}"
    return "" if known else f"{title} does not support {SWITCH}"


def with_tracing(container: Mapping[str, Any], endpoint: str) -> dict[str, Any]:
    """Return the container with the arguments for traces. Arguments that the user sets are kept."""
    missing = [SWITCH if flag == SWITCH else f"{ENDPOINT}={endpoint}" for flag in _missing(container)]
    return {**container, "args": [*(container.get("args") or ()), *missing]} if missing else dict(container)


def _missing(container: Mapping[str, Any]) -> list[str]:
    words = {word.partition("=")[0] for part in parts(container) for word in part.split()}
    return [flag for flag in (SWITCH, ENDPOINT) if flag not in words]


def _program(container: Mapping[str, Any]) -> str:
    """Return the name of the program that a container starts. Return "" for a router that also starts engines, because it
    has other names for the arguments of tracing.
    """
    words = [word for part in parts(container) for word in part.split()]
    image = str(container.get("image", ""))
    for word, after in pairwise([*words, ""]):
        if (found := routers.program(word, after, image)) is not None:
            return found
    if name := routers.of_image(container):
        return name
    engine = servers.server(container)
    return engine.name if engine is not None else ""
