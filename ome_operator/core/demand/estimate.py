"""Estimate the demand of a service, and the groups that the demand needs, from samples and from earlier measurements."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from ome_operator.core.demand import arrivals, curves, learn, queues, speeds
from ome_operator.core.demand.facts import (
    DECODE,
    NO_PLAN,
    PREFILL,
    WINDOW,
    Basis,
    Curve,
    DemandSample,
    Fleet,
    LearnedProperties,
    PlannedSpeeds,
    PrefillWork,
    ScalingState,
    Targets,
)

PERIOD = 10.0
"""Seconds between two decisions."""
MARGIN = 0.08
"""A group is removed only if it would not be needed again after the demand has grown by this fraction."""
CERTAIN = 2.0
"""Number of standard errors that are added to the estimated demand before it is decided whether a group can be removed."""
CLEARED = 0.5
"""Time in which new groups have to work off a backlog once they serve, as a fraction of the duration of a start. A
backlog is thus gone at most two durations of a start after it began."""
ENOUGH = 4
"""Minimum number of windows for an estimate of how much the lengths of prompts vary. The search for a change of the mean
length needs more than this number of windows."""
MEDIAN = 0.455
"""Median of the square of a standard normal variable (chi-squared distribution with 1 degree of freedom)."""
OTHER, SURPRISE = 1.2, 6.0
"""The mean length of prompts is considered changed at a time if the means before and after this time differ by more than the
factor `OTHER`, and by more than `SURPRISE` standard errors."""
SHORTER_FOR = 2
"""Number of windows with shorter prompts after which the mean length is considered changed. For longer prompts, a single
window suffices."""
BOUNDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
"""Upper bounds in seconds of the buckets of `sglang:time_to_first_token_seconds` in SGLang 0.5.x."""


def bound_below(target: float) -> float:
    """Return the largest bound of a bucket of SGLang's histogram of the time to the first token that does not exceed the
    target, in seconds. The histogram states the share of faster requests only at these bounds.
    """
    return max((bound for bound in BOUNDS if bound <= target), default=target)


class NeededGroups(NamedTuple):
    """The numbers of groups that a demand needs; None for a role if no number of its groups is enough."""

    prefill: int | None
    decode: int | None


class DemandEstimate(NamedTuple):
    """The estimated demand of a service, and the work that a request causes in prefill and decode groups."""

    forecast: arrivals.ArrivalForecast
    age: float
    """Seconds for which the oldest waiting request has waited."""
    extra: float
    """Requests per second that have to be served in addition to those that arrive, so that the backlog is worked off in
    time; 0 if there is no backlog.
    """
    serving: int
    """Number of prefill groups that serve now. The waiting requests are in the queues of these groups."""
    service: float
    """Mean time for which a request occupies a prefill group, in seconds. The number of groups that the service needs is
    computed from it."""
    longest: float
    """A cautious estimate of `service`, never shorter than `service`. It decides whether fewer groups would be enough. It
    is computed for prompts of `MeanRequest.fewer` tokens, from measurements or, if nothing was measured, from the
    prediction.
    """
    prompt: float
    """Mean number of prompt tokens of a request."""
    answer: float
    """Mean number of output tokens of a request."""
    patience: float
    """Ratio of two mean waits: with exponential service times, and with the service times of the prompts of this service
    (`queues.patience_factor`)."""
    curve: Curve
    """Time between tokens in a decode group, from measurements and the plan."""
    measured: Curve
    """Time between tokens in a decode group, from measurements alone; empty if nothing was measured."""
    basis: Mapping[str, Basis]
    """States for each role how the speed of its groups is known."""
    unproven: frozenset[str]
    """Roles whose groups were not measured at all, so that none of these groups may be removed."""
    stepwise: frozenset[str]
    """Roles of which only a first estimate is known, and no prediction. Their groups may be much faster, so at most as many
    groups are added as serve already (`limits.first_steps`)."""
    prefill_rate: float = 0.0
    """Requests per second that prefill passes on to decode now."""
    room: int | None = None
    """Largest number of prefill groups for which the cluster has nodes; None if this is not known."""
    filling: queues.DecodeGrowth | None = None
    """How the requests in decode may increase beyond every measured load; None if the time between tokens is predicted
    there, or if the present number of requests is unknown."""

    @property
    def largest_rate(self) -> float:
        """Arrivals per second for which groups are added: the larger of the present rate and the expected rate."""
        return max(self.forecast.now, self.forecast.ahead)

    def curve_for(self, targets: Targets) -> Curve:
        """Return the curve from which the needed number of decode groups is computed: `curve`, or `measured` if the target
        cannot be met according to `curve`. The reason is that only measurements prove that no group can meet the target.
        """
        predicted = self.measured and curves.batch_within(self.curve, targets.tbt) < 1
        return self.measured if predicted else self.curve

    def groups_to_add(self, targets: Targets) -> NeededGroups:
        """Return the numbers of groups that are needed to serve the demand and to work off the backlog in time. The backlog
        adds at most as many groups as serve now: a router does not move requests that wait, so only the groups that serve
        now work off the backlog, and further new groups cannot help them.
        """
        prefill = self._prefill(targets, self.largest_rate, self.service, self.extra)
        tokens, curve = self._passed_on(targets, prefill) * self.answer, self.curve_for(targets)
        decode = self._decode(targets, tokens, curve)
        limit = curves.batch_within(curve, targets.tbt)
        if decode is not None and self.filling is not None and limit > self.measured[-1][0]:
            decode = min(decode, queues.groups_until_full(tokens, limit, self.answer, self.filling))
        return NeededGroups(prefill, decode)

    def groups_with_margin(self, targets: Targets) -> NeededGroups:
        """Return the numbers of groups that would be enough for the demand with a margin: they would also be enough if the
        estimate were too low by `CERTAIN` standard errors, and the demand grew by `MARGIN`.
        """
        rate = (self.largest_rate + CERTAIN * self.forecast.error) * (1 + MARGIN)
        decode = [self._decode(targets, rate * self.answer, curve) for curve in (self.measured or self.curve, self.curve)]
        enough = None if None in decode else max(number or 0 for number in decode)
        return NeededGroups(self._prefill(targets, rate, self.longest, 0.0), enough)

    def _prefill(self, targets: Targets, rate: float, service: float, extra: float) -> int | None:
        """Return the number of prefill groups that are needed to serve `rate` requests per second, and to work off a backlog
        at `extra` requests per second. A request occupies a prefill group for `service` seconds. Return None if no number of
        groups is enough.
        """
        patience = self.patience * (bound_below(targets.ttft) - service)
        prefill = queues.prefill_groups(rate, service, patience, targets.share)
        if prefill is not None and extra > 0:
            prefill = max(prefill, min(math.ceil((rate + extra) * service), prefill + self.serving))
        return prefill

    def _passed_on(self, targets: Targets, prefill: int | None) -> float:
        """Return the requests per second that reach decode when `prefill` groups serve. Groups beyond the maximum of
        prefill, or beyond the capacity of the nodes, are not counted. These limits therefore reduce the needed decode
        groups, too. If `prefill` is None, all requests reach decode.
        """
        arrive = self.largest_rate + self.extra
        if prefill is None:
            return arrive
        high, room = targets.bounds[PREFILL].high, self.room
        most = min(prefill, high if room is None else min(high, room))
        # The estimated speed may be too low, but the rate that prefill passes on now is known.
        return min(arrive, max(most / self.service, self.prefill_rate if most < prefill else 0.0))

    def _decode(self, targets: Targets, tokens: float, curve: Curve) -> int | None:
        """Return the number of decode groups that are needed to generate `tokens` tokens per second. Return None if no
        number of groups is enough.
        """
        return queues.decode_groups(tokens, curve, targets.tbt, curves.shown_rate(self.measured, targets.tbt))


def estimate(
    samples: Sequence[DemandSample], fleet: Fleet, state: ScalingState, now: float, planned: PlannedSpeeds = NO_PLAN
) -> DemandEstimate | None:
    """Return the estimated demand; None while the lengths of requests or the speed of the groups are unknown."""
    known = state.learned
    cold = learn.cold_start(known)
    found, mean, age = (
        arrivals.forecast(samples, cold + PERIOD),
        mean_request(samples, known),
        arrivals.oldest_wait(samples),
    )
    if found is None or mean is None or age is None:
        return None
    prefill, least = (speeds.prefill(known, planned, tokens) for tokens in (mean.more, mean.fewer))
    curve = curves.make_monotonic(curves.extend_curve(known.curve, planned.curve))
    if prefill is None or least is None or not curve:
        return None
    service, shown = prefill[0], speeds.measured_prefill_time(known, mean.fewer)
    waiting = samples[-1].waiting or 0
    left = min(cold, max(0.0, state.changed + cold - now))
    served = (fleet.prefill.ready * cold + fleet.prefill.starting * (cold - left)) / service
    backlog = max(0.0, waiting + found.now * cold - served)
    usual = found.now * service + fleet.prefill.ready
    extra = backlog / (CLEARED * cold) if waiting > usual else 0.0
    basis = {PREFILL: prefill[1], DECODE: speeds.decode_basis(known, planned)}
    return DemandEstimate(
        forecast=found,
        age=age,
        extra=extra,
        serving=fleet.prefill.ready,
        service=service,
        longest=max(service, least[0] if shown is None else shown),
        prompt=mean.more,
        answer=mean.answer,
        patience=patience_factor_for(mean, known.work or planned.work),
        curve=curve,
        measured=curves.make_monotonic(known.curve),
        basis=basis,
        unproven=frozenset(({PREFILL} if shown is None else set()) | (set() if known.curve else {DECODE})),
        stepwise=frozenset(
            role
            for role, plan in ((PREFILL, planned.work), (DECODE, planned.curve))
            if basis[role] == Basis.FIRST and not plan
        ),
        prefill_rate=samples[-1].requests or 0.0,
        room=fleet.prefill.room,
        filling=_filling(samples[-1], known, planned),
    )


def _filling(sample: DemandSample, known: LearnedProperties, planned: PlannedSpeeds) -> queues.DecodeGrowth | None:
    """Return how the number of requests in decode may increase; None if loads beyond the measured loads are predicted, or
    if nothing was measured.
    """
    if planned.curve or not known.curve or sample.running is None or sample.running_now is None:
        return None
    batch, seconds = known.curve[-1]
    running = max(sample.running, sample.running_now)
    return queues.DecodeGrowth(running, batch / seconds, learn.cold_start(known) + PERIOD + WINDOW)


class MeanRequest(NamedTuple):
    """The mean lengths of a request, in tokens."""

    more: float
    """Mean length of a prompt from which the number of groups to add is computed."""
    fewer: float
    """Mean length of a prompt from which it is computed whether fewer groups would be enough; at least `more`."""
    answer: float
    variation: float = 1.0
    """Squared coefficient of variation of the number of prompt tokens per request; 1 as long as it is not known."""


def mean_request(samples: Sequence[DemandSample], known: LearnedProperties) -> MeanRequest | None:
    """Return the mean lengths of a request; None if they are unknown.

    Usually the lengths are means over all samples. After a significant change of the length of prompts (`_changed_prompts`),
    they are means since the change. If the prompts of the newest window are longer, `fewer` is their mean at once. If no
    request was completed in the samples, the last known lengths are used, so that the demand of a service without requests
    is known.
    """
    read = [one for one in samples if one.requests and one.prompt_tokens]
    written = [one for one in samples if one.ended and one.output_tokens]
    if not read or not written:
        return None if known.request is None else MeanRequest(known.request[0], *known.request)
    windows = _windows(read)
    answer = sum(one.output_tokens or 0.0 for one in written) / sum(one.ended or 0.0 for one in written)
    mean = _changed_prompts([_prompt([one]) for one in windows]) or _prompt(read)
    return MeanRequest(mean, max(mean, _prompt(windows[:1])), answer, _variation(windows))


def _changed_prompts(means: Sequence[float]) -> float | None:
    """Return the mean length of prompts since its most significant change; None if there was no significant change.

    `means` are the mean lengths in windows that do not overlap, the newest first. Method: the windows are divided into
    newer windows and older windows where the means of the two parts differ by the most standard errors. The standard error
    is computed from the variance within both parts (Student's t).
    """
    found = list[tuple[float, float]]()
    for number in range(1, len(means)) if len(means) > ENOUGH else ():
        newer, older = means[:number], means[number:]
        new, old = fmean(newer), fmean(older)
        squares = sum((one - new) ** 2 for one in newer) + sum((one - old) ** 2 for one in older)
        error = math.sqrt(squares / (len(means) - 2) * (1 / len(newer) + 1 / len(older)))
        differs = new > OTHER * old or (OTHER * new < old and number >= SHORTER_FOR)
        if differs and abs(new - old) > SURPRISE * error:
            found.append((abs(new - old) / max(error, 1e-9), new))
    return max(found)[1] if found else None


def _windows(read: Sequence[DemandSample]) -> list[DemandSample]:
    """Return the samples of consecutive windows without overlap, the newest first."""
    chosen, end = list[DemandSample](), math.inf
    for one in reversed(read):
        if one.at <= end:
            chosen.append(one)
            end = one.at - WINDOW
    return chosen


def _prompt(samples: Sequence[DemandSample]) -> float:
    return sum(one.prompt_tokens or 0.0 for one in samples) / sum(one.requests or 0.0 for one in samples)


def patience_factor_for(mean: MeanRequest, work: PrefillWork | None) -> float:
    """Return `queues.patience_factor` for the service times of requests with the lengths `mean`. `work` states which part of
    a service time is proportional to the length of the prompt; if `work` is None, the whole service time is proportional.
    """
    part = work.seconds(0.0, mean.more) / work.seconds(1.0, mean.more) if work is not None else 1.0
    return queues.patience_factor(mean.variation * part**2)


def _variation(windows: Sequence[DemandSample]) -> float:
    """Return the squared coefficient of variation of the number of prompt tokens per request; 1 with too few windows.

    The variance of the means of windows that do not overlap is the variance of a single request, divided by the number of
    requests in a window. The variance of the means is estimated from the median of the squared differences between
    neighboring windows, because a single change of the mean length hardly affects this median.
    """
    if len(windows) < ENOUGH:
        return 1.0
    requests = sum((one.requests or 0.0) * WINDOW for one in windows) / len(windows)
    differences = ((_prompt([two]) - _prompt([one])) ** 2 / 2 for one, two in pairwise(windows))
    return requests * median(differences) / MEDIAN / _prompt(windows) ** 2
