"""Looks for what keeps nodes from starting the containers of a service's pods."""

import logging
from collections.abc import Iterable

from ome_operator.controllers.events import EventReader
from ome_operator.controllers.inferenceservice.execution import Result
from ome_operator.controllers.inferenceservice.memory import ServiceMemory, Starting, pause
from ome_operator.core.observed import starts
from ome_operator.core.observed.objects import Pod
from ome_operator.core.reasons import Why
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)


async def inspect(
    failures: EventReader[Why],
    namespace: str,
    pods: Iterable[Pod],
    memory: ServiceMemory,
    result: Result,
    *,
    now: float,
    after: float,
) -> None:
    """Read the events about pods that have waited on their nodes for `after` seconds, less often each time."""
    waiting = frozenset(pod.uid for pod in pods if starts.waits_for_start(pod))
    if not waiting:
        memory.starting = Starting()
        return
    known = memory.starting
    if waiting - known.pods:
        known = Starting(waiting, 0, now + after, known.told)
    if known.at <= now:
        known = known._replace(tries=known.tries + 1, at=now + pause(known.tries + 1))
        try:
            told = await failures.of(namespace)
        except KubeError as error:
            logger.info("cannot read events in %s: %s", namespace, error)
        else:
            found = {uid: told[uid] for uid in sorted(waiting) if uid in told}
            result.status_changed |= found != known.told
            known = known._replace(told=found)
    memory.starting = known._replace(pods=waiting)
    result.requeue_within(known.at - now)
