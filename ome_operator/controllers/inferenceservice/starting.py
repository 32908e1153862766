"""Determine why nodes do not start the containers of a service's pods."""

import logging
from collections.abc import Iterable

from ome_operator.controllers.events import EventReader
from ome_operator.controllers.inferenceservice.execution import Result
from ome_operator.controllers.inferenceservice.memory import ServiceMemory, StartingPods, retry_delay
from ome_operator.core.observed import starts
from ome_operator.core.observed.objects import Pod
from ome_operator.core.reasons import ReasonedMessage
from ome_operator.kube.errors import KubeError

logger = logging.getLogger(__name__)


async def read_events(
    failures: EventReader[ReasonedMessage],
    namespace: str,
    pods: Iterable[Pod],
    memory: ServiceMemory,
    result: Result,
    *,
    now: float,
    after: float,
) -> None:
    """Read the Events about pods that have been bound to their nodes for `after` seconds without starting. The pause between
    two reads grows with each read.
    """
    waiting = frozenset(pod.uid for pod in pods if starts.waits_for_start(pod))
    if not waiting:
        memory.starting = StartingPods()
        return
    known = memory.starting
    if waiting - known.pods:
        known = StartingPods(waiting, 0, now + after, known.reasons)
    if known.at <= now:
        known = known._replace(tries=known.tries + 1, at=now + retry_delay(known.tries + 1))
        try:
            reasons = await failures.values_by_uid(namespace)
        except KubeError as error:
            logger.info("cannot read events in %s: %s", namespace, error)
        else:
            found = {uid: reasons[uid] for uid in sorted(waiting) if uid in reasons}
            result.status_changed |= found != known.reasons
            known = known._replace(reasons=found)
    memory.starting = known._replace(pods=waiting)
    result.requeue_within(known.at - now)
