"""Facts about SGLang's router: its command line, and what its arguments state about its workers."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ome_operator import keys, quantity

SELECTORS = ("--prefill-selector", "--decode-selector", "--selector")
SGLANG_ROUTER = "sglang-router"
"""Name of SGLang's router. Its package and its command have this name."""
PROGRAMS = frozenset({"smg", "amg", SGLANG_ROUTER})
"""Commands that the packages of the routers install. The Python module of the package sglang-router is `sglang_router`."""
SMG = "smg"
"""The successor of sglang-router: the name of its image, its command and its Python module. Its version numbers are
independent of the version numbers of sglang-router."""
_SMG_MODULE = re.compile(r"smg\.(?:launch_router|cli|serve|__main__)")
"""Modules of the package smg with which `python -m` starts it (smg 1.13.0)."""
PORT = 30000
"""Default port of the router."""
BOOTSTRAP_PORT = 8998
"""Default bootstrap port of SGLang's prefill leaders."""
HEALTH_INTERVAL = "--health-check-interval-secs"
OLDEST_SUPPORTED = {"sglang": (0, 5), "sglang-router": (0, 2), "sgl-router": (0, 2)}
"""Maps the name of an image to the first version of the image whose router may have the path `/workers` and today's
flags."""
CONTROL_KEYS = "--control-plane-api-keys"
"""Flag that sets keys for `/workers` and for other requests that change a router. Prompts need no such key
(docs/security.md describes the measurement)."""
WITH_CONTROL_KEYS = {"sglang-router": (0, 3, 1), "sgl-router": (0, 3, 1), "sgl-model-gateway": (0, 3, 1), "smg": (1, 13)}
"""Maps the name of an image to the first version of the image that is known to accept `CONTROL_KEYS`. Older versions must
not get this flag, because a router exits at an unknown flag. The map does not contain SGLang's images, because their
names do not state the version of their router."""
_GUARDED = ("--api-key", CONTROL_KEYS, "--jwt-issuer")
"""Flags with which the user restricts who may change the router."""
_WITH_ENGINES = frozenset({"server", "serve"})
"""Subcommands of the router that also start engines. With them, the flags of the router have other names."""
_MODULES_WITH_ENGINES = (".launch_server", f"{SMG}.serve")
"""Ends of the names of modules that also start engines."""
_OPERATOR_LABELS = frozenset({keys.COMPONENT, keys.WORKER_INDEX, keys.SERVICE, keys.REVISION, keys.MANAGED_BY})


class SglangRouter(NamedTuple):
    """An SGLang router whose workers the operator may manage."""

    pd: bool
    """Whether the workers are prefill workers and decode workers. If False, each worker does both prefill and decode."""
    address: str
    """URL of the router's HTTP server inside the router's own pod."""
    worker_port: int | None
    """Port of every worker; None if the command line does not set it."""
    key: str
    """The key that the router's API requires; "" if the API requires no key. The key may contain references to variables."""
    worker_key: str = ""
    """The key that the router sends to its workers; "" if the router sends no key. The key may contain references to
    variables.
    """
    metrics: str = ""
    """URL of the router's metrics inside the router's own pod; "" if the arguments do not change the default."""


def sglang_router(container: Mapping[str, Any]) -> SglangRouter | None:
    """Return the SGLang router in a container. Return None if the container runs another program, or if the operator must
    not manage the router's workers.

    The operator must not manage the workers if the user lists them in the arguments, or selects them by labels that are not
    the operator's. It must also not manage them if the image's tag states a version without an API for workers.
    """
    command_line = parts(container)
    words = [word for part in command_line for word in part.split()]
    # An image whose entrypoint is the router needs arguments only, and no other program has arguments with these names.
    if (container.get("command") and not any(is_program(word) for word in words)) or _is_too_old(
        str(container.get("image", ""))
    ):
        return None
    pd = "--pd-disaggregation" in words
    if not pd and "--service-discovery" not in words:
        return None
    has_workers = any(value(words, flag) is not None for flag in ("--worker-urls", "--prefill", "--decode", "--mini-lb"))
    if has_workers or _has_foreign_label(command_line):
        return None
    scheme = "https" if value(words, "--tls-cert-path") else "http"
    port = value(words, "--service-discovery-port") or ""
    return SglangRouter(
        pd=pd,
        address=f"{scheme}://{_own_address(words, '--host')}:{value(words, '--port') or PORT}",
        worker_port=quantity.whole_number(port),
        key=_key(words),
        worker_key=value(words, "--api-key") or "",
        metrics=_metrics(words),
    )


def _own_address(words: Sequence[str], flag: str) -> str:
    """Return the address, as it is written in a URL, at which a program of the same pod reaches a server that listens on the
    value of `flag`. `words` are the words of the router's command line, and `flag` is one of its flags.
    """
    host = value(words, flag) or ""
    address = "127.0.0.1" if host in ("", "0.0.0.0", "::", "localhost") else host
    return f"[{address}]" if ":" in address else address


def _metrics(words: Sequence[str]) -> str:
    """Return the URL of the router's metrics inside the router's own pod; "" if it is the default. `words` are the words of
    the router's command line.
    """
    port, address = value(words, "--prometheus-port"), _own_address(words, "--prometheus-host")
    if port in (None, "", str(keys.ROUTER_METRICS_PORT)) and address == "127.0.0.1":
        return ""
    return f"http://{address}:{port or keys.ROUTER_METRICS_PORT}/metrics"


