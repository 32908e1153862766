"""Estimate the demand of a service, and the groups that the demand needs, from samples and from earlier measurements."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ome_operator.core.demand import arrivals, learn, queues
from ome_operator.core.demand.facts import KEPT, Curve, DemandSample, Fleet, Learned, ScalingState, Targets

PERIOD = 10.0
"""Seconds between two decisions."""
MARGIN = 0.08
"""Fraction by which the demand may grow after a group was removed without making that group necessary again."""
CERTAIN = 2.0
"""Number of standard errors that are added to the estimated demand before it is decided whether a group can be removed."""
CLEARED = 0.5
"""Time in which new groups have to work off a backlog once they have started, as a fraction of the time that a start takes.
A backlog is thus gone within two start times after it began.
"""
PROMPTS = 120.0
"""Seconds over which prompt lengths are averaged in order to find a change."""
LONGER, SURPRISE = 1.2, 3.0
"""Prompts are longer than before if their mean exceeds `LONGER` times the former mean by `SURPRISE` standard deviations."""
BOUNDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
"""Upper bounds in seconds of the buckets of `sglang:time_to_first_token_seconds` in SGLang 0.5.x."""


def bound_below(target: float) -> float:
    """Return the largest bound of a bucket of SGLang's histogram of the time to the first token that does not exceed the
    target, in seconds. The histogram states the share of faster requests only at these bounds.
    """
    return max((bound for bound in BOUNDS if bound <= target), default=target)


class NeededGroups(NamedTuple):
    """The numbers of groups that a demand needs; None for a role of which no number is enough."""

    prefill: int | None
    decode: int | None


class DemandEstimate(NamedTuple):
    """The demand, and how much work a request is."""

    forecast: arrivals.ArrivalForecast
    age: float
    """Seconds for which the oldest waiting request has waited."""
    extra: float
    """Requests per second that have to be served in addition to those that arrive, so that the backlog is worked off in
    time; 0 if there is no backlog.
    """
    service: float
    """Mean time of a request in a prefill group, in seconds, from which the number of groups to have is computed."""
    longest: float
    """The same, but at least that of the newest prompts. It decides whether fewer groups would be enough."""
    prompt: float
    """Prompt tokens of a request."""
    answer: float
    """Output tokens of a request."""
    curve: Curve

    @property
    def most(self) -> float:
        """Arrivals per second for which groups are added: the larger of the present rate and the expected rate."""
        return max(self.forecast.now, self.forecast.ahead)

    def more(self, targets: Targets) -> NeededGroups:
        """Return the groups that serve the demand and work off the backlog in time."""
        return _need(self, targets, self.most, self.service, self.extra)

    def fewer(self, targets: Targets) -> NeededGroups:
        """Return the groups that would be enough for the demand with a margin: an estimate that is too low by `CERTAIN`
        standard errors, and growth by `MARGIN`.
        """
        rate = (self.most + CERTAIN * self.forecast.error) * (1 + MARGIN)
        return _need(self, targets, rate, self.longest, 0.0)


def _need(demand: DemandEstimate, targets: Targets, rate: float, service: float, extra: float) -> NeededGroups:
    prefill = queues.prefill_groups(rate, service, bound_below(targets.ttft) - service, targets.share)
    if prefill is None:
        return NeededGroups(None, None)
    if extra > 0:
        prefill = max(prefill, math.ceil((rate + extra) * service))
    through = min(rate + extra, prefill / service)
    return NeededGroups(prefill, queues.decode_groups(through * demand.answer, demand.curve, targets.tbt))


def estimate(samples: Sequence[DemandSample], fleet: Fleet, state: ScalingState, now: float) -> DemandEstimate | None:
    """Return the estimated demand; None while the lengths of requests or the speed of the groups are unknown."""
    known = state.learned
    cold = learn.cold_start(known)
    found, mean, age = (
        arrivals.forecast(samples, cold + PERIOD),
        _mean_request(samples, known),
        arrivals.oldest_wait(samples),
    )
    if found is None or mean is None or age is None or known.work is None or not known.curve:
        return None
    service, longest = (known.scale * known.work.seconds(1.0, tokens) for tokens in (mean.more, mean.fewer))
    waiting = samples[-1].waiting or 0
    left = min(cold, max(0.0, state.changed + cold - now))
    served = (fleet.prefill.ready * cold + fleet.prefill.starting * (cold - left)) / service
    backlog = max(0.0, waiting + found.now * cold - served)
    usual = found.now * service + fleet.prefill.ready
    extra = backlog / (CLEARED * cold) if waiting > usual else 0.0
    return DemandEstimate(
        found, age, extra, service, max(service, longest), mean.more, mean.answer, learn.rising(known.curve)
    )


class _MeanRequest(NamedTuple):
    """The mean lengths of a request, in tokens."""

    more: float
    """Tokens of a prompt from which the number of groups to add is computed."""
    fewer: float
    """Tokens of a prompt from which it is computed whether fewer groups would be enough; at least `more`."""
    answer: float


def _mean_request(samples: Sequence[DemandSample], known: Learned) -> _MeanRequest | None:
    """Return the mean lengths of a request; None if they are unknown.

    Usually the lengths are means over all samples. If the prompts of the newest window are longer, their mean is `fewer` at
    once, and also `more` if the difference is significant (`LONGER`, `SURPRISE`). If no request was completed in the
    samples, the last known lengths are used, so that the demand of a service without requests is known.
    """
    read = [one for one in samples if one.requests and one.prompt_tokens]
    written = [one for one in samples if one.ended and one.output_tokens]
    if not read or not written:
        return None if known.request is None else _MeanRequest(known.request[0], *known.request)
    mean = _prompt(read)
    answer = sum(one.output_tokens or 0.0 for one in written) / sum(one.ended or 0.0 for one in written)
    ends = [read[-1].at - PROMPTS * number for number in range(int(KEPT / PROMPTS))]
    windows = [[one for one in read if end - PROMPTS < one.at <= end] for end in ends]
    latest, *older = [_prompt(window) for window in windows if window]
    if not older or latest <= mean:
        return _MeanRequest(mean, max(mean, latest), answer)
    before = sum(older) / len(older)
    deviation = math.sqrt(sum((one - before) ** 2 for one in older) / len(older))
    return _MeanRequest(latest if latest > LONGER * before + SURPRISE * deviation else mean, latest, answer)


def _prompt(samples: Sequence[DemandSample]) -> float:
    return sum(one.prompt_tokens or 0.0 for one in samples) / sum(one.requests or 0.0 for one in samples)
