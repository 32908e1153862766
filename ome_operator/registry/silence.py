"""Decide whether an engine is silent: it answers no probe, and no number that it reports changes. Pure functions.

A probe is a request to the engine's `/health_generate`, which its scheduler has to answer. An engine is probed only while
there is a reason for it. SGLang renews the times in `/v1/loads` between two steps of its scheduler. Times that stand still
are therefore a reason to probe, but no proof, because a step with a long prompt may take seconds. An engine is never
regarded as silent during a step of less than 11.5 s, which is the sum of `QUIET` and the time of two probes. All times are
seconds of a monotonic clock (docs/telemetry.md).
"""

from enum import Enum
from typing import NamedTuple

QUIET = 6.5
"""Seconds without a sign of life after which the registry probes an engine. The registry reads the load of an engine
every 5 to 6 s."""
PROBE = 2.5
"""Maximum duration of a probe in seconds. An engine that does not work reports an error only after 20 s."""
LATE = 1.0
"""Seconds by which a probe may last longer than `PROBE`. A probe that lasted even longer proves nothing, because this
process itself was stopped or got no CPU time."""
FAILURES = 2
"""Number of consecutive failed probes after which an engine is silent."""
RETRY, RETRY_SILENT = 0.5, 5.0
"""Seconds until an engine is probed again. The time is `RETRY_SILENT` if the engine is silent or paused, or if its answer
was unclear; otherwise `RETRY`."""


UNWATCHED = 15.0
"""Maximum number of seconds between two readings from which the registry concludes something about the time between them.
In a longer gap, the engine may have been paused without any reading that shows it, because an engine reports a pause only
for its first 20 s."""


class ProbeResult(Enum):
    """The result of a probe."""

    ANSWERED = "answered"
    FAILED = "failed"
    PAUSED = "paused"
    """The probe failed, and the engine reports that its generation is paused."""
    UNCLEAR = "unclear"
    """The HTTP server of the engine answered without its scheduler, for example because it is shutting down."""


class LifeSigns(NamedTuple):
    """The signs that one engine still works, and the failed probes since the last such sign."""

    alive_at: float | None = None
    """Last time at which the engine certainly worked. None if this process has not seen it work, because the engine does
    not report the times, or because this process has just started. Such an engine is not probed, and does not count as
    silent."""
    read_at: float | None = None
    """Time at which the last reading of the load began."""
    taken: tuple[float, ...] = ()
    """Time at which each data-parallel rank recorded the numbers of the last reading, by the clock of the engine."""
    failures: int = 0
    """Number of failed probes since the last sign of life."""
    failed_since: float = 0.0
    """Time at which the first of the `failures` failed probes began."""
    probed_at: float | None = None
    """Time at which the last probe ended."""
    retry: float = RETRY
    """Seconds from `probed_at` to the next probe."""
    is_paused: bool = False
    """Whether the generation of the engine is paused, according to the engine."""

    @property
    def is_silent(self) -> bool:
        """Whether the engine is regarded as silent: at least `FAILURES` probes have failed since its last sign of life."""
        return self.failures >= FAILURES


def with_reading(silence: LifeSigns, taken: tuple[float, ...], began: float) -> LifeSigns:
    """Return the updated signs after a reading of the load that began at `began`. `taken` has the meaning of
    `LifeSigns.taken`.

    The engine was alive at the time of the previous reading plus the time by which its own clock has advanced since. Only
    this difference is used, so the engine's clock need not agree with the clock of this process.
    """
    if silence.read_at is not None and began <= silence.read_at:
        return silence  # two readings overlapped, and the later one is known
    before = silence._replace(read_at=began, taken=taken)
    if not taken:
        return before._replace(alive_at=None, failures=0, is_paused=False)
    if silence.read_at is None or began - silence.read_at > UNWATCHED:
        return before._replace(alive_at=None, failures=0, is_paused=False)
    if len(taken) != len(silence.taken):
        return _with_sign_of_life(before, began)
    if taken == silence.taken:
        return before
    advanced = max(new - old for old, new in zip(silence.taken, taken, strict=True))
    is_possible = 0 < advanced <= began - silence.read_at  # otherwise the engine's clock was set, or the engine restarted
    return _with_sign_of_life(before, silence.read_at + advanced if is_possible else began)


def with_progress(silence: LifeSigns, since: float) -> LifeSigns:
    """Return the updated signs after a counter of the engine has increased. `since` is the time of the counter's previous
    reading: the engine was alive at some later time.
    """
    return silence if silence.alive_at is None else _with_sign_of_life(silence, since)


def is_stalled(silence: LifeSigns, now: float) -> bool:
    """Return whether no number of the engine has changed for `QUIET` seconds, although this process has seen the engine
    work.
    """
    return silence.alive_at is not None and now - silence.alive_at >= QUIET


def is_due(silence: LifeSigns, now: float) -> bool:
    """Return whether to probe the engine now: none of its numbers has changed for `QUIET` seconds, and the last probe ended
    at least `silence.retry` seconds ago.
    """
    if not is_stalled(silence, now):
        return False
    return silence.probed_at is None or now - silence.probed_at >= silence.retry


def with_probe_result(silence: LifeSigns, result: ProbeResult, began: float, now: float) -> LifeSigns:
    """Return the updated signs after a probe that began at `began` and ended at `now`."""
    after = silence._replace(probed_at=now, retry=RETRY_SILENT)
    if silence.alive_at is None:
        return after
    if result is ProbeResult.ANSWERED:
        return _with_sign_of_life(after._replace(retry=RETRY), now)
    if result is ProbeResult.UNCLEAR:
        return after._replace(failures=0)
    if result is ProbeResult.PAUSED or silence.is_paused:  # a paused engine reports its pause only for its first 20 s
        return after._replace(failures=0, is_paused=True)
    read_at = began if silence.read_at is None else silence.read_at
    is_certain = 0 <= now - began <= PROBE + LATE and began - silence.alive_at >= QUIET
    if not is_certain or began - QUIET < read_at < now:  # the reading after the probe failed, but earlier ones did not
        return silence._replace(probed_at=now, retry=RETRY)
    failures = silence.failures + 1
    return after._replace(
        failures=failures,
        failed_since=silence.failed_since if silence.failures else began,
        retry=RETRY_SILENT if failures >= FAILURES else RETRY,
    )


def _with_sign_of_life(silence: LifeSigns, at: float) -> LifeSigns:
    """Return the signs of an engine that was alive at the time `at`. Earlier failed probes are discarded."""
    return silence._replace(alive_at=max(at, silence.alive_at or at), failures=0, is_paused=False)
