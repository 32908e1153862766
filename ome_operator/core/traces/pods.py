"""What engines and routers get so that their spans reach a collector and say whose they are (docs/traces.md)."""

from collections.abc import Mapping
from typing import NamedTuple

from ome_operator import keys
from ome_operator.core.observed.objects import Manifest
from ome_operator.engines import traces

NAME, ATTRIBUTES = "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"
"""Variables that OpenTelemetry's libraries read."""
OF_GROUPS = {"ome.group": "$(LWS_GROUP_INDEX)", "ome.rank": "$(LWS_WORKER_INDEX)"}
"""Attributes that only engines have."""


class SpanOrigin(NamedTuple):
    """Where spans come from."""

    service: str
    namespace: str
    revision: str
    title: str
    """prefill, decode, engine or router."""


def traced(container: Manifest, endpoint: str, place: SpanOrigin) -> Manifest:
    """The container that sends its spans to `endpoint`.

    Our variables stand behind all others, for they refer to them. What the user says of a resource stands behind what we say
    of it, and counts more.
    """
    said = {
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
        pairs = [*(f"{name}={value}" for name, value in said.items()), *([theirs] if theirs else [])]
        env[ATTRIBUTES] = {"name": ATTRIBUTES, "value": ",".join(pairs)}
    env.setdefault(NAME, {"name": NAME, "value": f"{place.service}-{place.title}"})
    return {**traces.traced(container, endpoint), "env": [*env.values()]}


def why_not(container: Manifest, annotations: Mapping[str, str], title: str) -> str:
    """A sentence on a container whose spans are wanted and cannot be had; "" where they can."""
    why = traces.lacks(container, annotations)
    return f"annotation {keys.TRACES} does nothing for the {title}: {why}" if why else ""
