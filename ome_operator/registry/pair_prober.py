"""While transfers fail, send requests for one token (probes) through pairs of a prefill and a decode leader, in the same way
as the router.

Both engines get a request with the same bootstrap address and bootstrap room. Probes run in tasks of their own, so that they
do not delay the passes of the registry.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ome_operator.names import public_digest
from ome_operator.registry.engine_client import EngineClient
from ome_operator.registry.pairs import (
    FORGET,
    Pair,
    PairResult,
    Pairs,
    PairState,
    failing_pairs,
    faulty_leaders,
    next_pair,
    with_probe_result,
    working_partner,
)
from ome_operator.registry.records import LeaderState
from ome_operator.registry.telemetry import NEW, LeaderMemory

TIMEOUT = 12.0
"""Seconds after which an unanswered probe is late (`PairResult.LATE`). Engines that let a request wait at most 10 s for the
partner engine have reported by then that the transfer failed."""
AT_ONCE = 4
"""Maximum number of probes in progress. At most one begins in each call of `begin`, which is called once a second."""
PAIRS = 32
"""Maximum number of failing pairs in a summary."""
PATH = "/generate"
ROOMS = 2**63
ERROR = 500
"""Status of the response of SGLang if the transfer of a request has failed."""
ROLES = ("prefill", "decode")


class PairProber:
    """Probes the pairs of one slice. `changed` is called when the set `faulty_leaders` changes, whose leaders get no
    requests.
    """

    def __init__(
        self,
        client: EngineClient,
        leaders: Callable[[], Iterable[LeaderState]],
        clock: Callable[[], float] = time.monotonic,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._client, self._leaders, self._clock = client, leaders, clock
        self._on_change = changed
        self._pairs: Pairs = {}
        self._running: dict[Pair, asyncio.Task[None]] = {}
        self.faulty_leaders: frozenset[str] = frozenset()
        """UIDs of the leaders whose transfers fail, so that they should get no requests."""

    def begin(self, memories: Mapping[str, LeaderMemory], router_fails: bool) -> None:
        """Update `faulty_leaders`. Begin a probe of a pair if there are signs that transfers fail. `memories` maps the UID
        of a leader to the stored `LeaderMemory`. `router_fails` is true if the router has answered requests with errors in
        the last minute.
        """
        self._running = {pair: task for pair, task in self._running.items() if not task.done()}
        now, roles = self._clock(), self._roles()
        suspects = frozenset(
            uid for role in roles.values() for uid in role if _reports_failed_transfers(memories.get(uid, NEW))
        )
        is_open = any(state.failures or state.is_failing for state in self._pairs.values() if now - state.probed_at < FORGET)
        if (suspects or router_fails or is_open) and len(self._running) < AT_ONCE:
            pair = next_pair(self._pairs, roles["prefill"], roles["decode"], suspects, self._running, now)
            if pair is not None:
                ends = roles["prefill"][pair[0]], roles["decode"][pair[1]]
                self._running[pair] = asyncio.create_task(self._probe(*ends, memories), name="probe of a pair")
        self._decide(roles, now)

    def end(self) -> None:
        """Cancel the probes in progress."""
        for task in self._running.values():
            task.cancel()

    def summary(self) -> list[dict[str, Any]]:
        """Return the failing pairs for the registry's summary. Each pair has the number of its recent probes, and the number
        of these probes that failed.
        """
        roles, now = self._roles(), self._clock()
        found = failing_pairs(self._pairs, {uid for role in roles.values() for uid in role}, now)
        return [self._describe(pair, state) for pair, state in sorted(found.items())[:PAIRS]]

    def _describe(self, pair: Pair, state: PairState) -> dict[str, Any]:
        others = {f"{role}WorksWith": working_partner(self._pairs, uid) for role, uid in zip(ROLES, pair, strict=True)}
        return {
            **{role: public_digest(uid) for role, uid in zip(ROLES, pair, strict=True)},
            "probes": len(state.recent_failures),
            "failed": sum(state.recent_failures),
            **{name: public_digest(uid) for name, uid in others.items() if uid},
        }

    def _roles(self) -> dict[str, dict[str, LeaderState]]:
        roles: dict[str, dict[str, LeaderState]] = {role: {} for role in ROLES}
        for leader in self._leaders():
            if leader.role in roles and leader.url and (leader.state == "silent" or leader.listed):
                roles[leader.role][leader.uid] = leader
        return roles

    def _decide(self, roles: Mapping[str, Mapping[str, LeaderState]], now: float) -> None:
        blamed = faulty_leaders(self._pairs, roles["prefill"], roles["decode"], now) if self._pairs else frozenset[str]()
        if blamed != self.faulty_leaders:
            self.faulty_leaders = blamed
            self._on_change()

    async def _probe(self, prefill: LeaderState, decode: LeaderState, memories: Mapping[str, LeaderMemory]) -> None:
        began = self._clock()
        body = {
            "text": "1",
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "bootstrap_host": urlsplit(prefill.url).hostname,
            "bootstrap_port": prefill.bootstrap_port,
            "bootstrap_room": secrets.randbelow(ROOMS),
        }
        answers = await _answers([self._client.post(leader.url + PATH, body, TIMEOUT) for leader in (prefill, decode)])
        busy = {leader.uid for leader in (prefill, decode) if _is_busy(memories.get(leader.uid, NEW))}
        self._pairs = with_probe_result(self._pairs, (prefill.uid, decode.uid), _evaluate_answers(answers), busy, began)


async def _answers(requests: Iterable[Coroutine[Any, Any, int | None]]) -> list[int | None]:
    """Send the two requests of a probe, and return the statuses of their responses (`EngineClient.post`). If one engine
    answers that its request has failed, the other request is cancelled and has no status in the result, because the other
    engine may wait for minutes.
    """
    tasks = [asyncio.create_task(request) for request in requests]
    try:
        for answered in asyncio.as_completed(tasks):
            if await answered == ERROR:
                break
    finally:
        for task in tasks:
            task.cancel()
    return [task.result() for task in tasks if task.done() and not task.cancelled()]


def _evaluate_answers(answers: Iterable[int | None]) -> PairResult:
    answers = [*answers]
    if all(status == 200 for status in answers):
        return PairResult.WORKED
    if ERROR in answers:
        return PairResult.FAILED
    return PairResult.LATE if 0 in answers and {*answers} <= {0, 200} else PairResult.UNCLEAR


def _reports_failed_transfers(memory: LeaderMemory) -> bool:
    """Return whether the leader has reported failed transfers in the last minute."""
    name = "failedTransfers"
    return bool(memory.work) and memory.work[-1].counters.get(name, 0.0) > memory.work[0].counters.get(name, 0.0)


def _is_busy(memory: LeaderMemory) -> bool:
    """Return whether the leader is computing requests, or has finished requests between the last two readings of its
    metrics. A request whose transfer failed is not included: it was not computed, although the engine counts it as finished.
    """
    counts = [each.counters.get("requests", 0.0) - each.counters.get("failedTransfers", 0.0) for each in memory.work[-2:]]
    return bool(memory.load.running) or (len(counts) == 2 and counts[1] > counts[0])
