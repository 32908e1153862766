"""What is known of routers: how the command line of SGLang's looks, and what it says about its workers."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ome_operator import keys, quantity

SELECTORS = ("--prefill-selector", "--decode-selector", "--selector")
PROGRAMS = frozenset({"smg", "amg", "sglang-router"})
"""Commands that the package installs; its module is `sglang_router`."""
PORT = 30000
"""Where it listens unless it is told otherwise."""
BOOTSTRAP_PORT = 8998
"""Of SGLang's prefill leaders unless they are told otherwise."""
HEALTH_INTERVAL = "--health-check-interval-secs"
OLDEST = {"sglang": (0, 5), "sglang-router": (0, 2), "sgl-router": (0, 2)}
"""Image -> its first version that may have a router with `/workers` and today's flags."""
_OURS = frozenset({keys.COMPONENT, keys.WORKER_INDEX, keys.SERVICE, keys.REVISION, keys.MANAGED_BY})


class SglangRouter(NamedTuple):
    """A router that looks for its workers itself."""

    pd: bool
    """Its workers are prefill and decode."""
    address: str
    """Of its HTTP server, seen from its own pod."""
    worker_port: int | None
    """Where it expects every worker, when it says so."""
    key: str
    """What its API wants to see, "" for nothing; may refer to variables."""


def sglang_router(container: Mapping[str, Any]) -> SglangRouter | None:
    """The SGLang router in a container; None when it is something else, or its workers are no business of ours.

    They are not when the user names them in the arguments, or selects them by labels that are not the operator's; nor is
    there anything to do for versions without an API for workers, as far as the image's tag tells.
    """
    said = parts(container)
    words = [word for part in said for word in part.split()]
    # An image that starts the router itself gets only arguments, and nobody else's arguments are called like these.
    if (container.get("command") and not any(_program(word) for word in words)) or _old(str(container.get("image", ""))):
        return None
    pd = "--pd-disaggregation" in words
    if not pd and "--service-discovery" not in words:
        return None
    named = any(value(words, flag) is not None for flag in ("--worker-urls", "--prefill", "--decode", "--mini-lb"))
    if named or _foreign(said):
        return None
    host = value(words, "--host") or ""
    inside = "127.0.0.1" if host in ("", "0.0.0.0", "::", "localhost") else host
    scheme = "https" if value(words, "--tls-cert-path") else "http"
    port = value(words, "--service-discovery-port") or ""
    return SglangRouter(
        pd=pd,
        address=f"{scheme}://{f'[{inside}]' if ':' in inside else inside}:{value(words, '--port') or PORT}",
        worker_port=quantity.whole(port),
        key=_key(words),
    )


def takes_flags(container: Mapping[str, Any]) -> bool:
    """Whether another argument reaches the router: not when a shell starts it."""
    return not container.get("command") or any(_program(word) for word in parts(container))


def value(words: Sequence[str], flag: str) -> str | None:
    """The word behind a flag (the last one counts), "" when none follows, None when the flag is not there."""
    found = None
    for word, after in pairwise([*words, "--"]):
        if word == flag:
            found = "" if after.startswith("--") else after
        elif word.startswith(f"{flag}="):
            found = word.removeprefix(f"{flag}=")
    return found


def parts(container: Mapping[str, Any]) -> list[str]:
    """Command and arguments of a container."""
    return [str(word) for part in ("command", "args") for word in container.get(part) or ()]


def _old(image: str) -> bool:
    name, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    found = re.match(r"v?(\d+)\.(\d+)", tag)
    return found is not None and (int(found[1]), int(found[2])) < OLDEST.get(name, (0, 0))


def _program(word: str) -> bool:
    return word.rpartition("/")[2] in PROGRAMS or word.split(".")[0] == "sglang_router"


def _foreign(parts: Sequence[str]) -> bool:
    """Whether a selector has a label that is not on every pod of a component."""
    inside = False
    for part in parts:
        flag, equals, rest = part.partition("=")
        if part.startswith("-"):
            inside = flag in SELECTORS
            part = rest if equals else ""
        if inside and any(pair.partition("=")[0] not in _OURS for pair in part.split()):
            return True
    return False


def _key(words: Sequence[str]) -> str:
    """The key for the API: of an admin when there are roles (`id:name:role:key`), else the one for everything."""
    for word in words:
        if ":admin:" in word:
            return word.rpartition(":")[2]
    return value(words, "--api-key") or ""
