"""Decide whether an engine whose scheduler still works has stopped returning tokens, for example because its detokenizer has
stopped. Pure functions.

Such an engine still renews the times in `/v1/loads`, and while requests run, its scheduler itself answers
`/health_generate`. Neither page therefore shows the fault, and the registry sends the engine a request for one token (a
probe). A late response alone proves nothing, because the probe may wait behind other requests. But a request for one token
ends in the step that computes its prompt. So the engine has stopped returning tokens if its scheduler has reported several
times during the probe that no request waits. All times are seconds of a monotonic clock (docs/telemetry.md).
"""

from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from ome_operator.registry.engine_load import EngineLoad
from ome_operator.registry.silence import FAILURES, LATE, RETRY, RETRY_SILENT, ProbeResult

QUIET = 4.0
"""Seconds without an answer to the router after which the registry probes an engine that has requests. The registry reads
the router every 2 s."""
PROBE = 4.5
"""Maximum duration of a probe in seconds."""
READ_EVERY, READ_UNTIL = 0.5, 3.3
"""Two times in seconds: between two readings of the load during a probe, and from the start of a probe until no further
reading begins. The first reading begins after `READ_EVERY`, when the request has arrived in the scheduler. After the last
reading, the other processes of the engine have a second to return the token."""
RENEWALS = 3
"""Number of times that the scheduler has to report, after the first reading during a probe, that no request waits. The
reports come from three steps: the step during which the request arrived, the step that computed the request, and the next
step. The third one is needed because SGLang processes the result of a step while it computes the next step."""
RENEWALS_EMPTY = 2
"""Number of times that the scheduler has to report its numbers after the first reading during a probe, if its last report
says that the engine has no request. The reports come from two steps: from the step during which the request arrived, and
from a later step. An idle engine may report only once a second."""
STALE = 20.0
"""Maximum number of seconds between two probes, each of which proves that an engine is silent (answers no request), if
both probes are to belong to the same period of silence."""
RETRY_UNCLEAR = 2.0
"""Seconds until the next probe after a probe with an unclear result, if the load was read during the probe."""


class RouterCounts(NamedTuple):
    """The numbers of requests that the router reports for one worker."""

    active: float = 0.0
    """Number of requests that the router has sent to the worker, and that have not ended."""
    succeeded: float = 0.0
    """Number of requests that the worker has answered since the router started."""


class AnswerSigns(NamedTuple):
    """What the registry knows about whether one engine answers its requests."""

    succeeded: float | None = None
    """`RouterCounts.succeeded` in the last reading; None before the first reading."""
    read_at: float = 0.0
    """Time of the last reading of the router."""
    waits_since: float | None = None
    """Time since which the router has had requests in the engine that the engine has not answered; None if the router has
    no requests in the engine."""
    failures: int = 0
    """Number of failed probes since the last answer."""
    failed_since: float | None = None
    """Time at which the first probe of the current series of failed probes began; None if the last probe did not fail."""
    proven_since: float | None = None
    """Time since which the engine is known to be silent; None if no probe since the last answer proved its silence
    (`proves_silence`). After a single proof, the value is the time at which that probe began. After `FAILURES` consecutive
    proofs, the value is `failed_since`."""
    proven_at: float = 0.0
    """End of the last probe that proved that the engine is silent."""
    proofs: int = 0
    """Number of consecutive probes, up to the last probe, that proved that the engine is silent. 0 if the last probe did
    not."""
    probed_at: float | None = None
    """Time at which the last probe ended."""
    retry: float = RETRY
    """Seconds from `probed_at` to the next probe."""

    @property
    def returns_no_token(self) -> bool:
        """Whether the engine returns no token although its scheduler works."""
        return self.failures >= FAILURES

    @property
    def is_proven(self) -> bool:
        """Whether the last probe proved that the engine is silent."""
        return self.proofs > 0


def with_router_counts(signs: AnswerSigns, counts: RouterCounts, now: float) -> AnswerSigns:
    """Return the updated signs of an engine after a reading of the router's metrics; `counts` are the router's numbers for
    this engine.
    """
    before = signs.succeeded
    read = signs._replace(succeeded=counts.succeeded, read_at=now)
    if before is not None and counts.succeeded != before:  # it answered at some time after the previous reading
        return _with_answer(read, signs.read_at)._replace(waits_since=signs.read_at if counts.active else None)
    if not counts.active:
        return read._replace(waits_since=None)
    return read if read.waits_since is not None else read._replace(waits_since=now)


def is_due(signs: AnswerSigns, now: float) -> bool:
    """Return whether to probe the engine now. There are two reasons for a probe: a probe has failed since the engine's last
    answer, or the router has waited for an answer for `QUIET` seconds. In both cases, the last probe must have ended at
    least `signs.retry` seconds ago.
    """
    if not signs.failures and (signs.waits_since is None or now - signs.waits_since < QUIET):
        return False
    return signs.probed_at is None or now - signs.probed_at >= signs.retry


