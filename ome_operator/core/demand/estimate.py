"""The demand of a service, and the groups that it needs, from the samples and from what was learned."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ome_operator.core.demand import arrivals, learn, queues
from ome_operator.core.demand.facts import KEPT, Curve, DemandSample, Fleet, Learned, ScalingState, Targets

PERIOD = 10.0
"""Seconds between two decisions."""
MARGIN = 0.08
"""Part by which the demand may grow before a group that was removed is needed again."""
CERTAIN = 2.0
"""Standard errors by which the demand is taken higher than estimated before a group is removed."""
CLEARED = 0.5
"""Part of a start's time in which new groups have to serve a backlog after they have started: the backlog is gone before
two starts have passed since it began."""
PROMPTS = 120.0
"""Seconds over which prompt lengths are averaged in order to find a change."""
LONGER, SURPRISE = 1.2, 3.0
"""Prompts are longer than before if their mean exceeds `LONGER` times the former mean by `SURPRISE` standard deviations."""
BOUNDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
"""Upper bounds in seconds of the buckets of `sglang:time_to_first_token_seconds` in SGLang 0.5.x."""


def bound_below(target: float) -> float:
    """Return the largest bound of a bucket of SGLang's histogram of the time to the first token that does not exceed the
    target, in seconds. Only at these bounds it is known which share of the requests was faster.
    """
    return max((bound for bound in BOUNDS if bound <= target), default=target)


class NeededGroups(NamedTuple):
    """The numbers of groups that a demand needs; None if no number is enough."""

    prefill: int | None
    decode: int | None


class DemandEstimate(NamedTuple):
    """The demand, and what a request takes."""

    forecast: arrivals.ArrivalForecast
    age: float
    """Seconds for which the oldest waiting request has waited."""
    extra: float
    """Requests per second by which a backlog has to be served faster than requests arrive."""
    service: float
    """Seconds that a request takes in a prefill group."""
    longest: float
    """The same if the newest prompts are longer than the mean."""
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
        """Return the groups that serve the demand, and that serve a backlog in time."""
        return _need(self, targets, self.most, self.service, self.extra)

    def fewer(self, targets: Targets) -> NeededGroups:
        """Return the groups that would serve a demand that is larger than estimated."""
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
    """Return the demand; None if nothing is known yet about the lengths of requests or the speed of the groups."""
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
    """Prompt for which groups are added."""
    fewer: float
    """Prompt that fewer groups must be able to serve."""
    answer: float


def _mean_request(samples: Sequence[DemandSample], known: Learned) -> _MeanRequest | None:
    """Return the mean lengths of a request; None if they are unknown.

    They are means over all samples. Prompts of the newest windows that are longer count at once against fewer groups, and
    for more groups if the difference is significant: more than `SURPRISE` standard deviations of the windows before. If no
    request was completed, the lengths are those of the last ones, so that a service without requests is not unknown.
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
