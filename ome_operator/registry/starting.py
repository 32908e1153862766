"""Record four events of the start of an engine: its first HTTP response, its first report that it is healthy, its addition
to the router's list, and the first request that the router counts as answered by it. Pure functions; all times are seconds
of a monotonic clock (docs/telemetry.md).

The time of an event is recorded only if the registry has also seen the state before the event, so that the time is exact to
the second.
"""

from typing import NamedTuple

from ome_operator.registry.records import LeaderState

STARTING_STATUS = 503
"""Status of an engine whose HTTP server answers, and which is not healthy yet."""
SOON = 60.0
"""Seconds after a leader's first answer with a status other than STARTING_STATUS, during which the leader is expected to
become ready at any time."""
READ_WITHIN = 5.0
"""Maximum number of seconds between two readings of the router's metrics for which the time of a change between them
counts as known. The router is read every 2 s."""
SILENCE = 5.0
"""Seconds without an answer after which an engine does not count as healthy any more. The time allows for a single late
answer."""


class StartSigns(NamedTuple):
    """What the registry has observed of one start of an engine. A time is None if it is unknown, or has not come yet."""

    is_starting: bool = False
    """Whether every rank runs, and the leader is not ready yet."""
    started_at: float = 0.0
    """Time when the leader's main container started, in seconds since the epoch."""
    was_unresponsive: bool = False
    """Whether the registry has seen that the HTTP server did not answer."""
    was_starting: bool = False
    """Whether the HTTP server has answered STARTING_STATUS. If it has not, a later answer 200 does not prove that the engine
    is healthy, because some engines answer 200 before their warm-up."""
    first_answer_at: float | None = None
    """First time at which the HTTP server answered."""
    healthy_at: float | None = None
    """Time since which the engine has reported that it is healthy. The time is kept when the leader has become ready."""
    unresponsive_since: float | None = None
    """Time of the first unanswered request since the last answer; None if the last request was answered."""
    ready_soon_at: float | None = None
    """First time at which the server answered with another status than STARTING_STATUS."""
    was_unlisted: bool = False
    """Whether the registry has seen the leader missing in the router's list."""
    listed_at: float | None = None
    """First time at which the leader was in the router's list."""
    succeeded: float | None = None
    """`RouterCounts.succeeded` in the last reading before the router listed the leader. None if this number is unknown,
    for example because the router has restarted since."""
    succeeded_at: float | None = None
    """Time of the first reading in which the router had counted a further request that the leader had answered."""


def with_leader_state(signs: StartSigns, leader: LeaderState, now: float, succeeded: float | None = None) -> StartSigns:
    """Return the updated signs after a pass of the registry. If the leader is starting again, all earlier signs are
    discarded. `succeeded` is `RouterCounts.succeeded` of the last reading; None before the first one.
    """
    if leader.is_starting and (not signs.is_starting or leader.started != signs.started_at):
        signs = StartSigns(started_at=leader.started)
    signs = signs._replace(is_starting=leader.is_starting)
    if not leader.listed:
        known = succeeded if signs.listed_at is None else signs.succeeded
        return signs._replace(was_unlisted=True, succeeded=known)
    return signs._replace(listed_at=now) if signs.was_unlisted and signs.listed_at is None else signs


def with_router_count(signs: StartSigns, succeeded: float, now: float, before: float) -> StartSigns:
    """Return the updated signs after a reading of the router's metrics at the time `now`. `succeeded` is
    `RouterCounts.succeeded` of this reading, and `before` is the time of the previous reading.
    """
    if signs.succeeded is None or signs.succeeded_at is not None or succeeded == signs.succeeded:
        return signs
    if succeeded < signs.succeeded or now - before > READ_WITHIN:  # the router has restarted, or the time is not known
        return signs._replace(succeeded=None)
    return signs._replace(succeeded_at=now)


def with_health_answer(signs: StartSigns, status: int | None, now: float) -> StartSigns:
    """Return the updated signs after a request for the health of an engine that is starting. `status` is the HTTP status of
    the response; None if no response came.
    """
    if not signs.is_starting:
        return signs
    if status is None:
        since = now if signs.unresponsive_since is None else signs.unresponsive_since
        is_silent = signs.healthy_at is None or now - since >= SILENCE
        return signs._replace(
            was_unresponsive=True, unresponsive_since=since, healthy_at=None if is_silent else signs.healthy_at
        )
    signs = signs._replace(unresponsive_since=None)
    if signs.was_unresponsive and signs.first_answer_at is None:
        signs = signs._replace(first_answer_at=now)
    if status == STARTING_STATUS:
        return signs._replace(was_starting=True, healthy_at=None)
    signs = signs._replace(ready_soon_at=now if signs.ready_soon_at is None else signs.ready_soon_at)
    if status != 200:
        return signs._replace(healthy_at=None)
    if signs.healthy_at is None and (signs.was_unresponsive or signs.was_starting):
        signs = signs._replace(healthy_at=now)
    return signs


def is_due(signs: StartSigns) -> bool:
    """Return whether to request the engine's health again. If the engine has answered STARTING_STATUS at any time, a later
    answer proves that it is healthy. The requests then continue until its leader is ready, because the engine may become
    unhealthy again. Otherwise the requests end with the first answer.
    """
    return signs.is_starting and (signs.was_starting or signs.ready_soon_at is None)


def is_expected(signs: StartSigns, now: float) -> bool:
    """Return whether the leader will probably become ready soon, so that pods should be listed more often."""
    return signs.is_starting and signs.ready_soon_at is not None and now - signs.ready_soon_at <= SOON


def healthy_seconds(signs: StartSigns, now: float) -> float | None:
    """Return the number of seconds for which an engine has been healthy whose leader is not ready yet. Return None if it is
    not proven that the engine is healthy.
    """
    if not (signs.is_starting and signs.was_starting) or signs.healthy_at is None:
        return None
    return now - signs.healthy_at


def event_ages(signs: StartSigns, now: float) -> dict[str, float]:
    """Return a mapping from each event of the start to the number of seconds that have passed since the event. Events whose
    time is unknown are left out.
    """
    moments = {
        "answersFor": signs.first_answer_at,
        "healthyFor": signs.healthy_at,
        "listedFor": signs.listed_at,
        "succeededFor": signs.succeeded_at,
    }
    return {name: now - at for name, at in moments.items() if at is not None}
