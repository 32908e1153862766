"""What the registry sees of the end of an engine's start: when its HTTP server answers, when it calls itself healthy, and
when the router lists it. Pure functions; all times are seconds of a monotonic clock (docs/telemetry.md).

A moment counts only if the registry has seen the state before it, so that it is known to the second.
"""

from typing import NamedTuple

from ome_operator.registry.records import LeaderState

STARTING_STATUS = 503
"""Status of an engine whose HTTP server answers, and which is not healthy yet."""
SOON = 60.0
"""Seconds after its first other answer for which a leader is expected to become ready at any time."""
SILENCE = 5.0
"""Seconds without an answer after which an engine is not treated as healthy any more. A single answer may be late."""


class StartSigns(NamedTuple):
    """What was seen of one start. None stands for a moment that is unknown, or has not come."""

    is_starting: bool = False
    """Whether every rank runs, and the leader is not ready yet."""
    started: float = 0.0
    """Time when the leader's main container started, in seconds since the epoch."""
    was_mute: bool = False
    """Whether the server was seen not to answer."""
    was_starting: bool = False
    """Whether the server was seen to answer STARTING_STATUS. A server that was only seen not to answer proves nothing by
    the answer 200: some engines answer 200 before their warm-up."""
    answers_at: float | None = None
    """First time at which the HTTP server answered."""
    healthy_at: float | None = None
    """Time since which the engine calls itself healthy. It stays known when the leader has become ready."""
    mute_since: float | None = None
    """Time of the first request without an answer after the last answer."""
    soon_at: float | None = None
    """First time at which the server answered with another status than STARTING_STATUS."""
    was_unlisted: bool = False
    """Whether the leader was seen not to be in the router's list."""
    listed_at: float | None = None
    """First time at which the leader was in the router's list."""


def passed(signs: StartSigns, leader: LeaderState, now: float) -> StartSigns:
    """Return what is known after a pass. A leader that starts again begins with nothing known."""
    if leader.is_starting and (not signs.is_starting or leader.started != signs.started):
        signs = StartSigns(started=leader.started)
    signs = signs._replace(is_starting=leader.is_starting)
    if not leader.listed:
        return signs._replace(was_unlisted=True)
    return signs._replace(listed_at=now) if signs.was_unlisted and signs.listed_at is None else signs


def answered(signs: StartSigns, status: int | None, now: float) -> StartSigns:
    """Return what is known after a request for the health of an engine that starts. `status` is None without an answer."""
    if not signs.is_starting:
        return signs
    if status is None:
        since = now if signs.mute_since is None else signs.mute_since
        is_silent = signs.healthy_at is None or now - since >= SILENCE
        return signs._replace(was_mute=True, mute_since=since, healthy_at=None if is_silent else signs.healthy_at)
    signs = signs._replace(mute_since=None)
    if signs.was_mute and signs.answers_at is None:
        signs = signs._replace(answers_at=now)
    if status == STARTING_STATUS:
        return signs._replace(was_starting=True, healthy_at=None)
    signs = signs._replace(soon_at=now if signs.soon_at is None else signs.soon_at)
    if status != 200:
        return signs._replace(healthy_at=None)
    if signs.healthy_at is None and (signs.was_mute or signs.was_starting):
        signs = signs._replace(healthy_at=now)
    return signs


def is_due(signs: StartSigns) -> bool:
    """Return whether the next answer of the engine could tell anything new. An engine that proves its health by its answers
    is asked until its leader is ready, because it may lose its health.
    """
    return signs.is_starting and (signs.was_starting or signs.soon_at is None)


def is_expected(signs: StartSigns, now: float) -> bool:
    """Return whether the leader becomes ready soon, so that pods should be listed more often."""
    return signs.is_starting and signs.soon_at is not None and now - signs.soon_at <= SOON


def healthy_for(signs: StartSigns, now: float) -> float | None:
    """Return the seconds since which the engine of a leader that is not ready yet is healthy; None if that is unproven."""
    if not (signs.is_starting and signs.was_starting) or signs.healthy_at is None:
        return None
    return now - signs.healthy_at


def ages(signs: StartSigns, now: float) -> dict[str, float]:
    """Return the seconds since each known moment."""
    moments = {"answersFor": signs.answers_at, "healthyFor": signs.healthy_at, "listedFor": signs.listed_at}
    return {name: now - at for name, at in moments.items() if at is not None}
