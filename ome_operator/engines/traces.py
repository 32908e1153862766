"""Whether SGLang and its router can send their spans to a collector, and by which arguments (docs/traces.md)."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ome_operator import keys
from ome_operator.engines import flags, images, routers, servers
from ome_operator.engines.routers import parts

SWITCH, ENDPOINT = "--enable-trace", "--otlp-traces-endpoint"
"""Engine and router call them alike."""
ENGINE, ROUTER = "sglang", "sglang-router"
_TITLES = {ENGINE: "SGLang", ROUTER: "sglang-router"}


def lacks(container: Mapping[str, Any], annotations: Mapping[str, str]) -> str:
    """Why the arguments cannot be added to a container, as a clause; "" where they can, or where both stand there already.

    A program ends at an argument that it does not know, so nothing is tried (decisions 36).
    """
    if not _missing(container):
        return ""
    program = _program(container)
    if program not in _TITLES:
        return "its container starts no SGLang that is known here"
    by_hand = f"write {SWITCH} and {ENDPOINT} into its arguments"
    takes = routers.takes_flags if program == ROUTER else servers.takes_flags
    if not takes(container):
        return f"a shell starts it: {by_hand}"
    version = images.version(str(container.get("image", "")), annotations, program)
    if not version:
        return f"its image does not say its version: annotate the component with {keys.ENGINE_VERSION}, or {by_hand}"
    known = flags.packaged().takes(program, version, (SWITCH, ENDPOINT))
    title = f"{_TITLES[program]} {version}"
    if known is None:
        return f"it is not known here whether {title} has {SWITCH}: if it has, {by_hand}"
    return "" if known else f"{title} has no {SWITCH}"


def traced(container: Mapping[str, Any], endpoint: str) -> dict[str, Any]:
    """The container with those of the arguments that it lacks; what its user wrote stays."""
    more = [SWITCH if flag == SWITCH else f"{ENDPOINT}={endpoint}" for flag in _missing(container)]
    return {**container, "args": [*(container.get("args") or ()), *more]} if more else dict(container)


def _missing(container: Mapping[str, Any]) -> list[str]:
    words = {word.partition("=")[0] for part in parts(container) for word in part.split()}
    return [flag for flag in (SWITCH, ENDPOINT) if flag not in words]


def _program(container: Mapping[str, Any]) -> str:
    """What a container starts; "" for a router that starts engines, too: it calls their arguments otherwise."""
    words = [word for part in parts(container) for word in part.split()]
    for word, after in pairwise([*words, ""]):
        if routers.is_program(word):
            return "" if word.endswith(".launch_server") or after in ("server", "serve") else ROUTER
    if not container.get("command") and images.name(str(container.get("image", ""))) in routers.KEYED:
        return ROUTER
    found = servers.server(container)
    return found.name if found is not None else ""
