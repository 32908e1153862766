"""Determine where the engines and the router of a revision send their spans (docs/traces.md).

The endpoint is part of a revision, like the mode of the preflight check. A router uses the endpoint that its revision
stores, so that an edit of a service or runtime does not restart the router of a revision that serves (decisions 36). An
endpoint on the router itself takes effect at once (decisions 5).
"""

import re
from collections.abc import Mapping
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService, Runtime
from ome_operator.core.podspec import layered_annotations as layers
from ome_operator.util.memoize import memoize_by_identity

OFF = "Off"
STORED = "traces"
"""Key in a revision's inputs under which the service's annotation is stored."""
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]|\$\([A-Za-z_][A-Za-z0-9_]*\)"
_ENDPOINT = re.compile(rf"(?:{_HOST}):([1-9][0-9]{{0,4}})")


def parse_endpoint(value: Any) -> str:
    """Return an endpoint or Off in canonical form; "" if the value is invalid. The host may be a variable of the
    container, such as `$(HOST_IP)`.
    """
    text = str(value).strip()
    if text.lower() == OFF.lower():
        return OFF
    found = _ENDPOINT.fullmatch(text)
    return text if found is not None and int(found[found.re.groups]) < 2**16 else ""


def endpoint_of_service(service: InferenceService) -> str:
    """Return the endpoint that the service sets for all of its components; "" if it sets no valid endpoint."""
    return parse_endpoint(service.annotations.get(keys.TRACES, ""))


def endpoint(inputs: Mapping[str, Any], component: str) -> str:
    """Return the endpoint to which a component of a revision sends its spans, as HOST:PORT; "" if the component sends no
    spans.
    """
    setting = layers.effective_value(inputs, component, keys.TRACES, STORED, parse_endpoint)
    return "" if setting == OFF else setting


@memoize_by_identity(1024)
def of_router(inputs: Mapping[str, Any], config: Mapping[str, Any], written: Mapping[str, Any]) -> str:
    """Return the endpoint to which the router of a revision sends its spans, as HOST:PORT; "" if the router sends no spans.
    `config` and `written` are the router's current definitions in the runtime and in the service
    (`ResolvedService.router`).
    """
    runtime = {**(inputs.get("runtime") or {}), **config}
    return endpoint({**inputs, "runtime": runtime, keys.ROUTER: written}, keys.ROUTER)


def advice(service: InferenceService, runtime: Runtime | None) -> tuple[str, ...]:
    """Return a sentence for each value that is not a valid endpoint. `runtime` is None if the runtime is not available."""
    return layers.invalid_values(
        service, runtime, keys.TRACES, parse_endpoint, f"is neither HOST:PORT nor {OFF}", layers.EVERYTHING
    )
