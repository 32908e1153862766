"""Read the rollout strategy of a service, from its `rollout` block or from OME's older `deploymentStrategy`."""

from collections.abc import Mapping
from typing import NamedTuple

from ome_operator import keys
from ome_operator.api import Component, DeploymentUpdate, InferenceService, RollingUpdate, Rollout, RolloutGroup, Runtime
from ome_operator.core.rollout.planner import Bounds
from ome_operator.quantity import share_of

ROLLING, BLUE_GREEN, RECREATE = "rollingUpdate", "blueGreen", "recreate"


class Strategy(NamedTuple):
    """The rollout strategy that a user asked for, with defaults filled in."""

    name: str = ROLLING
    surge: int | str = 0
    """How many groups may exist above the desired number, as a number or as a percentage of the groups of a role, rounded
    up. The value 0 needs no spare accelerators."""
    unavailable: int | str = 1
    """How many groups may be missing, as a number or as a percentage of the groups of a role, rounded down."""
    paused: bool = False
    advice: tuple[str, ...] = ()
    """Sentences about settings that have no effect."""

    def bounds(self, wanted: Mapping[str, int]) -> Bounds:
        """Return the bounds as numbers of groups by role. If the strategy allows neither surplus nor missing groups of a
        role, one group may be missing, so that the rollout can proceed. `wanted` is the desired number of groups by role.
        """
        if self.name == RECREATE:
            return Bounds({}, wanted, alone=True)
        if self.name == BLUE_GREEN:
            return Bounds(wanted, {}, whole=True)
        surge = {role: share_of(self.surge, count, up=True) for role, count in wanted.items()}
        missing = {role: share_of(self.unavailable, count, up=False) for role, count in wanted.items()}
        return Bounds(surge, {role: count if count or surge[role] else 1 for role, count in missing.items()})


def strategy(service: InferenceService, runtime: Runtime | None) -> Strategy:
    """Return the strategy of a service. Its `rollout` block takes precedence over the `deploymentStrategy` of a component.
    `runtime` is None if the runtime is not available.
    """
    rollout = service.spec.rollout
    if rollout is None:
        return _older(service, runtime)
    messages = _looser(service, rollout.groups) if rollout.groups else []
    found = _named(rollout.groups[0] if rollout.groups else rollout) or _older(service, runtime)
    return found._replace(paused=bool(rollout.paused), advice=(*messages, *found.advice))


def _named(block: Rollout | RolloutGroup) -> Strategy | None:
    """Return the strategy that a block names; None if the block names no strategy."""
    if block.blue_green is not None:
        return Strategy(BLUE_GREEN)
    if block.recreate is not None:
        return Strategy(RECREATE)
    where = "spec.rollout" if isinstance(block, Rollout) else "spec.rollout.groups"
    return _rolling(block.rolling_update, f"{where}.rollingUpdate") if block.rolling_update is not None else None


def _rolling(bounds: RollingUpdate | DeploymentUpdate, location: str) -> Strategy:
    surge, missing = bounds.max_surge, bounds.max_unavailable
    default, written = Strategy(), {"maxSurge": surge, "maxUnavailable": missing}
    return Strategy(
        surge=default.surge if surge is None else surge,
        unavailable=default.unavailable if missing is None else missing,
        advice=tuple(
            f'{location}.{name} {value} is more than 100 %: write "100%" for all groups'
            for name, value in written.items()
            if value is not None and share_of(value, 100, up=True) > 100 and str(value).endswith("%")
        ),
    )


def _looser(service: InferenceService, groups: list[RolloutGroup]) -> list[str]:
    """Return sentences about strategies in `spec.rollout.groups` that the operator does not apply."""
    messages = []
    if len(groups) > 1 or not {*service.spec.components} <= {*groups[0].components}:
        messages.append(
            "spec.rollout.groups: all components of a service are rolled out together, so the strategy of the first "
            "entry applies to all: write the strategy directly below spec.rollout"
        )
    return messages


def _older(service: InferenceService, runtime: Runtime | None) -> Strategy:
    """Return the strategy from `deploymentStrategy` of the engine, or of the decoder if the engine has none. `runtime` is
    None if the runtime is not available.
    """
    for role in (keys.ENGINE, keys.DECODER):
        above: Component | None = getattr(service.spec, role)
        below: Component | None = getattr(runtime.spec, f"{role}_config") if runtime and above else None
        asked = (above and above.deployment_strategy) or (below and below.deployment_strategy)
        if not asked:
            continue
        if asked.type == "Recreate":
            return Strategy(RECREATE)
        where = f"spec.{role}.deploymentStrategy"
        found = _rolling(asked.rolling_update, f"{where}.rollingUpdate") if asked.rolling_update else Strategy()
        if asked.type in (None, "RollingUpdate"):
            return found
        message = f"{where}.type {asked.type} is unknown: write RollingUpdate or Recreate"
        return found._replace(advice=(message, *found.advice))
    return Strategy()