def accepts_control_key(container: Mapping[str, Any], setting: str = "") -> bool:
    """Return whether a container runs a router of SGLang that accepts a key for its control plane and has no such key
    from the user.

    `setting` is "true" if the user states that the image accepts a key, "false" if the router must not have a key, and ""
    otherwise.
    """
    words = parts(container)
    programs = [position for position, word in enumerate(words) if is_program(word)]
    name, version = _version(str(container.get("image", "")))
    supported = setting == "true" or (name in WITH_CONTROL_KEYS and version >= WITH_CONTROL_KEYS[name])
    is_started = bool(programs) if container.get("command") else supported
    if setting == "false" or not supported or not is_started or value(words, "--mini-lb") is not None:
        return False
    if any(starts_engines(words[position], "".join(words[position + 1 : position + 2])) for position in programs):
        return False
    return not any(word.partition("=")[0] in _GUARDED for word in words)


def divides_prefix_tree(container: Mapping[str, Any]) -> bool:
    """Return whether several replicas of the router in a container each know only the prefixes of the requests that they
    have sent themselves: its policy is cache_aware, which is the default, and its replicas form no mesh.
    """
    words = [word for part in parts(container) for word in part.split()]
    if sglang_router(container) is None or "--enable-mesh" in words:
        return False
    return (value(words, "--prefill-policy") or value(words, "--policy") or "cache_aware") == "cache_aware"


def takes_flags(container: Mapping[str, Any]) -> bool:
    """Return whether an argument that is added to the container reaches the router. The argument does not reach a router
    that a shell starts.
    """
    return not container.get("command") or any(is_program(word) for word in parts(container))


def value(words: Sequence[str], flag: str) -> str | None:
    """Return the value of the last occurrence of the flag `flag` in `words`. Return "" if no value follows the flag, and
    None if the flag is absent.
    """
    result = None
    for word, after in pairwise([*words, "--"]):
        if word == flag:
            result = "" if after.startswith("--") else after
        elif word.startswith(f"{flag}="):
            result = word.removeprefix(f"{flag}=")
    return result


def parts(container: Mapping[str, Any]) -> list[str]:
    """Return the words of a container's command and arguments in one list."""
    return [str(word) for part in ("command", "args") for word in container.get(part) or ()]


def _is_too_old(image: str) -> bool:
    name, version = _version(image)
    return bool(version) and version[:2] < OLDEST_SUPPORTED.get(name, (0, 0))


def _version(image: str) -> tuple[str, tuple[int, ...]]:
    """Return the name of an image without its registry, and the version in the image's tag; () if the tag contains no
    version.
    """
    name, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    match = re.match(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?!\d)", tag)
    return name, tuple(int(number) for number in match.groups(default="0")) if match else ()


def is_program(word: str) -> bool:
    """Return whether a word of a command is the program or a module of a router."""
    module = word.split(".")[0] == "sglang_router" or _SMG_MODULE.fullmatch(word) is not None
    return module or word.rpartition("/")[2] in PROGRAMS


def starts_engines(program: str, subcommand: str) -> bool:
    """Return whether a router's program or module, followed by this word, also starts engines."""
    return program.endswith(_MODULES_WITH_ENGINES) or subcommand in _WITH_ENGINES


def is_smg(image: str, program: str) -> bool:
    """Return whether a router is smg. The package sglang-router also contains the command `smg`, so for this command the
    image decides.
    """
    name = program.rpartition("/")[2]
    return _SMG_MODULE.fullmatch(name) is not None or (name == SMG and _version(image)[0] == SMG)


def program(word: str, after: str, image: str) -> str | None:
    """Return the name of the router that a word of a command starts in this image; None if the word starts no router.

    The name is "" for a router that also starts engines, because it uses other names for the router's flags. `after` is the
    next word of the command.
    """
    if not is_program(word):
        return None
    return "" if starts_engines(word, after) else SMG if is_smg(image, word) else SGLANG_ROUTER


def of_image(container: Mapping[str, Any]) -> str:
    """Return the name of the router that an image starts without a command; "" if the container has a command, or if the
    image is not known to be an image of a router.
    """
    name, _ = _version(str(container.get("image", "")))
    if container.get("command") or name not in WITH_CONTROL_KEYS:
        return ""
    return SMG if name == SMG else SGLANG_ROUTER


def _has_foreign_label(parts: Sequence[str]) -> bool:
    """Return whether a selector in the arguments contains a label that the operator does not set on every pod of a
    component.
    """
    inside = False
    for part in parts:
        flag, equals, rest = part.partition("=")
        if part.startswith("-"):
            inside = flag in SELECTORS
            part = rest if equals else ""
        if inside and any(pair.partition("=")[0] not in _OPERATOR_LABELS for pair in part.split()):
            return True
    return False


def _key(words: Sequence[str]) -> str:
    """Return the key for the router's API. It is the key of an admin if the keys have roles (`id:name:role:key`), otherwise
    the key for all requests; "" if there is none. `words` are the words of the router's command line.
    """
    for word in words:
        if ":admin:" in word:
            return word.rpartition(":")[2]
    return value(words, "--api-key") or ""
