"""The load that an engine reports. Pure functions. A number that is unknown is None, and is never 0 (docs/telemetry.md)."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from ome_operator.registry.exposition import EnginePage, capped_sum, parse_number
from ome_operator.util.untrusted_json import PARSE_ERRORS


class EngineLoad(NamedTuple):
    """The numbers of requests and tokens in an engine at one time."""

    running: float | None = None
    """Number of requests that are being computed."""
    waiting: float | None = None
    """Number of requests in any queue in front of the computation, including requests for transfers that have not begun."""
    in_transfer: float | None = None
    """Number of requests whose KV cache a prefill engine is still transferring to decode engines."""
    cache_use: float | None = None
    """Used share of the KV cache, from 0 to 1."""
    locked: float | None = None
    """Number of tokens in the KV cache that are in use by requests."""
    taken: tuple[float, ...] = ()
    """Time at which each data-parallel rank recorded these numbers, by the clock of the engine. () if the engine does not
    report the times."""

    @property
    def is_provable(self) -> bool:
        """Whether the engine reports all numbers and times that are needed to prove that it has no request."""
        return None not in (*self[:3], self.locked) and bool(self.taken)

    @property
    def is_empty(self) -> bool:
        """Whether the engine had no request when the numbers were recorded. False if any of the numbers is unknown."""
        return self[:3] == (0, 0, 0) and self.locked == 0

    @property
    def total(self) -> int | None:
        """Number of requests in the engine, without the numbers that are unknown; None if `running` is unknown."""
        known = [part for part in self[:3] if part is not None]
        return int(sum(known)) if self.running is not None else None


UNKNOWN = EngineLoad()


def load_from_metrics(page: EnginePage) -> EngineLoad:
    """Return the load that an engine reports on its metrics page. The result is equal to `UNKNOWN` if the page does not
    contain the load.
    """
    found = page.gauges
    return EngineLoad(found.get("running"), found.get("waiting"), None, found.get("cacheUse"))


def for_role(load: EngineLoad, role: str) -> EngineLoad:
    """Return the load of a leader, completed for its role (`RoleSpec.worker_type`). If the engine does not report the number
    of transfers, this number is unknown for a prefill leader and 0 for every other leader. The reason is that only a prefill
    engine keeps a request after its computation, until the KV cache is transferred.
    """
    return load._replace(in_transfer=0.0) if role != "prefill" and load.in_transfer is None else load


def parse_loads(body: Any) -> EngineLoad | None:
    """Parse an engine's report of its load: SGLang's `/v1/loads`, or `/get_load` of older versions. Return None for any
    other body.

    In `/get_load`, the number of requests includes the waiting requests, and the transfers of a prefill engine are
    missing.
    """
    try:
        if isinstance(body, list):
            return EngineLoad(_sum(item["num_reqs"] for item in body), 0.0) if body else None
        ranks = body["loads"]
        if not isinstance(ranks, list) or not ranks:
            return None
        apart = [rank.get("disaggregation") or {} for rank in ranks]
        shares = [share for rank in ranks if (share := parse_number(rank.get("token_usage"))) is not None]
        return EngineLoad(
            _sum(rank["num_running_reqs"] for rank in ranks),
            _sum(rank["num_waiting_reqs"] for rank in ranks),
            _sum(part.get("prefill_inflight_queue_reqs", 0) for part in apart) if all(apart) else None,
            max(shares) if shares else None,
            _sum(rank["num_used_tokens"] for rank in ranks) if all("num_used_tokens" in rank for rank in ranks) else None,
            tuple(at for rank in ranks if (at := parse_number(rank.get("timestamp"))) is not None),
        )
    except PARSE_ERRORS:
        return None


def _sum(values: Iterable[Any]) -> float:
    """Return the sum of the values. Raises ValueError if a value is not a valid number."""
    total = 0.0
    for value in values:
        found = parse_number(value)
        if found is None or isinstance(value, str):
            raise ValueError("it is not a number")
        total = capped_sum(total, found)
    return total
