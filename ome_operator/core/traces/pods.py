"""Configure engines and routers so that their spans reach a collector and name their origin (docs/traces.md)."""

from collections.abc import Mapping
from typing import NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest
from ome_operator.engines import traces

NAME, ATTRIBUTES = "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"
"""Variables that OpenTelemetry's SDKs read."""
OF_GROUPS = {"ome.group": "$(LWS_GROUP_INDEX)", "ome.rank": "$(LWS_WORKER_INDEX)"}
"""Resource attributes that only engines have."""


class SpanOrigin(NamedTuple):
    """The service, role and revision that spans name as their origin."""

    service: str
    namespace: str
    revision: str
    title: str
    """Role of the pod: prefill, decode, engine or router."""


def add_trace_arguments(container: Manifest, endpoint: str, place: SpanOrigin) -> Manifest:
    """Return the container with arguments and variables that make it send its spans to `endpoint`.

    The operator's variables come after all other variables, to which they refer. Resource attributes of the user come after
    the operator's attributes, and take precedence.
    """
    attributes = {
        "ome.service": place.service,
        "ome.revision": place.revision,
        "ome.role": place.title,
        **({} if place.title == keys.ROUTER else OF_GROUPS),
        "k8s.namespace.name": place.namespace,
        "k8s.pod.name": "$(POD_NAME)",
    }
    env = {each["name"]: each for each in container.get("env") or ()}
    if "valueFrom" not in env.get(ATTRIBUTES, {}):
        theirs = str(env.pop(ATTRIBUTES, {}).get("value") or "")
        pairs = [*(f"{name}={value}" for name, value in attributes.items()), *([theirs] if theirs else [])]
        env[ATTRIBUTES] = {"name": ATTRIBUTES, "value": ",".join(pairs)}
    env.setdefault(NAME, {"name": NAME, "value": f"{place.service}-{place.title}"})
    return {**traces.with_tracing(container, endpoint), "env": [*env.values()]}


def why_not(container: Manifest, annotations: Mapping[str, str], title: str) -> str:
    """Return a sentence which explains why a container cannot send spans although they are enabled; "" if it can send
    them.
    """
    why = traces.trace_obstacle(container, annotations)
    return f"annotation {keys.TRACES} is not applied to the {title}: {why}" if why else ""
