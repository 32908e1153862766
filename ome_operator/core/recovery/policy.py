"""Read how failed groups of a component are recovered. The `lifecycle` of the service takes precedence over the `lifecycle`
of the runtime.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ome_operator.api import Component, InferenceService, Lifecycle, Runtime
from ome_operator.core.resolve import durations
from ome_operator.engines import rejoin
from ome_operator.quantity import seconds
from ome_operator.util.memoize import memoize_by_identity

SELF_HEAL = 60.0
"""Default of `RecoveryPolicy.self_heal`, in seconds. Measured: ranks of SGLang that were restarted in place form a group
again after 40 to 48 s."""
HANG = 60.0
"""Default of `RecoveryPolicy.hang`, in seconds. The time begins when the probes of the leader have failed for 15 s. The
time is long enough that a pause of the engine is not mistaken for a hang: after a recycle, a terabyte may have to be
loaded."""
START = 75 * 60.0
"""Default of `RecoveryPolicy.start`, in seconds: somewhat more than the hour that the start-up probes of engines allow."""
FIRST, LAST = 10.0, 300.0
"""First and largest pause, in seconds, between two recycles of a group that does not stay ready. Each recycle doubles the
pause."""
STABLE = 600.0
"""Seconds for which a group has to be ready to be considered recovered. Recycles before that are no longer counted as
recycles in a row."""


class RecoveryPolicy(NamedTuple):
    """How a failed group of a component is handled. All times are in seconds."""

    recycles: bool = True
    """Whether failed groups are recycled. If not, their pods are left to the kubelet and the StatefulSets."""
    spare: int = 0
    """Number of ranks above 0 that the engine survives losing. If no other rank is lost, only these ranks are replaced."""
    self_heal: float = SELF_HEAL
    """How long a group may take to become ready after its ranks were restarted in place."""
    hang: float = HANG
    """How long the leader of a group that was ready may be unready before the group is recycled."""
    silence: bool = True
    """Whether a group is recycled if its leader is ready, but has answered no probe of the routers' registries for `hang`
    seconds."""
    start: float = START
    """How long a group may take to become ready after its last pod was bound to a node."""
    limit: int | None = None
    """Largest number of recycles in a row; None for no limit."""
    force: float | None = None
    """How long after its grace period a pod on a lost node may stay Terminating before it is deleted by force; None if it
    is never deleted by force."""


def policy(service: InferenceService, runtime: Runtime | None, component: str) -> RecoveryPolicy:
    """Return the recovery policy of a component. `runtime` is None if the runtime is not available."""
    above: Component | None = getattr(service.spec, component)
    below: Component | None = getattr(runtime.spec, f"{component}_config") if runtime else None
    return _policy(above.lifecycle if above else None, below.lifecycle if below else None)


@memoize_by_identity(1024)
def _policy(above: Lifecycle | None, below: Lifecycle | None) -> RecoveryPolicy:
    def first_of(field: str) -> Any:
        values = [getattr(one, field) for one in (above, below) if one is not None]
        return next((value for value in values if value is not None), None)

    def time(field: str, name: str, default: float) -> float:
        found = durations.usable_seconds(first_of(field), durations.LIFECYCLE[name])
        return default if found is None else found

    force = first_of("force_delete_after")
    return RecoveryPolicy(
        recycles=first_of("restart_policy") != "None",
        spare=first_of("tolerated_lost_ranks") or 0,
        self_heal=time("self_heal_timeout", "selfHealTimeout", SELF_HEAL),
        hang=time("hang_timeout", "hangTimeout", HANG),
        silence=first_of("silence") != "Observe",
        start=time("instance_ready_timeout", "instanceReadyTimeout", START),
        limit=first_of("max_recycles"),
        force=None if force is None else seconds(force),
    )


def without_spare(policy: RecoveryPolicy, template: Mapping[str, Any] | None) -> RecoveryPolicy:
    """Return the policy with `spare` 0 if the engine in a pod template is known not to survive the loss of a rank. The group
    would otherwise wait for a rank that cannot join.
    """
    if not policy.spare or template is None:
        return policy
    boxes = template["spec"].get("containers") or [{}]
    notes = template.get("metadata", {}).get("annotations") or {}
    return policy._replace(spare=0) if rejoin.why_not(boxes[0], notes) else policy


def recycle_pause(in_a_row: int) -> float:
    """Return the number of seconds that have to pass after a recycle of a group before its next recycle, if the group was
    recycled `in_a_row` times in a row.
    """
    return min(LAST, FIRST * 2.0 ** min(in_a_row - 1, 10)) if in_a_row else 0.0
