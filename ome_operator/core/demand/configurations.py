"""Store measured speeds with the configuration of the groups that were measured (docs/demand.md).

A rollout to another image, other arguments or other GPUs may change the speed of the groups. After such a rollout, the
measurements of the former groups are stored separately. Like a prediction, these measurements can cause a group to be
added, but not to be removed. After a rollback, the separate measurements are used again for the present groups.
"""

from itertools import combinations
from typing import Any

from ome_operator.core.demand.facts import GROUPS, PREFILL, SPEED, Configuration, Fleet, LearnedProperties, ScalingState


def bind_measurements(state: ScalingState, fleet: Fleet, now: float) -> ScalingState:
    """Return the state with the measurements of each role that belong to the configuration of its groups at the time `now`.

    While groups of several configurations serve, and while a role has no groups, the measurements stay as they are. A state
    that an earlier version of the operator stored does not contain the measured configuration. For such a state, the oldest
    existing configuration is assumed.
    """
    for place, role in enumerate(GROUPS):
        found, known = fleet.role(role).configurations, state.learned.configurations[place]
        if not found:
            continue
        oldest, mixed = found[0], not all(one.is_equally_fast(other) for one, other in combinations(found, 2))
        if mixed:
            state = _since(state, place, now)
        if known.is_equally_fast(oldest):
            here = Configuration(known.template or oldest.template, known.hardware or oldest.hardware)
            state = state._replace(learned=_named(state.learned, place, here))
        elif not mixed:
            state = _since(_exchanged(state, place, oldest), place, now)
    return state


def _exchanged(state: ScalingState, place: int, present: Configuration) -> ScalingState:
    """Return the state after the groups of a role have changed to the configuration `present`. The measurements of the
    previous configuration are kept as `former`. If the measurements in `former` were made with `present`, they are used
    again. `place` is the index of the role in `GROUPS`.
    """
    learned, former, role = state.learned, state.former, GROUPS[place]
    back = former if former.configurations[place].is_equally_fast(present) else LearnedProperties()
    after = _named(with_speed(learned, back, role), place, present)
    if speed_of(learned, role) != speed_of(LearnedProperties(), role):
        former = _named(with_speed(former, learned, role), place, learned.configurations[place])
    elif back is former:
        former = _named(with_speed(former, LearnedProperties(), role), place, Configuration())
    return state._replace(learned=after, former=former, doubted=state.doubted and role != PREFILL)


def with_speed(known: LearnedProperties, other: LearnedProperties, role: str) -> LearnedProperties:
    """Return the measurements `known` with the speed of the role `role` taken from `other`."""
    return known._replace(**speed_of(other, role))


def speed_of(known: LearnedProperties, role: str) -> dict[str, Any]:
    """Return those fields of `known` that state the speed of the groups of a role, with their values."""
    return {name: getattr(known, name) for name in SPEED[role]}


def _named(known: LearnedProperties, place: int, configuration: Configuration) -> LearnedProperties:
    prefill, decode = known.configurations
    return known._replace(configurations=(prefill, configuration) if place else (configuration, decode))


def _since(state: ScalingState, place: int, now: float) -> ScalingState:
    prefill, decode = state.configured
    return state._replace(configured=(prefill, now) if place else (now, decode))
