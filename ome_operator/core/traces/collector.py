"""Where the engines and the router of a revision send their spans (docs/traces.md).

Part of a revision, as the mode of the preflight is. A router has it from the revision of its slice, so that an edit of
service or runtime restarts no router of a slice that serves (decisions 36); what stands on the router itself counts at once
(decisions 5).
"""

import re
from collections.abc import Mapping
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService, Runtime
from ome_operator.core.podspec import layered_annotations as layers

OFF = "Off"
STORED = "traces"
"""In inputs: what the annotation of the service says."""
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]|\$\([A-Za-z_][A-Za-z0-9_]*\)"
_ENDPOINT = re.compile(rf"(?:{_HOST}):([1-9][0-9]{{0,4}})")


def read(value: Any) -> str:
    """An endpoint, or Off; "" when it is neither. The host may be a variable of the container, such as `$(HOST_IP)`."""
    said = str(value).strip()
    if said.lower() == OFF.lower():
        return OFF
    found = _ENDPOINT.fullmatch(said)
    return said if found is not None and int(found[found.re.groups]) < 2**16 else ""


def asked(service: InferenceService) -> str:
    """What the service says for all of its components; "" when it says nothing that can be read."""
    return read(service.annotations.get(keys.TRACES, ""))


def endpoint(inputs: Mapping[str, Any], component: str) -> str:
    """Where a component of a revision sends its spans: HOST:PORT, "" for nowhere."""
    said = layers.first(inputs, component, keys.TRACES, STORED, read)
    return "" if said == OFF else said


def of_router(inputs: Mapping[str, Any], config: Mapping[str, Any], written: Mapping[str, Any]) -> str:
    """The same for the router of a slice; `config`, `written`: as runtime and service have it today (`Resolved.router`)."""
    runtime = {**(inputs.get("runtime") or {}), **config}
    return endpoint({**inputs, "runtime": runtime, keys.ROUTER: written}, keys.ROUTER)


def advice(service: InferenceService, runtime: Runtime | None) -> tuple[str, ...]:
    """What is written for an endpoint and is none."""
    return layers.unread(service, runtime, keys.TRACES, read, f"is neither HOST:PORT nor {OFF}", layers.EVERYTHING)
