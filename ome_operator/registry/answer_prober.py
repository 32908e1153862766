"""Send a request for one token (a probe) to a leader that has received requests from the router and answers none of them,
and read the leader's load while the probe runs.

Probes run in tasks of their own, so that they do not delay the passes of the registry. The engine does not count probes in
its request metrics.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from ome_operator.registry.answers import (
    PROBE,
    READ_EVERY,
    READ_UNTIL,
    AnswerSigns,
    evaluate_probe,
    is_due,
    with_probe_result,
)
from ome_operator.registry.engine_client import AFTER_PROBE, HEALTHY_PATH, READY_PATH, EngineClient
from ome_operator.registry.engine_load import EngineLoad, for_role
from ome_operator.registry.records import LeaderState
from ome_operator.registry.silence import ProbeResult, is_stalled
from ome_operator.registry.telemetry import LeaderMemory

logger = logging.getLogger(__name__)

AT_ONCE = 16
"""Maximum number of leaders that are probed at the same time."""
PATH = "/generate"
NO_PARTNER = "2.2.2.2"
"""Bootstrap address with which an SGLang engine of a disaggregated service transfers nothing. The engine uses it for its
own health check."""
Learn = Callable[[str, Callable[[AnswerSigns], AnswerSigns]], None]


class AnswerProber:
    """Sends probes to leaders. `learn(uid, change)` replaces the stored `AnswerSigns` of the leader whose pod has the UID
    `uid` by the result of the function `change`.
    """

    def __init__(self, client: EngineClient, learn: Learn, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._learn, self._clock = client, learn, clock
        self.running_probes: dict[str, asyncio.Task[None]] = {}
        """Maps the UID of a leader to its probe that is in progress."""

    def begin(self, leader: LeaderState, memory: LeaderMemory, now: float) -> None:
        """Begin a probe of a leader if a probe is due (`answers.is_due`) at the time `now`. Two kinds of engines are not
        probed here. For an engine that does not report the times of its scheduler's steps, a probe would prove nothing. If
        the reported times no longer advance, the module `silence` decides about the engine.
        """
        self.running_probes = {uid: task for uid, task in self.running_probes.items() if not task.done()}
        is_open = leader.uid in self.running_probes or len(self.running_probes) >= AT_ONCE
        life = memory.silence
        if (
            is_open
            or life.alive_at is None
            or life.failures
            or is_stalled(life, now)
            or not is_due(memory.answer_signs, now)
        ):
            return
        probe = self._probe(leader, memory.answer_signs)
        self.running_probes[leader.uid] = asyncio.create_task(probe, name=f"probe of the answers of {leader.pod}")

    def end(self) -> None:
        """Cancel the probes in progress."""
        for task in self.running_probes.values():
            task.cancel()

    async def _probe(self, leader: LeaderState, before: AnswerSigns) -> None:
        began, loads = self._clock(), list[EngineLoad | None]()
        answer = asyncio.create_task(self._client.post(leader.url + PATH, _body(leader.role), PROBE))
        try:
            while not (await asyncio.wait({answer}, timeout=READ_EVERY))[0]:
                if self._clock() - began > READ_UNTIL:
                    continue
                load = await self._client.load(leader.url, AFTER_PROBE)
                loads.append(None if load is None else for_role(load, leader.role))
            status = await answer
        finally:
            answer.cancel()
        ended, ready, healthy = self._clock(), None, None
        if status == 0:
            paths = READY_PATH, HEALTHY_PATH
            ready, healthy = await asyncio.gather(*(self._client.status(leader.url + path, AFTER_PROBE) for path in paths))
        result = evaluate_probe(before, status, loads, ready, healthy)
        if result is not ProbeResult.ANSWERED:
            seen = [None if load is None else (load.running, load.waiting) for load in loads]
            details = f"status {status}, ready {ready}, healthy {healthy}, and (running, waiting) meanwhile {seen}"
            logger.info("%s was sent a request for one token: %s (%s)", leader.pod, result.value, details)
        self._learn(leader.uid, lambda signs: with_probe_result(signs, result, loads, began, ended))


def _body(role: str) -> dict[str, Any]:
    body = {"input_ids": [0], "sampling_params": {"max_new_tokens": 1, "temperature": 0}, "log_metrics": False}
    return body if role == "regular" else {**body, "bootstrap_host": NO_PARTNER, "bootstrap_room": 0}
