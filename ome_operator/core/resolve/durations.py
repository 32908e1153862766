"""Check durations of a service and of its runtime: whether they are too short to be used, or so long that they hardly have
an effect.

A duration that is too short is not used. With 0s in `hangTimeout`, a group would be recycled as soon as its leader fails
one readiness probe. With 0s in `instanceReadyTimeout`, a group would be recycled before it can start. With 0s in
`rollout.readyTimeout`, every new revision would fail at once.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ome_operator import keys, quantity
from ome_operator.api import Component, InferenceService, Runtime, ServiceSpec
from ome_operator.util.memoize import memoize_by_identity

WEEK = 7 * 86400.0


class DurationLimits(NamedTuple):
    """The range of a duration in seconds, and what happens outside of it."""

    minimum: float
    """Shortest duration that is used; 0 if every duration is used."""
    instead: str
    """The duration that is used instead of a duration that is shorter than `minimum`, as text."""
    late: str
    """Beginning of a clause about a duration of more than a week, which ends with "more than a week has passed"; "" if such
    a duration is a usual choice."""


LIFECYCLE: Mapping[str, DurationLimits] = {
    "hangTimeout": DurationLimits(1.0, "60s", "a group that hangs is not recycled before"),
    "instanceReadyTimeout": DurationLimits(1.0, "75m", "a group that does not start is not recycled before"),
    "selfHealTimeout": DurationLimits(0.0, "", "a group that does not recover is not recycled before"),
    "forceDeleteAfter": DurationLimits(0.0, "", "pods on lost nodes are not deleted before"),
}
"""The durations of `lifecycle`."""
READY_TIMEOUT = DurationLimits(1.0, "1h", "")
"""The range of `spec.rollout.readyTimeout`."""
COOL_DOWN = DurationLimits(0.0, "", "no group is removed before")
"""The range of `spec.scalingPolicy.demand.coolDown`."""


def usable_seconds(written: str | None, limits: DurationLimits) -> float | None:
    """Return the duration `written` in seconds; None if `written` is None, or shorter than `limits.minimum`."""
    found = None if written is None else quantity.seconds(written)
    return found if found is not None and found >= limits.minimum else None


def advice(service: InferenceService, runtime: Runtime | None) -> tuple[str, ...]:
    """Return a sentence for each duration that is not used because it is too short, or that is longer than a week. `runtime`
    is None if the runtime is not available.
    """
    return _advice(service.spec, runtime)


@memoize_by_identity(1024)
def _advice(spec: ServiceSpec, runtime: Runtime | None) -> tuple[str, ...]:
    return tuple(_sentences(spec, runtime))


def _sentences(spec: ServiceSpec, runtime: Runtime | None) -> Iterator[str]:
    for component in (keys.ENGINE, keys.DECODER):
        own = _lifecycle(getattr(spec, component))
        below = _lifecycle(getattr(runtime.spec, f"{component}_config")) if runtime is not None else {}
        for name, limits in LIFECYCLE.items():
            if own.get(name) is not None:
                yield from _sentence(f"spec.{component}.lifecycle.{name}", own[name], limits)
            elif runtime is not None:
                field = f"runtime {runtime.name}: spec.{component}Config.lifecycle.{name}"
                yield from _sentence(field, below.get(name), limits)
    rollout, scaling = spec.rollout, spec.scaling_policy
    if rollout is not None:
        yield from _sentence("spec.rollout.readyTimeout", rollout.ready_timeout, READY_TIMEOUT)
    if scaling is not None and scaling.demand is not None:
        yield from _sentence("spec.scalingPolicy.demand.coolDown", scaling.demand.cool_down, COOL_DOWN)


def _lifecycle(component: Component | None) -> Mapping[str, str | None]:
    """Return the durations of a component's `lifecycle`."""
    found = component.lifecycle if component is not None else None
    if found is None:
        return {}
    return {
        "hangTimeout": found.hang_timeout,
        "instanceReadyTimeout": found.instance_ready_timeout,
        "selfHealTimeout": found.self_heal_timeout,
        "forceDeleteAfter": found.force_delete_after,
    }


def _sentence(field: str, written: str | None, limits: DurationLimits) -> Iterator[str]:
    if written is None:
        return
    seconds = quantity.seconds(written)
    if seconds < limits.minimum:
        yield f"{field} is {written}, which is too short, so {limits.instead} is used: write 1s or more"
    elif seconds > WEEK and limits.late:
        yield f"{field} is {written}, so {limits.late} more than a week has passed: write 168h or less"
