"""Determine the speed of groups from measurements, from the prediction of `ome plan`, or from measurements of the former
configuration.
"""

from ome_operator.core.demand import curves, learn
from ome_operator.core.demand.facts import (
    DECODE,
    GROUPS,
    PREFILL,
    Basis,
    LearnedProperties,
    PlannedSpeeds,
    PrefillWork,
    ScalingState,
)


def prefill(known: LearnedProperties, planned: PlannedSpeeds, tokens: float) -> tuple[float, Basis] | None:
    """Return the seconds that a prompt of `tokens` tokens takes in a prefill group, and how they are known; None if they
    are unknown.

    Until a saturated group was measured, every known time is an upper bound, so the shortest time is used.
    `LearnedProperties.shown` is used only together with another bound, because it is far too long if it was measured under
    a low load.
    """
    seen = measured_prefill_time(known, tokens)
    if planned.work is not None and not (known.work is not None and known.measured):
        plan = planned.work.seconds(1.0, tokens)
        return (plan, planned.basis_of(PREFILL)) if seen is None or plan < seen else (seen, Basis.FIRST)
    if known.work is None or seen is None:
        return None
    return seen, Basis.MEASURED if known.measured else Basis.FIRST


def measured_prefill_time(known: LearnedProperties, tokens: float) -> float | None:
    """Return the seconds that a prompt of `tokens` tokens takes in a prefill group, as measured in saturated groups. If no
    saturated group was measured yet, return the smallest measured upper bound; None if nothing was measured.
    """
    own = known.scale * known.work.seconds(1.0, tokens) if known.work is not None else None
    if own is not None and known.measured:
        return own
    bounds = [own, learn.shown_seconds(known.shown, tokens) if known.shown is not None else None]
    return min((one for one in bounds if one is not None), default=None)


def decode_basis(known: LearnedProperties, planned: PlannedSpeeds) -> Basis:
    """Return how the speed of decode groups is known."""
    if not known.curve:
        return planned.basis_of(DECODE)
    return Basis.FIRST if len(known.curve) == 1 and not planned.curve else Basis.MEASURED


def expected_speeds(state: ScalingState, planned: PlannedSpeeds, tokens: float) -> PlannedSpeeds:
    """Return the speeds that are used until the groups are measured: `planned`, or the measured speeds of the groups of the
    former configuration. `tokens` are the mean prompt tokens of a request.

    A rollout usually changes the speed little, so measurements from before the rollout are more accurate than a prediction.
    If the groups run on other GPUs than before, the prediction is preferred, because it takes the GPUs into account.
    """
    former, work, curve = state.former, planned.work, planned.curve
    before = None if state.doubted else _former_work(former, planned, tokens)
    alike = [one.same_gpus(other) for one, other in zip(former.configurations, state.learned.configurations, strict=True)]
    roles = set[str]()
    for role, same in zip(GROUPS, alike, strict=True):
        if role == PREFILL and before is not None and (same or work is None):
            work = before
            roles.add(role)
        elif role == DECODE and former.curve and (same or not curve):
            curve = curves.extend_curve(former.curve, curve)
            roles.add(role)
    return planned._replace(work=work, curve=curve, former=frozenset(roles))


def _former_work(former: LearnedProperties, planned: PlannedSpeeds, tokens: float) -> PrefillWork | None:
    """Return the time that prefill needed in the former configuration for a prompt of about `tokens` tokens; None if nothing
    better than the prediction is known.
    """
    shape, found = former.work or planned.work, prefill(former, planned, tokens)
    if shape is None or found is None or found[1] == Basis.PLANNED:
        return None
    factor = found[0] / shape.seconds(1.0, tokens)
    return PrefillWork(factor * shape.fixed, factor * shape.token)
