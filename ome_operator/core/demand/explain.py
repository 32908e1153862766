"""The sentences that explain a decision about the size of a service, with the numbers on which it is based."""

from ome_operator.core.demand import curves
from ome_operator.core.demand.estimate import DemandEstimate, NeededGroups, bound_below
from ome_operator.core.demand.facts import DECODE, GROUPS, PREFILL, Basis, GroupBounds, Targets
from ome_operator.core.demand.holds import HoldReason

_PLAN = " (predicted by `ome plan` with a margin for its error, not measured)"
_FORMER = " (measured before the groups changed, and not since)"


def explain_demand(demand: DemandEstimate, targets: Targets, need: NeededGroups) -> str:
    """Return the sentence about the demand of a service whose targets can be met. `need` contains the groups that the demand
    needs.
    """
    ahead = (
        "" if demand.forecast.kind == "steady" else f", and {demand.largest_rate:.1f} are expected when a new group serves"
    )
    behind = f"; the oldest request has waited {demand.age:.0f} s" if demand.extra else ""
    batch = min(curves.batch_within(demand.curve_for(targets), targets.tbt), 1e6)
    serves, holds = (_SERVES[demand.basis[role]] for role in (PREFILL, DECODE))
    spare = sum(targets.bounds.get(role, GroupBounds(1, 1)).spare for role in GROUPS)
    kept = f", and {spare} spare" if spare else ""
    step = "; this first step at most doubles the groups that serve" if need != demand.groups_to_add(targets) else ""
    return (
        f"{demand.forecast.now:.1f} requests/s arrive{ahead}{behind}; a prefill group serves "
        f"{serves[0]}{1 / demand.service:.2f} requests/s{serves[1]}, and a decode group holds {holds[0]}{batch:.0f} "
        f"requests of {demand.answer:.0f} tokens within the target{holds[1]}: the service needs {need.prefill} prefill and "
        f"{need.decode} decode groups{kept}{step}"
    )


def explain_change_limit(targets: Targets) -> str:
    """Return the end of a sentence about a demand for which no further change is permitted within this hour."""
    return (
        f"; no further change is permitted now, because there were {targets.changes_an_hour} changes within an hour "
        "(changesPerHour)"
    )


_SERVES = {
    Basis.MEASURED: ("", ""),
    Basis.FIRST: ("at least ", ""),
    Basis.PLANNED: ("", _PLAN),
    Basis.FORMER: ("", _FORMER),
}
"""Maps each value of `Basis` (how a speed is known) to the words before and after the number in a sentence."""


def explain_unmet_targets(demand: DemandEstimate, targets: Targets, need: NeededGroups) -> tuple[HoldReason, str]:
    """Return the reason and the sentence about a demand for which, according to the estimate, no number of groups meets a
    target.

    Groups may be faster than a prediction or an estimate from a queue, so only a measurement proves that the target cannot
    be met.
    """
    if need.prefill is None:
        role, proofs = PREFILL, {Basis.MEASURED}
        bound = bound_below(targets.ttft)
        counts = f", which is treated as {bound:g} s, the next lower bucket bound of SGLang's histogram"
        what = (
            f"the time to the first token: a prompt of {demand.prompt:.0f} tokens takes {demand.service:.2f} s even without "
            f"a wait, and the target is {targets.ttft:g} s{counts if bound < targets.ttft else ''}"
        )
    else:
        role, proofs = DECODE, {Basis.MEASURED, Basis.FIRST}
        requests, seconds = demand.curve_for(targets)[0]
        what = (
            f"the time between tokens: with {requests:.0f} requests in a group it is {1000 * seconds:.0f} ms, the target is "
            f"{1000 * targets.tbt:g} ms, and fewer requests do not shorten it enough"
        )
    if demand.basis[role] in proofs:
        return HoldReason.UNREACHABLE, f"no number of groups meets the target of {what}"
    source = _SAYS.get(demand.basis[role], "a first estimate says")
    return (
        HoldReason.UNMEASURED,
        f"{source} that no number of groups meets the target of the {_TARGETS[role]}, but the speed of a group was not "
        "measured yet",
    )


_SAYS = {Basis.PLANNED: "`ome plan` predicts", Basis.FORMER: "measurements from before the groups changed say"}
_TARGETS = {PREFILL: "time to the first token", DECODE: "time between tokens"}
