"""Read how the groups of a component are recovered: `lifecycle` of the service takes precedence over that of the runtime."""

from typing import Any, NamedTuple

from ome_operator.api import Component, InferenceService, Lifecycle, Runtime
from ome_operator.quantity import seconds
from ome_operator.util.memoize import memoize_by_identity

SELF_HEAL = 60.0
"""Ranks of SGLang that were restarted in place form a group again after 40 to 48 s (measured)."""
HANG = 60.0
"""In addition to the 15 s of the probes. A recycle may cost loading a terabyte, so a pause of the engine must not be
taken for a hang."""
START = 75 * 60.0
"""Somewhat more than the hour that the start-up probes of engines allow."""
FIRST, LAST = 10.0, 300.0
"""Seconds between two recycles of a group that does not stay up: doubling from the first value to the last."""
STABLE = 600.0
"""Seconds of readiness after which a group has recovered: its next recycle counts as the first again."""


class RecoveryPolicy(NamedTuple):
    """How a failed group of a component is handled. Times in seconds."""

    recycles: bool = True
    """Whether a group is recycled at all."""
    spare: int = 0
    """Number of ranks above 0 that the engine survives losing: then only these are replaced."""
    self_heal: float = SELF_HEAL
    """How long a group may take whose ranks restart by themselves."""
    hang: float = HANG
    """How long a leader that was ready may be unready."""
    start: float = START
    """How long a group may take from the binding of its last pod until it is ready."""
    limit: int | None = None
    """Largest number of recycles in a row, None for no limit."""
    force: float | None = None
    """How long a pod may stay Terminating on a lost node before it is deleted by force; None to never force it."""


def policy(service: InferenceService, runtime: Runtime | None, component: str) -> RecoveryPolicy:
    """Return the policy of a component."""
    above: Component | None = getattr(service.spec, component)
    below: Component | None = getattr(runtime.spec, f"{component}_config") if runtime else None
    return _policy(above.lifecycle if above else None, below.lifecycle if below else None)


@memoize_by_identity(1024)
def _policy(above: Lifecycle | None, below: Lifecycle | None) -> RecoveryPolicy:
    def first_of(field: str) -> Any:
        values = [getattr(one, field) for one in (above, below) if one is not None]
        return next((value for value in values if value is not None), None)

    def time(field: str, default: float) -> float:
        return default if (value := first_of(field)) is None else seconds(value)

    force = first_of("force_delete_after")
    return RecoveryPolicy(
        recycles=first_of("restart_policy") != "None",
        spare=first_of("tolerated_lost_ranks") or 0,
        self_heal=time("self_heal_timeout", SELF_HEAL),
        hang=time("hang_timeout", HANG),
        start=time("instance_ready_timeout", START),
        limit=first_of("max_recycles"),
        force=None if force is None else seconds(force),
    )


def pause(in_a_row: int) -> float:
    """Return the seconds between a recycle and the next one, after this many recycles in a row."""
    return min(LAST, FIRST * 2.0 ** min(in_a_row - 1, 10)) if in_a_row else 0.0
