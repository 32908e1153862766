"""Configure the default router. A service gets it if the service sets `router: {}`, the runtime configures no router, and
the engines run SGLang.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from ome_operator import keys, quantity
from ome_operator.api import Component, RuntimeSpec, ServiceSpec
from ome_operator.core.observed.objects import Manifest
from ome_operator.core.podspec.compose import compose
from ome_operator.core.problem import ProblemError
from ome_operator.engines.routers import SGLANG_ROUTER, of_image, parts, value
from ome_operator.engines.servers import server
from ome_operator.util import package_data
from ome_operator.util.kubeyaml import document
from ome_operator.util.memoize import memoize_by_identity

_NEEDS_MORE = frozenset({"--api-key", "--ssl-certfile", "--ssl-keyfile", "--grpc-mode", "--smg-grpc-mode"})
"""Arguments of SGLang with which an engine accepts only clients that have a key or certificates, or that use another
protocol. The default router is no such client, so it cannot reach the engine."""


@memoize_by_identity(512)
def default_router(runtime: RuntimeSpec, service: ServiceSpec) -> Manifest | None:
    """Return {"routerConfig": …} of the default router, in the form that `compose` takes as the parts of a runtime.

    Return None if the runtime configures a router, if the service specifies a complete router, or if the default router
    could not reach the engines. It cannot reach engines other than SGLang, engines with a key, certificates or another
    protocol, and prefill and decode engines whose ports differ or are not literal numbers.
    """
    if runtime.router_config is not None or _is_complete(service.router):
        return None
    components = {keys.ENGINE: service.engine, keys.DECODER: service.decoder}
    ports = {_port(runtime, name, component) for name, component in components.items() if component is not None}
    if service.engine is None or len(ports) != 1 or (port := ports.pop()) is None:
        return None
    return _config("single" if service.decoder is None else "pd", port)


def _is_complete(router: Component | None) -> bool:
    """Return whether a service specifies a complete router, which names an image. An image of sglang-router without command
    and arguments, for example from a mirror, is not complete, because the router would have no workers.
    """
    layers = [part for part in (router, router.leader if router else None) if part is not None]
    boxes = [part.runner or {} for part in layers] + [box for part in layers for box in part.pod.get("containers") or ()]
    named = [box for box in boxes if isinstance(box, dict) and box.get("image")]
    return any(parts(box) or of_image(box) != SGLANG_ROUTER for box in named)


def _port(runtime: RuntimeSpec, name: str, component: Component) -> int | None:
    """Return the port of the leader of a component; None if the default router cannot reach the engines of the component
    (see `default_router`).
    """
    try:
        composed = compose(name, _parts(runtime), component.dump())
    except ProblemError:  # the condition of the component states the problem
        return None
    container = composed.leader["containers"][0]
    engine = server(container)
    words = [word for part in parts(container) for word in part.split()]
    if engine is None or engine.name != "sglang" or any(word.partition("=")[0] in _NEEDS_MORE for word in words):
        return None
    written = value(words, "--port")
    return engine.port if written is None else quantity.whole_number(written)


def _parts(runtime: RuntimeSpec) -> Manifest:
    """Return the parts of a runtime from which the pods of engine and decoder are composed."""
    configs = {"engineConfig": runtime.engine_config, "decoderConfig": runtime.decoder_config, "workers": runtime.workers}
    return {"pod": runtime.pod, **{name: part.dump() for name, part in configs.items() if part is not None}}


@cache
def _config(form: str, port: int) -> Manifest:
    """Return `routerConfig` of the default router. `form` is `pd` for a service with prefill and decode, and `single` for
    other services. `port` is the port of the engines.
    """
    data: Mapping[str, Any] = document(package_data.text("ome_operator.engines", "default-router.yaml"))
    config, more = data["routerConfig"], {f"${name}": words for name, words in data[form].items()}
    runner = config["runner"]
    args = [word.replace("$port", str(port)) for given in runner["args"] for word in more.get(given, [given])]
    return {"routerConfig": {**config, "runner": {**runner, "args": args}}}