def evaluate_probe(
    signs: AnswerSigns, status: int | None, loads: Sequence[EngineLoad | None], ready: int | None, healthy: int | None
) -> ProbeResult:
    """Return the result of a probe. `status` is the HTTP status of the response, 0 if no response came in time, and None if
    the connection failed. `loads` are the readings of the load during the probe; a failed reading is None. `ready` and
    `healthy` are the HTTP statuses of `/ready` and `/ping` after the probe; None if there is no status.

    An engine that has been paused for some time reports that it is neither ready nor healthy, and so does an engine that
    returns no token. So the first failed probe is a failure only if the engine still reports that it is ready.
    """
    if status != 0:
        return ProbeResult.ANSWERED if status == 200 else ProbeResult.UNCLEAR
    if (ready, healthy) == (503, 200):
        return ProbeResult.PAUSED
    was_ready = ready == 200 or (signs.failures > 0 and (ready, healthy) == (503, 503))
    is_computed = _renewals(_without_queue(loads)) >= RENEWALS or _is_emptied(loads)
    return ProbeResult.FAILED if was_ready and is_computed else ProbeResult.UNCLEAR


def with_probe_result(
    signs: AnswerSigns, result: ProbeResult, loads: Sequence[EngineLoad | None], began: float, now: float
) -> AnswerSigns:
    """Return the updated signs after a probe that began at `began` and ended at `now`. `loads` are the readings of the load
    during the probe.
    """
    after = signs._replace(probed_at=now, retry=RETRY_SILENT)
    if result is ProbeResult.ANSWERED:
        return _with_answer(after._replace(retry=RETRY), now)
    if result is ProbeResult.PAUSED:
        return _with_answer(after, now)
    if result is ProbeResult.UNCLEAR or not 0 <= now - began <= PROBE + LATE:
        return after._replace(failed_since=None, proofs=0, retry=RETRY_UNCLEAR if loads else RETRY_SILENT)
    failures, proofs = signs.failures + 1, signs.proofs + 1 if proves_silence(loads) else 0
    failed_since = began if signs.failed_since is None else signs.failed_since
    failed = after._replace(failures=failures, failed_since=failed_since, proofs=proofs)
    if not proofs:
        return failed._replace(retry=RETRY)
    goes_on = signs.proven_since is not None and began - signs.proven_at <= STALE
    return failed._replace(
        proven_since=failed_since if proofs >= FAILURES else signs.proven_since if goes_on else began,
        proven_at=now,
        retry=RETRY_SILENT if min(failures, proofs) >= FAILURES else RETRY,
    )


def proves_silence(loads: Sequence[EngineLoad | None]) -> bool:
    """Return whether a failed probe with these readings of the load proves that the engine does not answer requests that
    reach its scheduler.

    Before SGLang replaces its weights, it keeps new requests out of its scheduler until the running requests have ended. So
    the readings must show one of two facts. Either the scheduler had no request at the first reading, and none at a later
    reading. Or the number of running requests grew between two readings, which shows that a new request reached the
    scheduler, and no request has waited since.
    """
    known = [load for load in loads if load is not None]
    running = [load.running or 0.0 for load in _without_queue(loads)]
    has_arrived = any(new > old for old, new in pairwise(running))
    return has_arrived or (bool(known) and known[0].is_empty and _is_emptied(known))


def _is_emptied(loads: Sequence[EngineLoad | None]) -> bool:
    """Return whether any reading shows no request, and the scheduler has renewed its numbers at least `RENEWALS_EMPTY` times
    from the first reading to this one.
    """
    known = [load for load in loads if load is not None]
    return any(load.is_empty and _renewals(known[: end + 1]) >= RENEWALS_EMPTY for end, load in enumerate(known))


def _renewals(loads: Sequence[EngineLoad]) -> int:
    """Return how many times the engine has renewed its numbers in these readings: the lowest count of all ranks, and 0 if
    the number of ranks changes.
    """
    if len({len(load.taken) for load in loads}) != 1:
        return 0
    ranks = zip(*(load.taken for load in loads), strict=True)
    return min((sum(int(new != old) for old, new in pairwise(times)) for times in ranks), default=0)


def _without_queue(loads: Sequence[EngineLoad | None]) -> list[EngineLoad]:
    """Return the readings after the last reading that shows a waiting request. Failed readings are left out."""
    known = [load for load in loads if load is not None]
    count = len(known[-1].taken) if known else 0
    return [*takewhile(lambda load: load.waiting == 0 and len(load.taken) == count, reversed(known))][::-1]


def _with_answer(signs: AnswerSigns, at: float) -> AnswerSigns:
    """Return the signs of an engine that has answered a request at the time `at` or later."""
    waits = None if signs.waits_since is None else max(at, signs.waits_since)
    return signs._replace(waits_since=waits, failures=0, failed_since=None, proven_since=None, proofs=0)
