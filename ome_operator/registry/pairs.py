"""Decide which leaders are to blame if prefill and decode engines cannot transfer KV caches to each other. Pure functions.

While transfers fail, the registry sends requests for one token through chosen pairs of a prefill and a decode leader
(docs/telemetry.md, "Pairs"). All times are seconds of a monotonic clock.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from itertools import product
from typing import NamedTuple

FAILURES = 3
"""Minimum number of consecutive failed probes after which a pair is regarded as failing. After the first successful
probe, the pair is regarded as working again."""
RETRY, REPEAT, RETRY_FAILING = 2.0, 10.0, 30.0
"""Minimum number of seconds between two probes of the same pair: `RETRY` after a failed probe, `RETRY_FAILING` after
`CERTAIN` failed probes in a row, and `REPEAT` otherwise. Failing pairs are probed less often, because a decode engine of
SGLang that cannot reach a prefill engine stops for 5 s for each request."""
CERTAIN = 12
"""Number of consecutive failed probes after which a further failed probe proves nothing more."""
FORGET = 120.0
"""Seconds without a probe after which the results of a pair are discarded."""
NEAR = 15.0
"""A failed probe of a pair shows that a leader of the pair is not the cause only if other pairs of this leader worked within
this many seconds both before and after the probe."""
CHANCE = 1e-7
"""Largest probability with which chance may explain a number of consecutive failed probes. If the probability is at most
`CHANCE`, chance does not explain them."""
USUAL = 50
"""One of this many probes is assumed to fail by chance until enough probes of other pairs show another rate."""
SHOWN = 20
"""Maximum number of recent probes of a pair that are kept. Users see the number of these probes, and how many of them
failed."""

Pair = tuple[str, str]
"""UIDs of a prefill and a decode leader."""


class PairResult(Enum):
    """The result of a probe of a pair."""

    WORKED = "worked"
    FAILED = "failed"
    """An engine answered that the transfer, or the request, has failed."""
    LATE = "late"
    """The engines returned no token in time. The cause can be waiting requests or a long step of a scheduler."""
    UNCLEAR = "unclear"
    """An engine did not accept the request, for example because it is starting or its queue is full."""


class PairState(NamedTuple):
    """The results of the probes of one pair of a prefill and a decode leader."""

    probed_at: float
    """Time at which the last probe began."""
    failures: int = 0
    """Number of failed probes since the last successful probe."""
    busy_leaders: frozenset[str] = frozenset()
    """UIDs of the leaders whose load can explain some of the `failures`: a probe was late while the leader was computing
    requests."""
    failed: tuple[float, ...] = ()
    """Times at which the last failed probes began; at most `SHOWN`."""
    unexplained_failures: tuple[float, ...] = ()
    """Times at which the last failed probes began whose failure load cannot explain. Either an engine answered that the
    transfer had failed, or neither leader was computing requests."""
    worked: tuple[float, ...] = ()
    """Times at which the last probes that worked began."""
    is_failing: bool = False
    recent_failures: tuple[bool, ...] = ()
    """Whether each of the last `SHOWN` probes failed, the oldest probe first. Probes with an unclear result are left out."""


Pairs = Mapping[Pair, PairState]


def with_probe_result(pairs: Pairs, pair: Pair, result: PairResult, busy: Collection[str], began: float) -> Pairs:
    """Return the updated results after a probe of `pair` that began at `began`. `busy` contains the UIDs of those leaders of
    the pair that were computing requests, or finished some, during the probe.
    """
    before = pairs.get(pair, PairState(began))
    known = {each: state for each, state in pairs.items() if began - state.probed_at <= FORGET}
    return {**known, pair: _next_state(before if pair in known else PairState(began), result, busy, began)}


def _next_state(state: PairState, result: PairResult, busy: Collection[str], began: float) -> PairState:
    state = state._replace(probed_at=began)
    if result is PairResult.UNCLEAR:
        return state
    failed = result is not PairResult.WORKED
    state = state._replace(recent_failures=(*state.recent_failures, failed)[-SHOWN:])
    if not failed:
        worked = (*state.worked, began)[-SHOWN:]
        return PairState(probed_at=began, worked=worked, recent_failures=state.recent_failures)
    explained = state.busy_leaders.union(busy if result is PairResult.LATE else ())
    failures = state.failures + 1
    is_late = result is PairResult.LATE and bool(busy)
    return state._replace(
        failures=failures,
        failed=(*state.failed, began)[-SHOWN:],
        unexplained_failures=state.unexplained_failures if is_late else (*state.unexplained_failures, began)[-SHOWN:],
        busy_leaders=explained,
        is_failing=failures >= FAILURES,
    )


def failing_pairs(pairs: Pairs, leaders: Collection[str], now: float) -> dict[Pair, PairState]:
    """Return the failing pairs among the leaders with the UIDs `leaders`. A pair is failing if the probability that so many
    of its probes fail in a row by chance is at most `CHANCE`. The probability is estimated from the other pairs of both
    leaders. A probe that was late while a leader computed requests is counted only if load is not the cause
    (`_is_load_excluded`).
    """
    known = _current_pairs(pairs, leaders, now)
    return {pair: state for pair, state in known.items() if state.is_failing and _fails_by_itself(known, pair, state)}


def _fails_by_itself(pairs: Pairs, pair: Pair, state: PairState) -> bool:
    """Return whether neither chance nor load explains the failed probes of a pair."""
    noise = _chance_failure_share(pairs, pair, pair)
    if noise ** len(state.unexplained_failures) <= CHANCE:
        return True
    return noise**state.failures <= CHANCE and _is_load_excluded(pairs, pair, pair)


def _chance_failure_share(pairs: Pairs, leaders: Iterable[str], excluded: Pair) -> float:
    """Return the estimated share of probes that fail by chance. The estimate uses the recent probes of every pair that
    contains one of `leaders`. It also uses `USUAL` assumed probes, of which one fails. The pair `excluded` and failing pairs
    are left out.
    """
    of = frozenset(leaders)
    found = [
        failed
        for pair, state in pairs.items()
        if pair != excluded and not state.is_failing and not of.isdisjoint(pair)
        for failed in state.recent_failures
    ]
    return (sum(found) + 1) / (len(found) + USUAL)


def _is_load_excluded(pairs: Pairs, pair: Pair, partners: Iterable[str]) -> bool:
    """Return whether the load of the two leaders of `pair` does not explain its failed probes. A failed probe is counted for
    a leader only if the leader had successful probes with other partners shortly before and after the failed probe
    (`_count_isolated_failures`). The lowest count of all busy leaders must be improbable for each busy leader, given its
    failed probes with other partners. If `partners` contains only one leader of the pair, this leader is treated like a busy
    leader in the count.
    """
    explained = pairs[pair].busy_leaders
    needed = explained if tuple(partners) == pair else explained.union(partners)
    count = min((_count_isolated_failures(pairs, uid, pair, pairs[pair].failed) for uid in needed), default=0)
    return all(_failure_share_with_others(pairs, uid, pair) ** count <= CHANCE for uid in explained)


def _failure_share_with_others(pairs: Pairs, uid: str, excluded: Pair) -> float:
    """Return the estimated share of probes that failed, over all pairs of the leader `uid` except the pair `excluded`."""
    found = [failed for pair, state in pairs.items() if uid in pair and pair != excluded for failed in state.recent_failures]
    return (sum(found) + 1) / (len(found) + 2)


def _count_isolated_failures(pairs: Pairs, uid: str, excluded: Pair, times: Iterable[float]) -> int:
    """Return how many of the failed probes that began at `times` have successful probes of the leader `uid` with other
    partners at most `NEAR` seconds before and after. Pairs other than `excluded` are considered. The number is 0 if the
    network of the registry itself was interrupted, because no probe succeeds then.
    """
    worked = [at for pair, state in pairs.items() if uid in pair and pair != excluded for at in state.worked]
    return sum(
        any(0 < failed - at <= NEAR for at in worked) and any(0 < at - failed <= NEAR for at in worked) for failed in times
    )


def faulty_leaders(pairs: Pairs, prefill: Collection[str], decode: Collection[str], now: float) -> frozenset[str]:
    """Return the UIDs of the leaders that should get no requests.

    A leader is to blame if every partner with which it fails works with other leaders. If this is true of several leaders,
    the leader that fails with the largest share of its partners is blamed first. If the shares are equal, the leader whose
    role has more leaders is blamed first. The remaining leaders are then judged without the pairs of the blamed leader. A
    leader is blamed only while another leader of its role works.
    """
    found: set[str] = set()
    roles = {uid: frozenset(role) for role in (prefill, decode) for uid in role}
    while True:
        known = _current_pairs(pairs, roles.keys() - found, now)
        certain = failing_pairs(known, roles.keys() - found, now)
        bad = {uid: [pair for pair in certain if uid in pair] for uid in sorted(roles.keys() - found)}
        suspects = [
            (len(failed) / sum(uid in pair for pair in known), len(roles[uid]), uid)
            for uid, failed in bad.items()
            if failed
            and all(_is_cause(known, uid, pair) for pair in failed)
            and any(_has_working_partner(known, beside) for beside in roles[uid] - found - {uid})
        ]
        if not suspects:
            return frozenset(found)
        found.add(max(suspects)[2])


def _is_cause(pairs: Pairs, uid: str, pair: Pair) -> bool:
    """Return whether the leader `uid` causes the failures of the failing pair `pair`. The leader is the cause if its partner
    works with other leaders at the same time, so that neither the partner, nor chance, nor load explains the failures.
    """
    other, state = _partner_of(pair, uid), pairs[pair]
    noise = _chance_failure_share(pairs, (other,), pair)
    if noise ** _count_isolated_failures(pairs, other, pair, state.unexplained_failures) <= CHANCE:
        return True
    return noise ** _count_isolated_failures(pairs, other, pair, state.failed) <= CHANCE and _is_load_excluded(
        pairs, pair, (other,)
    )


def _current_pairs(pairs: Pairs, leaders: Collection[str], now: float) -> dict[Pair, PairState]:
    return {
        pair: state
        for pair, state in pairs.items()
        if pair[0] in leaders and pair[1] in leaders and now - state.probed_at <= FORGET
    }


def _partner_of(pair: Pair, uid: str) -> str:
    return pair[1] if pair[0] == uid else pair[0]


def _has_working_partner(pairs: Pairs, uid: str) -> bool:
    """Return whether the leader `uid` has a partner with which its last probe worked."""
    return any(uid in pair and _is_working(state) for pair, state in pairs.items())


def _is_working(state: PairState) -> bool:
    return not state.failures and not state.is_failing and bool(state.worked)


def working_partner(pairs: Pairs, uid: str) -> str:
    """Return the UID of a leader whose last probe with the leader `uid` worked; "" if there is none."""
    return next((_partner_of(pair, uid) for pair in sorted(pairs) if uid in pair and _is_working(pairs[pair])), "")


def next_pair(
    pairs: Pairs,
    prefill: Iterable[str],
    decode: Iterable[str],
    suspects: frozenset[str],
    running: Collection[Pair],
    now: float,
) -> Pair | None:
    """Return the pair to probe now; None if no probe of a pair is due. `suspects` are the UIDs of leaders that report failed
    transfers. `running` are the pairs whose probes have not ended.

    The pair that has waited longest since its last probe is chosen. For the comparison, the waiting time of a pair whose
    last probe failed is multiplied by 4. The waiting time of any other pair with a suspect is multiplied by 2.
    """

    def urgency(pair: Pair) -> float:
        state = pairs.get(pair)
        if state is None:
            return FORGET * (2 if not suspects.isdisjoint(pair) else 1)
        waited = now - state.probed_at
        if waited < (REPEAT if not state.failures else RETRY if state.failures < CERTAIN else RETRY_FAILING):
            return 0.0
        return waited * (4 if state.failures else 2 if not suspects.isdisjoint(pair) else 1)

    candidates = [pair for pair in product(sorted(prefill), sorted(decode)) if pair not in running]
    best = max(candidates, key=urgency, default=None)
    return best if best is not None and urgency(best) > 0 else None
