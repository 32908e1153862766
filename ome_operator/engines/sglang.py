"""How an SGLang server is told apart, and how it is watched. Measured with SGLang 0.5.23 on groups of several pods."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

HEALTH = "/health"
"""Generates a token, so it takes a second, and it stops answering when any rank hangs. Only on rank 0: the others run a
dummy server that answers 200 whatever happens."""
PORT = 30000
"""Where it serves unless it is told otherwise."""
STARTUP_TRIES = 360
"""Of 10 s: an hour. A terabyte of weights takes 35 min at 0.5 GB/s, and kernels are compiled after that."""


def serves(container: Mapping[str, Any]) -> bool:
    """Whether a container starts an SGLang server: `python3 -m sglang.launch_server` or `sglang serve`, also in a shell."""
    parts = (*(container.get("command") or ()), *(container.get("args") or ()))
    words = [word for part in parts for word in str(part).split()]
    started = any(word.rpartition("/")[2] == "sglang" and after == "serve" for word, after in pairwise(words))
    return started or "sglang.launch_server" in words


def takes_flags(container: Mapping[str, Any]) -> bool:
    """Whether an argument behind the others reaches the server: not where a shell line starts it."""
    parts = [str(part) for part in (*(container.get("command") or ()), *(container.get("args") or ()))]
    return serves(container) and not any(len(part.split()) > 1 and "sglang" in part for part in parts)


def with_adapters(container: Mapping[str, Any], adapters: Mapping[str, str]) -> dict[str, Any]:
    """The container with LoRA adapters (name -> directory) as arguments, unless its own arguments name some.

    `--lora-paths` switches LoRA on by itself, in the versions that have `--enable-lora` too.
    """
    args = list(container.get("args") or ())
    if not adapters or not takes_flags(container) or any(str(one).startswith("--lora-paths") for one in args):
        return dict(container)
    named = [f"{name}={path}" for name, path in adapters.items()]
    return {**container, "args": [*args, "--lora-paths", *named]}


def probes(port: int) -> dict[str, Any]:
    """Start-up and readiness of rank 0, which serves HTTP on `port`.

    No liveness probe: restarting one rank does not heal a group.
    """
    health = {"httpGet": {"path": HEALTH, "port": port}, "timeoutSeconds": 5}
    return {
        "startupProbe": {**health, "periodSeconds": 10, "failureThreshold": STARTUP_TRIES},
        "readinessProbe": {**health, "periodSeconds": 5, "failureThreshold": 3},
    }


def trusts_dummy(container: Mapping[str, Any]) -> bool:
    """Whether a probe of a rank above 0 asks the dummy server."""
    return any(
        str(((container.get(name) or {}).get("httpGet") or {}).get("path", "")).startswith(HEALTH)
        for name in ("livenessProbe", "readinessProbe")
    )
