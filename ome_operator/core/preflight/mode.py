"""Whether the pods of a revision are looked at before their engine starts (docs/preflight.md).

What service or runtime say is part of a revision. What the chart says counts when a revision is rendered, and rolls nothing
(decisions 2). A runtime says it in its spec, for only an edit of a spec goes in waves (decisions 30).
"""

from collections.abc import Mapping
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService, Runtime
from ome_operator.core.podspec import layered_annotations as layers

OFF, WARN, REQUIRE = "Off", "Warn", "Require"
MODES = (OFF, WARN, REQUIRE)
STORED = "preflight"
"""In inputs: what the annotation of the service says."""


def read(value: Any) -> str:
    """A mode as it is spelled here; "" when it is none."""
    return next((mode for mode in MODES if mode.lower() == str(value).strip().lower()), "")


def asked(service: InferenceService) -> str:
    """What the service says for all of its components; "" when it says nothing that is a mode."""
    return read(service.annotations.get(keys.PREFLIGHT, ""))


def mode(inputs: Mapping[str, Any], component: str, default: str) -> str:
    """The mode of a component: its own annotation in the service, the service's, the runtime's, the `default`."""
    return layers.first(inputs, component, keys.PREFLIGHT, STORED, read) or default


def advice(service: InferenceService, runtime: Runtime | None) -> tuple[str, ...]:
    """What is written for a mode and is none."""
    return layers.unread(service, runtime, keys.PREFLIGHT, read, f"is none of {', '.join(MODES)}", layers.ENGINES)
