"""Determine whether the pods of a revision are checked before their engine starts (docs/preflight.md).

The mode that the service or the runtime sets is part of a revision. The chart's default applies when a revision is rendered,
and a change of the default starts no rollout (decisions 2). A runtime sets the mode in its spec, because only edits of a
spec are rolled out in waves (decisions 30).
"""

from collections.abc import Mapping
from typing import Any

from ome_operator import keys
from ome_operator.api import InferenceService, Runtime
from ome_operator.core.podspec import layered_annotations as layers

OFF, WARN, REQUIRE = "Off", "Warn", "Require"
MODES = (OFF, WARN, REQUIRE)
STORED = "preflight"
"""Key in a revision's inputs for the annotation of the service."""


def parse_mode(value: Any) -> str:
    """Return the mode in its canonical spelling; "" if the value is not a mode."""
    return next((mode for mode in MODES if mode.lower() == str(value).strip().lower()), "")


def mode_of_service(service: InferenceService) -> str:
    """Return the mode that the service sets for all of its components; "" if it sets no valid mode."""
    return parse_mode(service.annotations.get(keys.PREFLIGHT, ""))


def mode(inputs: Mapping[str, Any], component: str, default: str) -> str:
    """Return the mode of a component, which is the first of these that is set: the annotation of the component in the
    service, the annotation of the service, the annotation of the runtime, and `default` (the chart's default). `inputs` are
    the stored inputs of the revision.
    """
    return layers.effective_value(inputs, component, keys.PREFLIGHT, STORED, parse_mode) or default


def advice(service: InferenceService, runtime: Runtime | None) -> tuple[str, ...]:
    """Return a sentence for each value that is not a valid mode. `runtime` is None if the runtime is not available. The
    valid modes are Off, Warn and Require.
    """
    return layers.invalid_values(
        service, runtime, keys.PREFLIGHT, parse_mode, f"is none of {', '.join(MODES)}", layers.ENGINES
    )
