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
CONTROL_KEYS = "--control-plane-api-keys"
"""Keys for `/workers` and what else changes a router; prompts need none of them (docs/security.md has what was measured)."""
KEYED = {"sglang-router": (0, 3, 1), "sgl-router": (0, 3, 1), "sgl-model-gateway": (0, 3, 1), "smg": (1, 13)}
"""Image -> its first version that is known to take `CONTROL_KEYS`: a router ends at a flag that it does not know. Images of
SGLang do not say which router they have."""
_GUARDED = ("--api-key", CONTROL_KEYS, "--jwt-issuer")
"""With one of them the user has said who may change the router."""
_WITH_ENGINES = frozenset({"server", "serve"})
"""Words after which the program starts engines, too, and calls the router's flags by other names."""
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
    worker_key: str = ""
    """What it shows its workers, "" for nothing; may refer to variables."""


def sglang_router(container: Mapping[str, Any]) -> SglangRouter | None:
    """The SGLang router in a container; None when it is something else, or its workers are no business of ours.

    They are not when the user names them in the arguments, or selects them by labels that are not the operator's; nor is
    there anything to do for versions without an API for workers, as far as the image's tag tells.
    """
    said = parts(container)
    words = [word for part in said for word in part.split()]
    # An image that starts the router itself gets only arguments, and nobody else's arguments are called like these.
    if (container.get("command") and not any(is_program(word) for word in words)) or _old(str(container.get("image", ""))):
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
        worker_key=value(words, "--api-key") or "",
    )


def takes_key(container: Mapping[str, Any], said: str = "") -> bool:
    """Whether a container is a router of SGLang's that takes a key for its control plane, and was given none by the user.

    `said`: "true" where the user knows that the image takes it, "false" where it is to have none, else "".
    """
    words = parts(container)
    programs = [at for at, word in enumerate(words) if is_program(word)]
    name, version = _version(str(container.get("image", "")))
    known = said == "true" or (name in KEYED and version >= KEYED[name])
    starts = bool(programs) if container.get("command") else known
    if said == "false" or not known or not starts or value(words, "--mini-lb") is not None:
        return False
    if any(
        words[at].endswith(".launch_server") or words[at + 1 : at + 2] in ([one] for one in _WITH_ENGINES) for at in programs
    ):
        return False
    return not any(word.partition("=")[0] in _GUARDED for word in words)


def takes_flags(container: Mapping[str, Any]) -> bool:
    """Whether another argument reaches the router: not when a shell starts it."""
    return not container.get("command") or any(is_program(word) for word in parts(container))


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
    name, version = _version(image)
    return bool(version) and version[:2] < OLDEST.get(name, (0, 0))


def _version(image: str) -> tuple[str, tuple[int, ...]]:
    """Name of an image without its registry, and the version that its tag says, () for none."""
    name, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", tag)
    return name, tuple(int(number) for number in found.groups(default="0")) if found else ()


def is_program(word: str) -> bool:
    """Whether a word of a command starts the router."""
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
